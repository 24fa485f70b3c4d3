"""Settings of the duties of the maintenance daemon."""

import msgspec
import pytest

from ganeti.decisions.repair import duties
from ganeti.decisions.repair.duties import Duties


def test_nothing_is_done_unless_somebody_switches_it_on():
    assert duties.read({}) == duties.read(duties.shown({})) == Duties()
    given = msgspec.to_builtins(Duties())
    assert [name for name, value in given.items() if value is True] == []


def test_settings_have_the_documented_names_and_defaults():
    assert msgspec.to_builtins(Duties()) == {
        "roundDelay": 300,
        "balance": False,
        "balanceThreshold": 0.1,
        "balanceLoad": False,
        "balanceDiskMoves": False,
        "repairs": False,
    }
    assert set(duties.SETTINGS.values()) == set(msgspec.to_builtins(Duties()))


def test_a_default_is_not_stored():
    stored = duties.changed({"balance": True}, {"maint_round_delay": 60})
    assert stored == {"balance": True, "roundDelay": 60}
    back = {"maint_balance": False, "maint_round_delay": 300}
    assert duties.changed(stored, back) == {}


def test_what_is_stored_is_read_again():
    stored = {"balance": True, "balanceThreshold": 0.5}
    assert duties.read(duties.shown(stored)) == Duties(
        balance=True, balance_threshold=0.5
    )


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ({"delay": 1}, "found 'delay'"),
        ({"roundDelay": "1"}, r"Expected `int`, got `str`"),
        ({"roundDelay": 0}, "wanted 1 to 604800"),
        ({"balanceThreshold": float("nan")}, "found nan"),
    ],
)
def test_impossible_settings_are_named(stored, text):
    assert text in duties.stored_problem(stored)
