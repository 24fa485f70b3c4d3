"""Large answers of queries: the same as small ones, but of tuples."""

import gc

import msgspec
import pytest

from ganeti.luxi import tables

FIELDS = [{"name": "a", "title": "A", "kind": "text", "doc": "x"}]


@pytest.fixture(autouse=True)
def thawed():
    yield
    gc.unfreeze()


def test_cells_are_tuples():
    answer = {
        "success": True,
        "result": {"fields": FIELDS, "data": [[[0, "x"]], [[2, None]], [[0, [1]]]]},
    }
    found = tables.decode(msgspec.json.encode(answer))
    assert found["success"] is True
    assert found["version"] is None
    assert found["result"]["fields"] == FIELDS
    assert found["result"]["data"] == [[(0, "x")], [(2, None)], [(0, [1])]]
    assert gc.isenabled()


@pytest.mark.parametrize("result", [["OpPrereqError", ["no"]], None, {"fields": []}])
def test_what_is_no_table_is_left_to_others(result):
    data = msgspec.json.encode({"success": False, "result": result})
    assert tables.decode(data) is None
    assert tables.decode(b"{") is None
    assert gc.isenabled()
