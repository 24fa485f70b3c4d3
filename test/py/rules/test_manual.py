"""Manual pages against the command tables."""

import importlib
import pathlib
import re
import shlex
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ganeti.automation.watcher import main as watcher
from ganeti.base.constants.parameters import hvparams, params
from ganeti.commands.cli import parser
from ganeti.commands.cli.help import examples, manual, usage
from ganeti.commands.cli.model import COMMON_OPTIONS
from ganeti.daemons.mains import masterd, noded, rapi, standby
from ganeti.model.objects.filled import NetInfo, NicX
from ganeti.node.hypervisor import networks
from ganeti.tools import cleaner

TOP = pathlib.Path(__file__).parents[3]
ROWS = (TOP / "autotools" / "programs").read_text().splitlines()
NAMES = [row.split()[0] for row in ROWS if row.startswith("gnt-")]
COMMON = {spelling for option in COMMON_OPTIONS for spelling in option.names}


def program(name):
    return importlib.import_module(
        f"ganeti.commands.{name[4:].replace('-', '_')}.table"
    ).PROGRAM


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_every_command_and_option_that_is_offered(name):
    text = manual.page(program(name), "", "0").replace("\\", "")
    for command in program(name).offered():
        assert f"\n{command.name.upper()}\n" in text
        for option in command.options:
            assert all(spelling in text for spelling in option.names)


def test_prose_names_only_options_that_exist():
    for name in NAMES:
        prose = TOP / "man" / f"{name}.rst"
        if not prose.exists():
            continue
        known = {
            spelling
            for command in program(name).offered()
            for option in command.options
            for spelling in option.names
        }
        named = set(re.findall(r"``(--[a-z-]+)``", prose.read_text()))
        assert named <= known | COMMON, name


def _prose(name):
    """Return the text per command in the prose of a page."""
    text = (TOP / "man" / f"{name}.rst").read_text()
    return dict(manual.split(dict(manual.split(text, "="))["COMMANDS"], "-"))


def _sentences(text):
    paragraphs = [p for p in re.split(r"\n\s*\n", text) if not p.startswith(" ")]
    return re.findall(r"\w[^.]*[.:](?=\s|$)", "\n".join(paragraphs))


@pytest.mark.parametrize("name", NAMES)
def test_each_command_has_prose_and_nothing_else_has(name):
    prose = _prose(name)
    assert set(prose) == {command.name for command in program(name).offered()}
    short = [command for command, text in prose.items() if len(_sentences(text)) < 2]
    assert not short


@pytest.mark.parametrize("name", NAMES)
def test_prose_names_options_of_its_own_command(name):
    others = {
        spelling
        for row in NAMES
        for command in program(row).offered()
        for option in command.options
        for spelling in option.names
    }
    for command, text in _prose(name).items():
        known = COMMON | {
            spelling
            for option in program(name).find(command).options
            for spelling in option.names
        }
        own = re.sub(r"\*\*[^*]*\*\*", "", text)  # bold text names other commands
        named = set(re.findall(r"``(-[\w-]+)", own))
        assert named <= known, (command, named & others)


def test_an_unknown_command_or_list_of_parameters_in_the_prose_is_refused():
    with pytest.raises(ValueError, match="fly"):
        manual.page(program("gnt-job"), "COMMANDS\n========\n\nfly\n---\n\nUp.\n", "0")
    with pytest.raises(KeyError):
        manual.page(program("gnt-job"), "X\n===\n\n.. parameters:: tea\n", "0")


def test_prose_stands_in_its_order_and_under_its_command():
    prose = (
        "BEFORE\n======\n\nFirst.\n\nCOMMANDS\n========\n\n"
        "wait\n----\n\nWaits here.\n\nAFTER\n=====\n\n.. parameters:: backend\n"
    )
    text = manual.page(program("gnt-job"), prose, "0")
    wait = text.index("**gnt-job wait [options] <jobid>**\n\nWaits here.\n")
    assert text.index("First.") < wait < text.index("\nAFTER\n")
    vcpus = "**vcpus** (whole number, default 1)\n  Number of virtual CPUs. Takes eff"
    assert text.index("\nAFTER\n") < text.index(vcpus)


