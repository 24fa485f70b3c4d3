"""Repairs: what a failing node needs, and the way from broken to healthy."""

import dataclasses
import itertools

import pytest

from ganeti.decisions.repair import diagnosis, plan, tags
from ganeti.decisions.repair.diagnosis import InstanceHealth, NodeHealth
from ganeti.decisions.repair.plan import JobState, NewRecord, RepairJob, RepairState
from ganeti.decisions.repair.tags import (
    RepairKind,
    RepairOutcome,
    RepairPolicy,
    RepairRecord,
)
from ganeti.model import opcodes

GOOD, DRAINED, OFFLINE = NodeHealth.GOOD, NodeHealth.DRAINED, NodeHealth.OFFLINE
NEW_RECORD = NewRecord(1000, "new")
ANY = RepairPolicy(RepairKind.REINSTALL)
HAIL = dict.fromkeys(diagnosis.REQUEST_TYPES, "hail")


def repair(kind):
    return diagnosis.Repair(
        kind, ({"OP_ID": "OP_TEST_DELAY", "duration": 0.001},), "why"
    )


def recorded(*values):
    record = RepairRecord(*values)
    return dataclasses.replace(record, original_tag=record.tag)


def pending(ident="a", kind=RepairKind.FAILOVER, jobs=(7,), time=5):
    return recorded(kind, ident, time, None, tuple(jobs))


def result(outcome, ident="r", kind=RepairKind.FAILOVER, time=3):
    return recorded(kind, ident, time, outcome, ())


def step(records, jobs=None, need=None, policy=ANY, **more):
    """Return the step; a job's kind is that of the repair that is needed."""
    kind = need.kind if need else RepairKind.FAILOVER
    known = {
        job: state if isinstance(state, RepairJob) else RepairJob(state, kind, 900.0)
        for job, state in (jobs or {}).items()
    }
    start = diagnosis.start("web1") if more.pop("is_down", False) else None
    instance = plan.InstanceTags(records, more.pop("unreadable", ""), start)
    return plan.step(instance, known, need, policy, NEW_RECORD, **more)


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
        InstanceHealth("a.tst", template, primary, secondary), HAIL
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
        InstanceHealth("a.tst", "plain", OFFLINE, up=True), HAIL
    )
    names = [op["OP_ID"].removeprefix("OP_INSTANCE_") for op in actual.ops]
    assert names == ["RECREATE_DISKS", "SHUTDOWN", "REINSTALL", "STARTUP"]
    assert actual.ops[0]["iallocator"] == "hail"


def test_each_repair_asks_the_allocator_of_its_type_of_request():
    own = {"allocate": "new", "relocate": "other"}
    lost = InstanceHealth("a.tst", "plain", OFFLINE)
    half = InstanceHealth("a.tst", "drbd", GOOD, OFFLINE)
    asked = [diagnosis.find_repair(item, own).ops[0] for item in (lost, half)]
    assert [op["iallocator"] for op in asked] == ["new", "other"]


@pytest.mark.parametrize(
    ("template", "loses_files"), [("file", True), ("plain", False), ("drbd", False)]
)
def test_only_the_loss_of_file_disks_needs_more_than_its_kind(template, loses_files):
    lost = InstanceHealth("a.tst", template, OFFLINE, OFFLINE)
    need = diagnosis.find_repair(lost, HAIL)
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


def test_a_repair_that_is_allowed_begins_with_its_tag_alone():
    old = result(RepairOutcome.SUCCESS)
    policy = RepairPolicy(RepairKind.FAILOVER)
    need = repair(RepairKind.MIGRATE)
    actual = step([old], need=need, policy=policy)
    assert actual.state == RepairState.PENDING
    assert actual.add == (RepairRecord(RepairKind.MIGRATE, "new", 1000),)
    assert (actual.repair, actual.remove) == (None, (old,))
    begun = recorded(RepairKind.MIGRATE, "new", 1000)
    then = step([begun], need=need, policy=policy)
    assert (then.state, then.repair, then.record) == (RepairState.PENDING, need, begun)


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


