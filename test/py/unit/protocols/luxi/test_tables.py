"""Large answers of queries: the same as small ones, taken apart by column."""

import gc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base import errors
from ganeti.protocols.luxi import tables

FIELDS = [{"name": "a", "title": "A", "kind": "text", "doc": "x"}]


@pytest.fixture(autouse=True)
def thawed():
    yield
    gc.unfreeze()


def rows_of(rows):
    return tables.Rows([msgspec.Raw(msgspec.json.encode(row)) for row in rows])


def table_of(columns, count):
    """Return the rows of these columns."""
    cells = [
        [column.cells[key] for key in column.keys or [*column.cells] * count]
        for column in columns
    ]
    return [list(row) for row in zip(*cells, strict=True)]


def test_rows_are_decoded_when_they_are_looked_at():
    answer = {
        "success": True,
        "result": {"fields": FIELDS, "data": [[[0, "x"]], [[2, None]], [[0, [1]]]]},
    }
    actual = tables.decode(msgspec.json.encode(answer))
    assert actual["success"] is True
    assert actual["version"] is None
    assert actual["result"]["fields"] == FIELDS
    rows = actual["result"]["data"]
    assert list(rows) == [[(0, "x")], [(2, None)], [(0, [1])]]
    assert len(rows) == 3
    assert rows[-1] == [(0, [1])]
    assert list(rows[1:]) == [[(2, None)], [(0, [1])]]


@pytest.mark.parametrize("result", [["OpPrereqError", ["no"]], None, {"fields": []}])
def test_what_is_no_table_is_left_to_others(result):
    data = msgspec.json.encode({"success": False, "result": result})
    assert tables.decode(data) is None
    assert tables.decode(b"{") is None


def test_a_row_that_is_none_is_an_error():
    with pytest.raises(errors.ProtocolError, match="malformed"):
        list(rows_of([{"a": 1}]))
    assert rows_of([{"a": 1}]).columns(1) is None
    assert rows_of([[["x", 1]]]).columns(1) is None


def test_a_column_that_is_the_same_everywhere_has_no_keys():
    first, second = rows_of([[[0, "x"], [0, n % 2]] for n in range(50)]).columns(2)
    assert list(first.cells.values()) == [(0, "x")]
    assert first.keys is None
    assert sorted(second.cells.values()) == [(0, 0), (0, 1)]
    assert len(second.keys) == 50


def test_one_odd_row_among_many_is_found():
    rows = [[(0, "a"), (0, 1), (0, "b"), (0, None)] for _ in range(500)]
    for place in range(4):
        rows[100 + place][place] = (2, None)
    columns = rows_of(rows).columns(4)
    assert table_of(columns, 500) == rows
    assert [len(column.cells) for column in columns] == [2, 2, 2, 2]


def test_many_odd_rows_end_the_guessing():
    rows = [[(0, "a")] * 40 for _ in range(500)]
    for place in range(40):
        rows[101 + 7 * place][place] = (2, None)
    assert table_of(rows_of(rows).columns(40), 500) == rows


def test_rows_of_another_width_cannot_be_cut():
    assert rows_of([[(0, 1)], [(0, 1), (0, 2)]]).columns(1) is None
    assert rows_of([]).columns(1) is None
    assert rows_of([[], []]).columns(0) is None


TEXTS = st.sampled_from(["", "x", "],[", '"],[0,"', "0,1],[", "\\", "1,null],[1,null"])
VALUES = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers(-3, 3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=2)
    ),
    max_leaves=4,
)
CELLS = st.tuples(st.sampled_from([0, 0, 2]), VALUES)


@given(
    st.integers(1, 5).flatmap(
        lambda width: st.tuples(
            st.lists(CELLS, min_size=width, max_size=width),
            st.lists(
                st.dictionaries(st.integers(0, width - 1), CELLS, max_size=2),
                min_size=1,
                max_size=40,
            ),
        )
    )
)
def test_columns_say_what_the_rows_say_or_nothing(made):
    usual, changes = made
    rows = [
        [change.get(place, cell) for place, cell in enumerate(usual)]
        for change in changes
    ]
    columns = rows_of(rows).columns(len(usual))
    has_cut_inside = any(
        b"],[" in msgspec.json.encode(cell) for row in rows for cell in row
    )
    assert columns is not None or has_cut_inside
    if columns is not None:
        assert table_of(columns, len(rows)) == rows
