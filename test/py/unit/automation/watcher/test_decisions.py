"""Actions of the watcher for instances and their reasons, over one and many runs."""

import msgspec
import pytest

from ganeti.base.constants import instance as constants
from ganeti.decisions import watching
from ganeti.decisions.watching import (
    Action,
    Attempts,
    GroupState,
    InstanceRecord,
    InstanceReport,
    NodeReport,
)

NOW = 1_700_000_000.0
INTERVAL_S = 300.0


def instance(status="running", name="web1", **fields):
    given = {"admin_state": "up", "disks_active": True, "disk_template": "drbd"}
    return InstanceReport(name, status, **(given | fields))


def report(*instances, nodes=(), **fields):
    return watching.GroupReport(
        {item.name: item for item in instances},
        {node.name: node for node in nodes},
        **fields,
    )


def state(restart=0, cleanup=0, when=NOW, boots=None):
    record = InstanceRecord(
        Attempts(restart, when if restart else 0.0),
        Attempts(cleanup, when if cleanup else 0.0),
    )
    return GroupState({"web1": record}, boots or {})


def judge(report_, state_=watching.EMPTY, now=NOW):
    (verdict,) = watching.judge_instances(report_, state_, now)
    return verdict


# Instances


@pytest.mark.parametrize(
    "status",
    sorted(text for name, text in vars(constants).items() if name[:7] == "INSTST_"),
)
def test_only_instances_that_are_down_are_started(status):
    expected = {
        "ERROR_down": Action.RESTART,
        "USER_down": Action.CLEAN_UP,
        "ERROR_nodedown": Action.HELPLESS,
        "ERROR_nodeoffline": Action.HELPLESS,
        "ERROR_wrongnode": Action.REFUSE,
    }
    verdict = judge(report(instance(status)))
    assert verdict.action is expected.get(status, Action.NONE)
    assert verdict.reason


def test_a_guest_that_is_stuck_is_named_and_left_alone():
    verdict = judge(report(instance(is_stuck=True)))
    assert verdict.action is Action.STUCK
    assert "look at its console" in verdict.reason
    # While it does not run, that is the matter.
    down = instance("ERROR_down", is_stuck=True)
    assert judge(report(down)).action is Action.RESTART


def test_each_instance_gets_a_verdict_in_order_of_names():
    verdicts = watching.judge_instances(
        report(instance(name="b"), instance("ERROR_down", name="a")),
        watching.EMPTY,
        NOW,
    )
    assert [v.instance for v in verdicts] == ["a", "b"]


def test_an_instance_of_two_groups_is_left_alone():
    verdict = judge(report(instance("ERROR_down", is_split=True)))
    assert verdict.action is Action.REFUSE
    assert "several groups" in verdict.reason


def test_an_instance_that_runs_elsewhere_is_reported_unless_a_job_moves_it():
    elsewhere = instance("ERROR_wrongnode")
    verdict = judge(report(elsewhere))
    assert verdict.action is Action.REFUSE
    assert "gnt-instance migrate --cleanup web1" in verdict.reason
    moving = report(elsewhere, unfinished={"INSTANCE_MIGRATE(web1)": 17})
    assert judge(moving).action is Action.WAIT


def test_an_unfinished_creation_is_not_started():
    verdict = judge(report(instance("ERROR_down", admin_state="down")))
    assert verdict.action is Action.REFUSE
    assert "its installation did not finish" in verdict.reason


def test_a_recorded_shutdown_needs_no_clean_up():
    down = instance("USER_down", admin_state="down")
    assert judge(report(down)).action is Action.NONE


def test_a_clean_up_waits_for_the_lock_and_keeps_its_count():
    locked = report(instance("USER_down"), locked=frozenset({"web1"}))
    verdict = judge(locked, state(cleanup=2))
    assert verdict.action is Action.WAIT
    kept = watching.settle(state(cleanup=2), [verdict], (), NOW)
    assert kept["web1"].cleanup.count == 2


def test_a_start_that_is_in_progress_is_not_repeated():
    busy = report(instance("ERROR_down"), unfinished={"INSTANCE_STARTUP(web1)": 17})
    verdict = judge(busy, state(restart=1))
    assert verdict.action is Action.WAIT
    assert "job 17" in verdict.reason
    assert watching.settle(state(restart=1), [verdict], (), NOW)["web1"].restart == (
        Attempts(1, NOW)
    )


@pytest.mark.parametrize(
    "operation", ["FAILOVER", "MIGRATE", "RECREATE_DISKS", "REINSTALL"]
)
def test_an_instance_that_is_being_repaired_is_not_started(operation):
    """A start between two opcodes of a reinstallation would make it fail."""
    summary = f"INSTANCE_{operation}(web1)"
    busy = report(instance("ERROR_down"), unfinished={summary: 17})
    verdict = judge(busy, state(restart=1))
    assert (verdict.action, verdict.attempt) == (Action.WAIT, 1)
    assert verdict.reason == "job 17 moves or repairs it"


def runs(count, status="ERROR_down", interval_s=INTERVAL_S, start=watching.EMPTY):
    """Run the watcher again and again while the status stays; yield the verdicts."""
    present, now = start, NOW
    for _ in range(count):
        verdict = judge(report(instance(status)), present, now)
        present = GroupState(watching.settle(present, [verdict], (), now), {})
        yield verdict
        now += interval_s


