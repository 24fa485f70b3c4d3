"""Errors that need more than a class and a text; errors.txt in test/data/client has those."""

import errno
import io
import os
import pathlib
import subprocess

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from fakes.processes import process_named
from ganeti import _buildconf
from ganeti.base import errors
from ganeti.commands.cli import app
from ganeti.commands.cli.context import ClientEffects
from ganeti.commands.cli.output import error_text


def every_class():
    """Return all classes of errors that can cross a process border."""
    classes = [errors.GenericError]
    for cls in classes:
        classes += cls.__subclasses__()
    return sorted({c for c in classes if c.__module__ == errors.__name__}, key=str)


@pytest.mark.parametrize("cls", every_class())
def test_every_class_has_a_sentence_of_its_own(cls):
    own = {row[0] for row in error_text._TEXTS}
    described_by_parent = {
        errors.CommitUnknownError,
        errors.ConnectionClosedError,
        errors.NoMasterError,
        errors.RequestError,
    }
    assert cls in own | described_by_parent
    for args in ((), ("text",), ("text", 1, "more")):
        text, code = error_text.describe(cls(*args))
        assert "Unhandled Ganeti error" not in text
        assert text.strip()
        assert code == cls.EXIT_CODE


def test_no_class_hides_behind_its_parent():
    classes = [row[0] for row in error_text._TEXTS]
    for position, cls in enumerate(classes):
        assert not any(issubclass(cls, before) for before in classes[:position]), cls


def test_timeouts_and_permissions_say_what_to_do():
    master = FakeMaster()
    master.down = errors.LuxiTimeoutError("90 seconds")
    done = commands.run("gnt-cluster version", master)
    assert done.code == 1
    assert "gnt-job list" in done.err
    master.down = errors.LuxiPermissionError("/sock")
    done = commands.run("gnt-cluster version", master)
    assert (done.code, done.err.count("\n")) == (1, 2)


@pytest.fixture
def node(tmp_path):
    root = tmp_path / "n1.tst"
    (root / "var/lib/ganeti").mkdir(parents=True)
    (root / "var/log/ganeti").mkdir(parents=True)
    environ = {"GANETI_ROOTDIR": str(root), "GANETI_HOSTNAME": "n1.tst"}
    return root, environ


def test_nobody_listens(node):
    root, environ = node
    master = FakeMaster()
    socket = f"{root}/var/run/ganeti/socket/ganeti-query"
    master.down = errors.NoMasterError(socket)
    done = commands.run("gnt-cluster version", master, environ=environ)
    assert "error type: wrong_input" in done.err  # not in a cluster at all
    ssconf = root / "var/lib/ganeti/ssconf_master_node"
    ssconf.write_text("n2.tst\n")
    done = commands.run("gnt-cluster version", master, environ=environ)
    assert "'n2.tst'" in done.err
    ssconf.write_text("n1.tst\n")
    done = commands.run("gnt-cluster version", master, environ=environ)
    assert done.code == 1
    assert done.err == (
        "Cannot communicate with the config daemon.\n"
        "Is the process running and listening for connections?\n"
        "The daemon is ganeti-masterd on this node; start it:"
        f" {_buildconf.TOOLSDIR}/daemon-util start ganeti-masterd\n"
    )


def test_nobody_listens_during_an_upgrade(node):
    root, environ = node
    (root / "var/lib/ganeti/ssconf_master_node").write_text("n1.tst\n")
    (root / "var/lib/ganeti/intent-to-upgrade").write_text("4.0.0,4.0.1,7\n")
    master = FakeMaster()
    master.down = errors.NoMasterError(f"{root}/var/run/ganeti/socket/ganeti-query")
    done = commands.run("gnt-cluster version", master, environ=environ)
    assert "go on with: gnt-cluster upgrade --resume\n" in done.err
    assert "daemon-util start" not in done.err


def test_a_master_daemon_that_does_not_listen_yet(node):
    root, environ = node
    (root / "var/lib/ganeti/ssconf_master_node").write_text("n1.tst\n")
    (root / "var/run/ganeti").mkdir(parents=True)
    master = FakeMaster()
    master.down = errors.NoMasterError(f"{root}/var/run/ganeti/socket/ganeti-query")
    with process_named("ganeti-masterd") as daemon:
        (root / "var/run/ganeti/ganeti-masterd.pid").write_text(f"{daemon.pid}\n")
        done = commands.run("gnt-cluster version", master, environ=environ, tty=True)
    assert done.code == 1
    assert f"runs as process {daemon.pid}, but accepts no commands" in done.err
    assert f"see {root}/var/log/ganeti/master-daemon.log" in done.err
    assert "daemon-util start" not in done.err


