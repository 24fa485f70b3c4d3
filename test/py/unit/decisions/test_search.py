"""Ranking of the objects that match a search."""

import pytest

from ganeti.base import errors
from ganeti.decisions import search
from ganeti.decisions.search import Candidate, Term

TERMS = [Term("name", "Web1.example.com"), Term("tag", "prod"), Term("ip", "192.0.2.1")]


@pytest.mark.parametrize(
    ("text", "rank", "match", "field"),
    [
        ("web1.example.com", 0, "exact", "name"),
        ("web1", 0, "exact", "name"),
        ("prod", 1, "exact", "tag"),
        ("web", 2, "prefix", "name"),
        ("pro", 3, "prefix", "tag"),
        ("192.0", 3, "prefix", "ip"),
        ("example", 4, "part", "name"),
        ("od", 5, "part", "tag"),
        ("2.1", 5, "part", "ip"),
    ],
)
def test_whole_texts_then_beginnings_then_parts_names_first(text, rank, match, field):
    assert search.rank_by(text)(search.line_of(TERMS)) == rank
    assert search.why(TERMS, text)[0] == match
    assert search.why(TERMS, text)[1].field == field


def test_nothing_matches_across_texts():
    line = search.line_of(TERMS)
    assert "comprod" not in line
    assert "prod" in line


def test_shorter_names_come_first_among_equal_matches():
    names = ["web10", "web2", "web1"]
    candidates = [Candidate(2, "instance", name, None) for name in names]
    candidates += [Candidate(2, "node", "web1", None), Candidate(0, "os", "zzzz", None)]
    actual = [(each.kind, each.name) for each in search.best(candidates, 4)]
    assert actual == [
        *(("os", "zzzz"), ("node", "web1"), ("instance", "web1")),
        ("instance", "web2"),
    ]


def test_wanted_texts_and_kinds_are_checked():
    assert search.check_text("  WEB 1 ") == "web 1"
    for text in ("", "  ", "a\nb", "\x1b", "x" * 201):
        with pytest.raises(errors.OpPrereqError, match="search: wanted 1 to 200"):
            search.check_text(text)
    assert search.check_kinds([]) == set(search.KINDS)
    assert search.check_kinds(["node"]) == {"node"}
    with pytest.raises(errors.OpPrereqError, match="found 'nodes'"):
        search.check_kinds(["nodes"])
