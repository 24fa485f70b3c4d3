"""Hints after errors; what each of them says is in test/data/client/errors.txt."""

import contextlib
import importlib
import os
import pty
import re
import shlex
import subprocess
import sys

import pytest

from ganeti.commands.cli import parser
from ganeti.commands.cli.output import hints


def test_a_text_without_a_remedy_has_no_hint():
    assert hints.find("it works") is None


def quoted_commands():
    rows = (*hints.HINTS, hints.WAITING)
    texts = (re.sub(r"\{\w+\}", "name", row.text) for row in rows)
    return sorted({c for text in texts for c in re.findall(r"'(gnt-[^']+)'", text)})


@pytest.mark.parametrize("line", quoted_commands())
def test_commands_in_hints_are_offered_and_parse(line):
    name, word, *rest = shlex.split(line)
    module = importlib.import_module(
        f"ganeti.commands.{name[4:].replace('-', '_')}.table"
    )
    command = module.PROGRAM.find(word)
    assert command is not None
    parser.check_count(command, parser.parse(command, rest)[1])


def run_program(root, stderr):
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    environ |= {"GANETI_ROOTDIR": str(root), "GANETI_HOSTNAME": "n1.tst"}
    code = "import sys; from ganeti.commands import main; sys.exit(main('cluster'))"
    return subprocess.Popen(
        [sys.executable, "-c", code, "getmaster"],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    )


def test_on_a_real_terminal_but_not_in_a_pipe(tmp_path):
    root = tmp_path / "n1.tst"
    root.mkdir()
    child = run_program(root, subprocess.PIPE)
    _, piped = child.communicate(timeout=60)
    assert b"cluster not initialized" in piped
    assert b"Hint" not in piped
    ours, theirs = pty.openpty()
    child = run_program(root, theirs)
    assert child.wait(timeout=60) == 1
    os.close(theirs)
    shown = b""
    # The end of a terminal is an error.
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 4096):
            shown += piece
    os.close(ours)
    assert b"gnt-cluster init NAME" in shown
