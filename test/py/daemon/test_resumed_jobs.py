"""Jobs whose work goes on at the nodes survive the end of the master daemon."""

import contextlib
import fcntl
import hashlib
import os
import signal

import pytest

from fakes.patience import job_end, job_status, until
from ganeti.base.filesystem import pidfile
from ganeti.decisions.jobs import records
from ganeti.store.file.database import Database

pytestmark = pytest.mark.daemon

NAME = "web1.vc.test"


@pytest.fixture(scope="module")
def cluster(cluster_of):
    made = cluster_of(2)
    made.check("gnt-cluster", "modify", "--prealloc-wipe-disks", "yes")
    return made


@pytest.fixture
def instance(cluster):
    """Make an instance with one file disk on node2; return the file."""
    cluster.check(
        *("gnt-instance", "add", "-t", "file", "-s", "16M", "-H", "fake"),
        *("-o", "tiny+default", "--no-nics", "-n", "node2", "--no-install"),
        *("--no-start", NAME),
    )
    [disk] = cluster.file("/srv/ganeti/file-storage", "node2").glob(f"{NAME}/*")
    yield disk
    cluster.check("gnt-instance", "remove", "-f", "--ignore-failures", NAME)


def submit(cluster, name, **fields):
    with contextlib.closing(cluster.luxi()) as client:
        op = {"OP_ID": name, "instance_name": NAME, "reason": []} | fields
        return client.call("SubmitJob", [[op]])


def status(cluster, job, *wanted):
    with contextlib.closing(cluster.luxi()) as client:
        return job_status(client, job, *wanted)


def kill(cluster):
    cluster.command("kill", "node1", "ganeti-masterd")


def stop(cluster):
    cluster.check("daemon-util", "stop", "ganeti-masterd")


@contextlib.contextmanager
def held(disk):
    """Let wipes of a disk wait."""
    with disk.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def wipe_waits(disk):
    """Return whether a wipe waits for the lock of a disk."""
    inode = f":{disk.stat().st_ino} "
    with open("/proc/locks", encoding="ascii") as locks:
        return any("->" in line and inode in line for line in locks)


@pytest.mark.sampled
@pytest.mark.parametrize("end", [kill, stop])
def test_a_wipe_goes_on(cluster, instance, end):
    with held(instance):
        job = submit(cluster, "OP_INSTANCE_GROW_DISK", disk=0, amount=32)
        until("the node wipes", lambda: wipe_waits(instance))
        end(cluster)
        cluster.command("start", "node1", "ganeti-masterd")
        assert status(cluster, job, ("running",)) == "running"
    with contextlib.closing(cluster.luxi()) as client:
        state, log = job_end(client, job)
    assert state == "success"
    lines = [payload for _serial, _time, kind, payload in log if kind == "message"]
    assert len([line for line in lines if line.startswith("Growing disk 0")]) == 1
    assert any("is wiped on from 16 MiB" in line for line in lines)
    assert instance.stat().st_size == 48 << 20
    assert instance.stat().st_blocks * 512 >= 48 << 20


def transfers(cluster, node, mode):
    """Return the process ids of the transfers on a node, imports or exports."""
    directory = cluster.file("/var/run/ganeti/import-export", node)
    pids = [pidfile.read_pid(str(path)) for path in directory.glob(f"{mode}-*/pid")]
    return [pid for pid in pids if pid is not None]


def started(cluster, job):
    """Return how many programs the record of a moving job names."""
    database = Database(cluster.paths().store_db, create=False)
    try:
        op = records.decode_job(database.read("jobs", str(job))).ops[0]
    finally:
        database.close()
    left = op.resumption_value() or {"progress": {"started": {}}}
    return len(left["progress"]["started"])


@pytest.mark.parametrize("end", [kill, stop])
@pytest.mark.parametrize("halted", ["import", "export"])
def test_a_copy_to_another_node_goes_on(cluster, instance, end, halted):
    instance.write_bytes(bytes(range(256)) * 65536)
    digest = hashlib.sha256(instance.read_bytes()).hexdigest()
    node = {"import": "node1", "export": "node2"}[halted]
    job = submit(cluster, "OP_INSTANCE_MOVE", target_node="node1.vc.test")
    [halted_pid] = until("it runs", lambda: transfers(cluster, node, halted))
    os.kill(halted_pid, signal.SIGSTOP)
    try:
        imports = transfers(cluster, "node1", "import")
        if halted == "export":
            until("both are recorded", lambda: started(cluster, job) == 2)
        end(cluster)
        cluster.command("start", "node1", "ganeti-masterd")
        assert status(cluster, job, ("running",)) == "running"
        # The programs go on; an import that no export had begun with is replaced.
        if halted == "export":
            assert transfers(cluster, "node1", "import") == imports
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(halted_pid, signal.SIGCONT)
    with contextlib.closing(cluster.luxi()) as client:
        state, log = job_end(client, job)
    assert state == "success", log
    lines = [payload for _serial, _time, kind, payload in log if kind == "message"]
    assert len([line for line in lines if line.startswith("* shutting down")]) == 1
    [moved] = cluster.file("/srv/ganeti/file-storage", "node1").glob(f"{NAME}/*")
    assert hashlib.sha256(moved.read_bytes()).hexdigest() == digest
    assert not instance.exists()
    assert not transfers(cluster, "node1", "*") + transfers(cluster, "node2", "*")