def test_a_failed_job_ends_in_failure_until_a_person_removes_the_tag():
    first = pending()
    actual = step([first], {7: JobState.FAILED}, repair(RepairKind.FAILOVER))
    assert actual.state == RepairState.FAILED
    (failure,) = actual.add
    later = step([failure], {}, repair(RepairKind.FAILOVER))
    assert (later.state, later.repair, later.add) == (RepairState.FAILED, None, ())
    again = step([], {}, repair(RepairKind.FAILOVER))
    assert [record.outcome for record in again.add] == [None]


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
    for state in (JobState.SUCCESS, JobState.FAILED):
        actual = step([pending()], {7: state}, None, off)
        assert (actual.state, actual.is_change) == (RepairState.PENDING, False)
    assert "its nodes are healthy, but repairs are suspended" in actual.note


def test_a_request_from_outside_needs_no_standing_permission():
    asked = pending(jobs=())
    actual = step([asked], need=repair(RepairKind.MIGRATE), policy=RepairPolicy())
    assert (actual.state, actual.record) == (RepairState.PENDING, asked)
    assert step([asked], policy=RepairPolicy()).state == RepairState.HEALTHY


@pytest.mark.parametrize(
    ("template", "primary"), [("plain", DRAINED), ("diskless", OFFLINE)]
)
def test_a_request_that_nothing_can_be_done_for_is_no_success(template, primary):
    health = InstanceHealth("a.tst", template, primary)
    assert diagnosis.find_repair(health, HAIL) is None
    asked = pending(jobs=())
    instance = plan.InstanceTags([asked], obstacle=diagnosis.obstacle(health))
    waiting = plan.step(instance, {}, None, ANY, NEW_RECORD)
    assert (waiting.state, waiting.is_change) == (RepairState.PENDING, False)
    assert template in waiting.note
    assert not diagnosis.obstacle(InstanceHealth("a.tst", template, GOOD))


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
    for kinds, limit in itertools.product(
        itertools.permutations(RepairKind, 2), RepairKind
    ):
        records, jobs = [], {}
        for kind in (kinds[0], kinds[0], kinds[1], kinds[1], None, None):
            need = None if kind is None else repair(kind)
            actual = step(records, jobs, need, RepairPolicy(limit))
            kept = [r for r in records if all(r is not x for x in actual.remove)]
            records = [*kept, *actual.add]
            if actual.record is not None:
                job = len(jobs) + 1
                jobs[job] = JobState.SUCCESS
                grown = (*actual.record.jobs, job)
                records.append(dataclasses.replace(actual.record, jobs=grown))
            records = tags.records([record.tag for record in records])
        assert actual.state == RepairState.HEALTHY
        assert all(record.outcome is not None for record in records)


# A chain of jobs is one repair
def test_id_and_time_of_a_repair_stay_while_its_jobs_grow():
    lost = InstanceHealth("a.tst", "drbd", OFFLINE, GOOD, up=True)
    moved = InstanceHealth("a.tst", "drbd", GOOD, OFFLINE, up=True)
    well = InstanceHealth("a.tst", "drbd", GOOD, GOOD, up=True)
    policy = RepairPolicy(RepairKind.FAILOVER)
    (first,) = step([], need=diagnosis.find_repair(lost, HAIL), policy=policy).add
    assert first == RepairRecord(RepairKind.FAILOVER, "new", 1000)
    jobs, record, ops = {}, first, []
    for job, health in enumerate((lost, moved), 7):
        record = dataclasses.replace(record, original_tag=record.tag)
        actual = step([record], jobs, diagnosis.find_repair(health, HAIL), policy)
        ops += [op["OP_ID"] for op in actual.repair.ops]
        assert actual.remove == (record,)
        record = dataclasses.replace(actual.record, jobs=(*actual.record.jobs, job))
        jobs[job] = JobState.SUCCESS
        assert record.tag.endswith(f":new:1000:{'+'.join(map(str, jobs))}")
    assert ops == ["OP_INSTANCE_FAILOVER", "OP_INSTANCE_REPLACE_DISKS"]
    ended = step([record], jobs, diagnosis.find_repair(well, HAIL), policy)
    (final,) = ended.add
    assert (final.outcome, final.jobs) == (RepairOutcome.SUCCESS, (7, 8))