def test_every_parameter_of_what_is_offered_has_an_entry():
    pages = (
        "".join(
            (TOP / "man" / f"{name}.rst").read_text()
            for name in ("gnt-instance", "gnt-node")
        )
        + (TOP / "man" / "gnt-cluster.rst").read_text()
    )
    kinds = set(re.findall(r"^\.\. parameters:: (.*)$", pages, re.MULTILINE))
    assert kinds >= {
        "backend",
        "nic",
        "nic of an instance",
        "disk of an instance",
        "node",
        "hypervisor kvm",
        "hypervisor fake",
    }
    for kind in kinds:
        assert manual.expand(f".. parameters:: {kind}\n").count("**") >= 2


#: Every kind of parameters.
KINDS = [
    *("backend", "nic", "nic of an instance", "disk of an instance", "node"),
    *(f"hypervisor {name}" for name in hvparams.HYPERVISOR),
    *(f"disk template {name}" for name, rows in params.DISK.items() if rows),
]
_TABLES = {
    "backend": params.BACKEND,
    "nic": params.NIC,
    "nic of an instance": params.INIC,
    "disk of an instance": params.IDISK,
    "node": params.NODE,
}


def _names(kind):
    family, _, name = kind.rpartition(" ")
    tables = {"hypervisor": hvparams.HYPERVISOR, "disk template": params.DISK}
    return set(_TABLES.get(kind) or tables[family][name])


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_has_a_meaning_and_an_effect(kind):
    entries = manual.explain(kind)
    assert {entry.name for entry in entries} == _names(kind)
    meanings = [entry.text.partition(". ")[0] for entry in entries]
    short = [text for text in meanings if len(text.split()) < 2]
    assert not short
    assert len(set(meanings)) == len(meanings), "two parameters with the same text"
    for entry in entries:
        assert entry.text.count(". ") >= 1, entry.name
        assert entry.facts, entry.name


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_stands_in_a_page_and_in_the_help(kind):
    prose = "".join(path.read_text() for path in (TOP / "man").glob("gnt-*.rst"))
    assert f".. parameters:: {kind}\n" in prose
    section = manual.all_kinds().partition(f"Parameters: {kind} (")[2]
    section = section.partition("\nParameters: ")[0]
    named = set(re.findall(r"^([a-z][\w-]*) \(", section, re.MULTILINE))
    assert named == _names(kind)


@pytest.mark.parametrize("name", NAMES)
def test_examples_parse_and_call_what_they_stand_at(name):
    # Examples of what is not offered yet wait here unseen, but must be right too.
    for command in program(name).commands:
        for call, _ in examples.of(name, command.name):
            _, arguments, warnings = parser.parse(command, shlex.split(call)[2:])
            parser.check_count(command, arguments)
            assert warnings == [], call


def test_every_example_stands_at_a_command():
    rows = [
        (name, command.name) for name in NAMES for command in program(name).commands
    ]
    shown = sum(len(examples.of(*row)) for row in rows)
    assert shown * 2 == len(examples._EXAMPLES.splitlines())


@pytest.mark.parametrize("name", ["gnt-job", "gnt-os", "gnt-filter"])
def test_programs_of_few_commands_have_an_example_for_each(name):
    commands = [command.name for command in program(name).offered()]
    without = [command for command in commands if not examples.of(name, command)]
    assert without in ([], ["list-fields"])


def test_help_and_page_show_examples():
    command = program("gnt-job").find("watch")
    assert (
        "  gnt-job watch 12\n      print its messages until it ends"
        in usage.command_help(program("gnt-job"), command)
    )
    assert "\n    gnt-job watch 12\n" in manual.page(program("gnt-job"), "", "0")


def _spellings(text):
    return set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", text))


@pytest.mark.parametrize(
    ("name", "parser"),
    [
        ("ganeti-noded", noded.build_parser()),
        ("ganeti-masterd", masterd.build_parser()),
        ("ganeti-rapi", rapi.build_parser()),
        ("ganeti-standby", standby.build_parser()),
        ("ganeti-watcher", watcher.build_parser()),
        ("ganeti-cleaner", cleaner.build_parser()),
    ],
)
def test_the_page_of_a_daemon_has_its_options_and_no_others(name, parser):
    page = (TOP / "man" / f"{name}.rst").read_text()
    options = page.partition("\nOPTIONS\n")[2].partition("\n\n")[2]
    options = re.split(r"\n[A-Z ]+\n=+\n", options)[0]
    entries = "\n".join(re.findall(r"^-.*", options, re.MULTILINE))
    known = {
        spelling for action in parser._actions for spelling in action.option_strings
    }
    assert _spellings(entries) == known
    synopsis = page.partition("\nSYNOPSIS\n")[2].partition("\nDESCRIPTION\n")[0]
    assert _spellings(synopsis) <= known | set(re.findall(r"-ganeti-\w+", synopsis))


