"""Clients get an answer while no majority confirms a commit."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from fakes.clocks import FakeClock
from ganeti.base import errors
from ganeti.daemons.masterd import stalls
from ganeti.daemons.masterd.methods import calls

REASON = "changes are refused: missing: node2, node3"


class FakeCall:
    """A call that keeps its answers."""

    method = "SubmitJob"

    def __init__(self):
        self.on_close = None
        self.answers = []

    def succeed(self, result):
        self.answers.append(result)

    fail = succeed


class Loop:
    """The timers of an event loop, the store's state, and the clock."""

    def __init__(self):
        self.clock = FakeClock()
        self.reason = ""
        self.timers = []
        self.stalls = stalls.Stalls(lambda: self.reason, self.clock, self._call_later)

    def _call_later(self, delay_s, function):
        self.timers.append((self.clock.now + delay_s, function))

    def run(self, seconds):
        end = self.clock.now + seconds
        while self.timers and self.timers[0][0] <= end:
            self.clock.now, function = self.timers.pop(0)
            function()
        self.clock.now = end

    def begin(self, **later):
        call, future = FakeCall(), Future()
        later = {"committing": "Job 7", **later}
        calls._answer_later(call, calls.Later(future, **later), self.stalls)
        return call, future


@pytest.fixture
def loop():
    return Loop()


def test_a_call_that_waits_for_a_stalled_commit_ends_within_the_limit(loop):
    call, future = loop.begin(can_cancel=True)
    loop.reason = REASON
    loop.run(stalls.LIMIT_S)
    assert call.answers == []
    loop.run(2 * stalls.TICK_S)
    (error,) = call.answers
    assert isinstance(error, errors.StorageError)
    assert f"outcome unknown: {REASON}." in str(error)
    # True for a majority that is away, and for a full disk.
    assert "\nJob 7 goes on by itself as soon as changes are accepted" in str(error)
    assert future.cancelled()
    assert call.on_close is None


def test_a_late_result_is_not_a_second_answer(loop):
    call, future = loop.begin()
    loop.reason = REASON
    loop.run(stalls.LIMIT_S + 2)
    future.set_result(7)
    assert len(call.answers) == 1


def test_a_result_in_time_is_the_answer(loop):
    call, future = loop.begin()
    loop.reason = REASON
    loop.run(stalls.LIMIT_S - 2)
    future.set_result(7)
    loop.run(60)
    assert call.answers == [7]


def test_a_call_during_a_long_stall_waits_for_one_tick(loop):
    loop.begin()
    loop.reason = REASON
    loop.run(3 * stalls.LIMIT_S)
    call, _ = loop.begin()
    loop.run(stalls.TICK_S)
    assert len(call.answers) == 1


def test_each_stall_has_the_whole_limit(loop):
    loop.begin()
    loop.reason = REASON
    loop.run(stalls.LIMIT_S - 5)
    loop.reason = ""
    loop.run(2)
    loop.reason = REASON
    call, _ = loop.begin()
    loop.run(stalls.LIMIT_S - 5)
    assert call.answers == []


def test_calls_that_commit_nothing_wait_as_long_as_they_like(loop):
    call, _ = loop.begin(committing="")
    loop.reason = REASON
    loop.run(10 * stalls.LIMIT_S)
    assert call.answers == []


def test_no_timer_is_left_while_nothing_waits(loop):
    _, future = loop.begin()
    future.set_result(None)
    loop.run(2)
    assert loop.timers == []


def test_one_timer_serves_all_calls(loop):
    for _ in range(5):
        loop.begin()
    assert len(loop.timers) == 1
    loop.run(3)
    assert len(loop.timers) == 1


def test_a_client_that_left_is_forgotten(loop):
    call, _ = loop.begin(can_cancel=True)
    call.on_close()
    loop.run(2)
    assert loop.timers == []
    assert call.answers == []


def test_every_change_of_the_queue_is_bounded():
    """A method that commits says so; queries and plans commit nothing."""
    from ganeti.daemons.masterd import service

    assert service.METHOD_MODULES
    deps = SimpleNamespace(
        queue=_AnyQueue(), slow=SimpleNamespace(submit=lambda *_args: Future())
    )
    made = {
        "SubmitJob": ([],),
        "SubmitJobToDrainedQueue": ([],),
        "SubmitManyJobs": ([],),
        "ArchiveJob": (7,),
        "AutoArchiveJobs": (0, 0),
        "CancelJob": (7,),
        "ChangeJobPriority": (7, 0),
        "SetDrainFlag": (True,),
        "DeleteFilter": ("uuid",),
    }
    for name, args in made.items():
        assert calls.METHODS[name].function(deps, *args).committing, name


class _AnyQueue:
    """A queue whose methods return futures."""

    def __getattr__(self, name):
        return lambda *_args, **_kwargs: Future()
