"""Which smaller size comes next, where what fits does not follow from other sizes."""

import pytest

from fakes.some_cluster import random_cluster
from ganeti.decisions.htools.capacity import tiers
from ganeti.decisions.htools.capacity.search import CapacityOptions, CapacitySearch
from ganeti.decisions.htools.capacity.tiers import InstanceSize
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.state import node_state

START = InstanceSize(memory=64 * 100, disk=2048, vcpus=1)


class Attempts:
    """Tries of sizes of which a few fit."""

    def __init__(self, fitting: tuple[int, ...], *, alone: bool = False) -> None:
        self.fitting = {steps * 64 for steps in fitting}
        self.alone = alone
        self.tried: list[int] = []

    def __call__(self, size: InstanceSize, *, alone: bool) -> tuple[list[int], bool]:
        self.tried.append(size.memory // 64)
        failures = [0] * len(constraints.KINDS)
        failures[constraints.MEM - 1] = 5
        if self.alone and not alone and size.memory < START.memory:
            failures[constraints.N1 - 1] = 9
        fits = size.memory in self.fitting and alone == self.alone
        return failures, fits


def next_of(attempts: Attempts, hopeless: int | None) -> int | None:
    """Return the memory of the next size, in steps."""
    bounds = tiers.SizeBounds(())
    if hopeless is not None:
        bounds = tiers.SizeBounds((), None, lambda size: size.memory >= hopeless * 64)
    failures = [0] * len(constraints.KINDS)
    failures[constraints.MEM - 1] = 5
    actual = tiers.next_size(attempts, START, failures, bounds)
    return None if actual is None else actual[0].memory // 64


def test_a_size_that_fits_before_others_that_do_not_is_found() -> None:
    # Halving meets 50, 75, 87 ... or 25 ..., so that 60 is never looked at.
    fitting = (60, *range(1, 31))
    assert next_of(Attempts(fitting), None) == 30
    attempts = Attempts(fitting)
    assert next_of(attempts, 80) == 60
    assert len(attempts.tried) < 40
    assert next_of(Attempts((60,)), 80) == 60


def test_it_is_found_where_one_kind_alone_shrinks_too() -> None:
    assert next_of(Attempts((60, *range(1, 31)), alone=True), 80) == 60
    assert next_of(Attempts((60,), alone=True), 80) == 60


def test_hopeless_sizes_are_not_tried() -> None:
    attempts = Attempts((10,))
    assert next_of(attempts, 20) == 10
    assert not [steps for steps in attempts.tried if 20 <= steps < 25]
    assert next_of(Attempts(()), 20) is None


@pytest.mark.parametrize("template", ["plain", "sharedfile", "drbd"])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_hopeless_does_not_fit(seed: int, template: str) -> None:
    state = node_state.ClusterState(
        random_cluster(seed, template=template, offline=seed % 2)
    )
    search = CapacitySearch(state, CapacityOptions("sharedfile", accept_errors=True))
    sizes = [InstanceSize(memory, 2048, 1) for memory in range(512, 40000, 3000)]
    hopeless, fits = [], []
    for size in sizes:
        hopeless.append(search.is_hopeless(state, size))
        fits.append(search.attempt(state, size, tested=True)[1])
    if True in hopeless:
        assert not any(fits[hopeless.index(True) :])
    assert hopeless[-1]
