"""``ganeti-masterd`` as a real process: refusals, readiness, signals, crashes."""

import os
import pathlib
import select
import signal
import subprocess

import pytest

from fakes import clusters
from fakes.master import fill
from fakes.patience import job_status, until
from ganeti import store
from ganeti.base import clock
from ganeti.base.filesystem import pidfile
from ganeti.base.pathutils import Paths
from ganeti.protocols.luxi import Client

PROGRAM = (
    pathlib.Path(__file__).resolve().parents[3] / "build" / "bin" / "ganeti-masterd"
)
NAME = "node1.example.com"
DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": True}


@pytest.fixture
def node(tmp_path):
    """The files of a one-node cluster whose master is this node."""
    paths = Paths(root=str(tmp_path / NAME), hostname=NAME)
    for path in (paths.data_dir, paths.socket_dir, paths.at("/etc")):
        os.makedirs(path)
    pathlib.Path(paths.data("ssconf_master_node")).write_text(f"{NAME}\n")
    pathlib.Path(paths.at("/etc/hosts")).write_text(f"127.0.0.1 {NAME}\n")
    opened = store.open_master(
        paths.store_db, replicate=None, clock=clock.SystemClock()
    )
    fill(opened, clusters.snapshot(nodes=1, instances=1))
    opened.close()
    return paths


def run(paths, *options):
    return subprocess.run(
        [PROGRAM, *options],
        env={"GANETI_ROOTDIR": paths.root, "GANETI_HOSTNAME": paths.hostname},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def pid_of(paths):
    return pidfile.read_pid(paths.pid_file("ganeti-masterd"))


def end(pid, number):
    """Send a signal and wait until the process is gone."""
    handle = os.pidfd_open(pid)
    try:
        os.kill(pid, number)
        assert select.select([handle], [], [], 60)[0]
    finally:
        os.close(handle)


@pytest.fixture
def daemon(node):
    result = run(node)
    assert (result.returncode, result.stderr) == (0, "")
    yield node
    pid = pid_of(node)
    if pid is not None and pidfile.is_locked(node.pid_file("ganeti-masterd")):
        end(pid, signal.SIGKILL)


def submit(paths):
    with Client.of_node(paths, timeout_s=120) as client:
        job_id = client.call("SubmitJob", [[DELAY]])
        return job_id, job_status(client, job_id)


def test_serves_as_soon_as_the_command_returns(daemon):
    assert submit(daemon) == (1, "success")
    # A second one notices the first.
    second = run(daemon)
    assert second.returncode == 1
    assert str(pid_of(daemon)) in second.stderr


def test_orderly_end_and_new_start(daemon):
    submit(daemon)
    end(pid_of(daemon), signal.SIGTERM)
    assert not os.path.exists(daemon.query_socket)
    assert pid_of(daemon) is None
    assert run(daemon).returncode == 0
    assert submit(daemon) == (2, "success")
    log = pathlib.Path(f"{daemon.log_dir}/master-daemon.log").read_text()
    assert "stopped" in log
    assert "Traceback" not in log


def test_crash_loses_no_job(daemon):
    submit(daemon)
    with Client.of_node(daemon, timeout_s=120) as client:
        client.call("ReplaceFilter", [None, 1, [], "PAUSE", []])
        waiting = client.call("SubmitJob", [[DELAY]])
    end(pid_of(daemon), signal.SIGKILL)
    assert run(daemon).returncode == 0
    with Client.of_node(daemon, timeout_s=120) as client:
        actual = client.call("QueryJobs", [None, ["id", "status"]])
        assert actual == [[1, "success"], [waiting, "queued"]]


def test_log_rotation(daemon):
    log = pathlib.Path(f"{daemon.log_dir}/master-daemon.log")
    log.rename(f"{log}.1")
    os.kill(pid_of(daemon), signal.SIGHUP)
    until("the log is there again", log.exists)
    end(pid_of(daemon), signal.SIGTERM)
    assert "stopped" in log.read_text()


def test_other_master_is_respected(node):
    pathlib.Path(node.data("ssconf_master_node")).write_text("node2.example.com\n")
    result = run(node)
    assert (result.returncode, result.stdout, result.stderr) == (11, "", "")
    assert "node2.example.com" in run(node, "-d").stderr


@pytest.mark.parametrize("missing", ["ssconf", "hosts"])
def test_node_set_up_errors(node, missing):
    path = node.data("ssconf_master_node")
    os.unlink(path if missing == "ssconf" else node.at("/etc/hosts"))
    result = run(node)
    assert result.returncode == 12
    assert result.stderr


def test_missing_configuration(node):
    os.unlink(node.store_db)
    result = run(node)
    assert result.returncode == 1
    assert "configuration" in result.stderr


def test_configuration_of_another_master(node):
    opened = store.open_master(node.store_db, replicate=None, clock=clock.SystemClock())
    fill(opened, clusters.snapshot(nodes=2, master_node=clusters.node_uuid(2)))
    opened.close()
    result = run(node)
    assert result.returncode == 1
    assert "node2.example.com" in result.stderr


def test_no_voting_must_be_confirmed(node):
    result = run(node, "--no-voting")
    assert result.returncode == 1
    assert "--yes-do-it" in result.stderr


def test_wrong_arguments(node):
    assert run(node, "word").returncode == 1
    assert run(node, "--no-such-option").returncode == 2
