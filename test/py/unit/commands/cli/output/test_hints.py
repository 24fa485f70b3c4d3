"""Hints after errors: people on a terminal see them, scripts see documented text."""

import contextlib
import importlib
import os
import pty
import re
import shlex
import subprocess
import sys

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti import _buildconf
from ganeti.base import errors
from ganeti.commands.cli import parser
from ganeti.commands.cli.output import hints

PREREQ = [
    (
        "OP_CLUSTER_SET_PARAMS: nicparams: unknown key 'lnk', wanted one of link",
        "wrong_input",
        "'gnt-cluster modify --help-parameters'",
    ),
    ("Instance 'web9' not known", "unknown_entity", "'gnt-instance list'"),
    ("Node 'n9' not known", "unknown_entity", "'gnt-node list'"),
    ("Node group 'g' not known", "unknown_entity", "'gnt-group list'"),
    (
        "instance a.tst: its primary node n2.tst is marked offline",
        "wrong_state",
        "'gnt-node modify -O no n2.tst'",
    ),
    (
        "instance a.tst: node n3.tst is marked drained",
        "wrong_state",
        "'gnt-node modify -D no n3.tst'",
    ),
    (
        "a.tst: name a node or an allocator; the cluster has no default allocator",
        "wrong_input",
        "'gnt-cluster modify -I hail'",
    ),
    (
        "instance a.tst: needs 512 MiB on node n1.tst, which has 3 MiB free",
        "insufficient_resources",
        "'gnt-node list -o name,mfree'",
    ),
    (
        "instance a.tst: is marked up, must be down to be renamed",
        "wrong_state",
        "'gnt-instance shutdown a.tst'",
    ),
    (
        "node n2.tst: is the primary node of a.tst, b.tst",
        "wrong_input",
        "'gnt-node migrate n2.tst'",
    ),
    (
        "node group default: not empty, found n1.tst",
        "wrong_state",
        "'gnt-group assign-nodes OTHER NODE'",
    ),
    (
        "instance a.tst: only lost disks are recreated, found disk/0 (/d) on node n1",
        "already_exists",
        "'gnt-instance reinstall a.tst'",
    ),
    (
        (
            "cannot get the state: node n2.tst: Error 7: 127.9.0.12:1811 does not answer:"
            " connection refused; is ganeti-noded running there?"
        ),
        "environment_error",
        f"on n2.tst: '{_buildconf.TOOLSDIR}/daemon-util start ganeti-noded'",
    ),
    (
        (
            "cannot get the state: node n2.tst: Error 28: 127.9.0.12:1811 does not answer:"
            " no connection within 5 s; is the machine up and its network connected?"
        ),
        "environment_error",
        "'gnt-node failover n2.tst'",
    ),
    (
        (
            "cannot get the state: node n2.tst: Error 28: 127.9.0.12:1811: Connection"
            " timed out after 5000 milliseconds: it accepts connections but does not"
            " answer: the daemon or its machine is frozen or overloaded"
        ),
        "environment_error",
        "'gnt-node modify -O yes n2.tst'",
    ),
    (
        "instance a.tst: is not running (marked down), so it has no console",
        "wrong_state",
        "'gnt-instance startup a.tst'",
    ),
    (
        "instance a.tst: was removed while the job waited for locks",
        "unknown_entity",
        "'gnt-job list'",
    ),
    (
        "node group 'a\\nb': a name must have printable characters only",
        "wrong_input",
        "Forms of values in ganeti(7)",
    ),
]


def refused(text, code):
    master = FakeMaster()
    master.down = errors.OpPrereqError(text, code)
    return master


@pytest.mark.parametrize(("text", "code", "wanted"), PREREQ)
def test_a_refusal_is_followed_by_the_command_that_helps(text, code, wanted):
    line = "gnt-cluster version"
    piped = commands.run(line, refused(text, code))
    shown = commands.run(line, refused(text, code), tty=True, environ={"NO_COLOR": "1"})
    assert piped.err.endswith(f"error details:\n{text}\n")
    assert shown.err.startswith(piped.err)
    added = shown.err.removeprefix(piped.err)
    assert added.startswith("Hint for ")
    assert added.count("\n") == 1
    assert wanted in added
    assert shown.code == piped.code == 1


def test_a_drained_queue_says_who_opens_it():
    master = FakeMaster()
    master.down = errors.JobQueueDrainError("x")
    done = commands.run("gnt-cluster version", master, tty=True)
    assert "Hint for the cluster's administrator" in done.err
    assert "'gnt-cluster queue undrain'" in done.err


def test_errors_without_a_remedy_and_success_give_no_hint():
    master = FakeMaster()
    master.down = errors.LockError("text")
    assert "Hint" not in commands.run("gnt-cluster version", master, tty=True).err
    assert hints.find("it works") is None


def test_wrong_calls_point_to_the_help():
    for line in ("gnt-node info --colour", "gnt-node add"):
        assert "--help" in commands.run(line, tty=True).err.splitlines()[-1]
        assert "Hint" not in commands.run(line).err


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
    code = "import sys; from ganeti.commands.cluster import main; sys.exit(main())"
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
