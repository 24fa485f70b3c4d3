"""Outputs of placement programs are unchanged, byte for byte.

Each case is a directory: ``command`` (run in a copy of the directory), its input files,
``expected`` (standard output) and, where there is any, ``expected.err``. They were
recorded from Ganeti 3.0.2 where that is right by the specification.
"""

import pathlib
import shlex
import shutil
import sys

import pytest

from ganeti.commands.htools import hail, hbal, hcheck, hinfo, hroller, hspace, hsqueeze

CASES = sorted(
    (pathlib.Path(__file__).parents[4] / "data" / "htools" / "golden").iterdir()
)
PROGRAMS = {
    "hail": hail.main,
    "hbal": hbal.main,
    "hcheck": hcheck.main,
    "hinfo": hinfo.main,
    "hroller": hroller.main,
    "hspace": hspace.main,
    "hsqueeze": hsqueeze.main,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_golden(case, tmp_path, monkeypatch, capsys) -> None:
    place = shutil.copytree(case, tmp_path / "case")
    words = shlex.split((case / "command").read_text())
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", words)
    assert PROGRAMS[words[0]]() == 0
    out, err = capsys.readouterr()
    assert out == (case / "expected").read_text()
    reported = case / "expected.err"
    assert err == (reported.read_text() if reported.exists() else "")
