"""Machines of the lab for tests; they stay up between tests.

`machines` is the lab of a whole session: three machines, each with two disks without
content, network whole, in no cluster. Leave it as you find it. The fourth machine is off.

Without a lab in build/lab, the session makes one and removes it, unless with LAB_KEEP=1.
"""

import os

import pytest

from fakes import selection
from lab import lab as labs
from lab import product

COUNT = 3
#: Machines that a test may start besides.
SPARES = 1
#: The master of three nodes needs more than the default.
MEMORY_MIB = 900
#: Clients that do all of their work on the machine itself, or reach others over SSH.
LOCAL = {
    ("gnt-cluster", "--version"), ("gnt-cluster", "init"), ("gnt-cluster", "destroy"),
    ("gnt-cluster", "renew-crypto"), ("gnt-cluster", "master-failover"),
    ("gnt-node", "add"),
}  # fmt: skip


def pytest_addoption(parser):
    selection.add_options(parser)


def pytest_collection_modifyitems(config, items):
    selection.leave_out(config, items)
    # The others leave machines that have to be started again.
    items.sort(
        key=lambda item: item.path.name not in {"test_machines.py", "test_nics.py"}
    )


def pytest_terminal_summary(terminalreporter, config):
    selection.say_what_is_left_out(terminalreporter, config)


def _has_lab():
    return (labs.DIRECTORY / "lab.json").exists()


@pytest.fixture(scope="session")
def lab():
    """The lab, with the present state of this tree on its machines."""
    if os.getuid() != 0:
        pytest.skip("the network of the machines needs root")
    was_up = _has_lab()
    if was_up:
        made = labs.Lab()
        if product.install():
            for machine in made.machines:
                made.power(machine.name, "off")
        made.join()
    else:
        made = labs.up(count=COUNT + SPARES, started=COUNT, memory_mib=MEMORY_MIB)
    yield made
    if not was_up and os.environ.get("LAB_KEEP") != "1":
        made.down()


class Machines:
    """The steps of tests on the machines."""

    def __init__(self, made):
        self.lab = made
        self.names = [machine.name for machine in made.machines]

    def run(self, *argv, node="lab1", **more):
        """Run a command on a machine, or a client for its master daemon.

        Returns:
            the finished process.
        """
        is_client = argv[0].startswith("gnt-") and argv[:2] not in LOCAL
        run = self.lab.ask if is_client else self.lab.run
        return run(node, *argv, **more)

    def check(self, *argv, node="lab1", **more):
        """Run a command that must succeed; return its output."""
        done = self.run(*argv, node=node, **more)
        text = done.stdout + done.stderr
        assert done.returncode == 0, f"{' '.join(argv)}: {done.returncode}\n{text}"
        return done.stdout

    def refuse(self, *argv, node="lab1", **more):
        """Run a command that must fail without a traceback; return its messages."""
        done = self.run(*argv, node=node, **more)
        text = done.stdout + done.stderr
        assert done.returncode != 0, f"{' '.join(argv)} succeeded:\n{text}"
        assert "Traceback" not in text, text
        return text


@pytest.fixture
def first_machine(lab):
    """The first machine alone; the others may be off."""
    lab.start(lab.machines[:1])
    return Machines(lab)


@pytest.fixture
def machines(lab):
    """The machines; afterwards all have a whole network and healthy disks."""
    lab.start(lab.machines[:COUNT])
    yield Machines(lab)
    lab.join()
    for entry in list(lab.record["failed_disks"]):
        lab.fail_disk(entry["machine"], entry["disk"], [])


@pytest.fixture(scope="module")
def kept_machines(lab):
    """The machines, for a cluster that all tests of a file use."""
    lab.start(lab.machines[:COUNT])
    yield Machines(lab)
    lab.join()
