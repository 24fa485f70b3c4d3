"""Options first, abbreviations, glued values, and what a wrong call says."""

import pytest

from fakes import commands
from ganeti.base import errors
from ganeti.base.constants import disks
from ganeti.commands.cli import parser, values
from ganeti.commands.cli.model import Argument, Command, Option

COMMAND = Command(
    "go",
    "go somewhere",
    arguments=(Argument("node", minimum=1, maximum=2),),
    options=(
        Option(("-v", "--verbose"), "talk", "verbose"),
        Option(("-o", "--output"), "fields", "output", "string"),
        Option(("--outer",), "outer", "outer", "int", default=7),
        Option(("-n", "--node"), "node", "nodes", "string", repeat=True),
        Option(("-t",), "type", "type", "choice", choices=("a", "b")),
        Option(("--one",), "mode one", "mode", "const", sets=1),
        Option(("--two",), "mode two", "mode", "const", sets=2),
    ),
)


def parse(text):
    return parser.parse(COMMAND, text.split())


def test_parsing_stops_at_the_first_positional_argument():
    opts, args, _ = parse("-v there -o x")
    assert opts.verbose
    assert opts.output is None
    assert args == ["there", "-o", "x"]


def test_two_dashes_end_the_options():
    opts, args, _ = parse("-v -- -o x")
    assert args == ["-o", "x"]
    assert opts.output is None


def test_a_single_dash_is_an_argument():
    assert parse("-v - -o")[1] == ["-", "-o"]


@pytest.mark.parametrize(
    "text", ["-o x", "-ox", "--output x", "--output=x", "--outp=x", "--outp x", "-vox"]
)
def test_a_value_may_follow_in_every_documented_form(text):
    assert parse(text)[0].output == "x"


def test_defaults_repetition_and_the_last_of_several_modes():
    opts = parse("-n a -nb --two --one")[0]
    assert (opts.outer, opts.nodes, opts.mode) == (7, ["a", "b"], 1)
    assert parse("")[0].nodes == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("--foo", "no such option: --foo"),
        ("--verbsoe", "no such option: --verbsoe (did you mean --verbose?)"),
        ("-x", "no such option: -x"),
        ("--out", "ambiguous option: --out (--outer, --output?)"),
        ("--output", "--output option requires 1 argument"),
        ("--verbose=1", "--verbose option does not take a value"),
        ("--outer=x", "option --outer: invalid integer value: 'x'"),
        ("-tc", "option -t: invalid choice: 'c' (choose from 'a', 'b')"),
    ],
)
def test_a_wrong_option_is_a_usage_error(text, problem):
    with pytest.raises(parser.UsageError) as caught:
        parse(text)
    assert str(caught.value) == problem


def test_commands_for_others_keep_their_options():
    command = commands.program("gnt-cluster").find("command")
    parser.check_count(command, ["ls", "-l", "--color"])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        (r"a\,b,c", ["a,b", "c"]),
        (r"a\\,b", ["a\\", "b"]),
        ("a,", ["a", ""]),
        (",a", ["", "a"]),
        ("a,,b", ["a", "", "b"]),
    ],
)
def test_commas_split_unless_escaped(text, parts):
    assert values.split_commas(text) == parts


def test_key_values_know_true_false_and_null():
    actual = values.parse_keyval("a=1,b,no_c,-d,e=x=y")
    assert actual == {"a": "1", "b": True, "c": False, "d": None, "e": "x=y"}
    assert values.parse_keyval("") == {}
    with pytest.raises(errors.ParameterError):
        values.parse_keyval("a=1,a=2")


def test_identifiers_with_key_values():
    parse_ident = values.parse_ident_keyval
    assert parse_ident("kvm:acpi=no") == ("kvm", {"acpi": "no"})
    assert parse_ident("kvm") == ("kvm", {})
    assert parse_ident("no_kvm") == ("kvm", False)
    assert parse_ident("-kvm") == ("kvm", None)
    assert parse_ident("-1:size=3") == ("-1", {"size": "3"})
    with pytest.raises(errors.ParameterError):
        parse_ident("no_kvm:a=b")


def test_alternatives_of_specs():
    actual = values.parse_multi_specs("min:a=1/max:a=2,b=3//min:a=4/max:a=5")
    assert actual == [
        {"min": {"a": "1"}, "max": {"a": "2", "b": "3"}},
        {"min": {"a": "4"}, "max": {"a": "5"}},
    ]
    for wrong in ("min:a", "min:a=1/min:a=2", "min:a=1//", "a=1"):
        with pytest.raises(errors.ParameterError):
            values.parse_multi_specs(wrong)


def test_choices_that_this_release_refuses_are_understood_but_not_listed():
    text = " ".join(commands.run("gnt-instance add --help").out.split())
    names = disks.OFFERED_DISK_TEMPLATES
    assert f"one of {', '.join(names)})" in text or f"-t {'|'.join(names)}" in text
    wrong = commands.run("gnt-instance add -t grain web1")
    assert f"choose from {', '.join(map(repr, names))}" in wrong.err
    row = Option(
        ("-t",), "type", "type", "choice", choices=("a", "b"), suggested=("b",)
    )
    values_of, _, _ = parser.parse(COMMAND._replace(options=(row,)), ["-t", "a"])
    assert values_of.type == "a"
