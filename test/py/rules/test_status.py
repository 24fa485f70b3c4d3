"""The status page says exactly what is missing."""

import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).parents[3]


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