@pytest.mark.parametrize(
    ("always_failover", "limit", "kind"),
    [
        (False, RepairKind.FAILOVER, RepairKind.MIGRATE),
        (False, RepairKind.FIX_STORAGE, RepairKind.FIX_STORAGE),
        (True, RepairKind.REINSTALL, RepairKind.FAILOVER),
    ],
)
def test_a_repair_has_the_kind_that_its_later_jobs_need(always_failover, limit, kind):
    broken = InstanceHealth(
        "a.tst", "drbd", DRAINED, DRAINED, up=True, always_failover=always_failover
    )
    need = diagnosis.find_repair(broken, HAIL)
    assert need.kind == RepairKind.FIX_STORAGE
    (record,) = step([], need=need, policy=RepairPolicy(limit)).add
    assert record.kind == kind


@pytest.mark.parametrize(
    ("up", "always_failover", "op_id", "fields"),
    [
        (True, False, "OP_INSTANCE_MIGRATE", {}),
        (False, False, "OP_INSTANCE_MIGRATE", {"allow_failover": True}),
        (False, True, "OP_INSTANCE_MIGRATE", {"allow_failover": True}),
        (True, True, "OP_INSTANCE_FAILOVER", {"ignore_consistency": False}),
    ],
)
def test_an_instance_that_cannot_migrate_leaves_its_node_too(
    up, always_failover, op_id, fields
):
    drained = InstanceHealth(
        "a.tst", "drbd", DRAINED, GOOD, up=up, always_failover=always_failover
    )
    (op,) = diagnosis.find_repair(drained, HAIL).ops
    expected = {"OP_ID": op_id, "instance_name": "a.tst"} | fields
    assert op | expected == op
    assert ("allow_failover" in op) == ("allow_failover" in fields)


# Failures and retries
@pytest.mark.parametrize(
    ("kind", "states", "is_retried"),
    [
        (RepairKind.FIX_STORAGE, "FAILED FAILED", True),
        (RepairKind.MIGRATE, "FAILED", True),
        (RepairKind.MIGRATE, "FAILED REFUSED FAILED", False),
        (RepairKind.MIGRATE, "FAILED FAILED SUCCESS FAILED", True),
        (RepairKind.MIGRATE, "FAILED NO_ROOM FAILED", True),
        (RepairKind.MIGRATE, "FAILED NO_ROOM FAILED FAILED", False),
        (RepairKind.MIGRATE, "CANCELED", False),
        (RepairKind.FAILOVER, "REFUSED", True),
        (RepairKind.FAILOVER, "REFUSED REFUSED REFUSED", False),
        (RepairKind.FAILOVER, "FAILED", False),
        (RepairKind.REINSTALL, "REFUSED", False),
        (RepairKind.REINSTALL, "FAILED", False),
    ],
)
def test_only_what_is_safe_is_tried_again_and_not_for_ever(kind, states, is_retried):
    jobs = {n: JobState[word] for n, word in enumerate(states.split(), 1)}
    first = pending(kind=kind, jobs=tuple(jobs))
    actual = step([first], jobs, repair(kind))
    if is_retried:
        assert (actual.state, actual.record) == (RepairState.PENDING, first)
        assert actual.repair is not None
    else:
        assert (actual.state, actual.repair) == (RepairState.FAILED, None)
        assert [record.outcome for record in actual.add] == [RepairOutcome.FAILURE]


def test_a_job_that_repaired_nothing_known_is_not_repeated():
    jobs = {7: RepairJob(JobState.FAILED, None, 900.0)}
    assert step([pending()], jobs, repair(RepairKind.MIGRATE)).state == "Failure"