def test_a_long_wait_is_shown_on_a_terminal_alone(node):
    _, environ = node
    for tty in (True, False):
        err = commands.Tty() if tty else io.StringIO()

        def connect(_, on_wait):
            on_wait("waiting for ganeti-masterd, 2 s")
            return FakeMaster()

        program = commands.program("gnt-cluster")
        effects = ClientEffects(
            environ=environ,
            connect=connect,
            stdout=io.StringIO(),
            stderr=err,
            stdin=io.StringIO(),
            open_terminal=lambda: None,
            now=lambda: 0.0,
        )
        app.main(program, ["version"], effects=effects)
        assert ("\rwaiting for ganeti-masterd, 2 s\r" in err.getvalue()) == tty


def test_a_full_disk_is_one_error():
    class Full(FakeMaster):
        def call(self, method, args):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/var/lib/x")

    done = commands.run("gnt-cluster version", Full())
    assert (done.code, done.err) == (
        1,
        "Failure: /var/lib/x: No space left on device\n",
    )


def test_a_log_on_a_full_disk_does_not_stop_a_command(node):
    root, environ = node
    (root / "var/lib/ganeti/ssconf_master_node").write_text("n2.tst\n")
    (root / "var/log/ganeti/commands.log").symlink_to("/dev/full")
    done = commands.run("gnt-cluster getmaster", None, environ=environ)
    assert (done.code, done.out, done.err) == (0, "n2.tst\n", "")


def test_output_on_a_full_disk_is_one_error(node):
    root, environ = node
    (root / "var/lib/ganeti/ssconf_master_node").write_text("n2.tst\n")
    program = pathlib.Path(__file__).resolve().parents[6] / "build/bin/gnt-cluster"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [program, "getmaster"],
            env=environ,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "Failure: standard output: No space left on device\n",
    )


def test_getmaster_needs_no_daemon(node):
    root, environ = node
    done = commands.run("gnt-cluster getmaster", None, environ=environ)
    assert done.code == 1
    (root / "var/lib/ganeti/ssconf_master_node").write_text("n2.tst\n")
    done = commands.run("gnt-cluster getmaster", None, environ=environ)
    assert (done.code, done.out) == (0, "n2.tst\n")


def test_the_log_of_commands_has_calls_and_errors_but_no_arguments(node):
    root, environ = node
    line = "gnt-instance add --os-parameters-secret=key=s3cret -t plain -s 1g web1"
    master = FakeMaster()
    master.results["OP_INSTANCE_CREATE"] = errors.OpExecError("disk full")
    commands.run(line, master, environ=environ)
    text = (root / "var/log/ganeti/commands.log").read_text()
    assert "'gnt-instance add'" in text
    assert "ERROR disk full" in text
    assert "s3cret" not in text


def test_ctrl_c():
    class Interrupted(FakeMaster):
        def call(self, method, args):
            raise KeyboardInterrupt

    done = commands.run("gnt-cluster version", Interrupted())
    assert done.code == 1
    assert "background" in done.err


def test_ctrl_c_names_the_jobs_that_go_on():
    class Interrupted(FakeMaster):
        ends = ()

        def call(self, method, args):
            if method == "WaitForJobChange" and args[0] not in self.ends:
                raise KeyboardInterrupt
            return super().call(method, args)

    master = Interrupted()
    done = commands.run("gnt-cluster activate-master-ip", master)
    (job_id,) = master.jobs
    assert done.code == 1
    assert f"Job {job_id} goes on in the background" in done.err
    master = Interrupted()
    master.objects["instance"] = [{"name": n, "uuid": f"u-{n}"} for n in "abc"]
    master.ends = (1,)
    done = commands.run("gnt-instance shutdown --force-multiple a b c", master)
    assert "Jobs 2, 3 go on in the background" in done.err
    assert "'gnt-job cancel 2'" in done.err


def test_help_and_versions():
    done = commands.run("gnt-cluster --version")
    assert done.code == 0
    assert done.out.startswith("gnt-cluster (ganeti ")
    assert done.out.endswith(" 3.1.1\n")
    done = commands.run("gnt-job --help")
    assert done.code == 0
    assert done.out.startswith(
        "Usage: gnt-job {command} [options...] [argument...]\n"
        "gnt-job <command> --help to see details, or man gnt-job\n\nCommands:\n archive"
    )
    assert done.out.endswith("\n\n")
    assert commands.run("gnt-job").code == 1
    assert commands.run("gnt-job").out == done.out
    done = commands.run("gnt-job show --help")
    assert done.code == 0
    assert done.out.startswith(
        "Usage\n=====\n  gnt-job info [options] <jobid> [<jobid>...]"
    )


@pytest.mark.parametrize("cls", [errors.OpExecError, errors.ResultValidationError])
def test_output_of_scripts_does_nothing_to_a_terminal(cls):
    text, _code = error_text.describe(cls("script: \x1b[31mred\x07\nnext\x9b2J"))
    assert text.endswith("script: \\x1b[31mred\\x07\nnext\\x9b2J")
