"""Emergencies under running guests: emulators, daemons and nodes die at a bad moment."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time

import pytest

from fakes import guests
from fakes.patience import PATIENCE_S, has_ended, job_status, until
from ganeti.base import errors
from ganeti.base.filesystem import pidfile
from ganeti.daemons.masterd import service
from ganeti.devel.drill import witness
from ganeti.devel.drill.scenarios import DRILLS
from ganeti.node.hypervisor.kvm.qmp import Qmp

QEMU = shutil.which("qemu-system-x86_64")
pytestmark = [
    pytest.mark.daemon,
    pytest.mark.skipif(QEMU is None, reason="needs an emulator"),
]
GUEST = "drill.vc.test"
#: Guests that have not booted do not hear the power button.
NOW = ("--shutdown-timeout=0",)
ADD = (*("-t", "sharedfile", "-s", "32M", "-o", "tiny+default", "--no-nics"),)


@pytest.fixture(scope="module")
def cluster(cluster_of):
    return cluster_of(3, "kvm,fake")


@pytest.fixture
def guest(cluster):
    """A guest that runs on node2; it is gone after the test."""
    kvm = guests.with_ballast(cluster.directory)
    cluster.check("gnt-instance", "add", *ADD, *kvm, "-n", "node2", GUEST)
    yield GUEST
    cluster.run("gnt-instance", "remove", "-f", *NOW, "--ignore-failures", GUEST)


def field(cluster, names):
    text = cluster.check("gnt-instance", "list", "--no-headers", "-o", names, GUEST)
    return text.split()


def emulators(cluster, name=GUEST):
    """Return {node's short name: pid} of a guest's emulators."""
    actual = {}
    for node in cluster.layout.nodes:
        path = cluster.file(f"/var/run/ganeti/kvm-hypervisor/pid/{name}", node.short)
        with contextlib.suppress(OSError, ValueError):
            pid = int(path.read_text())
            if b"qemu" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                actual[node.short] = pid
    return actual


def fine(result, *texts):
    """A refusal of a command: one clear error."""
    assert result.code == 1, result.output
    assert "Traceback" not in result.output
    for text in texts:
        assert text in result.output
    return result


def test_a_disk_grows_under_a_running_guest(cluster, guest):
    (disk,) = cluster.file("/srv/ganeti/shared-file-storage", "node2").glob(
        f"{guest}/*"
    )
    begin = disk.read_bytes()[:4096]
    cluster.check("gnt-instance", "grow-disk", guest, "0", "4M")
    assert disk.stat().st_size == 36 << 20
    assert disk.read_bytes()[:4096] == begin


@pytest.mark.sampled
def test_a_disk_that_the_guest_does_not_release_stays(cluster, guest):
    cluster.check("gnt-instance", "modify", "--disk", "add:size=4m", guest)
    cluster.check("gnt-instance", "shutdown", "--timeout=0", guest)
    # Processors that do not run cannot acknowledge the removal.
    cluster.check("gnt-instance", "startup", "--paused", guest)
    storage = cluster.file("/srv/ganeti/shared-file-storage", "node2")
    before = sorted(storage.glob(f"{guest}/*"))
    assert len(before) == 2
    for words in (("1:remove",), ("1:detach",), ("1:remove", "--no-hotplug")):
        fine(
            cluster.run("gnt-instance", "modify", "--disk", *words, guest),
            f"instance {guest}",
            "disk/1",
        )
        assert sorted(storage.glob(f"{guest}/*")) == before
        assert field(cluster, "disk.count,status") == ["2", "running"]
    cluster.check("gnt-instance", "shutdown", "--timeout=0", guest)
    cluster.check("gnt-instance", "modify", "--disk", "1:remove", guest)
    assert len(list(storage.glob(f"{guest}/*"))) == 1


def test_a_killed_emulator_is_seen_and_started_again(cluster, guest):
    (pid,) = emulators(cluster).values()
    os.kill(pid, signal.SIGKILL)
    until("emulator gone", lambda: has_ended(pid))
    assert field(cluster, "status") == ["ERROR_down"]
    fine(cluster.run("gnt-instance", "migrate", "-f", "-n", "node3", guest), guest)
    cluster.check("gnt-instance", "startup", guest)
    assert field(cluster, "status") == ["running"]


class Background:
    """A command that runs in a thread."""

    def __init__(self, cluster, *words):
        self._results = []
        self._thread = threading.Thread(
            target=lambda: self._results.append(cluster.run(*words))
        )
        self._thread.start()

    def result(self):
        """Wait for its end."""
        self._thread.join(PATIENCE_S)
        assert self._results, "the command has not ended"
        return self._results[0]


def slow_down(cluster):
    """Make the migration take long enough to be hit."""
    cluster.check(
        "gnt-cluster", "modify", "-H", "kvm:migration_bandwidth=1,migration_downtime=1"
    )


def speed_up(cluster):
    cluster.check(
        "gnt-cluster",
        "modify",
        "-H",
        "kvm:migration_bandwidth=32,migration_downtime=30",
    )


@pytest.fixture
def slow(cluster):
    slow_down(cluster)
    yield
    speed_up(cluster)


def both(cluster):
    actual = emulators(cluster)
    return actual if len(actual) == 2 else None


def running_jobs(cluster):
    """Return the jobs that run; one that was resumed takes a moment to do so."""
    jobs = cluster.check("gnt-job", "list", "--no-headers", "-o", "id", "--running")
    return jobs.split()


def sending(cluster):
    """Return the emulators once the transfer has begun.

    If the source ends before, the target waits for data that never comes, and its
    emulator stays until somebody cleans up.
    """
    actual = both(cluster)
    if actual is None:
        return None
    # It may refuse a session while the node daemon has one.
    with contextlib.suppress(errors.HypervisorError), monitor(cluster) as qmp:
        if qmp.execute("query-migrate").get("status") == "active":
            return actual
    return None


def monitor(cluster):
    """Return a session with the emulator that sends."""
    path = cluster.file(f"/var/run/ganeti/kvm-hypervisor/ctrl/{GUEST}.qmp", "node2")
    return Qmp(str(path), GUEST)


def migrate(cluster):
    return Background(cluster, "gnt-instance", "migrate", "-f", "-n", "node3", GUEST)


@pytest.mark.usefixtures("slow")
def test_an_emulator_killed_during_migration_at_the_target(cluster, guest):
    migration = migrate(cluster)
    actual = until("transfer", lambda: sending(cluster))
    os.kill(actual["node3"], signal.SIGKILL)
    fine(migration.result(), "migration failed")
    assert field(cluster, "pnode,status") == ["node2.vc.test", "running"]
    assert list(emulators(cluster)) == ["node2"]


@pytest.mark.usefixtures("slow")
def test_an_emulator_killed_during_migration_at_the_source(cluster, guest):
    migration = migrate(cluster)
    actual = until("transfer", lambda: sending(cluster))
    os.kill(actual["node2"], signal.SIGKILL)
    fine(migration.result(), "migration failed")
    until("no emulator", lambda: not emulators(cluster))
    assert field(cluster, "pnode,status") == ["node2.vc.test", "ERROR_down"]
    cluster.check("gnt-instance", "startup", guest)


@pytest.mark.usefixtures("slow")
def test_a_node_daemon_killed_at_the_target_of_a_migration(cluster, guest):
    migration = migrate(cluster)
    until("transfer", lambda: sending(cluster))
    cluster.command("kill", "node3", "ganeti-noded")
    try:
        speed = cluster.run("gnt-instance", "list")
        assert not speed.failed
        # The transfer itself needs no daemon at the target; adopting the guest does.
        os.kill(emulators(cluster)["node3"], signal.SIGKILL)
        result = migration.result()
    finally:
        cluster.command("start", "node3", "ganeti-noded")
    fine(result, "migration failed")
    assert field(cluster, "pnode,status") == ["node2.vc.test", "running"]
    cluster.check("gnt-instance", "migrate", "-f", "--cleanup", guest)


TAG = {"OP_ID": "OP_TAGS_SET", "kind": "instance", "name": GUEST, "tags": ["moved"]}


def kill_master(cluster):
    cluster.command("kill", "node1", "ganeti-masterd")


def stop_master(cluster):
    pid_file = cluster.paths().pid_file("ganeti-masterd")
    pid, began = pidfile.read_pid(pid_file), time.monotonic()
    # As daemon-util does, without the time to load it.
    os.kill(pid, signal.SIGTERM)
    until("it has ended", lambda: not pidfile.is_locked(pid_file))
    # It does not wait for the migration, not even as long as for other jobs.
    assert time.monotonic() - began < service.OPCODES_S
    cluster.check("daemon-util", "stop", "ganeti-masterd")


@pytest.mark.sampled
@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("end", [kill_master, stop_master])
def test_the_next_master_daemon_goes_on_with_a_migration(cluster, guest, end):
    migration = migrate(cluster)
    old = until("transfer", lambda: sending(cluster))
    end(cluster)
    cluster.command("start", "node1", "ganeti-masterd")
    with contextlib.closing(cluster.luxi()) as client:
        [job] = until("the job runs again", lambda: running_jobs(cluster))
        assert "MIGRATE" in cluster.check("gnt-job", "info", job)
        assert both(cluster) == old
        # Another job of the same guest waits for the locks.
        other = client.call("SubmitJob", [[TAG]])
        speed_up_transfer(cluster)
        assert job_status(client, int(job)) == "success"
        assert job_status(client, other) == "success"
    # The command has waited over the restart, and ends as if there had been none.
    result = migration.result()
    assert not result.failed, result.output
    log = cluster.check("gnt-job", "info", job)
    assert log.count("* migrating instance to") == 1
    assert "the master daemon was restarted" in log
    assert field(cluster, "pnode,status") == ["node3.vc.test", "running"]
    assert list(emulators(cluster)) == ["node3"]


def speed_up_transfer(cluster):
    """Raise the bandwidth of the transfer under way, as an administrator can."""
    with monitor(cluster) as qmp:
        values = {"max-bandwidth": 256 << 20, "downtime-limit": 500}
        qmp.execute("migrate-set-parameters", values)


def test_a_master_killed_while_it_creates_leaves_nothing_nameless(cluster):
    name = "cut.vc.test"
    words = ("-t", "file", "--disk", "0:size=8m", "--disk", "1:size=8m", "-H", "fake")
    words += ("-o", "tiny+default", "--no-nics", "-n", "node2", "--no-install")
    add = ("gnt-instance", "add", *words, "--no-start", name)
    folder = cluster.file(f"/srv/ganeti/file-storage/{name}", node="node2")
    creation = Background(cluster, *add)
    until("directory", folder.exists)
    cluster.command("kill", "node1", "ganeti-masterd")
    cluster.command("start", "node1", "ganeti-masterd")
    creation.result()
    known = cluster.check("gnt-instance", "list", "--no-headers", "-o", "name")
    if name not in known:
        cluster.check(*add)
    cluster.check("gnt-instance", "remove", "-f", name)
    left = list(folder.iterdir()) if folder.exists() else []
    jobs = cluster.check("gnt-job", "list", "--no-headers", "-o", "id").split()
    logs = "".join(cluster.check("gnt-job", "info", job) for job in jobs[-8:])
    for path in left:
        assert path.name in logs
    if folder.exists():
        shutil.rmtree(folder)


@pytest.fixture
def small_disk(cluster, request):
    """A file system where node2 keeps disk files, with mount options of the test."""
    place = cluster.file("/srv/ganeti/file-storage", node="node2")
    if os.getuid() != 0:
        pytest.skip("mounting needs root")
    mount = ["mount", "-t", "tmpfs", "-o", request.param, "none", place]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize(
    ("small_disk", "words"),
    [
        ("size=4m", ("needs 16 MiB", "which has 4 MiB free")),
        # Room for the instance's directory, and for no disk in it.
        ("size=32m,nr_inodes=2", ("No space left",)),
    ],
    indirect=["small_disk"],
    ids=["too small", "full"],
)
def test_a_full_disk_fails_the_job_and_leaves_nothing(cluster, small_disk, words):
    actual = cluster.run(
        "gnt-instance",
        *("add", "-t", "file", "-s", "16m", "-H", "fake", "-o", "tiny+default"),
        *("--no-nics", "-n", "node2", "--no-install", "--no-start", "full.vc.test"),
    )
    fine(actual, "node2", *words)
    assert "full.vc.test" not in cluster.check("gnt-instance", "list")
    assert list(small_disk.iterdir()) == []


def test_a_paused_node_fails_the_job_in_time(cluster, guest):
    cluster.command("pause", "node2")
    try:
        migrate = ("gnt-instance", "migrate", "-f", "-n", "node3", guest)
        actual = cluster.run(*migrate, timeout_s=240)
    finally:
        cluster.command("resume", "node2")
    # Its silence was noticed: a call that waited to its own end would not say so.
    fine(actual, "node2", "accepts connections but does not answer")
    assert field(cluster, "status") != []


def test_verify_is_clean_after_all_of_it(cluster):
    cluster.wait_until_clean()


# Drills: the guest that proves its runs, and whole drills on isolated machines.


@contextlib.contextmanager
def emulator(boot, disk):
    """Run a guest that records its boots on a disk, without the emulator's lock."""
    blockdev = {"driver": "raw", "node-name": "disk", "cache": {"direct": True}}
    blockdev["file"] = {"driver": "file", "filename": str(disk), "locking": "off"}
    words = [QEMU, "-nodefaults", "-no-user-config", "-display", "none"]
    words += ["-m", "96", "-accel", "tcg", "-kernel", boot / "vmlinuz"]
    words += ["-initrd", boot / "initrd"]
    words += ["-append", "quiet no_timer_check tiny.record=/dev/vda"]
    words += ["-blockdev", json.dumps(blockdev), "-device", "virtio-blk-pci,drive=disk"]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as child:
        try:
            yield
        finally:
            child.kill()


def counts(disk, boot):
    """Wait until a boot, from 0, has counted."""

    def has_counted():
        boots = witness.read_boots(disk)
        return len(boots) > boot and boots[boot].counter > 0

    until(f"boot {boot}", has_counted)


@pytest.mark.sampled
def test_a_guest_proves_that_it_ran_twice_at_once(tmp_path):
    boot, disk = tmp_path / "boot", tmp_path / "disk"
    guests.make_boot(boot)
    disk.write_bytes(bytes(1 << 20))
    with emulator(boot, disk):
        counts(disk, 0)
        assert witness.overlap(witness.read_boots(disk)) == ""
        with emulator(boot, disk):
            counts(disk, 1)
            until("both ran", lambda: witness.overlap(witness.read_boots(disk)))
    boots = witness.read_boots(disk)
    assert len({each.boot_id for each in boots}) == 2
    assert "boot 1 counted to" in witness.overlap(boots)


@pytest.fixture(scope="module")
def isolated(cluster_of):
    return cluster_of(4, "kvm", "--isolated", "--monitoring")


#: Drills of ordinary runs; the others are long.
SAMPLE = ("freeze-early",)


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.sampled if name in SAMPLE else pytest.mark.long
        )
        for name in DRILLS
    ],
)
def test_each_drill_passes_and_leaves_the_cluster_as_before(isolated, name):
    isolated.command("drill", name)
    info = json.loads(isolated.check("gnt-cluster", "info", "--json"))
    assert not info["node_death"]
    assert info["automation_limits"] == {}
    assert isolated.check("gnt-instance", "list", "--no-headers") == ""
    isolated.wait_until_clean()
