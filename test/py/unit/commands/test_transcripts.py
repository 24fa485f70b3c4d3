"""Commands from their words to the calls of the master, the output and the exit status.

The transcripts are in test/data/client. Every run has a master of its own, which knows a
small cluster. Lines that begin with ``>`` are calls of the master, one line per opcode of
a job, without a reason that is just its command; ``stderr:`` and ``asked:`` mark the other
streams.

A run is one command or several, with ``;`` between them, that ask the same master. Words
like ``NAME=VALUE`` at the end of a command set what it meets:

- ``ANSWERS`` of a person at a terminal, with commas; ``STDIN``, with ``|`` between lines;
- ``TTY=1``: its output goes to a terminal; ``ENV``, its environment, with ``;`` between;
- ``FILE``, text of the file ``/FILE``, in Latin-1, with ``|`` between lines;
- any attribute of `fakes.luxi_master.FakeMaster` in upper case, in JSON: entries that a
  table gets, or the value of others. ``{"error": [class, arguments]}`` is an error,
  ``{"status": number}`` a field without value.

What follows the word ``#`` says what the run shows where that is not plain.
"""

import functools
import itertools
import json
import pathlib
import re
import shlex

import pytest

from fakes import commands, golden
from fakes.client_cluster import master
from ganeti import _buildconf
from ganeti.base import errors
from ganeti.commands.cluster import info

FOLDER = pathlib.Path(__file__).parents[3] / "data" / "client"
RUNS = [
    (path, words)
    for path in sorted(FOLDER.glob("*.txt"))
    for words, _ in golden.runs(path)
]
#: Calls by which a command waits for its job.
_WAITING = ["opstatus", "opresult"]
_NOW_NS = 1_700_000_000 * 10**9
_SETTING = re.compile(r"([A-Z_]+)=(.*)", re.DOTALL)


def _opcode(op, words):
    usual = {"OP_ID": op["OP_ID"], "debug_level": 0}
    usual["reason"] = [[f"gnt:client:{words[0]}", *words[1:2], _NOW_NS]]
    values = (
        f" {name}={json.dumps(value, sort_keys=True)}"
        for name, value in sorted(({"reason": []} | op).items())
        if name not in usual or value != usual[name]
    )
    return op["OP_ID"] + "".join(values)


def _call(method, args, words):
    """Return the lines of a call of a command."""
    match method, args:
        case "QueryJobs", [_, fields] if fields == _WAITING:
            return
        case (("SubmitJob" | "SubmitJobToDrainedQueue" | "PlanJob"), [ops]):
            yield f"> {method}"
            yield from (f">   {_opcode(op, words)}" for op in ops)
        case "SubmitManyJobs", [jobs]:
            yield f"> {method}"
            for number, ops in enumerate(jobs):
                yield from (f">   {number}: {_opcode(op, words)}" for op in ops)
        case _:
            values = " ".join(json.dumps(value, sort_keys=True) for value in args)
            yield f"> {method} {values}".rstrip()


def _marked(mark, text):
    return "".join(
        f"{mark}: {line}\n" if line else f"{mark}:\n" for line in text.splitlines()
    )


def _decoded(value):
    """Return a value of a setting, with what its objects of one key stand for."""
    match value:
        case {"error": error, **others} if not others:
            return errors.decode(error)
        case {"status": status, **others} if not others:
            return status, None
        case dict():
            return {
                int(key) if key.isdigit() else key: _decoded(item)
                for key, item in value.items()
            }
        case list():
            return [_decoded(item) for item in value]
    return value


def _set(asked, name, text):
    """Add entries to a table or set of the master, or set another value."""
    value, known = _decoded(json.loads(text)), getattr(asked, name)
    if isinstance(known, set):
        value = {*value}
    if isinstance(known, (dict, set)) and isinstance(value, type(known)):
        value = known | value
    setattr(asked, name, value)


def _settings(words):
    """Take the settings from the end of a command."""
    settings = {}
    while setting := _SETTING.fullmatch(words[-1]):
        settings[setting[1]] = setting[2]
        words.pop()
    return settings


def _options(settings):
    """Take from the settings what is no matter of the master."""
    options = {"environ": {"NO_COLOR": "1"}, "tty": "TTY" in settings}
    settings.pop("TTY", None)
    if "ANSWERS" in settings:
        answers = settings.pop("ANSWERS").split(",")
        options["answers"] = [f"{word}\n" for word in answers]
    for pair in filter(None, settings.pop("ENV", "").split(";")):
        name, _, value = pair.partition("=")
        options["environ"][name] = value
    options["stdin"] = settings.pop("STDIN", "").replace("|", "\n")
    return options


def _submitted(calls):
    """Yield the identifiers of the opcodes of all jobs."""
    for method, args in calls:
        if method.startswith("Submit"):
            jobs = args[0] if method == "SubmitManyJobs" else args
            yield from (op["OP_ID"] for op in itertools.chain(*jobs))


def _run(words, asked, file):
    """Run one command and print its transcript; return its exit status."""
    settings = _settings(words)
    if "FILE" in settings:
        text = settings.pop("FILE").replace("|", "\n")
        file.write_text(text, encoding="latin-1")
    words = [word.replace("/FILE", str(file)) for word in words]
    options = _options(settings)
    for name, text in settings.items():
        _set(asked, name.lower(), text)
    asked.calls.clear()
    done = commands.run(words, asked, **options)
    declared = commands.program(words[0]).find(words[1] if words[1:] else "")
    assert {*_submitted(asked.calls)} <= {*(declared.opcodes if declared else ())}
    assert done.err[-1:] in {"", "\n"}
    for method, args in asked.calls:
        for line in _call(method, args, words):
            print(line)
    text = done.out + _marked("asked", done.terminal) + _marked("stderr", done.err)
    text = text.replace(str(file), "/FILE").replace(_buildconf.TOOLSDIR, "TOOLSDIR")
    text = re.sub(r"\b(pid=|uid )\d+", r"\1N", text)
    print(text, end="")
    return done.code


def run(file, words):
    """Run the commands of a run and print the transcript; return the last exit status."""
    words = [*itertools.takewhile("#".__ne__, shlex.split(" ".join(words)))]
    asked = master()
    *before, last = (
        [*part] for is_end, part in itertools.groupby(words, ";".__eq__) if not is_end
    )
    for part in before:
        if code := _run(part, asked, file):
            print(f"exit status {code}")
    return _run(last, asked, file)


@pytest.mark.parametrize(
    ("path", "words"), RUNS, ids=[f"{path.stem}: {words}"[:70] for path, words in RUNS]
)
def test_a_run_is_the_transcript(path, words, monkeypatch, tmp_path):
    monkeypatch.setattr(info, "absent_daemons", list)
    golden.check(path, words, functools.partial(run, tmp_path / "file"))
