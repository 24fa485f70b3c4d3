"""The report on a group, and its state file: what is known, and nothing else."""

import json

import pytest

from ganeti.automation.watcher import jobs
from ganeti.base import errors
from ganeti.decisions import watching
from ganeti.decisions.watching import InstanceReport, NodeReport

GROUP = "11111111-2222-4333-8444-555555555555"
NORMAL, UNKNOWN, OFFLINE = 0, 1, 4

INSTANCE = {
    "name": "inst1",
    "status": "ERROR_down",
    "admin_state": "up",
    "disks_active": True,
    "disk_template": "drbd",
    "pnode": "n1",
    "snodes": ["n2"],
    "stuck": 0,
}
NODE = {"name": "n1", "bootid": "b1", "offline": False}


class Master:
    """Answers queries from tables; refuses fields and kinds that it does not have."""

    def __init__(self, **tables):
        self.tables = {"instance": [], "node": [], "lock": [], "job": []} | tables
        self.filters = {}

    def call(self, method, arguments):
        assert method == "Query"
        kind, names, qfilter = arguments
        self.filters[kind] = qfilter
        rows = [[self.value(row[name]) for name in names] for row in self.tables[kind]]
        return {"data": rows, "fields": []}

    @staticmethod
    def value(value):
        return value if isinstance(value, tuple) else (NORMAL, value)


def instance(**changes):
    nodes = [NODE, NODE | {"name": "n2"}]
    master = Master(instance=[INSTANCE | changes], node=nodes)
    return jobs.load(master, GROUP).instances["inst1"]


def test_all_that_the_master_says_of_an_instance_is_in_its_report():
    assert instance() == InstanceReport(
        name="inst1",
        status="ERROR_down",
        admin_state="up",
        disks_active=True,
        disk_template="drbd",
        secondaries=("n2",),
        is_split=False,
        primary="n1",
    )
    assert instance(stuck=240).is_stuck
    assert instance(disks_active=False).disks_active is False


def test_values_that_the_master_does_not_have_are_empty():
    unknown = (UNKNOWN, None)
    changes = dict.fromkeys(set(INSTANCE) - {"name"}, unknown)
    assert instance(**changes) == InstanceReport(
        name="inst1",
        status="",
        admin_state="",
        disks_active=False,
        disk_template="",
        secondaries=(),
        is_split=False,
    )


def test_a_value_beside_a_bad_status_is_not_believed():
    assert instance(status=(OFFLINE, "running")).status == ""


@pytest.mark.parametrize(
    ("secondaries", "is_split"),
    [([], False), (["n2"], False), (["n3"], True), (["n2", "n3"], True)],
)
def test_an_instance_is_split_if_one_secondary_is_in_another_group(
    secondaries, is_split
):
    assert instance(snodes=secondaries).is_split is is_split


def test_nodes_have_their_boot_and_whether_they_are_offline():
    rows = [NODE, {"name": "n2", "bootid": (OFFLINE, "b2"), "offline": True}]
    assert jobs.load(Master(node=rows), GROUP).nodes == {
        "n1": NodeReport("n1", "b1", False),
        "n2": NodeReport("n2", None, True),
    }


def test_the_master_is_asked_for_this_group_alone():
    master = Master()
    jobs.load(master, GROUP)
    assert master.filters["instance"] == ["==", "pnode.group.uuid", GROUP]
    assert master.filters["node"] == ["==", "group.uuid", GROUP]


@pytest.mark.parametrize(
    ("mode", "pending", "is_locked"),
    [
        ("exclusive", [], True),
        ("shared", [], True),
        (None, [["shared", ["thread"]]], True),
        (None, [], False),
        (None, None, False),
    ],
)
def test_an_instance_is_locked_while_its_lock_is_held_or_waited_for(
    mode, pending, is_locked
):
    row = {"name": "instance/inst1", "mode": mode, "pending": pending}
    stranger = {"name": "node/inst2", "mode": "exclusive", "pending": []}
    report = jobs.load(Master(lock=[row, stranger]), GROUP)
    assert report.locked == ({"inst1"} if is_locked else set())


def test_unfinished_jobs_are_known_by_the_summaries_of_all_their_opcodes():
    rows = [
        {"id": 7, "summary": ["INSTANCE_STARTUP(a)", "INSTANCE_REBOOT(b)"]},
        {"id": "8", "summary": ["CLUSTER_VERIFY"]},
        {"id": 9, "summary": (UNKNOWN, None)},
    ]
    master = Master(job=rows)
    assert jobs.unfinished(master) == {
        "INSTANCE_STARTUP(a)": 7,
        "INSTANCE_REBOOT(b)": 7,
        "CLUSTER_VERIFY": 8,
    }
    states = ("queued", "waiting", "canceling", "running")
    assert master.filters["job"] == ["|", *(["==", "status", one] for one in states)]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"data": 1},
        {"data": [[]]},
        {"data": [[[0, "n1", "x"]]]},
        {"data": [7]},
    ],
)
def test_a_malformed_answer_is_named_after_what_was_asked(answer):
    master = type("Master", (), {"call": lambda *_: answer})()
    with pytest.raises(errors.ProtocolError, match="node: the answer is malformed"):
        jobs.query_rows(master, "node", ("name",), None)


# The state file of a group: what is written is read again, damage is refused.

SAMPLE = watching.GroupState(
    {
        "web1.tst": watching.InstanceRecord(
            watching.Attempts(1, 1700000500.1), watching.Attempts(0, 0)
        )
    },
    {"n1.tst": "5e1c"},
)


def test_the_form_is_the_documented_one():
    assert json.loads(watching.format_group_state(SAMPLE)) == {
        "instance": {
            "web1.tst": {
                "restart_count": 1,
                "restart_when": 1700000500.1,
                "cleanup_count": 0,
                "cleanup_when": 0,
            }
        },
        "node": {"n1.tst": {"bootid": "5e1c"}},
    }
    assert watching.parse_group_state(watching.format_group_state(SAMPLE)) == SAMPLE


@pytest.mark.parametrize("data", [b"", b"\n", b"{}", b'{"instance": {}, "node": {}}'])
def test_nothing_is_the_empty_state(data):
    assert watching.parse_group_state(data) == watching.EMPTY


def test_missing_counters_are_none():
    state = watching.parse_group_state(b'{"instance": {"a": {"restart_count": 2}}}')
    assert state.instances["a"].restart == watching.Attempts(2, 0.0)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"{",
        b"[]",
        b'{"instance": []}',
        b'{"instance": {"a": []}}',
        b'{"instance": {"a": {"restart_count": -1}}}',
        b'{"instance": {"a": {"restart_count": true}}}',
        b'{"instance": {"a": {"restart_when": NaN}}}',
        b'{"instance": {"a": {"restart_when": "1"}}}',
        b'{"node": {"a": {}}}',
        b'{"node": {"a": {"bootid": 3}}}',
        b"[" * 100000,
    ],
)
def test_damage_is_refused(data):
    with pytest.raises(errors.ParseError, match="not the state of a group"):
        watching.parse_group_state(data)
