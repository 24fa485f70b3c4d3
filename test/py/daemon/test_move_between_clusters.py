"""Instances move between two real clusters, by the remote APIs of both."""

import contextlib
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from fakes.patience import until
from ganeti.base.filesystem import pidfile
from ganeti.base.tls import x509

pytestmark = pytest.mark.daemon

NAME = "moving.vc.test"
BIN = pathlib.Path(__file__).resolve().parents[3] / "build" / "bin"
ADD = ("gnt-instance", "add", "-t", "sharedfile", "-H", "fake", "-o", "tiny+default")
ADD += ("--disk", "0:size=16M", "--disk", "1:size=4M", "--no-nics", "--no-install")
ADD += ("--no-start", "-n", "node1", NAME)
LIST = ("gnt-instance", "list", "--no-headers", "-o", "name,status")


@pytest.fixture(scope="module")
def clusters(cluster_of):
    """Two clusters of one node each; both know the user of the tool."""
    pair = cluster_of(1), cluster_of(1)
    for each in pair:
        path = pathlib.Path(each.paths().data("rapi/users"))
        path.write_text("mover secret write\n")
        path.chmod(0o640)
        # A definition of its own, since tests change its export script.
        definition = script_of(each).parent
        original = definition.resolve()
        definition.unlink()
        shutil.copytree(original, definition)
    pair[0].check(*ADD)
    for disk in disks(pair[0]):
        disk.write_bytes(bytes(range(256)) * (disk.stat().st_size >> 8))
    pair[0].check("gnt-instance", "start", NAME)
    return pair


def script_of(cluster):
    """Return the export script of the OS of the instance."""
    return cluster.file("/srv/ganeti/os/tiny/export")


def disks(cluster):
    return list(cluster.file("/srv/ganeti/shared-file-storage").glob(f"{NAME}/*"))


def contents(cluster):
    """Return the digests of the disks of the instance."""
    return sorted(
        hashlib.sha256(disk.read_bytes()).hexdigest() for disk in disks(cluster)
    )


def remains(cluster):
    """Return what is left of transfers."""
    places = (cluster.file(f"/var/run/ganeti/{d}") for d in ("import-export", "crypto"))
    return [path for place in places for path in place.glob("*")]


def command(source, destination, directory, *words):
    """Return the command line that moves the instance."""
    argv = [BIN / "move-instance", "--src-username=mover"]
    for prefix, cluster in (("src", source), ("dest", destination)):
        path = directory / f"{prefix}.pem"
        certificate = x509.load(cluster.paths().data("rapi.pem")).certificate_pem
        path.write_bytes(certificate)
        argv.append(f"--{prefix}-ca-file={path}")
    (directory / "password").write_text("secret\n")
    argv += [f"--src-password-file={directory}/password", *words]
    return [
        *argv,
        *(each.node("node1").address for each in (source, destination)),
        NAME,
    ]


