"""Repairs: what a failing node needs, and the way from broken to healthy."""

import itertools

import pytest

from ganeti import opcodes
from ganeti.repair import diagnosis, plan
from ganeti.repair.diagnosis import InstanceHealth, NodeHealth
from ganeti.repair.plan import JobState, NewRecord, RepairState
from ganeti.repair.tags import RepairKind, RepairOutcome, RepairPolicy, RepairRecord

GOOD, DRAINED, OFFLINE = NodeHealth.GOOD, NodeHealth.DRAINED, NodeHealth.OFFLINE
NEW_RECORD = NewRecord(1000, "new")
ANY = RepairPolicy(RepairKind.REINSTALL)


def repair(kind):
    return diagnosis.Repair(
        kind, ({"OP_ID": "OP_TEST_DELAY", "duration": 0.001},), "why"
    )


def pending(ident="a", kind=RepairKind.FAILOVER, jobs=(7,), time=5):
    return RepairRecord(kind, ident, time, None, tuple(jobs), "tag")


def result(outcome, ident="r", kind=RepairKind.FAILOVER, time=3):
    return RepairRecord(kind, ident, time, outcome, (), "tag")


def step(records, jobs=None, need=None, policy=ANY):
    return plan.step(records, jobs or {}, need, policy, NEW_RECORD)


# The repair that is needed
@pytest.mark.parametrize(
    ("template", "primary", "secondary", "kind", "ops"),
    [
        ("drbd", GOOD, GOOD, None, ""),
        ("drbd", OFFLINE, GOOD, RepairKind.FAILOVER, "FAILOVER"),
        ("drbd", DRAINED, GOOD, RepairKind.MIGRATE, "MIGRATE"),
        ("drbd", GOOD, OFFLINE, RepairKind.FIX_STORAGE, "REPLACE_DISKS"),
        ("drbd", GOOD, DRAINED, RepairKind.FIX_STORAGE, "REPLACE_DISKS"),
        ("drbd", OFFLINE, DRAINED, RepairKind.FAILOVER, "FAILOVER"),
        ("drbd", DRAINED, OFFLINE, RepairKind.FIX_STORAGE, "REPLACE_DISKS"),
        ("drbd", OFFLINE, OFFLINE, RepairKind.REINSTALL, "RECREATE_DISKS REINSTALL"),
        ("plain", OFFLINE, None, RepairKind.REINSTALL, "RECREATE_DISKS REINSTALL"),
        ("plain", DRAINED, None, None, ""),
        ("file", OFFLINE, None, RepairKind.REINSTALL, "RECREATE_DISKS REINSTALL"),
        ("rbd", OFFLINE, None, RepairKind.FAILOVER, "FAILOVER"),
        ("sharedfile", DRAINED, None, RepairKind.MIGRATE, "MIGRATE"),
        ("diskless", OFFLINE, None, None, ""),
    ],
)
def test_repairs_by_template_and_nodes(template, primary, secondary, kind, ops):
    actual = diagnosis.find_repair(
        InstanceHealth("a.tst", template, primary, secondary), "hail"
    )
    if kind is None:
        assert actual is None
        return
    assert actual.kind == kind
    names = [op["OP_ID"].removeprefix("OP_INSTANCE_") for op in actual.ops]
    assert " ".join(names) == ops
    for op in actual.ops:
        opcodes.decode(op)


def test_an_instance_created_again_runs_if_it_should():
    actual = diagnosis.find_repair(
        InstanceHealth("a.tst", "plain", OFFLINE, up=True), "hail"
    )
    names = [op["OP_ID"].removeprefix("OP_INSTANCE_") for op in actual.ops]
    assert names == ["RECREATE_DISKS", "SHUTDOWN", "REINSTALL", "STARTUP"]
    assert actual.ops[0]["iallocator"] == "hail"


@pytest.mark.parametrize(
    ("template", "loses_files"), [("file", True), ("plain", False), ("drbd", False)]
)
def test_only_the_loss_of_file_disks_needs_more_than_its_kind(template, loses_files):
    lost = InstanceHealth("a.tst", template, OFFLINE, OFFLINE)
    need = diagnosis.find_repair(lost, "hail")
    assert need.loses_files == loses_files
    refused = step([], need=need, policy=ANY)
    if loses_files:
        assert refused.state == RepairState.NEEDS_REPAIR
        (added,) = refused.add
        assert (added.outcome, added.kind) == (RepairOutcome.ENOPERM, ANY.allowed)
        assert refused.note.endswith(
            "this requires reinstall, but for file disks only with the tag"
            " ganeti:watcher:autorepair:reinstall-file"
        )
    else:
        assert refused.state == RepairState.PENDING
    both = RepairPolicy(RepairKind.REINSTALL, with_files=True)
    assert step([], need=need, policy=both).state == RepairState.PENDING
    less = RepairPolicy(RepairKind.FAILOVER, with_files=True)
    assert step([], need=need, policy=less).state == RepairState.NEEDS_REPAIR
    by_hand = pending(kind=RepairKind.REINSTALL, jobs=())
    assert step([by_hand], need=need, policy=ANY).repair == need


# The way of one instance
def test_a_healthy_instance_is_left_alone():
    assert step([]) == plan.RepairStep(RepairState.HEALTHY)
    assert step([result(RepairOutcome.SUCCESS)]).remove == ()