def _help(name):
    rows = dict(row.split()[:2] for row in ROWS if not row.startswith("#"))
    return subprocess.run(
        [sys.executable, "-c", f"import {rows[name]} as m; m.main()", "--help"],
        env={"PYTHONPATH": str(TOP / "build" / "py"), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )


def _tools():
    """Return the section of each tool that has no page of its own."""
    text = (TOP / "man" / "ganeti-tools.rst").read_text()
    return dict(manual.split(dict(manual.split(text, "="))["PROGRAMS"], "-"))


def test_each_program_has_a_page_or_a_section_with_its_prose():
    names = {row.split()[0] for row in ROWS if not row.startswith("#")}
    pages = {path.stem for path in (TOP / "man").glob("*.rst")}
    assert set(_tools()) == names - pages
    assert all(len(_sentences(text)) >= 2 for text in _tools().values())


@pytest.mark.parametrize("name", sorted(set(_tools()) - {"master-ip-setup"}))
def test_the_section_of_a_tool_has_its_options_and_no_others(name):
    options = re.findall(r"^  (?:-\w, )?(--[\w-]+)", _help(name).stdout, re.MULTILINE)
    common = {"--help", "--debug", "--verbose", "--version"}
    own = re.sub(r"\*\*gnt[^*]*\*\*", "", _tools()[name])
    assert set(options) - common <= _spellings(own)
    long = {word for word in _spellings(own) if word.startswith("--")}
    assert long <= _spellings(_help(name).stdout)


@pytest.mark.parametrize("name", ["cfgupgrade", "take-over", "vcluster"])
def test_the_page_of_a_tool_has_what_its_help_has(name):
    done = _help(name)
    page = (TOP / "man" / f"{name}.rst").read_text()
    options = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", done.stdout, re.MULTILINE))
    assert options - {"--help", "--version", "--directory"} <= _spellings(page)
    lines = re.findall(r"^    (\w[\w-]*) +(?!internal)\w", done.stdout, re.MULTILINE)
    assert set(lines) <= set(re.findall(r"[\w-]+", page))


def test_the_page_of_daemon_util_has_its_verbs():
    script = (TOP / "daemons" / "daemon-util.in").read_text()
    page = (TOP / "man" / "daemon-util.rst").read_text()
    verbs = {
        verb.replace("_", "-")
        for verb in re.findall(r"^cmd_(\w+)", script, re.MULTILINE)
    }
    assert verbs <= set(re.findall(r"[\w-]+", page))
    section = page.partition("\nVERBS\n")[2].partition("\nFILES\n")[0]
    named = re.findall(r"^([a-z][a-z, -]+[a-z])", section, re.MULTILINE)
    assert {word.strip() for line in named for word in line.split(",")} <= verbs


def test_see_also_names_every_page():
    pages = {
        f"{path.stem}({number[1]})"
        for path in (TOP / "man").glob("*.rst")
        if (
            number := re.search(
                r"^:Manual section: (\d)$", path.read_text(), re.MULTILINE
            )
        )
    }
    footer = (TOP / "man" / "footer.rst").read_text()
    assert pages | {f"{name}(8)" for name in NAMES} == set(
        re.findall(r"[\w-]+\(\d\)", footer)
    )


def test_the_page_of_networks_has_every_variable_of_scripts_for_nics():
    network = NetInfo(
        **dict.fromkeys(("uuid", "name", "network", "gateway", "network6"), "x"),
        **dict.fromkeys(("gateway6", "mac_prefix"), "x"),
        tags=("t",),
    )
    nic = NicX(
        mac="aa:00:00:00:00:01",
        uuid="u1",
        name="eth",
        ip="192.0.2.1",
        nicparams={"mode": "bridged", "link": "br0", "vlan": "1"},
        netinfo=network,
    )
    instance = SimpleNamespace(name="web1", tags=())
    text = (TOP / "man" / "gnt-network.rst").read_text()
    section = text.partition("SCRIPT FOR NICS\n")[2].partition("COMMANDS\n")[0]
    known = networks.environment(instance, nic, 0, "gnt0").keys() - {"PATH"}
    assert set(re.findall(r"\b[A-Z0-9]+(?:_[A-Z0-9]+)*\b", section)) >= known
