"""From the arguments of list commands to filters."""

import pytest

from ganeti.base import errors
from ganeti.commands.cli import filters
from ganeti.commands.cli.output import error_text


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
    assert select(r'name == "a\"b"') == ["==", "name", 'a"b']
    with pytest.raises(errors.OpPrereqError):
        select(force=True)
    with pytest.raises(errors.OpPrereqError):
        select("a", "b", force=True)


def test_job_ids_are_numbers():
    assert select("12", numeric=True) == ["|", ["==", "name", 12]]
    for text in ("x", "-1", "²", ""):
        with pytest.raises(errors.OpPrereqError):
            select(text, numeric=True)


def test_a_filter_that_cannot_be_parsed_is_shown_with_its_place():
    with pytest.raises(errors.QueryFilterParseError) as caught:
        select("role ==")
    assert error_text.describe(caught.value)[0] == (
        "cannot parse filter 'role ==': wanted a number or a quoted text\n"
        "role ==\n"
        "       ^\n"
        "wanted a number or a quoted text (at char 7)"
    )
