"""Orders, places and cursors of pages."""

import itertools
import string

import pytest

from ganeti.base import errors
from ganeti.decisions import pages
from ganeti.decisions.pages import Last, cursor_of, parse_cursor

SCOPE = ["instance", "name", False, ["=", "name", "web"]]
VALUES = [None, -1, 0, True, 2.5, 7, "", "a1", "a01", "a2", "a10", "b", [1, 2], [1, 10]]


def test_places_of_all_kinds_of_values_are_in_one_order():
    for one, other in itertools.combinations([v for v in VALUES if v is not True], 2):
        assert (pages.place(one, []) < pages.place(other, [])) or one == "a1"
    # Equal numbers in texts: the texts decide, so that the order is total.
    assert pages.place("a01", []) < pages.place("a1", []) < pages.place("a2", [])
    assert pages.place(1, ["b"]) > pages.place(1, ["a", None])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 5, 20])
def test_pages_have_each_row_once_in_order(limit, reverse):
    places = sorted(pages.place(value, [n]) for n, value in enumerate(VALUES * 2))
    seen, after = [], None
    for _turn in range(len(places) + 1):
        indexes = pages.following(
            len(places), places.__getitem__, after, reverse=reverse
        )
        taken, has_more = pages.take(map(places.__getitem__, indexes), bool, limit)
        seen += taken
        if not has_more:
            break
        after = taken[-1]
    assert seen == (places[::-1] if reverse else places)


def test_what_does_not_fit_is_left_out():
    assert pages.take(range(6), lambda n: n % 2, 2) == ([1, 3], True)
    assert pages.take(range(5), lambda n: n % 2, 2) == ([1, 3], False)


@pytest.mark.parametrize("value", VALUES)
def test_a_cursor_holds_the_place_of_a_row(value):
    last = Last(value, ["web1", 7, None])
    assert parse_cursor(SCOPE, cursor_of(SCOPE, last)).place == last.place


def test_a_cursor_is_bounded_by_the_characters_that_decide():
    last = Last("\n" * 5000, ["\x01" * 5000])
    cursor = cursor_of(SCOPE, last)
    assert len(cursor) < pages._MAX_CURSOR
    assert parse_cursor(SCOPE, cursor).place == last.place


def test_damaged_and_foreign_cursors_are_refused():
    cursor = cursor_of(SCOPE, Last("web1", ["web1", "uuid"]))
    damaged = [
        cursor[:place] + ("A" if letter != "A" else "B") + cursor[place + 1 :]
        for place, letter in enumerate(cursor)
    ]
    foreign = cursor_of([*SCOPE[:-1], None], Last("web1", ["web1", "uuid"]))
    others = [cursor[:-4], cursor + "AAAA", foreign, "x", "é", "AAAA" * 5000, "=" * 9]
    for text in [*damaged, *others]:
        with pytest.raises(errors.OpPrereqError, match="cursor: wanted that of") as err:
            parse_cursor(SCOPE, text)
        assert len(err.value.args[0]) < 200


def test_a_cursor_with_other_values_is_refused_even_with_its_digest():
    import base64

    for data in (b'["a"]', b'[{"a":1},[]]', b'["a",[[]]]', b"[", b'["a",[],1]'):
        raw = pages._digest(SCOPE, data) + data
        with pytest.raises(errors.OpPrereqError, match="cursor: wanted"):
            parse_cursor(SCOPE, base64.urlsafe_b64encode(raw).decode())


def test_a_cursor_may_name_a_row_of_another_kind():
    """Its values are a client's; they only have to be in some order."""
    forged = parse_cursor(SCOPE, cursor_of(SCOPE, Last("web1", ["web1", 5])))
    assert forged.place < pages.place("web1", ["web1", "uuid"])


def test_limits_and_directions():
    assert pages.parse_sort("-name") == ("name", True)
    assert pages.parse_sort(string.ascii_letters) == (string.ascii_letters, False)
    pages.check_limit(1)
    pages.check_limit(1000)
    for limit in (0, -1, 1001):
        with pytest.raises(
            errors.OpPrereqError, match=f"from 1 to 1000, found {limit}"
        ):
            pages.check_limit(limit)