def test_a_repair_that_is_allowed_begins():
    old = result(RepairOutcome.SUCCESS)
    actual = step(
        [old], need=repair(RepairKind.MIGRATE), policy=RepairPolicy(RepairKind.FAILOVER)
    )
    assert actual.state == RepairState.PENDING
    assert actual.record == RepairRecord(RepairKind.MIGRATE, "new", 1000)
    assert actual.repair is not None
    assert actual.remove == (old,)


def test_without_permission_it_is_only_reported():
    actual = step([], need=repair(RepairKind.MIGRATE), policy=RepairPolicy())
    assert (actual.state, actual.add, actual.repair) == (
        RepairState.NEEDS_REPAIR,
        (),
        None,
    )
    assert actual.note == "why, but repairs are not enabled"


def test_too_little_permission_is_recorded_once():
    actual = step(
        [], need=repair(RepairKind.REINSTALL), policy=RepairPolicy(RepairKind.MIGRATE)
    )
    assert actual.state == RepairState.NEEDS_REPAIR
    (record,) = actual.add
    assert record.outcome == RepairOutcome.ENOPERM
    again = step(
        [record],
        need=repair(RepairKind.REINSTALL),
        policy=RepairPolicy(RepairKind.MIGRATE),
    )
    assert (again.add, again.remove) == ((), ())


def test_running_jobs_are_waited_for():
    actual = step([pending()], {7: JobState.RUNNING}, repair(RepairKind.FAILOVER))
    assert actual == plan.RepairStep(RepairState.PENDING)


def test_a_repair_that_helped_ends_with_success():
    first = pending()
    actual = step([first], {7: JobState.SUCCESS})
    assert actual.state == RepairState.HEALTHY
    assert actual.add == (
        RepairRecord(RepairKind.FAILOVER, "a", 1000, RepairOutcome.SUCCESS, (7,)),
    )
    assert actual.remove == (first,)


def test_a_repair_goes_on_under_the_same_name_until_all_is_well():
    first = pending()
    actual = step([first], {7: JobState.SUCCESS}, repair(RepairKind.FIX_STORAGE))
    assert (actual.state, actual.record, actual.add) == (RepairState.PENDING, first, ())
    assert actual.remove == (first,)


def test_a_repair_stops_where_its_kind_ends():
    actual = step([pending()], {7: JobState.SUCCESS}, repair(RepairKind.REINSTALL))
    assert actual.state == RepairState.NEEDS_REPAIR
    assert [record.outcome for record in actual.add] == [RepairOutcome.ENOPERM]


def test_a_failed_job_ends_in_failure_and_stays_there():
    first = pending()
    actual = step([first], {7: JobState.FAILED}, repair(RepairKind.FAILOVER))
    assert actual.state == RepairState.FAILED
    (failure,) = actual.add
    later = step([failure], {}, repair(RepairKind.FAILOVER))
    assert (later.state, later.repair, later.add) == (RepairState.FAILED, None, ())


def test_missing_room_is_waited_for():
    first = pending()
    actual = step([first], {7: JobState.NO_ROOM}, repair(RepairKind.FAILOVER))
    assert (actual.state, actual.record) == (RepairState.PENDING, first)


def test_nothing_new_begins_while_suspended():
    off = RepairPolicy(until=2000.0)
    actual = step([], need=repair(RepairKind.MIGRATE), policy=off)
    assert (actual.state, actual.repair) == (RepairState.NEEDS_REPAIR, None)
    actual = step([pending()], {7: JobState.SUCCESS}, repair(RepairKind.MIGRATE), off)
    assert (actual.state, actual.repair) == (RepairState.PENDING, None)
    actual = step([pending()], {7: JobState.SUCCESS}, None, off)
    assert actual.state == RepairState.HEALTHY


def test_a_request_from_outside_needs_no_standing_permission():
    asked = pending(jobs=())
    actual = step([asked], need=repair(RepairKind.MIGRATE), policy=RepairPolicy())
    assert (actual.state, actual.record) == (RepairState.PENDING, asked)
    assert step([asked], policy=RepairPolicy()).state == RepairState.HEALTHY


def test_several_requests_are_taken_oldest_first():
    first, second = pending("a", time=5), pending("b", time=6, jobs=())
    actual = step([first, second], {7: JobState.SUCCESS}, repair(RepairKind.MIGRATE))
    assert actual.record == first
    assert second not in actual.remove
    done = step([first, second], {7: JobState.SUCCESS})
    assert [record.id for record in done.add] == ["a", "b"]


def test_a_pending_tag_with_a_result_is_left_over():
    first = pending()
    ended = result(RepairOutcome.SUCCESS, ident="a", time=9)
    assert step([first, ended]).remove == (first,)


def test_every_way_ends_when_jobs_succeed_and_the_instance_heals():
    needs = (
        RepairKind.FIX_STORAGE,
        RepairKind.MIGRATE,
        RepairKind.FAILOVER,
        RepairKind.REINSTALL,
    )
    for kinds, limit in itertools.product(itertools.permutations(needs, 2), needs):
        records, jobs = [], {}
        for kind in (*kinds, None):
            need = None if kind is None else repair(kind)
            actual = plan.step(records, jobs, need, RepairPolicy(limit), NEW_RECORD)
            kept = [r for r in records if r not in actual.remove]
            records = [*kept, *actual.add]
            if actual.record is not None:
                job = len(jobs) + 1
                jobs[job] = JobState.SUCCESS
                grown = (*actual.record.jobs, job)
                records.append(
                    RepairRecord(
                        actual.record.kind, actual.record.id, 1000, None, grown
                    )
                )
        assert actual.state == RepairState.HEALTHY
        assert all(record.outcome is not None for record in records)
