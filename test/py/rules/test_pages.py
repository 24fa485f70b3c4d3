"""The documents against the tree: modules, paths, commands, libraries, what is missing."""

import importlib
import os
import pathlib
import re
import runpy
import shlex
import subprocess
import sys
from typing import NoReturn

import pytest

from ganeti.base import errors
from ganeti.commands.cli import model, parser
from ganeti.operations.unit_table import UNITS

TOP = pathlib.Path(__file__).parents[3]
TEXT = (TOP / "README").read_text()


def section(title):
    body = TEXT.split(f"\n{title}\n{'-' * len(title)}\n", 1)[1]
    return re.split(r"\n\n\n", body, maxsplit=1)[0]


def requirements():
    lines = (TOP / "requirements.txt").read_text().splitlines()
    names = [re.split(r"[><=]", line)[0] for line in lines if not line.startswith("#")]
    return {name.strip().lower() for name in names if name.strip()}


def test_the_two_commands_exist_and_can_be_run():
    for name in re.findall(r"^    (\w+/\w+)", section("Two commands"), re.MULTILINE):
        assert os.access(TOP / name, os.X_OK), name


def test_the_folders_are_those_of_the_tree():
    named = set(re.findall(r"^    (\w+) ", section("Where things are"), re.MULTILINE))
    listed = subprocess.run(
        ["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    folders = {name.split("/")[0] for name in listed if "/" in name}
    assert named == {name for name in folders if not name.startswith(".")}


def test_every_library_is_named_with_its_reason():
    rows = section("Libraries").splitlines()
    named = {
        row.split()[0].lower() for row in rows if re.match(r"^    \S+ {2,}\S", row)
    }
    assert named - {"package"} == requirements()


def test_vcluster_knows_the_commands_that_are_shown():
    shown = re.findall(r"^    tools/vcluster (\w+)", TEXT, re.MULTILINE)
    usage = subprocess.run(
        [TOP / "tools" / "vcluster", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [word for word in shown if word not in usage] == []


def test_ci_runs_the_test_command_and_nothing_else():
    lines = (TOP / ".ci" / "run").read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands == ['exec "$(dirname "$0")/../test/run"']


# The documents against the tree: modules and paths that they name.

LIB = TOP / "lib"
#: Made by the build, not kept in the tree.
MADE = {"lib/_buildconf.py"}


#: Folders of the tree that pages name paths in, and those of relative paths.
TOPS = ("lib", "test", "tools", "autotools", "man", "doc", "daemons")
TESTS, PLACEMENT = TOP / "test" / "py", LIB / "decisions" / "htools"


@pytest.mark.parametrize(
    "page", sorted((TOP / "doc").rglob("*.rst")), ids=lambda p: p.stem
)
def test_modules_and_paths_that_a_page_names_exist(page):
    text = page.read_text()
    wrong = []
    for name in re.findall(r"``ganeti\.([a-z0-9_.]+)``", text):
        place = LIB / name.replace(".", "/")
        attribute = (LIB / name.rpartition(".")[0].replace(".", "/")).with_suffix(".py")
        if not (
            place.exists() or place.with_suffix(".py").exists() or attribute.exists()
        ):
            wrong.append(f"ganeti.{name}")
    paths = rf"``((?:{'|'.join(TOPS)})/[\w./-]+)``"
    named = set(re.findall(paths, text)) - MADE
    wrong += [path for path in named if not (TOP / path).exists()]
    # Paths in tables are below a folder that the page names once.
    below = (
        rf"``((?:unit|property)/[\w./-]+|(?!(?:{'|'.join(TOPS)})/)[\w./-]+/\w+\.py)``"
    )
    wrong += [
        path
        for path in re.findall(below, text)
        if not any((top / path).exists() for top in (TESTS, PLACEMENT))
    ]
    assert not wrong


# The status page says exactly what is missing.

STATUS = runpy.run_path(str(TOP / "autotools" / "status"))
by_subject = STATUS["by_subject"]


def test_the_status_page_is_the_one_that_the_tables_give():
    done = subprocess.run(
        [sys.executable, TOP / "autotools" / "status"],
        env={"PYTHONPATH": str(TOP / "build" / "py"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    page = (TOP / "doc" / "status.rst").read_text()
    assert done.stdout == page, "run autotools/status > doc/status.rst"


def test_missing_things_stand_under_the_first_subject_that_fits():
    rows = [("OP_A_*", "First"), ("OP_*", "Second"), ("b", "First")]
    assert by_subject(["b", "OP_B", "OP_A_C"], rows) == {
        "First": ["b", "OP_A_C"],
        "Second": ["OP_B"],
    }


def test_a_missing_thing_without_a_subject_fails():
    with pytest.raises(SystemExit, match="OP_B is missing: give it a subject"):
        by_subject(["OP_A", "OP_B"], [("OP_A", "First")])


def test_a_subject_that_waits_for_nothing_fails():
    with pytest.raises(SystemExit, match="match no missing part: OP_B"):
        by_subject(["OP_A"], [("OP_A", "First"), ("OP_B", "First")])


def test_what_is_only_refused_does_not_count_as_offered(monkeypatch):
    monkeypatch.syspath_prepend(str(TOP / "build" / "py"))

    class Refusing:
        def execute(self) -> NoReturn:
            raise AssertionError

    monkeypatch.setitem(UNITS, "OP_INSTANCE_REPLACE_DISKS", Refusing)
    actual = list(STATUS["opcodes"]())
    assert "OP_INSTANCE_REPLACE_DISKS (*refused*)" in actual
    assert not any(name.startswith("OP_INSTANCE_RECREATE_DISKS") for name in actual)
    commands = list(STATUS["commands"]())
    assert "gnt-instance replace-disks (*refused*)" in commands
    procedures = list(STATUS["procedures"]())
    assert not any(name.startswith("blockdev_grow") for name in procedures)


def test_the_page_names_options_that_only_warn():
    rows = STATUS["without_effect"]()
    reason = "no effect, an import needs no helper machine"
    assert rows[f"``--helper-startup-timeout``: {reason}"] == ["gnt-backup import"]


def test_the_mark_of_what_is_refused_is_no_part_of_its_name():
    rows = [("OP_A", "First")]
    assert by_subject(["OP_A (*refused*)"], rows) == {"First": ["OP_A (*refused*)"]}


# Commands that the documents show exist, with the options that are shown.

PAGES = sorted((TOP / "doc").glob("*.rst"))
PROGRAMS = (
    "backup",
    *("cluster", "node", "group", "instance", "os", "job", "debug", "filter"),
    *("network", "rapi_token", "storage"),
)
#: Separate a command from what the shell does with its output.
_SHELL = re.compile(r"[|;&>)]+")


def offered():
    """Return program and command -> command."""
    tables = [
        importlib.import_module(f"ganeti.commands.{name}.table").PROGRAM
        for name in PROGRAMS
    ]
    return {
        (table.name, command.name): command
        for table in tables
        for command in table.offered()
    }


OFFERED = offered()


def typed_commands(text):
    """Yield the words of each gnt command at a prompt of a console block."""
    for block in re.findall(
        r"code-block:: console\n\n((?: +.*\n|\n)+)", f"{text}\n", re.MULTILINE
    ):
        joined = re.sub(r"\\\n\s*", "", block)
        for line in re.findall(r"^\s*(?:\w+[#$]|#) (.*)$", joined, re.MULTILINE):
            yield from words_of(line)


def words_of(line):
    """Yield the words of each gnt command of a shell line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&>()")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if _SHELL.fullmatch(word):
            if words and words[0].startswith("gnt-"):
                yield words
            words = []
        else:
            words.append(word)


def mentioned_commands(text):
    """Yield the words of each gnt command that running text mentions."""
    for literal in re.findall(r"``(gnt-[a-z]+ [^`]+)``", text):
        yield re.sub(r"\s+", " ", literal).split(" ")


def problem_with(words):
    """Return why a command cannot be run, empty when it can."""
    program, command, *rest = words
    if command == "--help":
        return ""
    known = OFFERED.get((program, command))
    if known is None:
        return "no such command"
    try:
        parser.check_count(known, parser.parse(known, rest)[1])
    except (parser.UsageError, errors.GenericError) as err:
        return str(err)
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_examples_can_be_parsed(page):
    problems = [
        f"{shlex.join(words)}: {problem}"
        for words in typed_commands(page.read_text())
        if (problem := problem_with(words))
    ]
    assert problems == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_options_in_running_text_exist(page):
    problems = []
    for program, command, *rest in mentioned_commands(page.read_text()):
        known = OFFERED.get((program, command))
        if known is None:
            problems.append(f"{program} {command}")
            continue
        options = (*model.COMMON_OPTIONS, *known.options)
        names = {name for option in options for name in option.names}
        for word in rest:
            option = word.partition("=")[0]
            if option.startswith("-") and option not in names:
                problems.append(f"{program} {command} {option}")
    assert [text for text in problems if not is_listed_as_missing(text)] == []


def is_listed_as_missing(text):
    """Return whether the status page names a command as not offered."""
    return f"``{text}``" in (TOP / "doc" / "status.rst").read_text()


def test_the_pages_show_many_commands():
    shown = [words for page in PAGES for words in typed_commands(page.read_text())]
    assert len(shown) > 100
    assert ["gnt-cluster", "verify"] in shown


@pytest.mark.parametrize(
    "line",
    [
        "gnt-instance lst",
        "gnt-instance list --nosuch",
        "gnt-cluster verify; gnt-node nosuch",
        "gnt-job list | gnt-job nosuch",
    ],
)
def test_wrong_commands_are_noticed(line):
    assert any(problem_with(words) for words in words_of(line))
