"""Every path reads the components of the score from one table, and names none itself."""

import ast
import pathlib

import pytest

from fakes.score_terms import odd_cluster
from ganeti.decisions.htools.score import components, counts
from ganeti.decisions.htools.state import amounts, node_state
from ganeti.decisions.htools.state.amounts import ROWS

TOP = pathlib.Path(__file__).parents[3]
HTOOLS = TOP / "lib/decisions/htools"
#: Modules that name components, with the reason.
ALLOWED = {
    "score/components.py": set(components.WEIGHT),
    # The column of node tables that shows this value.
    "tables.py": {"free_disk_cv"},
    # Corrects this component alone.
    "score/move_estimates.py": {"free_disk_cv_forth"},
}
#: Rows that are no sums of amounts of instances.
COMPUTED = {"r_mem", "location"}


def named(source):
    """Return the components that a module names outside of longer texts."""
    constants = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant)]
    return {n.value for n in constants if n.value in components.WEIGHT}


def test_only_the_table_names_components():
    actual = {
        path.relative_to(HTOOLS).as_posix(): names
        for path in HTOOLS.rglob("*.py")
        if (names := named(path.read_text()))
    }
    assert actual == ALLOWED


@pytest.mark.parametrize("item", components.COMPONENTS, ids=lambda item: item.name)
def test_a_component_is_of_one_sort(item):
    sorts = [item.metric, item.count, item.total_of]
    assert sum(map(bool, sorts)) == 1
    if item.metric:
        assert item.metric.row in ROWS
    if isinstance(item.count, counts.NodeCount):
        assert set(item.count.rows) <= set(ROWS)
    # Maxima have functions of their own, for this component alone.
    assert item.total_of in {"", components.RESERVED}


def test_each_row_is_an_amount_or_computed():
    listed = [amount.row for amount in amounts.AMOUNTS]
    assert sorted([*listed, *COMPUTED]) == sorted(ROWS)


class _Recorded:
    """A state that records which attributes a function reads."""

    def __init__(self, state):
        self._state, self.read = state, set()

    def __getattr__(self, name):
        self.read.add(name)
        return getattr(self._state, name)


@pytest.mark.parametrize(
    "name",
    [n for n, c in components.COUNTS.items() if isinstance(c, counts.NodeCount)],
)
def test_a_count_of_nodes_lists_the_rows_that_it_reads(name, one_state):
    count, recorded = components.COUNTS[name], _Recorded(one_state)
    assert len(count.at_nodes(recorded)) == one_state.size
    assert recorded.read & set(ROWS) == set(count.rows)


@pytest.fixture(scope="module")
def one_state():
    return node_state.derive(odd_cluster(0))
