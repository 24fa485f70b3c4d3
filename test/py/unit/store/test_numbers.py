"""Numbers that never go back."""

import pytest

from ganeti.store.numbers import MAX_JUMP, Numbers, above, decode, encode, of

OWN = Numbers(202, 22, 42)


def status(**changes):
    return {"revision": 1_000_186, "serial": 1_000_019, "last_job": 10_040} | changes


def test_higher_numbers_of_a_candidate_are_wanted():
    assert above(OWN, status(), is_replaced=True) == (1_000_186, 1_000_019, 10_040)
    assert above(OWN, status(revision=5, serial=22), is_replaced=True) == (
        202,
        22,
        10_040,
    )


def test_lower_numbers_want_nothing():
    assert above(OWN, dict(OWN._asdict()), is_replaced=True) is None
    # An earlier release names its revision alone.
    assert above(OWN, {"revision": 200}, is_replaced=True) is None


@pytest.mark.parametrize("value", [2**63, 42 + MAX_JUMP + 1, "77", True, None, -1, 1.5])
def test_a_lying_candidate_does_not_use_up_the_numbers(value):
    wanted = (1_000_186, 1_000_019, 42)
    assert above(OWN, status(last_job=value), is_replaced=True) == wanted
    answer = replaced(1_000_186, 1_000_019, value)
    assert above(OWN, answer, is_replaced=False) == wanted


def replaced(revision, serial, last_job):
    return {
        "replaced_revision": revision,
        "replaced_serial": serial,
        "replaced_last_job": last_job,
    }


def test_numbers_of_a_copy_count_when_it_is_replaced_or_was():
    assert above(OWN, status(), is_replaced=False) is None
    before = replaced(300, 7, 77)
    assert above(OWN, status() | before, is_replaced=False) == (300, 22, 77)
    assert above(OWN, {"revision": 400, **before}, is_replaced=True) == (400, 22, 77)


def test_numbers_are_stored_as_text():
    assert decode(encode(OWN)) == OWN
    for text in ("", "[]", "[1, 2, 3, 4]", '["a", 2, 3]'):
        assert decode(text) == (0, 0, 0)


def test_numbers_are_read_from_documents():
    documents = {"config": b'{"serial_no":7,"mtime":1.5}', "serial": b"9"}
    assert of(lambda _table, key: documents.get(key), 3) == (3, 7, 9)
    assert of(lambda _table, _key: None, 0) == (0, 0, 0)
    with pytest.raises(ValueError):
        of(lambda _table, _key: b"{", 0)
