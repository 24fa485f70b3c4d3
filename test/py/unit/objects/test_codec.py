"""Decoding of stored records: damage is one of our errors."""

import pytest

from ganeti import errors, objects
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


@pytest.mark.parametrize("data", [b"", b"\x91\x93\xa5nodes\xa2\xe8\x80\xc0", b"\xff"])
def test_damaged_rows_are_refused(data):
    with pytest.raises(errors.StorageError, match="change-set"):
        wire.decode_rows(data)


@pytest.mark.parametrize("data", [b'{"uuid": "\xe8"}', b"{", b""])
def test_a_damaged_record_of_the_cluster_names_no_cluster(data):
    assert not wire.cluster_of(data)
