"""Command lines of the placement programs, against the documented tables."""

import json
import pathlib

import pytest

from ganeti.commands.htools import option_table, options

SPEC = pathlib.Path(__file__).parents[4] / "data" / "spec" / "htools.json"
RECORDS = json.loads(SPEC.read_text())["records"]
ROWS = [row for row in RECORDS if row["kind"] == "option"]
TOOLS = [row for row in RECORDS if row["kind"] == "tool-options" and "options" in row]


def parse(line: str, keys: str) -> options.ParsedOptions:
    return options.parse(line.split(), option_table.options_of(keys.split()))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_every_documented_option_has_its_names_and_default(row: dict) -> None:
    option = option_table.OPTIONS[row["name"]]
    assert list(option.names) == row["names"]
    documented = row.get("default")
    if isinstance(documented, (int, float)) and not isinstance(documented, bool):
        given = 1 if row["name"] == "v" else option.initial
        assert given == documented


def test_words_are_read_in_any_order() -> None:
    actual = parse("a -v --offl n1 -On2 -vq --min-gain=3 b -- -x", "v q O g")
    assert actual.arguments == ["a", "b", "-x"]
    assert actual["O"] == ["n1", "n2"]
    assert actual["g"] == 3
    assert actual.verbosity == 2


def test_an_optional_value_must_be_glued() -> None:
    actual = parse("-L -p name --mond", "L p mond")
    assert (actual["L"], actual["p"], actual["mond"]) == ("", "", True)
    assert actual.arguments == ["name"]
    again = parse("-L/s -pname,status --mond=no", "L p mond")
    assert (again["L"], again["p"], again["mond"]) == ("/s", "name,status", False)


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("--nope", "unrecognized option `--nope'"),
        (
            "--verbsoe",
            "unrecognized option `--verbsoe' (did you mean --verbose or --version?)",
        ),
        ("-Z", "unrecognized option `-Z'"),
        ("--min", "option `--min' is ambiguous; could be one of: --min-"),
        ("--verbose=3", "doesn't allow an argument"),
        ("-l", "option `-l' requires an argument N"),
    ],
)
def test_wrong_words_are_reported(line: str, reported: str) -> None:
    with pytest.raises(options.UsageError) as caught:
        parse(line, "v l g mgl mindisk")
    assert reported in str(caught.value)


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("-l x", "max solution length: cannot parse string 'x'"),
        ("-l " + "9" * 5000, "max solution length: cannot parse"),
        ("-g nan", "min gain: cannot parse"),
        ("-g 1e999", "min gain: out of range: '1e999'"),
        ("--max-cpu 1e999", "out of range"),
        ("-l " + "9" * 25, "max solution length: out of range"),
        ("--minimal-resources=1e400", "out of range"),
        ("--minimal-resources=-1", "expected >= 0"),
        ("--standard-alloc=99999999999999t,2,3", "standard specs disk: too large"),
        ("--max-cpu=0", "Invalid value of the max-cpu ratio, expected >0"),
        ("--min-disk=2", "wanted a number from 0 to 1, found 2"),
        ("--mond=5", "Invalid choice '5', pass one of 'yes' or 'no'"),
        ("--priority=foo", "Unknown priority 'foo'"),
        ("--disk-template=foo", 'Invalid string value for type DiskTemplate: "foo"'),
        ("--standard-alloc=1,2", "Invalid standard specification: '1,2'"),
        ("--tiered-alloc=1x,2,3", "tiered specs disk: unknown unit 'x'"),
        ("--spindle-use=-1", "Invalid value of the spindle-use (expected >= 0)"),
    ],
)
def test_wrong_values_are_reported(line: str, reported: str) -> None:
    with pytest.raises(options.OptionValueError) as caught:
        parse(line, "l g maxcpu mindisk mond prio dt std tier su minr")
    assert reported in str(caught.value)


def test_sizes_have_units() -> None:
    actual = parse("--standard-alloc=10g,512,2 --tiered-alloc=1t,1g,4,3", "std tier")
    assert actual["std"] == (10240, 512, 2, 1)
    assert actual["tier"] == (1048576, 1024, 4, 3)


def test_shells_learn_all_options() -> None:
    (hbal,) = [row for row in TOOLS if row["name"] == "hbal"]
    reported = options.completion(option_table.options_of(hbal["options"]), "")
    assert "-L,--luxi file" in reported.splitlines()
    assert "--priority choices=low,normal,high" in reported.splitlines()
    assert len(reported.splitlines()) == len(hbal["options"]) + 3