def test_good_nodes_end_a_repair_well_though_a_job_failed():
    jobs = {7: JobState.FAILED}
    assert step([pending()], jobs).state == RepairState.HEALTHY
    half = {7: RepairJob(JobState.FAILED, RepairKind.REINSTALL, 900.0)}
    actual = step([pending(kind=RepairKind.REINSTALL)], half)
    # New disks without an operating system are on good nodes, too.
    assert actual.state == RepairState.FAILED
    refused = {7: RepairJob(JobState.REFUSED, RepairKind.REINSTALL, 900.0)}
    assert step([pending(kind=RepairKind.REINSTALL)], refused).state == "Healthy"


def ended(*states, kind=RepairKind.FAILOVER):
    """Return a pending record and its jobs, the first of a kind, the others starts."""
    jobs = {
        number: RepairJob(JobState[state], kind if number == 7 else None, 900.0)
        for number, state in enumerate(states, 7)
    }
    return pending(kind=RepairKind.REINSTALL, jobs=tuple(jobs)), jobs


@pytest.mark.parametrize(
    "states", [("FAILED",), ("REFUSED",), ("NO_ROOM",), ("FAILED", "FAILED")]
)
def test_an_instance_whose_failover_failed_is_started_and_not_counted_as_repaired(
    states,
):
    record, jobs = ended(*states)
    actual = step([record], jobs, is_down=True)
    assert (actual.state, actual.add) == (RepairState.PENDING, ())
    assert [op["OP_ID"] for op in actual.repair.ops] == ["OP_INSTANCE_STARTUP"]
    assert actual.record is record


@pytest.mark.parametrize(
    ("states", "kind"),
    [
        (("FAILED", "FAILED", "FAILED"), RepairKind.FAILOVER),
        (("CANCELED",), RepairKind.FAILOVER),
        # Its disks may have no system.
        (("FAILED",), RepairKind.REINSTALL),
    ],
)
def test_an_instance_that_cannot_be_started_is_a_failure(states, kind):
    record, jobs = ended(*states, kind=kind)
    actual = step([record], jobs, is_down=True)
    assert (actual.state, actual.repair) == (RepairState.FAILED, None)
    assert [each.outcome for each in actual.add] == [RepairOutcome.FAILURE]


def test_a_start_that_succeeded_ends_the_repair_well():
    record, jobs = ended("FAILED", "SUCCESS")
    # The status is that of a moment before.
    actual = step([record], jobs, is_down=True)
    assert (actual.state, actual.note) == (RepairState.HEALTHY, "repaired")


@pytest.mark.parametrize(
    ("full", "end", "is_due"),
    [
        (1, 999.0, True),
        (2, 999.0, False),
        (2, 1000.0 - plan.FIRST_PAUSE_S, True),
        (3, 1000.0 - plan.FIRST_PAUSE_S, False),
        (3, 1000.0 - 2 * plan.FIRST_PAUSE_S, True),
        (9, 1000.0 - plan.LAST_PAUSE_S, True),
    ],
)
def test_attempts_without_room_get_rare_and_never_end(full, end, is_due):
    ids = tuple(range(1, full + 1))
    job = RepairJob(JobState.NO_ROOM, RepairKind.MIGRATE, end)
    jobs = dict.fromkeys(ids, job)
    first = pending(jobs=ids)
    actual = step([first], jobs, repair(RepairKind.MIGRATE))
    assert actual.state == RepairState.PENDING
    assert (actual.repair is not None) == is_due
    if not is_due:
        assert (actual.add, actual.remove) == ((), ())
        assert "no node has room, next attempt at" in actual.note


def test_a_job_that_the_tag_lacks_is_added_to_it():
    known = dataclasses.replace(pending(), jobs=(7, 8))
    off = RepairPolicy(until=2000.0)
    actual = step(
        [known], {8: JobState.SUCCESS}, repair(RepairKind.MIGRATE), policy=off
    )
    assert (actual.add, actual.remove) == ((known,), (known,))
    running = step([known], {8: JobState.RUNNING}, repair(RepairKind.MIGRATE))
    assert running == plan.RepairStep(RepairState.PENDING)


