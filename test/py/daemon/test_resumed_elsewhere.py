"""Jobs whose work goes on at the nodes survive the move of the master role."""

import contextlib
import fcntl

import pytest

from fakes.patience import job_end, job_status, until

pytestmark = pytest.mark.daemon

NAME = "web1.vc.test"


@pytest.fixture(scope="module")
def cluster(cluster_of):
    made = cluster_of(3)
    made.check("gnt-cluster", "modify", "--prealloc-wipe-disks", "yes")
    made.check(
        *("gnt-instance", "add", "-t", "file", "-s", "16M", "-H", "fake"),
        *("-o", "tiny+default", "--no-nics", "-n", "node2", "--no-install"),
        *("--no-start", NAME),
    )
    made.wait_until_clean()
    return made


def wipe_waits(disk):
    """Return whether a wipe waits for the lock of a disk."""
    inode = f":{disk.stat().st_ino} "
    with open("/proc/locks", encoding="ascii") as locks:
        return any("->" in line and inode in line for line in locks)


@pytest.mark.sampled
@pytest.mark.parametrize("is_dead", [False, True])
def test_a_wipe_goes_on_under_another_master(cluster, is_dead):
    # Any of the cases may be drawn without the one that moves the role before it.
    old = cluster.check("gnt-cluster", "getmaster", node="node2").partition(".")[0]
    [new] = {"node1", "node3"} - {old}
    [disk] = cluster.file("/srv/ganeti/file-storage", "node2").glob(f"{NAME}/*")
    size = disk.stat().st_size
    op = {"OP_ID": "OP_INSTANCE_GROW_DISK", "instance_name": NAME}
    with disk.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.closing(cluster.luxi(old)) as client:
            job = client.call("SubmitJob", [[op | {"disk": 0, "amount": 32}]])
            until("the node wipes", lambda: wipe_waits(disk))
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
    assert disk.stat().st_size == size + (32 << 20)
    assert disk.stat().st_blocks * 512 >= disk.stat().st_size
