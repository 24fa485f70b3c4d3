"""The state file of a group: what is written is read again, damage is refused."""

import json

import pytest

from ganeti.base import errors
from ganeti.decisions.watching import group_state as records

SAMPLE = records.GroupState(
    {
        "web1.tst": records.InstanceRecord(
            records.Attempts(1, 1700000500.1), records.Attempts(0, 0)
        )
    },
    {"n1.tst": "5e1c"},
)


def test_the_form_is_the_documented_one():
    assert json.loads(records.to_json(SAMPLE)) == {
        "instance": {
            "web1.tst": {
                "restart_count": 1,
                "restart_when": 1700000500.1,
                "cleanup_count": 0,
                "cleanup_when": 0,
            }
        },
        "node": {"n1.tst": {"bootid": "5e1c"}},
    }
    assert records.parse(records.to_json(SAMPLE)) == SAMPLE


@pytest.mark.parametrize("data", [b"", b"\n", b"{}", b'{"instance": {}, "node": {}}'])
def test_nothing_is_the_empty_state(data):
    assert records.parse(data) == records.EMPTY


def test_missing_counters_are_none():
    state = records.parse(b'{"instance": {"a": {"restart_count": 2}}}')
    assert state.instances["a"].restart == records.Attempts(2, 0.0)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"{",
        b"[]",
        b'{"instance": []}',
        b'{"instance": {"a": []}}',
        b'{"instance": {"a": {"restart_count": -1}}}',
        b'{"instance": {"a": {"restart_count": true}}}',
        b'{"instance": {"a": {"restart_when": NaN}}}',
        b'{"instance": {"a": {"restart_when": "1"}}}',
        b'{"node": {"a": {}}}',
        b'{"node": {"a": {"bootid": 3}}}',
        b"[" * 100000,
    ],
)
def test_damage_is_refused(data):
    with pytest.raises(errors.ParseError, match="not the state of a group"):
        records.parse(data)