def test_jobs_of_other_people_come_first():
    need = repair(RepairKind.MIGRATE)
    for records in ([], [pending(jobs=())]):
        actual = step(records, need=need, busy=42)
        assert not actual.is_change
        assert actual.note == "why; job 42, of somebody else, comes first"


# Several requests, and tags that contradict each other
def test_a_later_request_whose_job_runs_stays():
    first, second = pending("a", time=5, jobs=()), pending("b", time=6, jobs=(9,))
    actual = step([first, second], {9: JobState.RUNNING})
    assert (actual.state, actual.remove) == (RepairState.PENDING, (first,))


def test_a_request_with_too_little_permission_leaves_the_next_one():
    first = pending("a", RepairKind.MIGRATE, (), time=5)
    second = pending("b", RepairKind.FAILOVER, (), time=6)
    actual = step([first, second], need=repair(RepairKind.FAILOVER))
    assert (actual.state, actual.remove) == (RepairState.PENDING, (first,))
    assert [record.outcome for record in actual.add] == [RepairOutcome.ENOPERM]
    then = step([actual.add[0], second], need=repair(RepairKind.FAILOVER))
    assert then.record == second


def test_an_interrupted_change_of_tags_leaves_no_second_repair():
    old, new = pending(jobs=()), pending(jobs=(7,))
    need = repair(RepairKind.MIGRATE)
    running = step([old, new], {7: JobState.RUNNING}, need)
    assert (running.state, running.repair) == (RepairState.PENDING, None)
    actual = step([old, new], {7: JobState.SUCCESS}, need)
    assert (actual.record, actual.remove) == (new, (old, new))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pending(kind=RepairKind.MIGRATE), pending(kind=RepairKind.FAILOVER)),
        (pending(time=5), pending(time=6)),
        (pending(jobs=(7,)), pending(jobs=(8,))),
        (result(RepairOutcome.SUCCESS), result(RepairOutcome.ENOPERM)),
        (pending("r", RepairKind.MIGRATE), result(RepairOutcome.SUCCESS)),
    ],
)
def test_contradictory_tags_are_named_and_nothing_is_done(first, second):
    need = repair(RepairKind.MIGRATE)
    actual = step([first, second], {}, need)
    assert (actual.state, actual.is_change) == (RepairState.NEEDS_REPAIR, False)
    assert actual.is_alarming
    assert first.original_tag in actual.note
    assert second.original_tag in actual.note
    assert step([first, second]).state == RepairState.HEALTHY


def test_unreadable_tags_are_named_and_nothing_is_done():
    need = repair(RepairKind.MIGRATE)
    damaged = tags.PREFIX + "pending:migrate:x"
    actual = step([], need=need, unreadable=damaged)
    assert (actual.is_change, actual.is_alarming) == (False, True)
    assert actual.note == (
        f"no repair: the tag {damaged} cannot be read; remove the wrong one"
    )
    policy = RepairPolicy(unreadable=tags.PREFIX + "fail-over")
    for records in ([], [pending(jobs=())]):
        actual = step(records, need=need, policy=policy)
        assert (actual.is_change, actual.is_alarming) == (False, True)
        assert "fail-over cannot be read" in actual.note


def test_a_failure_stays_with_contradictory_tags():
    failed = result(RepairOutcome.FAILURE)
    other = result(RepairOutcome.SUCCESS)
    assert step([failed, other]).state == RepairState.FAILED


def test_requests_wait_for_a_person_after_a_failure():
    failed, asked = result(RepairOutcome.FAILURE), pending(jobs=())
    actual = step([failed, asked], need=repair(RepairKind.MIGRATE))
    assert (actual.state, actual.is_change) == (RepairState.FAILED, False)
    freed = step([asked], need=repair(RepairKind.MIGRATE))
    assert freed.record == asked