def run(*args):
    done = subprocess.run(
        command(*args), capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


def share_secret(source, destination):
    """Do what gnt-cluster renew-crypto does on each node with the secret of another."""
    path = pathlib.Path(destination.paths().data("cluster-domain-secret"))
    path.write_bytes(
        pathlib.Path(source.paths().data("cluster-domain-secret")).read_bytes()
    )


NODE = "--dest-primary-node=node1"


@pytest.mark.sampled
@pytest.mark.timeout(600)
def test_an_instance_moves_only_between_clusters_that_share_a_secret(
    clusters, tmp_path
):
    source, destination = clusters
    before = contents(source)
    code, output = run(source, destination, tmp_path, NODE)
    assert code == 1
    assert "was not signed with the domain secret of this cluster" in output
    assert source.check(*LIST).split() == [NAME, "running"]
    assert destination.check(*LIST) == ""
    # The key that was prepared for the export is discarded with the move.
    assert remains(source) == []
    share_secret(source, destination)
    code, output = run(source, destination, tmp_path, NODE, "--compress=gzip")
    assert (code, output.splitlines()[-1]) == (0, f"{NAME}: Success")
    assert source.check(*LIST) == ""
    assert destination.check(*LIST).split() == [NAME, "running"]
    assert contents(destination) == before
    assert disks(source) == []
    assert remains(source) == []
    assert remains(destination) == []
    assert "secret\n" not in output


def transfers(cluster, mode):
    """Return the process ids of the programs that send or receive disks, by disk."""
    directory = cluster.file("/var/run/ganeti/import-export")
    pids = {
        path.parent.name.split("-")[1]: pidfile.read_pid(str(path))
        for path in directory.glob(f"{mode}-*/pid")
    }
    return {disk: pid for disk, pid in pids.items() if pid is not None}


#: Export script that waits in the middle of a disk, when both ends know each other.
WAITING = """#!/bin/sh
head -c 1048576 "$EXPORT_DEVICE"
: > "{directory}/begun-$EXPORT_INDEX"
read -r _ < "{directory}/gate-$EXPORT_INDEX"
tail -c +1048577 "$EXPORT_DEVICE"
"""
DISKS = (0, 1)


class Held:
    """A move whose copies wait in the middle of both disks until they are let go."""

    def __init__(self, pair, directory):
        source, destination = pair
        self._directory = directory
        self._script = script_of(source)
        self._old = self._script.read_bytes()
        for disk in DISKS:
            os.mkfifo(directory / f"gate-{disk}")
        # Opened for both, so neither this end nor the script waits for the other.
        self._gates = [
            os.open(directory / f"gate-{disk}", os.O_RDWR | os.O_CLOEXEC)
            for disk in DISKS
        ]
        self._script.write_text(WAITING.format(directory=directory))
        self._move = subprocess.Popen(
            command(source, destination, directory, NODE),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait(self):
        """Wait until all ends copy."""
        marks = [self._directory / f"begun-{disk}" for disk in DISKS]
        until("both disks are copied", lambda: all(map(pathlib.Path.exists, marks)))

    def release(self):
        """Let the copies go on; return exit code and output of the move."""
        for gate in self._gates:
            os.write(gate, b"go on\n")
        output, _ = self._move.communicate(timeout=300)
        return self._move.returncode, output

    def close(self):
        self._move.kill()
        self._move.communicate()
        for gate in self._gates:
            os.close(gate)
        self._script.write_bytes(self._old)


@contextlib.contextmanager
def held(pair, directory):
    move = Held(pair, directory)
    try:
        move.wait()
        yield move
    finally:
        move.close()


def between(clusters):
    """Return both clusters, the one that has the instance first."""
    pair = clusters if disks(clusters[0]) else clusters[::-1]
    share_secret(*pair)
    return pair


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_sender_that_does_not_start_does_not_leave_the_receiver_waiting(
    clusters, tmp_path
):
    """The receiver would wait for it for five minutes."""
    pair = source, destination = between(clusters)
    before, keys = contents(source), [*map(remains, pair)]
    script = script_of(source)
    script.chmod(0o644)
    try:
        code, output = run(source, destination, tmp_path, NODE)
    finally:
        script.chmod(0o755)
    assert code == 1, output
    last = output.splitlines()[-1]
    assert "source job" in last
    assert "export" in last
    assert last.endswith("killed on request")
    assert contents(source) == before
    assert source.check(*LIST).split() == [NAME, "running"]
    assert destination.check(*LIST) == ""
    assert disks(destination) == []
    assert [*map(remains, pair)] == keys


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("daemon", ["ganeti-masterd", "ganeti-noded"])
def test_a_move_goes_on_after_daemons_were_killed(clusters, tmp_path, daemon):
    """Both clusters lose a daemon while the disks are copied."""
    pair = source, destination = between(clusters)
    before, keys = contents(source), [*map(remains, pair)]
    with held(pair, tmp_path) as move:
        for each in pair:
            each.command("kill", "node1", daemon)
        for each in pair:
            each.command("start", "node1", daemon)
        code, output = move.release()
    assert code == 0, output
    assert contents(destination) == before
    assert disks(source) == []
    assert [*map(remains, pair)] == keys


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["import", "export"])
def test_a_killed_program_fails_both_ends_and_leaves_nothing(clusters, tmp_path, mode):
    pair = source, destination = between(clusters)
    before, keys = contents(source), [*map(remains, pair)]
    with held(pair, tmp_path) as move:
        end = source if mode == "export" else destination
        os.kill(transfers(end, mode)["disk0"], signal.SIGKILL)
        code, output = move.release()
    assert code == 1, output
    last = output.splitlines()[-1]
    assert "source job" in last
    assert "destination job" in last
    assert contents(source) == before
    assert source.check(*LIST).split() == [NAME, "running"]
    assert destination.check(*LIST) == ""
    assert disks(destination) == []
    assert [*map(remains, pair)] == keys
