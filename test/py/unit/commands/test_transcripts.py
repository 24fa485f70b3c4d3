"""Commands from their words to the calls of the master, the output and the exit status.

The transcripts are in test/data/client. Every run has a master of its own, which knows a
small cluster. Lines that begin with ``>`` are calls of the master, one line per opcode of
a job, without the parameters that every opcode has; ``stderr:`` and ``asked:`` mark the
other streams.
"""

import json
import pathlib
import shlex

import pytest

from fakes import commands, golden
from fakes.client_cluster import master
from ganeti.commands.cluster import info

FOLDER = pathlib.Path(__file__).parents[3] / "data" / "client"
RUNS = [
    (path, words)
    for path in sorted(FOLDER.glob("*.txt"))
    for words, _ in golden.runs(path)
]
#: Calls by which a command waits for its job.
_WAITING = ["opstatus", "opresult"]
#: Parameters of every opcode.
_GENERIC = {"OP_ID", "debug_level", "reason"}


def _opcode(op):
    values = (
        f" {name}={json.dumps(op[name], sort_keys=True)}"
        for name in sorted(op)
        if name not in _GENERIC
    )
    return op["OP_ID"] + "".join(values)


def _call(method, args):
    """Return the lines of a call."""
    match method, args:
        case "QueryJobs", [_, fields] if fields == _WAITING:
            return
        case (("SubmitJob" | "SubmitJobToDrainedQueue" | "PlanJob"), [ops]):
            yield f"> {method}"
            yield from (f">   {_opcode(op)}" for op in ops)
        case "SubmitManyJobs", [jobs]:
            yield f"> {method}"
            for number, ops in enumerate(jobs):
                yield from (f">   {number}: {_opcode(op)}" for op in ops)
        case _:
            values = " ".join(json.dumps(value, sort_keys=True) for value in args)
            yield f"> {method} {values}".rstrip()


def _marked(mark, text):
    return "".join(f"{mark}: {line}".rstrip() + "\n" for line in text.splitlines())


def run(words):
    """Run a command and print the transcript; return its exit status."""
    words = shlex.split(" ".join(words))
    answers = None
    if words[-1].startswith("ANSWERS="):
        answers = [f"{word}\n" for word in words.pop().partition("=")[2].split(",")]
    asked = master()
    done = commands.run(words, asked, answers=answers)
    for method, args in asked.calls:
        for line in _call(method, args):
            print(line)
    print(
        done.out + _marked("asked", done.terminal) + _marked("stderr", done.err), end=""
    )
    return done.code


@pytest.mark.parametrize(
    ("path", "words"), RUNS, ids=[f"{path.stem}: {words}"[:70] for path, words in RUNS]
)
def test_a_run_is_the_transcript(path, words, monkeypatch):
    monkeypatch.setattr(info, "absent_daemons", list)
    golden.check(path, words, run)
