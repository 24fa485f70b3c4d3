"""Numbers that never go back."""

import pytest

from ganeti.store.numbers import MAX_JUMP, Numbers, above, of

OWN = Numbers(202, 22, 42)


def status(**changes):
    return {"revision": 1_000_186, "serial": 1_000_019, "last_job": 10_040} | changes


def test_higher_numbers_of_a_candidate_are_wanted():
    assert above(OWN, status()) == (1_000_186, 1_000_019, 10_040)
    assert above(OWN, status(revision=5, serial=22)) == (202, 22, 10_040)


def test_lower_numbers_want_nothing():
    assert above(OWN, {"revision": 202, "serial": 22, "last_job": 42}) is None
    # An earlier release names its revision alone.
    assert above(OWN, {"revision": 200}) is None


@pytest.mark.parametrize("value", [2**63, 42 + MAX_JUMP + 1, "77", True, None, -1, 1.5])
def test_a_lying_candidate_does_not_use_up_the_numbers(value):
    assert above(OWN, status(last_job=value)) == (1_000_186, 1_000_019, 42)


def test_numbers_are_read_from_documents():
    documents = {"config": b'{"serial_no":7,"mtime":1.5}', "serial": b"9"}
    assert of(lambda _table, key: documents.get(key), 3) == (3, 7, 9)
    assert of(lambda _table, _key: None, 0) == (0, 0, 0)
    with pytest.raises(ValueError):
        of(lambda _table, _key: b"{", 0)
