"""``gnt-cluster journal``: text, JSON, selections, and following."""

import json
import time

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.commands.cluster.automation import death_text, freeze_text
from ganeti.commands.cluster.history import parse_since

NOW = 1_700_000_000.0


def entry(number, **values):
    times = dict.fromkeys(("ctime", "mtime", "last"), NOW + number)
    common = {"round": f"r{number}", "automaton": "watcher", "scope": "default"}
    more = {"items": [], "results": [], "revision": 3, "count": 1, "omitted": 0}
    return {"id": number, **common, **times, **more, **values}


ITEM = {"kind": "instance", "name": "web1", "decision": "chosen", "action": "start"}
ITEM |= {"reason": "status ERROR_down", "jobs": [17], "ids": [], "nodes": []}
ITEM |= {"moves": False, "limit": ""}
ACTED = entry(
    2,
    items=[ITEM, ITEM | {"name": "web2", "decision": "refused", "jobs": []}],
    results=[{"job": 17, "status": "error", "error": "no memory\x1b[2J"}],
    omitted=4,
)


class Master(FakeMaster):
    """A master that answers questions for the journal in turn, then is down."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)

    def _QueryJournal(self, _selection):
        if not self.answers:
            raise errors.NoMasterError("/nowhere")
        return self.answers.pop(0)

    @property
    def selections(self):
        return [args[0] for method, args in self.calls if method == "QueryJournal"]


def stamp(seconds):
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def test_the_text_has_each_decision_with_its_reason_and_jobs():
    quiet = entry(1, automaton="maintd", scope="", count=9, last=NOW + 90)
    done = commands.run("gnt-cluster journal", Master([quiet, ACTED]))
    assert done.code == 0
    assert done.out.splitlines() == [
        f"{stamp(NOW + 1)} 1 maintd, 9 rounds until {stamp(NOW + 90)}: nothing to do",
        f"{stamp(NOW + 2)} 2 watcher group default",
        "  instance web1: chosen: start: status ERROR_down (job 17)",
        "  instance web2: refused: start: status ERROR_down",
        "  job 17: error: no memory\\x1b[2J",
        "  and 4 more",
    ]


def test_json_is_the_answer_of_the_master():
    done = commands.run("gnt-cluster journal --json", Master([ACTED]))
    assert json.loads(done.out) == [ACTED]


def test_a_selection_without_entries_is_answered():
    empty = commands.run("gnt-cluster journal --node nod1", Master([]))
    assert (empty.code, empty.out) == (0, "")
    assert empty.err == "The journal has no such entries.\n"
    assert commands.run("gnt-cluster journal --json", Master([])).err == ""


def test_options_select_entries():
    line = "--since 2h --node n1 --instance web1 --automaton maintd --id x --job 4"
    master = Master([])
    assert commands.run(f"gnt-cluster journal {line}", master).out == ""
    assert master.selections == [
        {
            "since": NOW - 7200,
            "node": "n1",
            "instance": "web1",
            "automaton": "maintd",
            "id": "x",
            "job": 4,
        }
    ]


def test_following_asks_for_later_changes_and_prints_a_line_of_json_for_each():
    master = Master([entry(1)], [], [ACTED])
    pauses = []
    done = commands.run(
        "gnt-cluster journal --follow --json", master, sleep=pauses.append
    )
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == [1, 2]
    after = [selection.get("changed_after") for selection in master.selections]
    assert after == [None, NOW + 1, NOW + 1, NOW + 2]
    assert pauses == [1.0] * 3


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("2023-11-14", "%Y-%m-%d"),
        ("2023-11-14 22:15", "%Y-%m-%d %H:%M"),
        ("2023-11-14T22:15:03", "%Y-%m-%dT%H:%M:%S"),
    ],
)
def test_a_local_time_may_be_given(text, form):
    assert parse_since(text, NOW) == time.mktime(time.strptime(text, form))


@pytest.mark.parametrize("text", ["", "yesterday", "2h30m", "2023-13-01"])
def test_another_text_is_refused_with_examples(text):
    done = commands.run(["gnt-cluster", "journal", "--since", text], Master())
    assert done.code == 1
    assert "wanted a duration such as 30m" in done.err


def test_an_answer_of_another_form_is_refused():
    done = commands.run("gnt-cluster journal", Master([{"id": 1}]))
    assert done.code == 1
    assert "QueryJournal: wanted a list of entries" in done.err


# Limits
def test_a_freeze_has_its_reason_and_is_shown_until_it_is_thawed():
    master = FakeMaster()
    done = commands.run("gnt-cluster freeze rack 2 moves", master)
    assert (done.code, master.calls[-1]) == (0, ("FreezeAutomation", ["rack 2 moves"]))
    assert "gnt-cluster thaw" in done.out
    since = stamp(master.now)
    row = freeze_text(master._QueryAutomation()["freeze"])
    assert row == f"automation (rack 2 moves) (frozen since {since}; gnt-cluster thaw)"
    assert commands.run("gnt-cluster thaw", master).code == 0
    assert master._QueryAutomation()["freeze"] is None


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("moved-share=10", {"moved-share": 10.0}),
        ("moved-share=2.5%,quiet-time=10m", {"moved-share": 2.5, "quiet-time": 600.0}),
        ("fenced-per-hour=2", {"fenced-per-hour": 2.0}),
        ("-moved-share,quiet-time=0", {"moved-share": None, "quiet-time": 0.0}),
    ],
)
def test_limits_are_set_and_removed_by_modify(text, limits):
    master = FakeMaster()
    master.results["OP_CLUSTER_SET_PARAMS"] = None
    line = ["gnt-cluster", "modify", f"--automation-limits={text}"]
    assert commands.run(line, master).code == 0
    ((op,),) = master.jobs.values()
    assert op.automation_limits == limits


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("moved-share=many", "moved-share: wanted percent such as 10, found 'many'"),
        ("quiet-time=soon", "quiet-time: wanted a time such as 10m, found 'soon'"),
        ("speed=1", "moved-share, quiet-time, fenced-per-hour, found 'speed'"),
        (
            "fenced-per-hour=1.5",
            "fenced-per-hour: wanted a number such as 2, found '1.5'",
        ),
    ],
)
def test_other_limits_are_refused(text, why):
    line = ["gnt-cluster", "modify", f"--automation-limits={text}"]
    done = commands.run(line, FakeMaster())
    assert done.code == 1
    assert why in done.err


def test_json_of_the_cluster_has_limits_and_freeze(monkeypatch):
    master = FakeMaster()
    master.cluster = {"name": "c1", "software_version": "3.1"}
    master.automation = {
        "limits": {"moved-share": 10.0},
        "freeze": {"reason": "rack 2 moves", "time": NOW},
    }
    actual = json.loads(commands.run("gnt-cluster info --json", master).out)
    assert actual == {
        **master.cluster,
        "automation_limits": {"moved-share": 10.0},
        "automation_freeze": {"reason": "rack 2 moves", "time": NOW},
        "node_death": False,
        "node_deaths": [],
    }
    monkeypatch.delattr(FakeMaster, "_QueryNodeDeaths")
    monkeypatch.delattr(FakeMaster, "_QueryAutomation")
    actual = json.loads(commands.run("gnt-cluster info --json", master).out)
    assert actual["automation_limits"] == {}
    assert actual["automation_freeze"] is None


def test_info_shows_nodes_that_do_not_answer_and_whether_they_are_fenced():
    death = {"name": "n2", "phase": "suspected", "since": NOW, "reason": "no helper"}
    assert death_text(death).startswith("n2: suspected since ")
    assert death_text(death).endswith(": no helper")
    assert death_text(death | {"reason": ""}).count(": ") == 1


@pytest.mark.parametrize(("word", "value"), [("yes", True), ("no", False)])
def test_fencing_of_dead_nodes_is_switched_by_modify(word, value):
    master = FakeMaster()
    master.results["OP_CLUSTER_SET_PARAMS"] = None
    line = ["gnt-cluster", "modify", f"--node-death={word}"]
    assert commands.run(line, master).code == 0
    ((op,),) = master.jobs.values()
    assert op.node_death is value
