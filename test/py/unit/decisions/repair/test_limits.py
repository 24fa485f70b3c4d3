"""Limits of automatons: one function for all acts."""

import msgspec
import pytest

from ganeti.decisions.repair import limits
from ganeti.decisions.repair.limits import Act, Automation, Freeze

NOW = 1_700_000_000.0


def automation(**values):
    return Automation(instances=40, **values)


def limit_of(actual, act, now=NOW, instance=""):
    refusal = actual.refusal(act, now, instance)
    return refusal and refusal.limit


@pytest.mark.parametrize("act", Act)
def test_nothing_is_refused_without_limits(act):
    moving = tuple(f"web{n}" for n in range(40))
    assert automation(moving=moving).refusal(act, NOW, "x") is None


@pytest.mark.parametrize("act", Act)
def test_a_freeze_refuses_every_act_with_its_reason(act):
    frozen = automation(freeze=Freeze("move of the room", NOW))
    refusal = frozen.refusal(act, NOW)
    assert refusal.limit == "frozen"
    assert "(move of the room)" in refusal.text
    assert "gnt-cluster thaw" in refusal.text


def test_moves_are_limited_by_their_share():
    actual = automation(limits={"moved-share": 5.0})
    for name in ("a", "b"):
        assert limit_of(actual, Act.MOVE, instance=name) is None
        actual = actual.with_move(name)
    assert limit_of(actual, Act.MOVE, instance="c") == "moved-share"
    assert "2 of 40 instances" in actual.refusal(Act.MOVE, NOW, "c").text
    # One that is under way is no further one, and other acts are no moves.
    assert limit_of(actual, Act.MOVE, instance="b") is None
    assert limit_of(actual, Act.REPAIR) is None
    assert actual.with_move("b") is actual


@pytest.mark.parametrize(
    ("share", "instances", "most"),
    [(0, 100, 0), (10, 3, 1), (10, 0, 1), (10, 39, 3), (100, 39, 39)],
)
def test_at_least_one_instance_may_move_unless_none_shall(share, instances, most):
    assert limits.most_moved(share, instances) == most


@pytest.mark.parametrize(
    ("since_s", "act", "limit"),
    [
        (0, Act.MOVE, "quiet-time"),
        (599, Act.REPAIR, "quiet-time"),
        (-599, Act.MOVE, "quiet-time"),
        (599, Act.START, None),
        (600, Act.MOVE, None),
        (-601, Act.MOVE, None),
    ],
)
def test_a_mass_event_begins_a_quiet_time_in_which_instances_still_start(
    since_s, act, limit
):
    actual = automation(limits={"quiet-time": 600.0}, mass_event=NOW - since_s)
    assert limit_of(actual, act) == limit


def test_without_a_quiet_time_a_mass_event_ends_at_once():
    assert limit_of(automation(mass_event=NOW), Act.MOVE) is None


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("moved-share", 0, ""),
        ("moved-share", 100, ""),
        ("moved-share", 101, "wanted 0 to 100 percent, found 101"),
        ("quiet-time", -1, "wanted 0 to 604800 seconds, found -1"),
        ("quiet-time", float("nan"), "found nan"),
        ("fenced-per-hour", 1001, "wanted 0 to 1000 nodes, found 1001"),
        ("speed", 1, "moved-share, quiet-time, fenced-per-hour, found 'speed'"),
    ],
)
def test_limits_that_can_be_set(name, value, text):
    actual = limits.problem(name, value)
    assert text in actual
    assert bool(text) == bool(actual)


def test_limits_pass_the_wire_unchanged():
    actual = automation(freeze=Freeze("r", 1.5), moving=("a",), mass_event=3.0)
    wire = msgspec.json.decode(msgspec.json.encode(actual))
    assert msgspec.convert(wire, Automation) == actual


def test_fences_have_limits_also_where_none_are_set():
    assert limit_of(automation(fenced=(NOW,)), Act.FENCE) == limits.FENCED_PER_HOUR
    assert limit_of(automation(fenced=(NOW,)), Act.MOVE) is None
    two = automation(fenced=(NOW,), limits={limits.FENCED_PER_HOUR: 2.0})
    assert limit_of(two, Act.FENCE) is None
    event = NOW - limits.DEFAULT_FENCE_QUIET_S + 1
    assert limit_of(automation(mass_event=event), Act.FENCE) == limits.QUIET_TIME
    assert limit_of(automation(mass_event=event), Act.MOVE) is None
    assert limit_of(automation(mass_event=event - 1), Act.FENCE) is None
    short = automation(mass_event=event, limits={limits.QUIET_TIME: 60.0})
    assert limit_of(short, Act.FENCE) is None
