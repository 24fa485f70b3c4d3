"""Decoding of stored records: damage is one of our errors."""

import pytest

from ganeti.base import errors
from ganeti.model import objects
from ganeti.store import wire

DAMAGED = [
    b"",
    b"{",
    b'{"mem_pat\xe8',
    b'{"ndparams": {"a\xe8": 1}}',
    b'{"name":' + b"[" * 5000,
]


@pytest.mark.parametrize("data", DAMAGED)
def test_a_damaged_record_is_refused(data):
    with pytest.raises(errors.ConfigurationError, match="Node"):
        objects.decode(objects.Node, data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"name": 5}, "Node: Expected `str`, got `int` - at `$.name`"),
        ({}, "Node: Object missing required field `"),
        ([], "Node: Expected `object`, got `array`"),
        (None, "Node: Expected `object`, got `null`"),
    ],
)
def test_a_stored_form_of_another_type_is_refused(data, text):
    with pytest.raises(errors.ConfigurationError) as caught:
        objects.from_dict(objects.Node, data)
    assert str(caught.value).startswith(text)


def test_a_stored_form_keeps_records_in_lists_and_tables():
    disk = {"dev_type": "plain", "logical_id": ["g", "v"], "size": 5}
    disk |= {"uuid": "d1", "serial_no": 1}
    parent = {**disk, "dev_type": "drbd", "logical_id": [], "children": [disk]}
    record = objects.from_dict(objects.Disk, parent | {"serial_no": 2})
    stored = objects.to_dict(record)
    assert stored["children"][0] == objects.to_dict(record.children[0])
    assert stored["children"][0]["logical_id"] == ["g", "v"]
    assert objects.from_dict(objects.Disk, stored) == record
    assert objects.decode(objects.Disk, objects.encode(record)) == record


@pytest.mark.parametrize("data", [b"", b"\x91\x93\xa5nodes\xa2\xe8\x80\xc0", b"\xff"])
def test_damaged_rows_are_refused(data):
    with pytest.raises(errors.StorageError, match="change-set"):
        wire.decode_rows(data)


@pytest.mark.parametrize("data", [b'{"uuid": "\xe8"}', b"{", b""])
def test_a_damaged_record_of_the_cluster_names_no_cluster(data):
    assert not wire.cluster_of(data)
