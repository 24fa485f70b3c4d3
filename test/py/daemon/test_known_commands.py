"""Several hundred command lines, which print the same as those of Debian's Ganeti 3.0.

Each line of ``test/data/known_commands.txt`` runs as our client and as Debian's,
unmodified, on the same cluster. Exit codes, output and error output are compared byte by
byte, but for times, UUIDs, MAC addresses and job numbers. Lines whose error texts are our
own are not in the file.
"""

import pathlib
import re
import shlex

import pytest

from fakes import peers

pytestmark = [pytest.mark.daemon, pytest.mark.long]
FILE = pathlib.Path(__file__).parents[2] / "data" / "known_commands.txt"
#: Release 3.0 checks the names of new instances unless an option disables it.
UNCHECKED = "--no-name-check --no-ip-check"


def sections():
    """Return name of section -> its command lines."""
    parts = re.split(r"^# (\w+)\n", FILE.read_text(), flags=re.MULTILINE)[1:]
    return {
        name: text.strip().splitlines()
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


@pytest.fixture(scope="module")
def cluster(cluster_of):
    peers.require()
    return cluster_of(3)


@pytest.mark.parametrize("name", sections())
def test_known_commands_do_and_print_the_same(cluster, name):
    lines = sections()[name]
    ours = [shlex.split(line.replace("UNCHECKED", "")) for line in lines]
    theirs = [shlex.split(line.replace("UNCHECKED", UNCHECKED)) for line in lines]
    mine, _jobs = peers.transcript(cluster, ours, tuple)
    known, _jobs = peers.transcript(cluster, theirs, lambda argv: peers.command(*argv))
    different = [
        (line, left[1:], right[1:])
        for line, left, right in zip(lines, mine, known, strict=True)
        if left[1:] != right[1:]
    ]
    assert different == []
