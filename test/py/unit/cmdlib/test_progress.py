"""How far a step has come: when it is told, and how it reads."""

import types

from fakes.clocks import FakeClock
from ganeti.cmdlib import progress


class Log:
    def __init__(self):
        self.entries = []

    def entry(self, kind, payload):
        self.entries.append((kind, payload))


def context():
    return types.SimpleNamespace(clock=FakeClock(), log=Log())


def test_short_steps_tell_nothing():
    ctx = context()
    shown = progress.Progress(ctx, "wiping disk/0", 100)
    ctx.clock.now += 1.9
    shown.at(99)
    assert ctx.log.entries == []


def test_rate_and_rest_follow_from_what_was_done():
    ctx = context()
    shown = progress.Progress(ctx, "wiping disk/0", 1000)
    ctx.clock.now += 4
    shown.at(100)
    assert ctx.log.entries == [
        ("progress", "wiping disk/0: 100 of 1000 MiB, 10 %, 25.0 MiB/s, 36 s left")
    ]


def test_an_hour_is_told_a_few_hundred_times_at_most():
    ctx = context()
    shown = progress.Progress(ctx, "copying", 3600)
    for second in range(3600):
        ctx.clock.now += 1
        shown.at(second)
    assert 300 < len(ctx.log.entries) < 450


def test_times_are_readable():
    assert progress.duration(9.7) == "10 s"
    assert progress.duration(64) == "1:04 min"
    assert progress.duration(3723) == "1:02:03"
    assert progress.line("x", 0, 0, None, None) == "x: 0 of 0 MiB"
