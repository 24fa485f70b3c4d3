"""No commit inside a valid reservation is refused, whatever happens around it.

``test/bench/run reservations`` does 100,000 operations.
"""

import pytest

from fakes.reservation_walk import Walk


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_reserved_can_be_created(seed):
    walk = Walk(seed)
    for _step in range(300):
        walk.step()
    walk.verify()
    assert walk.commits > 0
    assert walk.refused["OP_INSTANCE_CREATE"] > 0
