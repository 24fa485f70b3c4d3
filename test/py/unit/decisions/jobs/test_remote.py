"""The share of the remote API in the queue and in the workers."""

import pytest

from fakes.jobs_run import Gate, Harness, dummy, until
from ganeti.base import errors
from ganeti.decisions.jobs import remote


def by(name, address="192.0.2.9", comment=None):
    """Return an opcode that a user of the remote API has submitted."""
    text = f"user {name}, address {address}, request 0123456789ab"
    return dummy(comment, reason=[(remote.SOURCE, text, 1)])


@pytest.mark.parametrize(
    ("reasons", "who"),
    [
        ([], ""),
        ([("gnt:user", "user ann, address x, request 0", 1)], ""),
        ([("me", "x", 1), *by("ann").reason], "user ann"),
        (by("anonymous").reason, "address 192.0.2.9"),
        ([(remote.SOURCE, "x", 1)], "x"),
    ],
)
def test_the_requester_is_in_the_reasons(reasons, who):
    assert remote.requester(reasons) == who


@pytest.mark.parametrize(
    ("limit", "part"), [(1, 1), (2, 1), (4, 3), (5, 4), (20, 16), (100, 80)]
)
def test_some_workers_are_kept(limit, part):
    assert remote.workers(limit) == part


@pytest.fixture
def waiting():
    """Return a queue that runs nothing, with room for ten jobs."""
    harness = Harness(hard_limit=10)
    yield harness
    harness.close()


def test_places_are_kept_for_the_administrator(waiting):
    submit = waiting.queue.submit
    for name in ("ann", "bob", "cid", "dan"):
        for _ in range(2):
            submit([by(name)])
        with pytest.raises(errors.JobQueueFull, match=f"user {name} has 2 unfinished"):
            submit([by(name)])
    with pytest.raises(errors.JobQueueFull, match="part of the job queue"):
        submit([by("eve")])
    for _ in range(2):
        submit([dummy()])
    with pytest.raises(errors.JobQueueFull):
        submit([dummy()])


def test_jobs_of_one_request_have_the_same_limits(waiting):
    # So are the jobs that a job submits: their opcodes have its reasons.
    answers = waiting.queue.submit_many([[by("ann")] for _ in range(9)])
    assert [is_accepted for is_accepted, _ in answers] == [True] * 2 + [False] * 7
    assert answers[2][1] == "user ann has 2 unfinished jobs already"
    for name in ("bob", "cid", "dan", "eve"):
        answers = waiting.queue.submit_many([[by(name)], [by(name)]])
    assert "part of the job queue" in answers[0][1]
    assert [ok for ok, _ in waiting.queue.submit_many([[dummy()]] * 3)] == [1, 1, 0]


def test_an_ended_job_gives_its_place_back(waiting):
    first, _ = (waiting.queue.submit([by("ann")]) for _ in range(2))
    with pytest.raises(errors.JobQueueFull):
        waiting.queue.submit([by("ann")])
    assert waiting.queue.cancel(first)[0]
    until(lambda: waiting.queue.statistics().unfinished == 1)
    waiting.queue.submit([by("ann")])


@pytest.mark.parametrize(
    ("who", "jobs"), [("user ann", 10_000), ("address 192.0.2.9", 100)]
)
def test_one_requester_has_a_limit(who, jobs):
    share = remote.Share(50_000)
    share.add(who, 0, 1)
    for _ in range(jobs - 2):
        share.add(who, 0)
    share.check(who, 1)
    share.add(who, 0)
    with pytest.raises(errors.JobQueueFull, match=f"{who} has {jobs} unfinished"):
        share.check(who, 1)
    share.check("user bob", 1)
    share.check("", 1 << 40)


def test_the_bytes_of_one_requester_have_a_limit():
    share = remote.Share(50_000)
    most = 64 << 20
    share.check("user ann", most + 1)
    share.add("user ann", most - 1)
    share.check("user ann", 1)
    with pytest.raises(errors.JobQueueFull, match=str(most)):
        share.check("user ann", 2)
    share.add("user ann", most - 1, -1)
    share.add("user ann", 1)
    share.check("user ann", 2)


def test_a_worker_is_kept_for_the_administrator():
    harness = Harness(workers=2)
    gate = Gate()

    def stop(_op, callbacks, _timeout, _priority):
        callbacks.started()
        gate.stop()

    harness.executor.script["stop"] = stop
    try:
        harness.queue.start()
        remote_jobs = [harness.queue.submit([by("ann", comment="stop")]) for _ in "12"]
        gate.wait()
        own = harness.queue.submit([dummy()])
        until(lambda: harness.queue.job(own).status == "success")
        assert harness.queue.job(remote_jobs[1]).status == "queued"
        gate.open()
        for job in remote_jobs:
            until(lambda job=job: harness.queue.job(job).status == "success")
    finally:
        gate.open()
        harness.close()
