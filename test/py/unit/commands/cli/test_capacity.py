"""``gnt-cluster capacity``: what is asked and how the answer reads."""

import json

from fakes import commands
from fakes.luxi_master import FakeMaster

SIZE = {"memory": 512, "disk": 1024, "vcpus": 1, "spindles": 1}
REASON = {
    "role": "primary",
    "kind": "FailMem",
    "check": "free memory",
    "relation": "more than",
    "wanted": 512.0,
    "found": 200.0,
    "unit": "MiB",
}
RESULT = {
    "disk_template": "drbd",
    "tiered": True,
    "groups": ["rack"],
    "sizes": [SIZE],
    "count": 3,
    "instances": [
        {"name": "new-0", "nodes": ["a", "b"], **SIZE},
        {"name": "new-1", "nodes": ["b", "a"], **SIZE},
        {"name": "new-2", "nodes": ["b", "a"], **SIZE, "memory": 256},
    ],
    "stopped": {
        "why": "full",
        "size": SIZE,
        "failures": {"FailMem": 2, "FailN1": 1},
        "reasons": [{"node": "a", **REASON}, {"node": "b", **REASON}],
    },
}
SHORT = """\
3 more instances fit in rack, with disk template drbd:
     2 of 512 MiB memory, 1024 MiB disk, 1 vcpus
     1 of 256 MiB memory, 1024 MiB disk, 1 vcpus
The next instance is refused for memory (2), room for failovers (1)
"""
LONG = """\
new-0: a, b
new-1: b, a
new-2: b, a
The next instance is refused for memory (2), room for failovers (1)
  a, b: free memory: wanted more than 512 MiB, found 200 MiB
"""


class Master(FakeMaster):
    """Answers with the same capacity, and keeps what it was asked."""

    def __init__(self, **changes):
        super().__init__()
        self.answer = RESULT | changes
        self.asked = None

    def _QueryCapacity(self, wanted):
        self.asked = wanted
        return self.answer


def test_counts_are_printed() -> None:
    master = Master()
    line = "gnt-cluster capacity -t drbd --memory 1g --vcpus 2 --tiered -g rack -l 7"
    actual = commands.run(line, master)
    assert (actual.code, actual.out, actual.err) == (0, SHORT, "")
    assert master.asked == {
        "disk_template": "drbd",
        "memory": 1024,
        "disk": None,
        "vcpus": 2,
        "tiered": True,
        "groups": ["rack"],
        "limit": 7,
        "allocator": None,
    }


def test_places_and_reasons_are_explained() -> None:
    actual = commands.run("gnt-cluster capacity --explain", Master())
    assert actual.out.endswith(LONG)


def test_nothing_fits() -> None:
    stopped = {"why": "unsafe", "failures": {"FailN1": 1}, "size": SIZE, "reasons": []}
    master = Master(count=0, instances=[], groups=None, stopped=stopped)
    actual = commands.run("gnt-cluster capacity", master)
    assert actual.code == 0
    first, second, why = actual.out.splitlines()
    assert first == "0 more instances fit, with disk template drbd:"
    assert second == "     0 of 512 MiB memory, 1024 MiB disk, 1 vcpus"
    assert why.startswith(
        "Nodes already lack capacity for failovers, so no instance is placed"
    )


def test_a_document_has_reasons_when_asked_for() -> None:
    actual = commands.run("gnt-cluster capacity --json --explain", Master())
    assert json.loads(actual.out) == RESULT
    actual = commands.run("gnt-cluster capacity --json", Master())
    assert "stopped" not in json.loads(actual.out)
