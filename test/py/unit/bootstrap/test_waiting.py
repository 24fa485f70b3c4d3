"""Polling: how often, and for how long."""

from fakes.clocks import FakeClock
from ganeti.bootstrap.waiting import wait_until


class Condition:
    """Becomes true at some question; records when it was asked."""

    def __init__(self, clock, number=None):
        self.clock, self.number, self.times = clock, number, []

    def __call__(self):
        self.times.append(self.clock.now - 100.0)
        return len(self.times) == self.number


def test_a_condition_that_holds_takes_no_time():
    clock = FakeClock(100.0)
    assert wait_until(Condition(clock, 1), clock, timeout_s=30)
    assert clock.now == 100.0


def test_pauses_grow_to_a_limit():
    clock = FakeClock(100.0)
    condition = Condition(clock, 7)
    assert wait_until(condition, clock, timeout_s=30)
    assert condition.times == [0, 1.0, 2.5, 4.75, 8.125, 13.125, 18.125]


def test_the_last_question_is_asked_at_the_end_of_the_time():
    clock = FakeClock(100.0)
    condition = Condition(clock)
    assert not wait_until(condition, clock, timeout_s=3)
    assert condition.times == [0, 1.0, 2.5, 3.0]
