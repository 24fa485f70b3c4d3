"""From the arguments of list commands to filters."""

import pytest

from ganeti import errors
from ganeti.cli import filters

CASES = {
    'name == "a"': ["==", "name", "a"],
    "name = 'a'": ["==", "name", "a"],
    "pinst_cnt > 3": [">", "pinst_cnt", 3],
    "pinst_cnt >= -3": [">=", "pinst_cnt", -3],
    'name != "a"': ["!=", "name", "a"],
    "drained": ["?", "drained"],
    "not drained": ["!", ["?", "drained"]],
    '"t" in tags': ["=[]", "tags", "t"],
    '"t" not in tags': ["!", ["=[]", "tags", "t"]],
    "name =~ m/^web/": ["=~", "name", "^web"],
    "name =~ #a/b#is": ["=~", "name", "(?is)a/b"],
    "name !~ /x/si": ["!", ["=~", "name", "(?is)x"]],
    'name =* "web*"': ["=~", "name", r"^web[^.]*(\..*)?$"],
    'name !* "w?b"': ["!", ["=~", "name", r"^w[^.]b(\..*)?$"]],
    "be/maxmem > 1 and disk.count == 2": [
        "&",
        [">", "be/maxmem", 1],
        ["==", "disk.count", 2],
    ],
    "a or b and not c or d": [
        "|",
        ["?", "a"],
        ["&", ["?", "b"], ["!", ["?", "c"]]],
        ["?", "d"],
    ],
    "(a or b) and c": ["&", ["|", ["?", "a"], ["?", "b"]], ["?", "c"]],
    "not (a and b)": ["!", ["&", ["?", "a"], ["?", "b"]]],
}


@pytest.mark.parametrize(("text", "wanted"), CASES.items())
def test_text_becomes_a_list(text, wanted):
    assert filters.parse(text) == wanted


@pytest.mark.parametrize(
    "text", ["", "(a", "a ==", "a b", "== 3", '"x"', "a =~ web", "a =~ /(/", "a and"]
)
def test_unreadable_text_names_its_place(text):
    with pytest.raises(errors.QueryFilterParseError) as caught:
        filters.parse(text)
    assert "^" in str(caught.value)


def select(*names, force=False, **options):
    return filters.from_names(list(names), force_filter=force, field="name", **options)


def test_names_are_alternatives():
    assert select() is None
    assert select("a", "b") == ["|", ["==", "name", "a"], ["==", "name", "b"]]
    assert select("a") == ["|", ["==", "name", "a"]]


def test_globs_match_name_components():
    assert select("web*") == ["|", ["=~", "name", r"^web[^.]*(\..*)?$"]]


def test_one_argument_with_special_characters_is_a_filter():
    assert select("pinst_cnt > 3") == [">", "pinst_cnt", 3]
    assert select("drained", force=True) == ["?", "drained"]
    with pytest.raises(errors.OpPrereqError):
        select(force=True)
    with pytest.raises(errors.OpPrereqError):
        select("a", "b", force=True)


def test_job_ids_are_numbers():
    assert select("12", numeric=True) == ["|", ["==", "name", 12]]
    with pytest.raises(errors.OpPrereqError):
        select("x", numeric=True)
