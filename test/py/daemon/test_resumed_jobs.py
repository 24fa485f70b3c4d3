"""Jobs whose work goes on at the nodes survive the end of the master daemon.

They also survive the move of the master role.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import signal

import pytest

from fakes.patience import job_end, job_status, until
from ganeti.base.filesystem import pidfile
from ganeti.decisions.jobs import records
from ganeti.store.database import Database

pytestmark = pytest.mark.daemon

NAME = "web1.vc.test"


@pytest.fixture(scope="module")
def cluster(cluster_of):
    made = cluster_of(3)
    made.check("gnt-cluster", "modify", "--prealloc-wipe-disks", "yes")
    made.wait_until_clean()
    return made


def master_of(cluster):
    """Return the short name of the master, as node2 knows it, which never is."""
    name = cluster.check("gnt-cluster", "getmaster", node="node2")
    return name.partition(".")[0]


@pytest.fixture
def instance(cluster):
    """Make an instance with one file disk on node2; return the file."""
    cluster.check(
        *("gnt-instance", "add", "-t", "file", "-s", "16M", "-H", "fake"),
        *("-o", "tiny+default", "--no-nics", "-n", "node2", "--no-install"),
        *("--no-start", NAME),
        node=master_of(cluster),
    )
    [disk] = cluster.file("/srv/ganeti/file-storage", "node2").glob(f"{NAME}/*")
    yield disk
    words = ("gnt-instance", "remove", "-f", "--ignore-failures", NAME)
    cluster.check(*words, node=master_of(cluster))


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


def listening(cluster):
    """Return the process ids of the imports on node1 whose port is known."""
    directory = cluster.file("/var/run/ganeti/import-export", "node1")
    pids = [
        pidfile.read_pid(str(path.with_name("pid")))
        for path in directory.glob("import-*/status")
        if json.loads(path.read_text())["listen_port"]
    ]
    return [pid for pid in pids if pid is not None]


@contextlib.contextmanager
def halted(pid):
    """Stop a process for a block; it may end nevertheless."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def started(cluster, job):
    """Return how many programs the record of a moving job names."""
    database = Database(cluster.paths().store_db, create=False)
    try:
        op = records.decode_job(database.tables.read("jobs", str(job))).ops[0]
    finally:
        database.close()
    left = op.resumption_value() or {"progress": {"started": {}}}
    return len(left["progress"]["started"])


@pytest.mark.parametrize("end", [kill, stop])
@pytest.mark.parametrize("mode", ["import", "export"])
def test_a_copy_to_another_node_goes_on(cluster, instance, end, mode):
    instance.write_bytes(bytes(range(256)) * 65536)
    digest = hashlib.sha256(instance.read_bytes()).hexdigest()
    job = submit(cluster, "OP_INSTANCE_MOVE", target_node="node1.vc.test")
    with contextlib.ExitStack() as stack:
        if mode == "import":
            [pid] = until("it runs", lambda: transfers(cluster, "node1", mode))
            stack.enter_context(halted(pid))
        else:
            # Without an import that answers, the export does not end by itself.
            [other] = until("the import listens", lambda: listening(cluster))
            with halted(other):
                [pid] = until("it runs", lambda: transfers(cluster, "node2", mode))
                stack.enter_context(halted(pid))
        imports = transfers(cluster, "node1", "import")
        if mode == "export":
            until("both are recorded", lambda: started(cluster, job) == 2)
        end(cluster)
        cluster.command("start", "node1", "ganeti-masterd")
        assert status(cluster, job, ("running",)) == "running"
        # The programs go on; an import that no export had begun with is replaced.
        if mode == "export":
            assert transfers(cluster, "node1", "import") == imports
    with contextlib.closing(cluster.luxi()) as client:
        state, log = job_end(client, job)
    assert state == "success", log
    lines = [payload for _serial, _time, kind, payload in log if kind == "message"]
    assert len([line for line in lines if line.startswith("* shutting down")]) == 1
    [moved] = cluster.file("/srv/ganeti/file-storage", "node1").glob(f"{NAME}/*")
    assert hashlib.sha256(moved.read_bytes()).hexdigest() == digest
    assert not instance.exists()
    assert not transfers(cluster, "node1", "*") + transfers(cluster, "node2", "*")


@pytest.mark.sampled
@pytest.mark.parametrize("is_dead", [False, True])
def test_a_wipe_goes_on_under_another_master(cluster, instance, is_dead):
    # Any of the cases may be drawn without the one that moves the role before it.
    old = master_of(cluster)
    [new] = {"node1", "node3"} - {old}
    size = instance.stat().st_size
    op = {"OP_ID": "OP_INSTANCE_GROW_DISK", "instance_name": NAME}
    with instance.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.closing(cluster.luxi(old)) as client:
            job = client.call("SubmitJob", [[op | {"disk": 0, "amount": 32}]])
            until("the node wipes", lambda: wipe_waits(instance))
        if is_dead:
            cluster.command("kill", old)
        done = cluster.run("gnt-cluster", "master-failover", node=new)
        assert not done.failed, done.output
        with contextlib.closing(cluster.luxi(new)) as client:
            assert job_status(client, job, ("running",)) == "running"
    with contextlib.closing(cluster.luxi(new)) as client:
        state, log = job_end(client, job)
    assert state == "success", log
    lines = [payload for _serial, _time, kind, payload in log if kind == "message"]
    assert len([line for line in lines if line.startswith("Growing disk 0")]) == 1
    assert any("is wiped on from" in line for line in lines)
    assert instance.stat().st_size == size + (32 << 20)
    assert instance.stat().st_blocks * 512 >= instance.stat().st_size
