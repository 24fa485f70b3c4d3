"""daemon-util with a real node daemon in a virtual root."""

import os
import pathlib
import subprocess

import pytest

from fakes.vnode import BIN, VirtualNode, own_address
from ganeti.utils import pidfile

pytestmark = pytest.mark.daemon


@pytest.fixture
def node(tmp_path):
    made = VirtualNode(tmp_path, "n1.tst", own_address("127.3"))
    made.make_cluster()
    defaults = pathlib.Path(made.paths.at("/etc/default/ganeti"))
    defaults.parent.mkdir(parents=True)
    defaults.write_text(f"NODED_ARGS='-b {made.address} --no-mlock'\n")
    yield made
    util(made, "stop", "ganeti-noded")


def util(node, *args):
    return subprocess.run(
        [BIN / "daemon-util", *args],
        env=node.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def log_of(node):
    return pathlib.Path(node.paths.log_dir, "node-daemon.log")


def test_a_daemon_is_started_once_checked_and_stopped(node):
    assert util(node, "check", "ganeti-noded").returncode == 1
    assert util(node, "start", "ganeti-noded").returncode == 0
    # The command returns when the daemon serves: no waiting here.
    assert not node.ask().failed
    pid = pidfile.read_pid(node.paths.pid_file("ganeti-noded"))
    assert util(node, "check", "ganeti-noded").returncode == 0
    assert util(node, "start", "ganeti-noded").returncode == 0
    assert util(node, "check-and-start", "ganeti-noded").returncode == 0
    assert pidfile.read_pid(node.paths.pid_file("ganeti-noded")) == pid
    assert util(node, "stop", "ganeti-noded").returncode == 0
    assert util(node, "check", "ganeti-noded").returncode == 1
    assert util(node, "stop", "ganeti-noded").returncode == 0
    assert node.ask().failed


def test_logs_are_reopened(node):
    util(node, "start", "ganeti-noded")
    old = log_of(node)
    old.rename(f"{old}.1")
    assert util(node, "rotate-logs", "ganeti-noded").returncode == 0
    assert util(node, "stop", "ganeti-noded").returncode == 0
    assert "stopped" in log_of(node).read_text()


def test_a_start_that_fails_says_why(node):
    os.unlink(node.paths.server_pem)
    done = util(node, "start", "ganeti-noded")
    assert done.returncode == 1
    assert "no certificate" in done.stderr
    assert util(node, "check-config").returncode == 1


@pytest.mark.parametrize(
    ("args", "code", "stdout"),
    [
        (("check-exitcode", "0"), 0, ""),
        (("check-exitcode", "11"), 0, "not master\n"),
        (("check-exitcode", "4"), 1, "exit code 4\n"),
        (("is-daemon-name", "ganeti-noded"), 0, ""),
        (("is-daemon-name", "sshd"), 1, ""),
        (("daemon-executable", "ganeti-noded"), 0, f"{BIN}/ganeti-noded\n"),
        (("check_config",), 1, ""),
        (("exit",), 1, ""),
        ((), 1, ""),
        (("reload-ssh-keys",), 0, ""),
    ],
)
def test_verbs(node, args, code, stdout):
    done = util(node, *args)
    assert (done.returncode, done.stdout) == (code, stdout)


def test_orders_are_reverse(node):
    start = util(node, "list-start-daemons").stdout.split()
    assert start[0] == "ganeti-noded"
    assert util(node, "list-stop-daemons").stdout.split() == start[::-1]
