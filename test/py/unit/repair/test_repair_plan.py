"""Repairs: what a failing node needs, and the way from broken to healthy."""

import itertools

import pytest

from ganeti import opcodes
from ganeti.repair import diagnosis, plan
from ganeti.repair.diagnosis import Health, Subject
from ganeti.repair.plan import Fresh, JobState, State
from ganeti.repair.tags import Kind, Outcome, Policy, Record

GOOD, DRAINED, OFFLINE = Health.GOOD, Health.DRAINED, Health.OFFLINE
FRESH = Fresh(1000, "new")
ANY = Policy(Kind.REINSTALL)


def repair(kind):
    return diagnosis.Repair(kind, ({"OP_ID": "OP_TEST_DELAY", "duration": 0},), "why")


def pending(ident="a", kind=Kind.FAILOVER, jobs=(7,), time=5):
    return Record(kind, ident, time, None, tuple(jobs), "tag")


def result(outcome, ident="r", kind=Kind.FAILOVER, time=3):
    return Record(kind, ident, time, outcome, (), "tag")


def step(records, jobs=None, need=None, policy=ANY):
    return plan.step(records, jobs or {}, need, policy, FRESH)


# What is needed
@pytest.mark.parametrize(
    ("template", "primary", "secondary", "kind", "ops"),
    [
        ("drbd", GOOD, GOOD, None, ""),
        ("drbd", OFFLINE, GOOD, Kind.FAILOVER, "FAILOVER"),
        ("drbd", DRAINED, GOOD, Kind.MIGRATE, "MIGRATE"),
        ("drbd", GOOD, OFFLINE, Kind.FIX_STORAGE, "REPLACE_DISKS"),
        ("drbd", GOOD, DRAINED, Kind.FIX_STORAGE, "REPLACE_DISKS"),
        ("drbd", OFFLINE, DRAINED, Kind.FAILOVER, "FAILOVER"),
        ("drbd", DRAINED, OFFLINE, Kind.FIX_STORAGE, "REPLACE_DISKS"),
        ("drbd", OFFLINE, OFFLINE, Kind.REINSTALL, "RECREATE_DISKS REINSTALL"),
        ("plain", OFFLINE, None, Kind.REINSTALL, "RECREATE_DISKS REINSTALL"),
        ("plain", DRAINED, None, None, ""),
        ("file", OFFLINE, None, Kind.REINSTALL, "RECREATE_DISKS REINSTALL"),
        ("rbd", OFFLINE, None, Kind.FAILOVER, "FAILOVER"),
        ("sharedfile", DRAINED, None, Kind.MIGRATE, "MIGRATE"),
        ("diskless", OFFLINE, None, None, ""),
    ],
)
def test_repairs_by_template_and_nodes(template, primary, secondary, kind, ops):
    found = diagnosis.find(Subject("a.tst", template, primary, secondary), "hail")
    if kind is None:
        assert found is None
        return
    assert found.kind == kind
    names = [op["OP_ID"].removeprefix("OP_INSTANCE_") for op in found.ops]
    assert " ".join(names) == ops
    for op in found.ops:
        opcodes.decode(op)


def test_an_instance_made_anew_runs_again_if_it_should():
    found = diagnosis.find(Subject("a.tst", "plain", OFFLINE, up=True), "hail")
    names = [op["OP_ID"].removeprefix("OP_INSTANCE_") for op in found.ops]
    assert names == ["RECREATE_DISKS", "SHUTDOWN", "REINSTALL", "STARTUP"]
    assert found.ops[0]["iallocator"] == "hail"


# The way of one instance
def test_a_healthy_instance_is_left_alone():
    assert step([]) == plan.Step(State.HEALTHY)
    assert step([result(Outcome.SUCCESS)]).remove == ()


def test_a_repair_that_is_allowed_begins():
    old = result(Outcome.SUCCESS)
    found = step([old], need=repair(Kind.MIGRATE), policy=Policy(Kind.FAILOVER))
    assert found.state == State.PENDING
    assert found.record == Record(Kind.MIGRATE, "new", 1000)
    assert found.repair is not None
    assert found.remove == (old,)


def test_without_permission_it_is_only_told():
    found = step([], need=repair(Kind.MIGRATE), policy=Policy())
    assert (found.state, found.add, found.repair) == (State.NEEDS_REPAIR, (), None)
    assert found.told == "why, but repairs are not enabled"


