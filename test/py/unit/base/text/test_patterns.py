"""Regular expressions of users: what they match, and their bounds."""

import re
import string

import pytest

from ganeti.base import errors
from ganeti.base.text import patterns


@pytest.mark.parametrize(
    ("text", "hit", "missed"),
    [
        ("^web[0-9]+", "web12.example", "db1"),
        ("example", "web1.example.com", "web1"),
        ("(?i)WEB", "a web", "a we"),
        ("(?is)^a.b$", "A\nB", "ab"),
        (r"^web[^.]*(\..*)?$", "web1.example", "db.web1"),
        (r"^a\Z", "a", "a\n"),
        ("^a{,2}$", "aa", "aaa"),
        (r"^[{,2}\]]{,4}$", "{,2]", "0"),
        (r"^\{,2}$", "{,2}", "{0,2}"),
        (r"(?P<unit>[a-z])\d", "x1", "1x"),
        ("^é$", "é", "e"),
        ("^.$", "\ud800", "ab"),
        (re.escape(string.printable), string.printable, string.ascii_letters),
    ],
)
def test_expressions_match_as_documented(text, hit, missed):
    pattern = patterns.compile_(text)
    assert pattern.search(hit)
    assert not pattern.search(missed)


def test_a_full_match_is_of_the_whole_text():
    pattern = patterns.compile_("xenvg/(swap|root)")
    assert pattern.fullmatch("xenvg/swap")
    assert not pattern.fullmatch("xenvg/swap\n")
    assert not pattern.fullmatch("xenvg/swap2")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(", "missing ): ("),
        ("*", "no argument for repetition operator: *"),
        ("a\\", "trailing \\"),
        ("(?=a)", "invalid perl operator: (?=; the syntax is RE2's, without look-"),
        (r"(a)\1", r"invalid escape sequence: \1; the syntax is RE2's"),
        ("a++", "bad repetition operator: ++; the syntax is RE2's"),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("((a{30}){30}){30}", "invalid repetition size: {30}"),
        (r"(\pL{9})" * 9, "pattern too large - compile failed"),
        ("(.{1,300})", "too large: wanted at most 2500 instructions once compiled"),
        ("\ud800", "wanted characters, found half of a surrogate pair"),
    ],
)
def test_a_refused_expression_has_one_reason(text, reason):
    with pytest.raises(errors.ParseError) as caught:
        patterns.compile_(text)
    assert str(caught.value).startswith(f"regular expression {text!r}: {reason}")


@pytest.mark.parametrize("text", ["(\x1b[2J\n" * 99, "(?\x1bP=x)", "\n++", "a" * 9999])
def test_a_refusal_is_one_short_line(text):
    with pytest.raises(errors.ParseError) as caught:
        patterns.compile_(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_length_is_bounded_on_both_sides():
    patterns.compile_("a" * patterns.MAX_LENGTH)
    with pytest.raises(
        errors.ParseError, match=r"aaa\.\.\. \(2049 characters\): wanted at"
    ):
        patterns.compile_("a" * (patterns.MAX_LENGTH + 1))


def test_a_long_text_is_searched_at_its_beginning():
    pattern = patterns.compile_("b")
    assert pattern.search("a" * (patterns.MAX_TEXT - 1) + "b")
    assert not pattern.search("a" * patterns.MAX_TEXT + "b")


@pytest.mark.parametrize(
    "text",
    ["(a|aa)+$", "(a|a)*b", "(.*)*b", "(a*)*b", "(a+)+b", "((a?){40})" + "a" * 40],
)
def test_no_expression_backtracks(text):
    assert not patterns.compile_(text).search("a" * 39 + "!")
