"""daemon-util with a real node daemon in a virtual root."""

import contextlib
import fcntl
import os
import pathlib
import signal
import subprocess
import threading

import pytest

from fakes.patience import PATIENCE_S, until
from fakes.vnode import BIN, VirtualNode, own_address
from ganeti.base.filesystem import pidfile

pytestmark = pytest.mark.daemon

#: Seconds for which a node daemon is stopping; it waits for calls for 5 at most.
STOPPING_S = 3.0


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


@contextlib.contextmanager
def call_under_way(node, seconds):
    """Have the node daemon work on a call, for which a stop waits."""
    call = threading.Thread(target=node.ask, args=("test_delay", seconds))
    call.start()
    try:
        until("it works", lambda: "call test_delay" in log_of(node).read_text())
        yield
    finally:
        call.join()


def test_a_start_during_a_stop_leaves_a_daemon_that_serves(node):
    pid_file = node.paths.pid_file("ganeti-noded")
    state = pathlib.Path(node.paths.state_file("ganeti-noded"))
    util(node, "start", "ganeti-noded", "-d")
    old = pidfile.read_pid(pid_file)
    with call_under_way(node, STOPPING_S):
        os.kill(old, signal.SIGTERM)
        until("the stop has begun", lambda: "stopping" in state.read_text())
        assert pidfile.read_pid(pid_file) == old
        assert util(node, "start", "ganeti-noded").returncode == 0
    assert not node.ask().failed
    assert pidfile.read_pid(pid_file) != old


def test_a_stop_removes_the_pid_file_of_a_daemon_that_still_has_its_lock(node):
    """A daemon with a user of its own empties the file, and ends a moment later."""
    path = pathlib.Path(node.paths.pid_file("ganeti-confd"))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        waiter = f":{os.fstat(file.fileno()).st_ino} "
        fcntl.flock(file, fcntl.LOCK_EX)
        stop = threading.Thread(target=util, args=(node, "stop", "ganeti-confd"))
        stop.start()

        def waits():
            lines = pathlib.Path("/proc/locks").read_text().splitlines()
            return any("->" in line and waiter in line for line in lines)

        until("the command waits for the lock", waits)
    stop.join()
    assert not path.exists()


def test_of_two_starts_at_once_both_find_a_daemon_that_serves(node):
    argv = [BIN / "daemon-util", "start", "ganeti-noded"]
    starts = [subprocess.Popen(argv, env=node.env) for _ in range(4)]
    assert [start.wait(PATIENCE_S) for start in starts] == [0] * 4
    assert not node.ask().failed


RESTART = """
for round in 1 2 3; do
  daemon-util stop-all || exit 3
  daemon-util start-all || exit 4
done
"""


@pytest.mark.sampled
def test_restarts_at_the_same_time_end_with_daemons_that_serve(cluster_of):
    cluster = cluster_of(1)
    codes = []

    def restart():
        codes.append(cluster.run("sh", "-c", RESTART).code)

    others = [threading.Thread(target=restart) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    # A start may fail because the other loop stops the daemon, but must report this.
    assert set(codes) <= {0, 4}
    if codes != [0, 0]:
        cluster.check("daemon-util", "start-all")
    cluster.check("gnt-node", "list")
    assert not cluster.run("gnt-cluster", "verify").failed
