"""No rule of automatons is broken in 200 random simulations.

``test/bench/run simulations --seeds N..N`` plays a seed that fails, and shows it.
"""

import pytest

from fakes import simulations

SEEDS = 200
PART = 50


@pytest.mark.sampled
@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_random_runs(first):
    assert not simulations.apart("seeds", first, first + PART)
