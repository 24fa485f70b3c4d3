"""Each scenario folder plays as recorded, and breaks no rule; nor do random simulations.

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


def documented():
    """Return sentence -> scenarios and tests that show that it holds."""
    rows, sentence = {}, ""
    for line in (simulations.ROOT / "documented").read_text().splitlines():
        if line.startswith("  "):
            rows[sentence] += line.split()
        elif line and not line.startswith("#"):
            sentence = line
            assert sentence not in rows
            rows[sentence] = []
    return rows


def test_each_sentence_of_the_documents_is_shown_by_what_exists():
    tests = simulations.ROOT.parents[1] / "py"
    rows = documented()
    assert len(rows) > 80
    assert not [sentence for sentence, shown in rows.items() if not shown]
    for sentence, shown in rows.items():
        for name in shown:
            path, is_test, function = name.partition("::")
            if is_test:
                text = (tests / path).read_text()
                assert re.search(rf"def {function}\(", text), (sentence, name)
            else:
                assert name in NAMES, (sentence, name)


def test_rounds_that_are_skipped_would_have_decided_nothing():
    for name, (text, _broken) in simulations.apart("whole", *NAMES[::25]).items():
        assert text == simulations.expected(name), name


# No rule of automatons is broken in 200 random simulations.
#
# ``test/bench/run simulations --seeds N..N`` plays a seed that fails, and shows it.

SEEDS = 200
SEEDS_OF_ONE_TEST = 50


@pytest.mark.sampled
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_OF_ONE_TEST))
def test_random_runs(first):
    assert not simulations.apart("seeds", first, first + SEEDS_OF_ONE_TEST)
