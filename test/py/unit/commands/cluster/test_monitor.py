"""``gnt-cluster monitor``: text, JSON, kinds, lost events, the end."""

import json
import time

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base.constants.protocols.events import Kind

NOW = 1_700_000_000.0


def event(kind, name, change, object_="node", **details):
    return {
        "position": "3.5.1",
        "revision": 5,
        "time": NOW,
        "kind": kind,
        "object": object_,
        "name": name,
        "uuid": "",
        "change": change,
        "details": details,
    }


EVENTS = [
    event("object", "web1", "changed", "instance", serial_no=2),
    event("job", "7", "running", "job", summary=["A(x)", "B(y)"]),
    event("job-log", "7", "line", "job", message="a\x1b[2J\nb"),
    event("journal", "12", "watcher", "journal"),
    event("node-death", "node2", "suspected", reason="silent"),
    event("freeze", "c", "frozen", "cluster", reason="rack 2"),
]


class Master(FakeMaster):
    """A master with some answers, after which the user interrupts the command."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)
        self.asked = []

    def _WaitForEvents(self, *args):
        self.asked.append(args)
        if not self.answers:
            raise KeyboardInterrupt
        events, lost = self.answers.pop(0)
        position = f"3.{len(self.asked)}.0"
        return {"position": position, "lost": lost, "events": events}


def test_each_event_is_a_line_and_the_interruption_the_normal_end():
    master = Master(([], False), (EVENTS[:2], False), (EVENTS[2:], False))
    done = commands.run("gnt-cluster monitor", master)
    assert (done.code, done.err) == (0, "")
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(NOW))
    assert done.out.splitlines() == [
        f"{stamp} object instance web1 changed",
        f"{stamp} job 7 running: A(x), B(y)",
        f"{stamp} job-log 7: a\\x1b[2J\\nb",
        f"{stamp} journal 12 watcher",
        f"{stamp} node-death node node2 suspected: silent",
        f"{stamp} freeze cluster c frozen: rack 2",
    ]
    assert [args[0] for args in master.asked] == [None, "3.1.0", "3.2.0", "3.3.0"]


def test_json_has_an_object_per_line():
    done = commands.run(
        "gnt-cluster monitor --json", Master((EVENTS, False), ([], True))
    )
    begin, *lines, lost = map(json.loads, done.out.splitlines())
    assert begin == {"kind": "position", "position": "3.1.0", "lost": False}
    assert lines == EVENTS
    assert lost == {"kind": "position", "position": "3.2.0", "lost": True}


def test_missed_events_are_announced():
    done = commands.run("gnt-cluster monitor", Master(([], True)))
    assert done.code == 0
    assert done.err.startswith("Events were missed")


def test_kinds_are_selected_by_the_master():
    master = Master()
    assert commands.run("gnt-cluster monitor --type job,job-log", master).code == 0
    assert master.asked == [(None, ["job", "job-log"], 60)]


@pytest.mark.parametrize("words", ["weather", "job,", "job job-log", "JOB"])
def test_an_unknown_kind_is_refused(words):
    master = Master()
    done = commands.run(["gnt-cluster", "monitor", "--type", words], master)
    assert (done.code, master.asked) == (1, [])
    assert f"wanted kinds of events among {', '.join(Kind)}, found " in done.err
