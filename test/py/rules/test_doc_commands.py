"""Commands that the documents show exist, with the options that are shown."""

import importlib
import pathlib
import re
import shlex

import pytest

from ganeti.base import errors
from ganeti.commands.cli import model, parser

TOP = pathlib.Path(__file__).parents[3]
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
