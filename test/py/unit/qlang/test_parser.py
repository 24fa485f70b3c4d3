"""The text form of filters, and the words of list commands."""

import pytest

from ganeti import errors, qlang


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


def test_failure_points_at_the_place():
    with pytest.raises(errors.QueryFilterParseError) as caught:
        qlang.parse("name == 'a' andd b")
    line, caret, _ = caught.value.args[1].split("\n")
    assert line == "name == 'a' andd b"
    assert caret.index("^") == line.index("andd")


def test_words_of_commands():
    assert qlang.from_arguments([]) is None
    assert qlang.from_arguments(["n1", "n2"]) == [
        "|",
        ["==", "name", "n1"],
        ["==", "name", "n2"],
    ]
    assert qlang.from_arguments(["w*"]) == ["|", ["=~", "name", r"^w[^.]*(\..*)?$"]]
    assert qlang.from_arguments(["pinst_cnt > 2"]) == [">", "pinst_cnt", 2]
    assert qlang.from_arguments(["offline"], force_filter=True) == ["?", "offline"]
    assert qlang.from_arguments(["7"], name_field="id", is_number=True) == [
        "|",
        ["==", "id", 7],
    ]
    with pytest.raises(errors.OpPrereqError):
        qlang.from_arguments(["a", "b"], force_filter=True)
    with pytest.raises(errors.OpPrereqError):
        qlang.from_arguments(["x7"], name_field="id", is_number=True)


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