def test_too_little_permission_is_recorded_once():
    found = step([], need=repair(Kind.REINSTALL), policy=Policy(Kind.MIGRATE))
    assert found.state == State.NEEDS_REPAIR
    (record,) = found.add
    assert record.outcome == Outcome.ENOPERM
    again = step([record], need=repair(Kind.REINSTALL), policy=Policy(Kind.MIGRATE))
    assert (again.add, again.remove) == ((), ())


def test_running_jobs_are_waited_for():
    found = step([pending()], {7: JobState.RUNNING}, repair(Kind.FAILOVER))
    assert found == plan.Step(State.PENDING)


def test_a_repair_that_helped_ends_with_success():
    first = pending()
    found = step([first], {7: JobState.SUCCESS})
    assert found.state == State.HEALTHY
    assert found.add == (Record(Kind.FAILOVER, "a", 1000, Outcome.SUCCESS, (7,)),)
    assert found.remove == (first,)


def test_a_repair_goes_on_under_the_same_name_until_all_is_well():
    first = pending()
    found = step([first], {7: JobState.SUCCESS}, repair(Kind.FIX_STORAGE))
    assert (found.state, found.record, found.add) == (State.PENDING, first, ())
    assert found.remove == (first,)


def test_a_repair_stops_where_its_kind_ends():
    found = step([pending()], {7: JobState.SUCCESS}, repair(Kind.REINSTALL))
    assert found.state == State.NEEDS_REPAIR
    assert [record.outcome for record in found.add] == [Outcome.ENOPERM]


def test_a_failed_job_ends_in_failure_and_stays_there():
    first = pending()
    found = step([first], {7: JobState.FAILED}, repair(Kind.FAILOVER))
    assert found.state == State.FAILED
    (failure,) = found.add
    later = step([failure], {}, repair(Kind.FAILOVER))
    assert (later.state, later.repair, later.add) == (State.FAILED, None, ())


def test_missing_room_is_waited_for():
    first = pending()
    found = step([first], {7: JobState.NO_ROOM}, repair(Kind.FAILOVER))
    assert (found.state, found.record) == (State.PENDING, first)


def test_nothing_new_begins_while_suspended():
    off = Policy(until=2000.0)
    found = step([], need=repair(Kind.MIGRATE), policy=off)
    assert (found.state, found.repair) == (State.NEEDS_REPAIR, None)
    found = step([pending()], {7: JobState.SUCCESS}, repair(Kind.MIGRATE), off)
    assert (found.state, found.repair) == (State.PENDING, None)
    found = step([pending()], {7: JobState.SUCCESS}, None, off)
    assert found.state == State.HEALTHY


def test_a_request_from_outside_needs_no_standing_permission():
    asked = pending(jobs=())
    found = step([asked], need=repair(Kind.MIGRATE), policy=Policy())
    assert (found.state, found.record) == (State.PENDING, asked)
    assert step([asked], policy=Policy()).state == State.HEALTHY


def test_several_requests_are_taken_oldest_first():
    first, second = pending("a", time=5), pending("b", time=6, jobs=())
    found = step([first, second], {7: JobState.SUCCESS}, repair(Kind.MIGRATE))
    assert found.record == first
    assert second not in found.remove
    done = step([first, second], {7: JobState.SUCCESS})
    assert [record.id for record in done.add] == ["a", "b"]


def test_a_pending_tag_with_a_result_is_left_over():
    first = pending()
    ended = result(Outcome.SUCCESS, ident="a", time=9)
    assert step([first, ended]).remove == (first,)


def test_every_way_ends_when_jobs_succeed_and_the_instance_heals():
    needs = (Kind.FIX_STORAGE, Kind.MIGRATE, Kind.FAILOVER, Kind.REINSTALL)
    for kinds, limit in itertools.product(itertools.permutations(needs, 2), needs):
        records, jobs = [], {}
        for kind in (*kinds, None):
            need = None if kind is None else repair(kind)
            found = plan.step(records, jobs, need, Policy(limit), FRESH)
            kept = [r for r in records if r not in found.remove]
            records = [*kept, *found.add]
            if found.record is not None:
                job = len(jobs) + 1
                jobs[job] = JobState.SUCCESS
                grown = (*found.record.jobs, job)
                records.append(
                    Record(found.record.kind, found.record.id, 1000, None, grown)
                )
        assert found.state == State.HEALTHY
        assert all(record.outcome is not None for record in records)
