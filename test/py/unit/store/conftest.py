"""Stores whose candidates are simulated."""

import pytest

from fakes.candidates import Candidates
from ganeti import store
from ganeti.base.clock import SystemClock


@pytest.fixture
def simulation(tmp_path):
    actual = Candidates(tmp_path, (1, 2, 3))
    yield actual
    actual.close()


@pytest.fixture
def opener(tmp_path, simulation):
    opened = []

    def open_master(name="store.db", **options):
        opened.append(
            store.open_master(
                str(tmp_path / name),
                replicate=simulation.replicate,
                clock=SystemClock(),
                **options,
            )
        )
        return opened[-1]

    yield open_master
    for item in opened:
        item.close()
