"""Generated schedules: slots, pauses and priorities of the job queue."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ganeti.decisions.jobs import transitions
from ganeti.decisions.jobs.entry import Entry, Place
from ganeti.decisions.jobs.schedule import Schedule
from ganeti.master import jqueue
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


@settings(max_examples=500, deadline=None)
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


@settings(max_examples=300, deadline=None)
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
