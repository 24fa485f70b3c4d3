"""Command lines of the tools: the values that each gets from its options.

The transcripts are in test/data/tools; a run prints the parsed values, or the error.
"""

import contextlib
import io
import pathlib
import re
import shlex
import subprocess

import pytest

from fakes import golden
from ganeti.base.constants import exitcodes
from ganeti.node.collectors import sources
from ganeti.tools import common, confd_client, import_export, mon_collector

FOLDER = pathlib.Path(__file__).parents[3] / "data" / "tools"
RUNS = [
    (path, words)
    for path in sorted(FOLDER.glob("*.txt"))
    for words, _ in golden.runs(path)
]
PARSERS = {
    "import-export": import_export.build_parser,
    "confd-client": confd_client.build_parser,
    "mon-collector": mon_collector.build_parser,
    "node-cleanup": lambda: common.parser("node-cleanup", ""),
}


def run(words):
    """Print the values of a command line."""
    name, *rest = shlex.split(" ".join(words))
    problem = io.StringIO()
    try:
        with contextlib.redirect_stderr(problem):
            options = PARSERS[name]().parse_args(rest)
    except SystemExit as end:
        # The rest depends on the version of Python.
        last = problem.getvalue().rpartition(": error: ")[2]
        print(last.partition(" (choose")[0].strip())
        return end.code
    for key, value in sorted(vars(options).items()):
        print(f"{key} = {value!r}")
    return 0


@pytest.mark.parametrize(
    ("path", "words"), RUNS, ids=[f"{path.stem}: {words}"[:70] for path, words in RUNS]
)
def test_options_have_the_values_of_the_transcript(path, words):
    golden.check(path, words, run)


# The help of daemon-util lists its verbs and no others.

SCRIPT = pathlib.Path(__file__).parents[4] / "daemons" / "daemon-util.in"


def test_help_lists_every_verb_and_starts_nothing():
    source = SCRIPT.read_text()
    verbs = {
        name.replace("_", "-")
        for name in re.findall(r"^cmd_(\w+)\(\)", source, re.MULTILINE)
    }
    for option in ("--help", "-h"):
        done = subprocess.run(
            ["sh", SCRIPT, option], capture_output=True, text=True, check=True
        )
        rows = re.findall(r"^  (\S.*?)(?:  |$)", done.stdout, re.MULTILINE)
        listed = {
            word
            for row in rows
            for word in re.findall(r"(?<![\w\[-])[a-z][a-z-]+", row)
        }
        assert listed == verbs
        assert done.stderr == ""


def test_an_unknown_verb_prints_the_usage_and_fails():
    done = subprocess.run(
        ["sh", SCRIPT, "begin"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Usage: daemon-util VERB [ARGUMENT...]\n"


# ``mon-collector``: options that each of its commands knows.


@pytest.mark.parametrize("name", ["lv", "drbd", "diskstats", "diagnose"])
def test_each_command_knows_version_and_completion(name, capsys):
    for option, wanted in (
        ("--version", "mon-collector (ganeti) "),
        ("--help-completion", "--version none\n"),
    ):
        with pytest.raises(SystemExit) as ended:
            mon_collector.main([name, option])
        assert ended.value.code == 0
        assert wanted in capsys.readouterr().out


def test_the_completion_names_kinds_of_arguments(capsys):
    with pytest.raises(SystemExit):
        mon_collector.main(["lv", "--help-completion"])
    lines = capsys.readouterr().out.splitlines()
    assert {"-f,--file file", "-a,--address host", "-p,--port integer"} < set(lines)


@pytest.mark.parametrize(
    ("text", "problem"),
    [("[", "not JSON"), ("[" * 200_000, "not JSON: nested too deeply"), ("{}", "")],
    ids=["broken", "deep", "other"],
)
@pytest.mark.parametrize(
    "arguments",
    [["lv", "-f", "{}"], ["lv", "-f", "{}", "-i", "{}"], ["drbd", "-s", "{}"]],
    ids=lambda arguments: "".join(arguments[::2]),
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path, capsys, monkeypatch, arguments, text, problem
):
    monkeypatch.setattr(sources.Sources, "minor_owners", lambda _self: {})
    monkeypatch.setattr(sources.Sources, "volume_owners", lambda _self: {})
    path = tmp_path / "data"
    path.write_text(text)
    words = [word.format(path) for word in arguments]
    assert mon_collector.main(words) == exitcodes.EXIT_FAILURE
    error = capsys.readouterr().err
    assert error.startswith(f"mon-collector: {words[0]}: {path}: ")
    assert problem in error or words[0] == "drbd"
