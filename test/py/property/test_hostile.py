"""Half a minute of wrong inputs to all that reads foreign bytes.

``test/bench/hostile.py`` sends a million, with a new seed each time. The seed of the test
is fixed, so that a failure points at a change; ``FUZZ_SEED`` sets it.
"""

import os
import random

import pytest

from fakes import fuzz
from fakes.fuzz_targets import TARGETS

#: Inputs that take half a minute together on one core.
COUNT = 100_000


@pytest.fixture(params=TARGETS, ids=lambda item: item[0].__name__)
def target(request):
    return request.param


@pytest.mark.sampled
def test_wrong_inputs_break_nothing_and_cause_no_act(target):
    seed = int(os.environ.get("FUZZ_SEED", "5"))
    fuzz.run(COUNT, seed, [target])


def test_a_mutation_that_is_a_later_term_is_obeyed_and_not_reported(monkeypatch):
    monkeypatch.setattr(
        fuzz,
        "mutated_bytes",
        lambda _chance, data: data.replace(b"Term: 4:", b"Term: 6:"),
    )
    noded = fuzz.Noded()
    try:
        chance = random.Random(1)
        for _ in range(60):
            noded.step(chance)
        assert noded._term == 6
    finally:
        noded.close()
