"""Sizes as texts."""

import pytest

from ganeti.base import errors
from ganeti.base.text import units
from ganeti.commands.job import commands
from ganeti.master.query.jobs import parse_job_id
from ganeti.operations.parameters import device_params, typed_params


@pytest.mark.parametrize(
    ("mib", "text"),
    [
        (0, "0M"),
        (1023, "1023M"),
        (1024, "1.0G"),
        (1536, "1.5G"),
        (1024 * 1024 - 1, "1024.0G"),
        (1024 * 1024, "1.0T"),
        (2.5 * 1024 * 1024, "2.5T"),
        (4096 * 1024 * 1024, "4096.0T"),
    ],
)
def test_the_largest_unit_that_fits_has_its_letter(mib, text):
    assert units.format_size(mib) == text


@pytest.mark.parametrize(
    ("unit", "text"), [("m", "1572864"), ("g", "1536.0"), ("t", "1.5")]
)
def test_a_wanted_unit_has_no_letter(unit, text):
    assert units.format_size(1.5 * 1024 * 1024, unit) == text


@pytest.mark.parametrize(
    ("mib", "text"),
    [
        (512, "512 MiB"),
        (10239, "10239 MiB"),
        (102398976, "102398976 MiB (97.7 TiB)"),
        (-20480, "-20480 MiB (-20.0 GiB)"),
    ],
)
def test_a_large_size_in_a_message_is_readable(mib, text):
    assert units.exact_mib(mib) == text


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512", 512),
        ("1T", 1024 * 1024),
        ("0.5t", 512 * 1024),
        ("5", 8),
        ("4.0", 4),
        ("4.1", 8),
        (" 12  MB ", 12),
        *((f"3{unit}", 4) for unit in ("", "m", "MiB", "mb")),
        *((f"2{unit}", 2048) for unit in ("g", "GB", "gib")),
        *((f"2{unit}", 2048 * 1024) for unit in ("t", "TB", "tib")),
    ],
)
def test_texts_are_read_in_mib_of_four(text, mib):
    assert units.parse_size_mib(text) == mib


@pytest.mark.parametrize(
    "text", ["", "g", "1x", "-1", "1 g g", "1e3", "1.2.3", ".", "٣"]
)
def test_other_texts_are_no_sizes(text):
    with pytest.raises(errors.UnitParseError, match="wanted a size"):
        units.parse_size_mib(text)


def test_a_size_that_no_number_holds_is_refused():
    with pytest.raises(errors.UnitParseError, match=r"wanted a size.{,140}$"):
        units.parse_size_mib("1" * 5000)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("007", 7), ("-12", -12), ("+5", 5), ("9" * 18, 10**18 - 1)],
)
def test_numbers(text, number):
    assert units.integer(text) == number
    assert units.whole_number(text) == (None if text[0] in "+-" else number)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "+-1",
        "--1",
        "1_0",
        " 1",
        "1\n",
        "\u0663",
        "\uff11",
        "\u00b2",
        "9" * 19,
        "9" * 5000,
    ],
)
def test_other_texts_are_no_numbers(text):
    assert units.integer(text) is None
    assert units.whole_number(text) is None


@pytest.mark.parametrize("digits", ["\u0663", "\uff11\u0662"])
def test_digits_of_other_scripts_are_refused_where_users_give_numbers(digits):
    checks = (
        lambda: device_params.stored_vlan(digits, "x"),
        lambda: device_params.stored_vlan(f".{digits}:2", "x"),
        lambda: commands.parse_id(digits),
        lambda: parse_job_id(digits),
        lambda: typed_params.backend({"vcpus": digits}),
        lambda: units.parse_duration(f"{digits}m"),
        lambda: units.parse_size_mib(digits),
    )
    for check in checks:
        with pytest.raises(errors.GenericError):
            check()
