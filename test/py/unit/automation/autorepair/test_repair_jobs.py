"""Jobs of repairs: what their ends mean, and which repair they belong to."""

import pytest

from ganeti.automation.autorepair import repair_jobs
from ganeti.automation.autorepair.repair_jobs import KnownJobs, job_state
from ganeti.base import errors
from ganeti.decisions.repair import tags
from ganeti.decisions.repair.plan import JobState

P = tags.PREFIX
DELAY, MOVE = {"OP_ID": "OP_TEST_DELAY"}, {"OP_ID": "OP_INSTANCE_MIGRATE"}
CREATE = {"OP_ID": "OP_INSTANCE_RECREATE_DISKS"}
REFUSED = errors.encode(errors.OpPrereqError("no", "wrong_state"))
FULL = errors.encode(errors.OpPrereqError("full", "insufficient_resources"))
BROKEN = errors.encode(errors.OpExecError("broken"))


@pytest.mark.parametrize(
    ("status", "ops", "results", "state"),
    [
        ("success", [MOVE], [None], JobState.SUCCESS),
        ("canceled", [MOVE], [None], JobState.CANCELED),
        ("queued", [MOVE], [None], JobState.RUNNING),
        ("canceling", [MOVE], [None], JobState.RUNNING),
        ("error", [MOVE], [BROKEN], JobState.FAILED),
        ("error", [MOVE], [REFUSED], JobState.REFUSED),
        ("error", [DELAY, MOVE], [None, REFUSED], JobState.REFUSED),
        ("error", [DELAY, CREATE], [True, FULL], JobState.NO_ROOM),
        # The first opcode has changed something.
        ("error", [CREATE, MOVE], [None, REFUSED], JobState.FAILED),
        ("error", [CREATE, MOVE], [None, FULL], JobState.FAILED),
        ("error", [], None, JobState.FAILED),
        ("error", ["x", 5], [REFUSED], JobState.FAILED),
    ],
)
def test_the_end_of_a_job_shows_whether_anything_was_changed(
    status, ops, results, state
):
    assert job_state(status, results, ops) == state


def test_jobs_that_name_a_repair_belong_to_it():
    known = KnownJobs({}, {"a": [3, 7, 9], "b": [8]}, {})
    present = [f"{P}pending:migrate:a:5:7", f"{P}result:migrate:b:6:success:1"]
    first, ended = repair_jobs.complete(tags.records(present), known)
    assert (first.jobs, ended.jobs) == ((7, 9), (1,))
    assert first.original_tag == present[0]


@pytest.mark.parametrize(
    "reason",
    [
        None,
        [[]],
        [["autorepair"]],
        [["autorepair", 5]],
        [["autorepair", ""]],
        [["gnt:user", f"{P}pending:migrate:a:5:"]],
        [["autorepair", f"x {P}pending:migrate:a:5:"]],
    ],
)
def test_reasons_without_a_repair_are_ignored(reason):
    assert repair_jobs._repairs([MOVE | {"reason": reason}, "x"]) == set()
    named = [["gnt:user", "x"], ["autorepair", f"{P}pending:migrate:a:5: why"]]
    assert repair_jobs._repairs([MOVE | {"reason": named}]) == {"a"}


def test_time_stamps():
    assert repair_jobs._seconds([1700000000, 5]) == 1_700_000_000.0
    assert [repair_jobs._seconds(value) for value in (None, [], ["x"], 5)] == [None] * 4
