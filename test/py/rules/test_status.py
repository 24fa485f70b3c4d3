"""The status page says exactly what is missing."""

import pathlib
import runpy
import subprocess
import sys
from typing import NoReturn

import pytest

from ganeti.operations.unit_table import UNITS

TOP = pathlib.Path(__file__).parents[3]
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
