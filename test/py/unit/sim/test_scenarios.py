"""Each scenario folder plays as recorded, and breaks no rule.

``RECORD_SIMULATIONS=1`` writes the logs again; read them as part of the change.
"""

import re

import pytest

from fakes import simulations

SENTENCE = re.compile(r"(?P<scenario>[a-z0-9-]+): (?P<sentence>.+)")
#: Scenarios that one process plays.
PART = 30
NAMES = simulations.names()


@pytest.mark.parametrize("first", range(0, len(NAMES), PART))
def test_scenarios(first):
    played = simulations.apart("scenarios", *NAMES[first : first + PART])
    assert not {name: broken for name, (_text, broken) in played.items() if broken}
    for name, (text, _broken) in played.items():
        if simulations.RECORDS:
            simulations.record(name, text)
        assert text == simulations.expected(name), name


def test_each_documented_sentence_has_a_scenario():
    table = (simulations.ROOT / "sentences").read_text().splitlines()
    rows = [SENTENCE.fullmatch(line) for line in table]
    assert all(rows)
    assert {row["scenario"] for row in rows} == set(NAMES)
    for row in rows:
        text = (simulations.ROOT / row["scenario"] / "README").read_text()
        assert text.startswith(f"{row['sentence']}\n")


def test_rounds_that_are_skipped_would_have_decided_nothing():
    for name, (text, _broken) in simulations.apart("whole", *NAMES[::25]).items():
        assert text == simulations.expected(name), name
