"""Configurations of guests, read by the program of Xen on a machine below Xen."""

import pathlib

import pytest

from lab import lab as labs
from lab.product import STORED
from lab.scenarios.conftest import Machines

PROGRAM = pathlib.Path(__file__).with_name("xen_inside.py")
PYTHON = "/usr/lib/ganeti/venv/bin/python"
MEMORY_MIB = 1400

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def machine():
    """A machine below Xen, in a lab of its own."""
    made = labs.up(
        STORED / "below-xen", count=1, memory_mib=MEMORY_MIB, disks=1, xen=True
    )
    try:
        yield Machines(made)
    finally:
        made.down()


def test_xl_understands_the_configuration_of_full_virtualisation(machine):
    library = machine.check(
        "sed",
        "-n",
        's/^sys.path.insert(0, "\\(.*\\)")$/\\1/p',
        "/usr/sbin/ganeti-noded",
    ).strip()
    done = machine.run(
        *("env", f"PYTHONPATH={library}", PYTHON, "-"), stdin=PROGRAM.read_text()
    )
    assert done.stdout.endswith("all good\n"), done.stdout + done.stderr