@pytest.mark.parametrize(
    ("status", "action"),
    [("ERROR_down", Action.RESTART), ("USER_down", Action.CLEAN_UP)],
)
def test_five_attempts_then_one_message_then_silence(status, action):
    actual = list(runs(9, status))
    assert [v.action for v in actual] == [
        *[action] * 5,
        Action.GIVE_UP,
        *[Action.SILENT] * 3,
    ]
    assert [v.attempt for v in actual[:5]] == [1, 2, 3, 4, 5]
    assert "too many attempts" in actual[5].reason


def test_attempts_begin_again_eight_hours_after_the_last():
    actual = list(runs(5 + 8 * 12 + 1))
    assert [v.action for v in actual].count(Action.RESTART) == 6
    assert actual[-1].action is Action.RESTART
    assert actual[-1].attempt == 1


def test_slow_attempts_never_expire_between_runs():
    actual = list(runs(6, interval_s=watching.EXPIRY_S))
    assert actual[-1].action is Action.GIVE_UP


def test_attempts_of_a_wrong_clock_expire():
    future = state(restart=5, when=NOW + 2 * watching.EXPIRY_S)
    assert judge(report(instance("ERROR_down")), future).action is Action.RESTART


@pytest.mark.parametrize("status", ["running", "ADMIN_down", "ERROR_nodedown"])
def test_attempts_are_forgotten_in_any_other_status(status):
    before = state(restart=3)
    verdict = judge(report(instance(status)), before)
    assert watching.settle(before, [verdict], (), NOW) == {}


def test_an_instance_that_is_gone_is_forgotten():
    assert watching.settle(state(restart=3), [], (), NOW) == {}


def test_a_job_that_is_refused_is_no_attempt():
    before = state(restart=4)
    verdict = judge(report(instance("ERROR_down")), before)
    after = watching.settle(before, [verdict], {"web1"}, NOW + 1)
    assert after["web1"].restart == Attempts(4, NOW)


# Disks after a reboot


def nodes(**boots):
    return [NodeReport(name, boot_id, False) for name, boot_id in boots.items()]


MIRRORED = instance(secondaries=("n2",))


def boots(known, *instances, started=(), **present):
    instances = instances or (MIRRORED,)
    return watching.judge_boots(
        report(*instances, nodes=nodes(**present)), state(boots=known), started
    )


def test_disks_are_activated_on_a_secondary_that_rebooted():
    plan = boots({"n1": "a", "n2": "b"}, n1="a", n2="c")
    assert plan.activate == {"web1": "node n2 has rebooted"}
    assert plan.boot_ids == {"n1": "a", "n2": "c"}


def test_a_new_node_counts_as_rebooted():
    assert list(boots({"n1": "a"}, n1="a", n2="c").activate) == ["web1"]


@pytest.mark.parametrize(
    ("changed", "started"),
    [
        ({}, ("web1",)),
        ({"disks_active": False}, ()),
        ({"secondaries": ()}, ()),
        ({"secondaries": ("n1",)}, ()),
        ({"is_split": True}, ()),
    ],
)
def test_other_disks_are_left_alone(changed, started):
    changed = msgspec.structs.replace(MIRRORED, **changed)
    plan = boots({"n1": "a", "n2": "b"}, changed, started=started, n1="a", n2="c")
    assert plan.activate == {}


def test_a_silent_node_is_named_and_its_boot_id_kept():
    plan = boots({"n1": "a", "n2": "b"}, n1="a", n2=None)
    assert plan.unknown == ("n2",)
    assert plan.boot_ids == {"n1": "a", "n2": "b"}
    assert not plan.activate


def test_an_offline_node_is_not_missed_and_one_that_is_gone_forgotten():
    present = report(MIRRORED, nodes=[NodeReport("n2", None, True)])
    plan = watching.judge_boots(present, state(boots={"n1": "a", "n2": "b"}), ())
    assert plan.unknown == ()
    assert plan.boot_ids == {"n2": "b"}


def test_a_reboot_is_not_remembered_while_its_job_is_refused():
    present = report(MIRRORED, nodes=nodes(n1="a", n2="c"))
    before = state(boots={"n1": "x", "n2": "b"})
    plan = watching.judge_boots(present, before, ())
    assert watching.settle_boots(before, plan, present, ()) == {"n1": "a", "n2": "c"}
    behind = watching.settle_boots(before, plan, present, {"web1"})
    assert behind == {"n1": "a", "n2": "b"}
    new = state(boots={})
    assert watching.settle_boots(new, plan, present, {"web1"}) == {"n1": "a"}


# Inactive disks


def test_inactive_disks_are_activated_where_that_can_work():
    present = report(
        instance(name="a", secondaries=("n2",)),
        instance("ERROR_nodedown", name="b"),
        instance(name="c", secondaries=("n3",)),
        nodes=[NodeReport("n2", "x", False), NodeReport("n3", None, True)],
    )
    plan = watching.judge_disks(present, ["c", "b", "a", "strange"])
    assert list(plan.activate) == ["a"]
    assert plan.skipped == {
        "b": "status ERROR_nodedown",
        "c": "its secondary node n3 is offline",
        "strange": "not an instance of this group",
    }
