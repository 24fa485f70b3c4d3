"""The life of a daemon: options, readiness, exit codes, signals."""

import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import textwrap

import pytest

from fakes import patience
from ganeti.base.filesystem import pidfile
from ganeti.base.pathutils import Paths
from ganeti.daemons import common

PROGRAM = textwrap.dedent("""
    import os, socket, sys, threading
    from ganeti.base.pathutils import Paths
    from ganeti.daemons import common
    from ganeti.base import errors
    root, how = sys.argv[1:3]
    paths = Paths(root=root, hostname=os.path.basename(root))
    class Service:
        def stop(self):
            open(root + "/stopped", "w").close()
    kept = []
    def check():
        if how == "leak":
            kept.extend(socket.socketpair())
        if how == "check":
            raise common.StartError("not the master", 11)
    def start(control):
        # Descriptors of objects that die now must not be somebody else's.
        kept.clear()
        if how == "start":
            raise errors.ConfigurationError("no such cluster")
        if how == "crash":
            os._exit(3)
        if how == "thread":
            threading.Thread(target=lambda: {}["lost"], name="mirror").start()
        return Service()
    options = common.parse(common.parser("ganeti-masterd"), sys.argv[3:])
    daemon = common.Daemon(name="ganeti-masterd", check=check, start=start)
    sys.exit(common.run(daemon, options, paths))
""")


def command(root, how, *options):
    return [sys.executable, "-c", PROGRAM, str(root), how, *options]


def run(root, how, *options, **kwargs):
    return subprocess.run(
        command(root, how, *options),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        **kwargs,
    )


@pytest.mark.parametrize("how", ["ok", "leak"])
def test_detached_daemon_is_ready_when_the_command_returns(tmp_path, how):
    paths = Paths(root=str(tmp_path))
    result = run(tmp_path, how)
    assert (result.returncode, result.stderr) == (0, "")
    pid = pidfile.read_pid(paths.pid_file("ganeti-masterd"))
    assert pid is not None
    handle = os.pidfd_open(pid)
    assert run(tmp_path, "ok").returncode == 1
    os.kill(pid, signal.SIGTERM)
    ended = select.select([handle], [], [], 120)[0]
    os.close(handle)
    assert ended
    assert (tmp_path / "stopped").exists()
    assert not os.path.exists(paths.pid_file("ganeti-masterd"))
    log_text = pathlib.Path(f"{paths.log_dir}/master-daemon.log").read_text()
    assert "ready" in log_text
    assert "stopping on signal 15" in log_text


def test_the_end_of_a_thread_by_an_error_is_logged(tmp_path):
    assert run(tmp_path, "thread").returncode == 0
    paths = Paths(root=str(tmp_path))
    log = pathlib.Path(f"{paths.log_dir}/master-daemon.log")
    pid_file = paths.pid_file("ganeti-masterd")
    try:
        patience.until("it is logged", lambda: "KeyError: 'lost'" in log.read_text())
        assert "thread mirror ended" in log.read_text()
    finally:
        os.kill(pidfile.read_pid(pid_file), signal.SIGTERM)


def test_detached_daemon_keeps_nothing_of_its_caller(tmp_path):
    reader, writer = os.pipe()
    try:
        assert run(tmp_path, "ok", pass_fds=[writer]).returncode == 0
        os.close(writer)
        # The end of the pipe is seen although the daemon lives.
        assert select.select([reader], [], [], 120)[0]
        assert os.read(reader, 1) == b""
        pid = pidfile.read_pid(Paths(root=str(tmp_path)).pid_file("ganeti-masterd"))
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        os.kill(pid, signal.SIGKILL)
    finally:
        os.close(reader)


@pytest.mark.parametrize(
    ("how", "options", "code", "text"),
    [
        ("check", (), 11, ""),
        ("check", ("-d",), 11, "not the master"),
        ("start", (), 1, "no such cluster"),
        ("start", ("-f",), 1, "no such cluster"),
        ("crash", (), 1, "ended before it was ready"),
        ("ok", ("word",), 1, "Usage:"),
        ("ok", ("--no-such-option",), 2, "Usage:"),
    ],
)
def test_daemon_that_does_not_start(tmp_path, how, options, code, text):
    result = run(tmp_path, how, *options)
    assert result.returncode == code
    assert text in result.stderr
    if not text:
        assert result.stderr == ""


def test_foreground_daemon_notifies_systemd(tmp_path):
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(address)
        sock.settimeout(60)
        env = {"PYTHONPATH": os.pathsep.join(sys.path), "NOTIFY_SOCKET": address}
        child = subprocess.Popen(
            command(tmp_path, "ok", "-f"), env=env, stderr=subprocess.DEVNULL
        )
        assert sock.recv(100) == b"READY=1"
        child.send_signal(signal.SIGINT)
        assert sock.recv(100) == b"STOPPING=1"
        assert child.wait(60) == 0


BUSY_THREAD = textwrap.dedent("""
    import signal, threading
    from ganeti.daemons import common
    control = common.Control()
    common._watch_signals(control)
    def other():
        # The kernel chooses a thread for a signal; here it is never the main thread.
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    timer = threading.Timer(0.2, other)
    timer.start()
    print(*control.next_event(), flush=True)
""")


def test_a_signal_that_another_thread_receives_wakes_the_main_thread():
    done = subprocess.run(
        [sys.executable, "-c", BUSY_THREAD],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout) == (0, f"signal {int(signal.SIGTERM)}\n")


def test_address_and_interface_exclude_each_other(capsys):
    parser = common.parser("ganeti-noded", network=True)
    assert common.parse(parser, []).port == 1811
    with pytest.raises(SystemExit) as caught:
        common.parse(parser, ["-b", "127.0.0.1", "-i", "lo"])
    assert caught.value.code == 1
    assert "exclude" in capsys.readouterr().err


def test_other_users_are_refused():
    options = common.parse(common.parser("ganeti-noded"), [])
    common.check_user(options, os.geteuid())
    with pytest.raises(common.StartError):
        common.check_user(options, os.geteuid() + 1)
    options = common.parse(common.parser("ganeti-noded"), ["--no-user-checks"])
    common.check_user(options, os.geteuid() + 1)
