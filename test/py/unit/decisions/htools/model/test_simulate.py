"""Invented clusters: valid specifications, and errors about others."""

import pytest

from ganeti.decisions.htools.model import simulate
from ganeti.decisions.htools.model.cluster import DataError


def test_each_specification_is_a_group_and_the_last_is_the_first() -> None:
    actual = simulate.load(["p,2,1g,2g,4", "u,1,512,1t,8,3,True"])
    assert [group.name for group in actual.groups] == ["group-01", "group-02"]
    names = [node.name for node in actual.nodes]
    assert names == ["node-01-001", "node-02-001", "node-02-002"]
    first = actual.nodes[0]
    assert (first.total_memory, first.free_disk, first.cpus) == (1 << 20, 512, 8.0)
    assert (first.spindles, first.exclusive, first.master) == (3, True, True)


@pytest.mark.parametrize(
    ("spec", "reported"),
    [
        ("", "wanted five to seven fields"),
        ("z,3,1g,1g,4", "unknown allocation policy 'z'"),
        ("p,-3,1g,1g,4", "field 'count': wanted a whole number from 0 to 100000"),
        ("p,1e3,1g,1g,4", "field 'count': wanted a whole number"),
        ("p,1_0,1g,1g,4", "field 'count': wanted a whole number"),
        ("p,\u0663,1g,1g,4", "field 'count': wanted a whole number"),
        ("p,100001,1g,1g,4", "field 'count': wanted a whole number"),
        ("p,3,-1,1g,4", "field 'disk': wanted a size such as 512 or 2g, found '-1'"),
        ("p,3,1g,4x,4", "field 'memory': unknown unit 'x'"),
        ("p,3,1g,99999999999999t,4", "field 'memory': too large"),
        ("p,3,1g,1g,-4", "field 'cpus': wanted a whole number"),
        ("p,3,1g,1g," + "9" * 30, "field 'cpus': wanted a whole number"),
        ("p,3,1g,1g,4,-1", "field 'spindles': wanted a whole number"),
        ("p,3,1g,1g,4,1,maybe", "wanted True or False, found 'maybe'"),
    ],
)
def test_a_wrong_field_is_named(spec: str, reported: str) -> None:
    with pytest.raises(DataError) as caught:
        simulate.load([spec])
    assert str(caught.value).startswith(f"--simulate {spec}: ")
    assert reported in str(caught.value)
