"""Two implementations of a placement program on the same case: what differs.

Differences are ``words`` (the same names and numbers in the same order), ``order``
(the same lines or tokens elsewhere), ``known`` (on purpose) or ``real``.
"""

import collections
import dataclasses
import json
import pathlib
import re
import resource
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from fakes.made_cases import Case

SAME, WORDS, ORDER, REAL, SLOW = "same", "words", "order", "real", "slow"
#: We differ on purpose.
KNOWN = "known"
#: Only one takes input that may be wrong.
INPUT = "input"
#: Seconds on the wall for one of the processor.
_PATIENCE = 12
#: Ends the other program when its own counts do not agree.
_CRASH = "Error: internal inconsistency"
_DUMPED = "no groups for evacuation"
_DUMPS = (
    "Loaded cluster tags:",
    "Loaded cluster ipolicy:",
    "Bad nodes: [",
    "N+1 happy nodes: [",
    "Node policy status: [",
    "Node Graph: ",
)
_TOKEN = re.compile(r"[\w.:/-]*\d[\w.:/%-]*")


@dataclasses.dataclass(frozen=True)
class Output:
    """Output and files of a program; code None when it took too long."""

    code: int | None
    out: str
    err: str
    saved: Mapping[str, str] = dataclasses.field(default_factory=dict)


def run(program: str, case: Case, directory: pathlib.Path, limit_s: int) -> Output:
    """Run a program on a case in a directory that gets its files.

    The limit is of processor time, so that other load on the machine changes nothing.
    """
    for name, text in case.files.items():
        (directory / name).write_text(text)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    try:
        done = subprocess.run(
            [program, *case.words],
            cwd=directory,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s * _PATIENCE,
            check=False,
            preexec_fn=limited,
        )
    except subprocess.TimeoutExpired:
        return Output(None, "", "")
    if done.returncode in {-signal.SIGKILL, -signal.SIGXCPU}:
        return Output(None, "", "")
    saved = {
        path.name: path.read_text(errors="replace")
        for path in sorted(directory.iterdir())
        if path.name not in case.files
    }
    return Output(done.returncode, done.stdout, done.stderr, saved)


def difference(case: Case, ours: Output, theirs: Output) -> tuple[str, str]:
    """Return the kind of difference and one line about it."""
    if theirs.code is None:
        return SLOW, "they took too long"
    if ours.code is None:
        return REAL, "we took too long"
    if (ours.code > 0) != (theirs.code > 0):
        if _CRASH in theirs.err and ours.out.startswith(theirs.out):
            return KNOWN, "they count instances that are still to come, and give up"
        return (
            INPUT if case.is_spoilt else REAL,
            f"exit code {ours.code}, theirs {theirs.code}: {_first(ours, theirs)}",
        )
    if ours == theirs:
        return SAME, ""
    if ours.code and theirs.code and ours.out == theirs.out:
        return WORDS, _first(ours, theirs)
    if case.is_spoilt and bool(ours.out) != bool(theirs.out):
        return INPUT, _first(ours, theirs)
    if case.tool == "hail":
        return _answers(ours, theirs)
    return _texts(ours, theirs)


def _answers(ours: Output, theirs: Output) -> tuple[str, str]:
    mine, other = json.loads(ours.out), json.loads(theirs.out)
    for answer in (mine, other):
        answer["result"] = _shorter(answer["result"])
    known = _deviation(mine, other)
    if known:
        return KNOWN, known
    if mine["success"] != other["success"]:
        return REAL, f"{ours.out.strip()} / {theirs.out.strip()}"
    if mine["result"] == other["result"]:
        if mine["info"] == other["info"] and ours.err == theirs.err:
            return SAME, ""
        if _tokens(mine["info"]) == _tokens(other["info"]):
            return WORDS, _first(ours, theirs)
        return REAL, f"info: {mine['info']} / {other['info']}"
    if _flat(mine["result"]) == _flat(other["result"]):
        return ORDER, f"{mine['result']} / {other['result']}"
    return REAL, f"{ours.out.strip()} / {theirs.out.strip()}"


def _shorter(value: Any) -> Any:
    """Leave out what a refusal prints of its own values."""
    if isinstance(value, list):
        return [_shorter(item) for item in value]
    is_dump = isinstance(value, str) and value.startswith(_DUMPED)
    return _DUMPED if is_dump else value


def _deviation(mine: dict[str, Any], other: dict[str, Any]) -> str:
    """Return why we mean to differ, empty if not."""
    result = mine["result"]
    is_several = mine["success"] and "failed to allocate" in mine["info"]
    if is_several and result[1] and not other["success"]:
        return "several instances: those that fit are placed, others are named"
    if is_several and result[1] and other["result"][0] == result[0]:
        return "several instances: refused ones are listed by name alone"
    return ""


def _flat(value: Any) -> collections.Counter[str]:
    return collections.Counter(re.findall(r'"[^"]*"', json.dumps(value)))


def _texts(ours: Output, theirs: Output) -> tuple[str, str]:
    ours, theirs = _without_dumps(ours), _without_dumps(theirs)
    mine, other = (
        "".join([output.out, output.err, *output.saved.values()])
        for output in (ours, theirs)
    )
    reported = _first(ours, theirs)
    if mine == other:
        return SAME, ""
    if _tokens(mine) == _tokens(other):
        return WORDS, reported
    if sorted(_tokens(mine)) == sorted(_tokens(other)):
        return ORDER, reported
    return REAL, reported


def _without_dumps(output: Output) -> Output:
    """Leave out debugging lines about loaded data."""
    lines = output.out.splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(_DUMPS)]
    return dataclasses.replace(output, out="".join(kept))


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def _first(ours: Output, theirs: Output) -> str:
    """Return the first line that differs."""
    pairs = [(ours.out, theirs.out), (ours.err, theirs.err)]
    names = sorted({*ours.saved, *theirs.saved})
    pairs += [(ours.saved.get(n, ""), theirs.saved.get(n, "")) for n in names]
    for mine, other in pairs:
        lines, others = mine.splitlines(), other.splitlines()
        for number in range(max(len(lines), len(others))):
            pair = [part[number : number + 1] for part in (lines, others)]
            if pair[0] != pair[1]:
                return f"{(pair[0] or ['(nothing)'])[0]!r} / {(pair[1] or ['(nothing)'])[0]!r}"
    return "nothing but white space at the end"
