"""The job queue under generated schedules, and under many clients at once."""

import random
import threading

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fakes.jobs_run import WAIT_S, Harness, dummy
from fakes.seeds import examples
from ganeti.base import clock, errors
from ganeti.decisions.jobs import records, transitions
from ganeti.decisions.jobs.entry import Entry, Place
from ganeti.decisions.jobs.schedule import Schedule
from ganeti.master import jqueue
from ganeti.master.jqueue import LockTimeout
from ganeti.master.locking import BGL, Level, LockManager, Request
from ganeti.model import objects, opcodes

LIMITS = {"1:a": 1, "2:b": 2, "1:c": 1}
BUCKETS = st.lists(st.sampled_from(sorted(LIMITS)), max_size=3, unique=True)
STEP = st.one_of(
    st.tuples(st.just("new"), st.sampled_from([-10, 0, 10]), BUCKETS),
    st.tuples(st.just("start")),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("priority"), st.integers(0, 9), st.integers(-20, 19)),
    st.tuples(st.just("rules"), st.booleans()),
)
PAUSE = objects.FilterRule(
    uuid="p", watermark=0, priority=0, predicates=(), action="PAUSE", reason_trail=()
)


class Model:
    def __init__(self):
        self.schedule = Schedule()
        self.jobs = []
        self.running = []
        self.paused = False

    def step(self, action, *args):
        getattr(self, f"do_{action}")(*args)
        self.check()

    def do_new(self, priority, buckets):
        reason = [("gnt:user", f"rate-limit:{name}", 0) for name in buckets]
        op = opcodes.TestDelay(duration=0.0, priority=priority, reason=reason)
        entry = Entry(transitions.new_job(len(self.jobs) + 1, [op], (0, 0)), [op])
        self.jobs.append(entry)
        self.schedule.push(entry)

    def do_start(self):
        waiting = self.waiting()
        entry = self.schedule.pop(lambda entry: None)
        startable = [e for e in waiting if not self.paused and self.fits(e)]
        if entry is None:
            assert not startable  # nobody was forgotten
            return
        assert entry in startable
        best = min((e.job.priority, e.arrival) for e in startable)
        assert (entry.job.priority, entry.arrival) == best
        entry.place = Place.WORKING
        self.running.append(entry)

    def do_end(self, index):
        if index < len(self.running):
            entry = self.running.pop(index)
            entry.place = Place.ENDED
            self.schedule.leave(entry)

    def do_cancel(self, index):
        waiting = self.waiting()
        if index < len(waiting):
            waiting[index].place = Place.ENDED
            self.schedule.leave(waiting[index])

    def do_priority(self, index, priority):
        waiting = self.waiting()
        if index < len(waiting):
            entry = waiting[index]
            entry.job = transitions.with_priority(entry.job, priority)
            self.schedule.changed_priority(entry)

    def do_rules(self, paused):
        self.paused = paused
        self.schedule.use_rules([PAUSE] if paused else [], object())

    def waiting(self):
        return [e for e in self.jobs if e.place in (Place.READY, Place.PARKED)]

    def taken(self, key):
        return sum(key in {s.key for s in e.slots} for e in self.running)

    def fits(self, entry):
        return all(self.taken(slot.key) < slot.limit for slot in entry.slots)

    def check(self):
        for name, limit in LIMITS.items():
            assert self.taken(f"bucket/{name}") <= limit


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(STEP, max_size=60))
@example(
    # A job that was woken for a free slot is canceled: the next one gets the slot.
    [("new", 0, ["1:a"])] * 3
    + [("start",), ("start",), ("end", 0), ("cancel", 0), ("start",)]
)
def test_slots_are_respected_and_no_job_that_may_start_is_forgotten(steps):
    model = Model()
    for step in steps:
        model.step(*step)
    model.do_rules(False)
    while model.waiting():
        model.do_start()
        model.do_end(0)
    assert not model.schedule._taken or model.running


OPS = st.lists(st.sampled_from(list(jqueue.Event)), max_size=12)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.integers(1, 3),
    st.lists(
        st.sampled_from(
            [
                "start",
                "retry",
                "execute",
                "succeed",
                "fail",
                "cancel",
                "confirm",
                "recover",
            ]
        ),
        max_size=20,
    ),
)
def test_jobs_only_reach_states_that_recovery_understands(count, events):
    op = opcodes.TestDelay(duration=0.0)
    job = transitions.new_job(1, [op] * count, (0, 0))
    for event in events:
        job = happen(job, event)
        new = transitions.recover(job, (9, 9))
        assert new.status == "queued" or new.is_final
        assert transitions.recover(new, (9, 9)) == new
        assert (job.end_timestamp is not None) == job.is_final
        unfinished = [op.status for op in job.ops if not op.status.is_final]
        assert all(status == "queued" for status in unfinished[1:])


def happen(job, event):
    index = transitions.next_index(job)
    now = (1, 1)
    if index is None:
        return job
    status = str(job.ops[index].status)
    steps = {
        ("queued", "start"): lambda: transitions.start(job, index, now),
        ("waiting", "retry"): lambda: transitions.retry(job, index, -1),
        ("waiting", "execute"): lambda: transitions.execute(job, index, now),
        ("running", "succeed"): lambda: transitions.succeed(
            job, index, transitions.encode_value(1), now
        ),
        ("queued", "cancel"): lambda: transitions.cancel(job, now),
        ("waiting", "cancel"): lambda: transitions.cancel(job, now),
        ("canceling", "confirm"): lambda: transitions.confirm_cancel(job, index, now),
        (status, "recover"): lambda: transitions.recover(job, now),
    }
    if status != "queued":
        steps[status, "fail"] = lambda: transitions.fail(
            job, index, ValueError("x"), now
        )
    return steps.get((status, event), lambda: job)()


# Many clients at once: whatever they do, everything ends and nothing is left over.
#
# The executor takes real locks, as the engine does.

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
                queue.cancel_later(some, kill=chance.random() < 0.3).result()
            elif action == 1:
                queue.change_priority_later(some, chance.randint(-20, 19)).result()
            elif action == 2:
                queue.archive_later(some).result()
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
                answers = queue.submit_many_later([ops] * chance.randint(1, 3)).result()
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
        assert job.status == records.job_status(op.status for op in job.ops)
    assert len(harness.executor.begun) == len(set(harness.executor.begun))
    harness.settle()
    assert (core.dispatcher.running, core.arriving, core.live) == (0, 0, {})
    assert core.schedule._taken == {}
    assert core.schedule._parked == {}
    assert core.dependents == {}
    harness.close()
    assert not harness.failures
    assert harness.executor.locks.lock_info() == []
