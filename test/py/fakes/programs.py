"""Runs of the placement programs in this process, beside what files say they print."""

import contextlib
import io
import pathlib
import re
import sys
from collections.abc import Callable

import pytest

DATA = pathlib.Path(__file__).parents[2] / "data" / "htools"


def golden(program: str) -> list[object]:
    """Give (arguments, expected output) of each run in ``data/htools/PROGRAM.txt``."""
    text = (DATA / f"{program}.txt").read_text()
    actual = []
    for run in re.split(rf"^\$ {program} ", text, flags=re.MULTILINE)[1:]:
        arguments, _, output = run.partition("\n")
        actual.append(pytest.param(arguments.split(), output, id=arguments))
    return actual


def reported(
    monkeypatch: pytest.MonkeyPatch, main: Callable[[], int], arguments: list[str]
) -> str:
    """Run a program where its data files are; give what it prints, and its status."""
    monkeypatch.chdir(DATA)
    monkeypatch.setattr(sys, "argv", ["program", *arguments])
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main()
    return out.getvalue() + (f"exit status {status}\n" if status else "")
