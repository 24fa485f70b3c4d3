"""Many clients at once: whatever they do, everything ends and nothing is left over.

The executor takes real locks, as the engine does.
"""

import random
import threading

import pytest

from fakes.jobs_run import WAIT_S, Harness, dummy
from ganeti.base import clock, errors
from ganeti.decisions.jobs import state
from ganeti.master.jqueue import LockTimeout
from ganeti.master.locking import BGL, Level, LockManager, Request

CLIENTS = 5
ROUNDS = 40


class Moody:
    """An executor that does each thing that executors do, by chance."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.begun = []
        self.guard = threading.Lock()
        nodes = ["n1", "n2", "n3"]
        self.locks = LockManager(clock.SystemClock(), {Level.NODE: nodes})

    def execute(self, op, callbacks, *, timeout_s, priority):
        mood = self.chance.random()
        locks, worker = self.locks, threading.current_thread()
        locks.resume()
        callbacks.on_interrupt(lambda: locks.interrupt(worker))
        callbacks.check_canceled()
        names = self.chance.choice([None, ["n1"], ["n2", "n3"]])
        try:
            for request in (
                Request(Level.CLUSTER, [BGL], shared=mood > 0.1, priority=priority),
                Request(Level.NODE, names, shared=mood > 0.5, priority=priority),
            ):
                callbacks.check_canceled()
                # Without a limit: only an interruption ends the waiting.
                if locks.acquire(request, self.chance.choice([0.001, None])) is None:
                    raise LockTimeout
            return self.work(mood, callbacks)
        finally:
            locks.release_all()

    def work(self, mood, callbacks):
        callbacks.started(durable=mood < 0.6)
        with self.guard:
            self.begun.append(callbacks.owner)
        callbacks.log("message", "working")
        if mood > 0.95:
            raise errors.OpExecError("bad mood")
        if mood > 0.92:
            return callbacks.submit_jobs([[dummy(), dummy()]])
        return mood


def client(queue, seed, problems, refused):
    chance = random.Random(seed)
    reasons = [[], [("gnt:user", "rate-limit:1:x", 0)], [("u", "rate-limit:3:y", 0)]]
    try:
        for _ in range(ROUNDS):
            some = chance.randint(1, queue.last_id + 1)
            action = chance.randrange(8)
            if action == 0:
                queue.cancel(some, kill=chance.random() < 0.3)
            elif action == 1:
                queue.change_priority(some, chance.randint(-20, 19))
            elif action == 2:
                queue.archive(some)
            elif action == 3:
                future = queue.wait_for_change(some, lambda j: [j.status], timeout_s=9)
                if chance.random() < 0.5:
                    future.cancel()
                else:
                    future.exception(WAIT_S)  # JobLost for archived ones
            else:
                ops = [
                    dummy(
                        priority=chance.choice([-10, 0, 10]),
                        reason=chance.choice(reasons),
                        depends=chance.choice([None, None, [(-1, [])], [(some, [])]]),
                    )
                    for _ in range(chance.randint(1, 3))
                ]
                answers = queue.submit_many([ops] * chance.randint(1, 3))
                refused.extend(text for ok, text in answers if not ok)
    except Exception as err:  # noqa: BLE001
        problems.append(err)


@pytest.mark.parametrize("seed", range(3))
def test_everything_ends_and_nothing_is_left_over(seed):
    harness = Harness(executor=Moody(seed), workers=4)
    core = harness.queue._core
    # Rests between attempts are for real time; here they end at once.
    after = core.timers.after
    core.timers.after = lambda s, call: after(0.0 if s < 80 else s, call)
    problems, refused = [], []
    harness.queue.start()
    threads = [
        threading.Thread(
            target=client,
            args=(harness.queue, seed * 100 + n, problems, refused),
            daemon=True,
        )
        for n in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems
    while harness.queue.statistics().unfinished:
        for job in harness.queue.jobs(with_logs=False):
            if not job.is_final:
                harness.final(job.id)
                break
    actual = [harness.queue.job(n + 1) for n in range(harness.queue.last_id)]
    assert actual.count(None) == len(refused)  # they consume an id
    for job in filter(None, actual):
        assert job.is_final
        assert job.status == state.job_status(op.status for op in job.ops)
    assert len(harness.executor.begun) == len(set(harness.executor.begun))
    harness.settle()
    assert (core.running, core.arriving, core.live) == (0, 0, {})
    assert core.schedule._taken == {}
    assert core.schedule._parked == {}
    assert core.dependents == {}
    harness.close()
    assert not harness.failures
    assert harness.executor.locks.lock_info() == []
