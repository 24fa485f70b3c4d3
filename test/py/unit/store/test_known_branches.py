"""Copies of a minority's master that are noted, from answers that may be anything."""

import pytest

from ganeti.decisions.quorum import Copy
from ganeti.store.copies import known_branches

DIGEST = "0f" * 16
STATUS = {"cluster": "c", "written": 5, "digest": DIGEST}


@pytest.mark.parametrize(("number", "expected"), [(4, DIGEST), (5, DIGEST), (6, "")])
def test_a_copy_of_an_earlier_term_is_not_noted(number, expected):
    assert known_branches.newer(STATUS, "c", number) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        STATUS | {"cluster": "other"},
        STATUS | {"written": None},
        STATUS | {"written": "x"},
        STATUS | {"digest": 7},
        STATUS | {"digest": "0f"},
        STATUS | {"digest": DIGEST + "0f"},
        STATUS | {"digest": "g" * 32},
    ],
)
def test_a_wrong_answer_is_no_such_copy(wrong):
    assert known_branches.newer(wrong, "c", 5) == ""


def test_only_the_copy_that_was_noted_does_not_count():
    note = known_branches.document("n2", DIGEST)
    noted = {(note.table, note.key): note.data}

    def read(table, key):
        return noted.get((table, key))

    copies = {
        "n1": Copy(5, 9, DIGEST),
        "n2": Copy(5, 9, DIGEST),
        "n3": Copy(0, 0),
    }
    actual = known_branches.without_known(read, copies)
    assert [node for node, copy in actual.items() if copy.is_empty] == ["n2", "n3"]
    copies["n2"] = Copy(5, 10, "1f" * 16)
    assert known_branches.without_known(read, copies) == copies
