"""The tables of commands against the documented command line."""

import importlib
import json
import pathlib
import re

import pytest

from ganeti.commands.cli import model, parser
from ganeti.operations.unit_table import UNITS

_ROOT = pathlib.Path(__file__).parents[3]
_SPEC = json.loads((_ROOT / "data" / "spec" / "cli.json").read_text())
#: Names each documented command or option that is not offered, and its subject.
_STATUS = _ROOT.parent / "doc" / "status.rst"
_PROGRAMS = ("cluster", "node", "group", "network", "instance", "os", "job")
_PROGRAMS += ("debug", "backup", "filter", "storage")
#: Commands that can do without an argument that Ganeti's cannot.
OPTIONAL = {("gnt-instance", "add")}
#: Choices of documented options that only we have.
OURS = {("iallocator", "mode"): ("balance", "capacity")}
#: Commands that take several names where clients of earlier releases take one.
SEVERAL = {
    ("gnt-instance", "activate-disks"),
    ("gnt-instance", "deactivate-disks"),
    ("gnt-group", "remove"),
    ("gnt-instance", "failover"),
    ("gnt-instance", "migrate"),
    ("gnt-instance", "remove"),
    ("gnt-node", "evacuate"),
    ("gnt-node", "remove"),
}
#: Arguments whose documented kind is not that of their objects, which completion needs.
KINDS = {
    ("gnt-network", "rename"): {"group": "network"},
    ("gnt-storage", "info"): {"os": "extstorage"},
}
#: Commands without ``--json``: they print nothing that a program would parse, or the
#: output of other programs, or a command line.
WITHOUT_JSON = {
    "gnt-cluster": {
        *("backup-store", "command", "copyfile", "master-ping", "show-ispecs-cmd"),
        *("freeze", "maintd-cancel", "remove-repair", "thaw"),
    },
    "gnt-group": {"show-ispecs-cmd"},
    "gnt-instance": {"console", "vnc"},
    "gnt-job": {
        *("archive", "autoarchive", "cancel", "change-priority", "wait", "watch"),
    },
    "gnt-debug": {"iallocator", "submit-job", "test-jobqueue", "test-osparams"},
    "gnt-filter": {"add", "delete", "replace"},
}
TABLES = {
    f"gnt-{name}": importlib.import_module(f"ganeti.commands.{name}.table").PROGRAM
    for name in _PROGRAMS
}
OFFERED = [
    (program, command) for program in TABLES.values() for command in program.offered()
]
_IDS = [f"{program.name} {command.name}" for program, command in OFFERED]


def _documented():
    for row in _SPEC["subcommands"]:
        if "since" not in row:
            yield row


def _find(row):
    program = TABLES.get(row["prog"])
    return program and program.find(row["cmd"])


def _options(row):
    return [option for option in row["opts"] if "since" not in option]


def missing():
    """Yield ``program command [option]`` of what is documented but not offered."""
    for row in _documented():
        command = _find(row)
        if command is None:
            yield f"{row['prog']} {row['cmd']}"
            continue
        known = {name for option in command.options for name in option.names}
        for option in _options(row):
            if not set(option["n"]) <= known:
                yield f"{row['prog']} {row['cmd']} {option['n'][-1]}"


def test_every_documented_command_and_option_is_offered_or_listed_as_missing():
    listed = re.findall(r"^- ``(gnt-.*)``$", _STATUS.read_text(), re.MULTILINE)
    assert sorted(missing()) == sorted(listed)


@pytest.mark.parametrize(
    "row", list(_documented()), ids=lambda row: f"{row['prog']} {row['cmd']}"
)
def test_offered_commands_take_the_documented_arguments_and_options(row):
    command = _find(row)
    if command is None:
        return  # the list above has it
    assert command.aliases == tuple(row["aliases"])
    counts = [(a.kind, a.minimum, a.maximum) for a in command.arguments]
    several = (row["prog"], row["cmd"]) in SEVERAL
    kinds = KINDS.get((row["prog"], row["cmd"]), {})
    optional = (row["prog"], row["cmd"]) in OPTIONAL
    assert counts == [
        (
            kinds.get(a["kind"], a["kind"]),
            0 if optional else a["min"],
            None if several else a["max"],
        )
        for a in row["args"]
    ]
    assert command.summary == row["summary"]
    assert list(command.fields) == row.get("list_fields", [])
    by_names = {option.names: option for option in command.options}
    for wanted in _options(row):
        option = by_names[tuple(wanted["n"])]
        assert option.kind == wanted["type"], wanted["n"]
        assert option.repeat == wanted.get("repeat", False), wanted["n"]
        more = OURS.get((row["cmd"], option.dest), ())
        choices = [choice for choice in option.choices if choice not in more]
        assert choices == wanted.get("choices", []), wanted["n"]
        assert (option.dest or None) == wanted["dest"], wanted["n"]
        if option.dest:
            # Nothing given is nothing given, whatever it is called.
            default = parser.parse(command, [])[0].__dict__[option.dest]
            assert (default or None) == (wanted["default"] or None), wanted["n"]
        if "sets" in wanted:
            stored = (
                list(option.sets) if isinstance(option.sets, tuple) else option.sets
            )
            assert stored == wanted["sets"], wanted["n"]
        assert option.help, wanted["n"]


@pytest.mark.parametrize(("program", "command"), OFFERED, ids=_IDS)
def test_offered_commands_have_a_handler_and_the_master_can_do_their_jobs(
    program, command
):
    module, _, function = command.run.partition(":")
    assert callable(getattr(importlib.import_module(f"ganeti.{module}"), function))
    assert set(command.opcodes) <= set(UNITS)


def test_every_listing_and_every_plan_has_json():
    without = {(p, c) for p, names in WITHOUT_JSON.items() for c in names}
    assert without == {
        (program.name, command.name)
        for program, command in OFFERED
        if not any("--json" in option.names for option in command.options)
    }


@pytest.mark.parametrize(("program", "command"), OFFERED, ids=_IDS)
def test_tables_have_separators_and_sizes_have_units(program, command):
    """Whatever prints a table, documented or ours, is as easy to parse."""
    if len(command.fields) == 1:
        return  # names alone
    names = {name for option in command.options for name in option.names}
    assert ("--no-headers" in names) == ("--separator" in names)
    if "--units" in names and command.name != "init":
        assert "--separator" in names


@pytest.mark.parametrize(("program", "command"), OFFERED, ids=_IDS)
def test_no_two_options_of_a_command_share_a_name(program, command):
    options = (*model.COMMON_OPTIONS, *command.options)
    names = [name for option in options for name in option.names]
    assert len(names) == len(set(names))


def test_aliases_of_programs_are_those_of_their_commands():
    for name, facts in _SPEC["programs"].items():
        if name in TABLES:
            actual = {
                alias: command.name
                for command in TABLES[name].commands
                for alias in command.aliases
            }
            assert actual == facts["aliases"]
