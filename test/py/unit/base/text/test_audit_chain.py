"""The chain of the audit log: what a changed, removed or cut line shows."""

import json

import pytest

from ganeti.base.text import audit_chain


def chain(count, first=1, previous=audit_chain.NOTHING):
    lines = []
    for number in range(first, first + count):
        line = json.dumps({"n": number, "event": "call", "prev": previous}).encode()
        lines.append(line)
        previous = audit_chain.digest(line)
    return lines


def problems(lines, head=None):
    verifier = audit_chain.Verifier(head)
    texts = [text for line in lines for text in verifier.check(line)]
    return [*texts, *verifier.end()]


def head_of(lines):
    return json.loads(lines[-1])["n"], audit_chain.digest(lines[-1])


LINES = chain(5)
HEAD = head_of(LINES)


def test_a_whole_log_has_no_problems_also_without_its_oldest_part():
    assert problems(LINES, HEAD) == problems(LINES[2:], HEAD) == problems([]) == []
    # The head is written after the line.
    assert problems(LINES, head_of(LINES[:4])) == []


@pytest.mark.parametrize("place", range(5))
def test_a_changed_line_is_seen(place):
    lines = list(LINES)
    lines[place] = lines[place].replace(b"call", b"CALL")
    [text] = problems(lines, HEAD)
    assert f"line {place + 1} was changed" in text


@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_removed_line_is_seen(place):
    lines = [*LINES[:place], *LINES[place + 1 :]]
    [text] = problems(lines, HEAD)
    assert text == f"lines {place + 1} to {place + 1} are missing"


def test_a_removed_line_is_seen_when_the_others_are_numbered_again():
    lines = [LINES[0], *(line.replace(b'"n": 3', b'"n": 2') for line in LINES[2:3])]
    assert problems(lines) == ["line 1 was changed, or line 2"]


def test_a_cut_at_the_end_is_seen_by_the_recorded_head_alone():
    assert problems(LINES[:3], HEAD) == ["the end is cut: lines 4 to 5 are missing"]
    assert problems([], HEAD) == ["the end is cut: lines 1 to 5 are missing"]
    assert problems(LINES[:3]) == []


def test_a_cut_is_seen_when_the_chain_has_continued():
    assert problems([*LINES[:3], *chain(2, 6, HEAD[1])]) == ["lines 4 to 5 are missing"]


def test_a_new_end_with_valid_digests_is_seen_by_the_recorded_head():
    other = LINES[4].replace(b"call", b"end")
    assert len(problems([*LINES[:4], other], HEAD)) == 1


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b'{"n":"1","prev":""}', b'{"n":1}', b"\xff"]
)
def test_other_lines_are_named(line):
    assert problems([*LINES, line], HEAD) == [
        "after line 5: not a line of an audit log"
    ]


def test_changes_that_were_not_recorded_are_named():
    line = json.dumps({"n": 1, "lost": 7, "prev": audit_chain.NOTHING}).encode()
    assert problems([line]) == ["line 1: 7 changes before it were not recorded"]
