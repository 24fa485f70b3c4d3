"""Generated schedules against the rules of one lock."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.seeds import examples
from ganeti.decisions import lock_rules as rules

OWNERS = range(8)
STEP = st.tuples(
    st.sampled_from(["shared", "exclusive", "leave", "downgrade"]),
    st.sampled_from(OWNERS),
    st.sampled_from([-10, 0, 0, 0, 10]),
)


class Model:
    """Drives the rules and keeps what a set of threads would know."""

    def __init__(self):
        self.state = rules.LockState()
        self.modes = {}
        self.waiting = {}
        self.arrival = 0
        #: exclusive waiter -> (arrival, owners whose turn comes before)
        self.ahead = {}

    def step(self, action, owner, priority):
        if action in ("shared", "exclusive"):
            if owner not in self.modes and owner not in self.waiting:
                self.request(owner, action == "shared", priority)
        elif owner in self.waiting:
            pending, _ = self.waiting.pop(owner)
            self.ahead.pop(owner, None)
            self.took(self.state.withdraw(owner, pending))
        elif owner in self.modes:
            if action == "downgrade":
                self.modes[owner] = True
                # It may put shared ones of the top priority before exclusive ones.
                for other in self.ahead:
                    self.ahead[other] = None
                self.took(self.state.downgrade(owner))
            else:
                del self.modes[owner]
                self.took(self.state.release(owner))

    def request(self, owner, shared, priority):
        before = list(self.state.queue)
        was_empty, fits = not before, self.state.mode in (None, "shared")
        pending = self.state.request(owner, shared=shared, priority=priority)
        if pending is None:
            assert fits
            assert was_empty or all(p.priority > priority for p in before)
            self.modes[owner] = shared
            return
        if was_empty:
            assert not (shared and self.state.mode == "shared")
        self.waiting[owner] = (pending, shared)
        if not shared:
            at = self.state.queue.index(pending)
            self.ahead[owner] = set(self.state.queue[:at])
        for other, known in self.ahead.items():
            if known is not None and pending.priority < self.waiting[other][0].priority:
                known.add(pending)  # more urgent ones may pass

    def took(self, conditions):
        for pending in conditions:
            for other, known in self.ahead.items():
                if other not in pending.waiters and known is not None:
                    # Fairness: only conditions queued ahead, or more urgent, pass.
                    assert pending in known
            for owner in pending.waiters:
                _, shared = self.waiting.pop(owner)
                self.ahead.pop(owner, None)
                self.modes[owner] = shared

    def check(self):
        state = self.state
        # Exclusion, and agreement about who holds it.
        assert set(state.holders) == set(self.modes)
        exclusive = [o for o, shared in self.modes.items() if not shared]
        assert not exclusive or len(self.modes) == 1
        # Nobody who waits was forgotten.
        assert {o for p in state.queue for o in p.waiters} == set(self.waiting)
        # No lost wake-up: the first condition could not be granted now.
        if state.queue:
            assert self.modes
            assert not state.queue[0].shared or exclusive
        # Queue length, and one shared condition for each priority.
        groups = [p.priority for p in state.queue if p.shared]
        assert len(groups) == len(set(groups))
        priorities = [p.priority for p in state.queue]
        assert priorities == sorted(priorities)
        for p in state.queue:
            assert p.shared or len(p.waiters) == 1
            assert p.waiters


@settings(max_examples=examples(2000), deadline=None)
@given(st.lists(STEP, max_size=60))
def test_exclusion_fairness_and_no_lost_wakeup(steps):
    model = Model()
    for step in steps:
        model.step(*step)
        model.check()


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(STEP, max_size=40))
def test_everybody_gets_a_turn_when_holders_let_go(steps):
    model = Model()
    for step in steps:
        model.step(*step)
    rounds = 0
    while model.modes:
        model.step("leave", next(iter(model.modes)), 0)
        model.check()
        rounds += 1
        assert rounds <= 2 * len(OWNERS)
    assert not model.waiting
