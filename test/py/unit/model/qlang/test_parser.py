"""The text form of filters."""

import pytest

from ganeti.base import errors
from ganeti.model import qlang


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("offline", ["?", "offline"]),
        ('name == "a"', ["==", "name", "a"]),
        ("name = 'a'", ["==", "name", "a"]),
        ("name != 'a'", ["!=", "name", "a"]),
        ("mfree < 4096", ["<", "mfree", 4096]),
        ("mfree <= +4", ["<=", "mfree", 4]),
        ("mfree > -4", [">", "mfree", -4]),
        ("be/vcpus >= 2", [">=", "be/vcpus", 2]),
        ("'a' in tags", ["=[]", "tags", "a"]),
        ('"a" not in tags', ["!", ["=[]", "tags", "a"]]),
        ("1 in xs", ["=[]", "xs", 1]),
        ("name =~ m/^web/", ["=~", "name", "^web"]),
        ("name =~ /^web/si", ["=~", "name", "(?is)^web"]),
        ("name =~ m#a/b#", ["=~", "name", "a/b"]),
        ("name =~ ^a^i", ["=~", "name", "(?i)a"]),
        ("name !~ m|a b|", ["!", ["=~", "name", "a b"]]),
        ('name =* "web*"', ["=~", "name", r"^web[^.]*(\..*)?$"]),
        ("name !* 'w?b'", ["!", ["=~", "name", r"^w[^.]b(\..*)?$"]]),
        ("not offline", ["!", ["?", "offline"]]),
        ("not not offline", ["!", ["!", ["?", "offline"]]]),
        ("a and b and c", ["&", ["?", "a"], ["?", "b"], ["?", "c"]]),
        ("a or b and not c", ["|", ["?", "a"], ["&", ["?", "b"], ["!", ["?", "c"]]]]),
        ("(a or b) and c", ["&", ["|", ["?", "a"], ["?", "b"]], ["?", "c"]]),
        ("not (a or b)", ["!", ["|", ["?", "a"], ["?", "b"]]]),
        ("  a\n\tand b ", ["&", ["?", "a"], ["?", "b"]]),
        ("disk.size/0 < 5", ["<", "disk.size/0", 5]),
        (r'name == "a\"b"', ["==", "name", 'a"b']),
        (r"name == 'a\'b'", ["==", "name", "a'b"]),
        (r'name == "a\'b"', ["==", "name", "a'b"]),
        (
            """name == "a'b" and tag != 'c"d'""",
            ["&", ["==", "name", "a'b"], ["!=", "tag", 'c"d']],
        ),
        (r'name == "a\\"', ["==", "name", "a\\"]),
        (r'name == "\d"', ["==", "name", "d"]),
        (r'"a\"b" in tags', ["=[]", "tags", 'a"b']),
        (r'name =* "we\*b"', ["=~", "name", r"^we[^.]*b(\..*)?$"]),
        (r"name =~ m/a\/b/", ["=~", "name", r"a\/b"]),
        (r"name =~ m/a\.b/", ["=~", "name", r"a\.b"]),
        (
            "a or b and not c or d",
            ["|", ["?", "a"], ["&", ["?", "b"], ["!", ["?", "c"]]], ["?", "d"]],
        ),
        ("ina and nota", ["&", ["?", "ina"], ["?", "nota"]]),
    ],
)
def test_forms(text, wanted):
    assert qlang.parse(text) == wanted
    qlang.check(wanted)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "(",
        "a and",
        "a b",
        "a ==",
        "== 'a'",
        "a == b",
        "a == 1.5",
        "a == 'x",
        r"a == 'x\'",
        "a == \"x'",
        "a == 'x\ny'",
        "'x' tags",
        "'x' in",
        "'x' in 'y'",
        "not",
        "a =~ x",
        "a =~ /x",
        "a =~ /x/g",
        "a =~ /(/",
        "a =* 5",
        "a or or b",
        "and",
        "a; b",
        "(" * 200 + "a" + ")" * 200,
    ],
)
def test_what_is_no_filter(text):
    with pytest.raises(errors.QueryFilterParseError) as caught:
        qlang.parse(text)
    message, detail = caught.value.args
    assert repr(text) in message
    assert "^" in detail


@pytest.mark.parametrize(
    ("text", "char", "wanted"),
    [
        ("role ==", 7, "a number or a quoted text"),
        ("name == 'a' andd b", 12, "'and', 'or' or the end"),
        ("a; b", 1, "'and', 'or' or the end"),
        ("(a", 2, "a closing parenthesis"),
        ("a and == 3", 6, "a field name"),
        ('"x" out', 4, "'in'"),
        ("a =* 5", 5, "a quoted text"),
        ("a =~ web", 4, "a regular expression such as m/web.*/i"),
        (r"a == 'x\'", 5, "a number or a quoted text"),
    ],
)
def test_a_failure_shows_its_place_and_what_is_wanted_there(text, char, wanted):
    with pytest.raises(errors.QueryFilterParseError) as caught:
        qlang.parse(text)
    message, detail = caught.value.args
    assert message == f"cannot parse filter {text!r}: wanted {wanted}"
    assert detail == f"{text}\n{' ' * char}^\nwanted {wanted} (at char {char})"


def test_an_unfinished_expression_ends_the_parser_soon():
    with pytest.raises(errors.QueryFilterParseError):
        qlang.parse("a =~ /" + "\\" * 101)


@pytest.mark.parametrize(
    ("glob", "name", "matches"),
    [
        ("web*", "web1.example.com", True),
        ("web?", "web1", True),
        ("web?", "web12", False),
        ("web?", "web.example.com", False),
        ("*.example.com", "web1.example.com", True),
        ("*.com", "web1.example.com", False),
        ("web1.ex*", "web1.example.com", True),
        ("a+b*", "a+bc", True),
        ("a+b*", "aabc", False),
    ],
)
def test_globs_go_by_components(glob, name, matches):
    import re

    assert (re.search(qlang.glob_regex(glob), name) is not None) == matches
