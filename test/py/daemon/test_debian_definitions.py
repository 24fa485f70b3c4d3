"""Debian's definitions of operating systems run unmodified: noop and debootstrap.

Debian's packages are unpacked, not installed: the daemons of the cluster alone see their
files, below /usr and /etc of a mount namespace of their own. It needs root and Debian's
mirror, and installs a whole Debian, so the tests are long ones.
"""

import pathlib
import shutil
import subprocess

import pytest

from test.py.daemon.conftest import BIN, COMMAND_S, VirtualCluster, vcluster_command

pytestmark = [pytest.mark.daemon, pytest.mark.long]

PACKAGES = ("ganeti-os-noop", "ganeti-instance-debootstrap", "debootstrap")
#: Needs of the scripts that a machine without Ganeti may lack.
PROGRAMS = ("dump", "kpartx", "liblzo2-2")
SETTINGS = """PARTITION_STYLE=none
SUITE=bookworm
EXTRA_PKGS=
"""
START = """set -e
mount -t overlay overlay -o "lowerdir=$1/usr:/usr" /usr
mount -t overlay overlay -o "lowerdir=$1/etc:/etc" /etc
mount --bind "$1/cache" /var/cache
exec "$2" -C "$3" up -n 2 --hypervisors fake"""
ADD = ("gnt-instance", "add", "-t", "file", "-s", "1G", "-H", "fake", "--no-nics")
ADD += ("--no-start", "-n", "node1", "-o")


def mirror():
    """Return the mirror of Debian that this machine uses."""
    argv = ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)"]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines()]
    return next(uri for release, uri in rows if release == "bookworm")


def unpack(directory):
    """Return a directory with the files of the packages."""
    debs, tree = directory / "debs", directory / "tree"
    for each in (debs, tree, tree / "cache"):
        each.mkdir()
    download = ["apt-get", "download", "-q", *PACKAGES, *PROGRAMS]
    subprocess.run(download, cwd=debs, check=True, capture_output=True)
    for package in sorted(debs.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, tree], check=True)
    for part in ("sbin", "lib"):
        if (tree / part).is_dir():
            shutil.copytree(
                tree / part, tree / "usr" / part, symlinks=True, dirs_exist_ok=True
            )
    (tree / "etc/default/ganeti-instance-debootstrap").write_text(
        f"{SETTINGS}MIRROR={mirror()}\n"
    )
    return tree


@pytest.fixture(scope="module")
def cluster(new_directory, tmp_path_factory):
    tree, directory = unpack(tmp_path_factory.mktemp("debian")), new_directory()
    argv = ["unshare", "-m", "sh", "-c", START, "sh", tree, BIN / "vcluster", directory]
    subprocess.run(argv, check=True, timeout=COMMAND_S, capture_output=True)
    try:
        made = VirtualCluster(directory)
        # The nodes have the definitions of the machine, as they saw it at their start.
        made.check(
            "gnt-cluster",
            "modify",
            "--enabled-disk-templates",
            "file,sharedfile,diskless",
        )
        yield made
    finally:
        vcluster_command(directory, "down")


def inside(cluster, name, path, node="node1"):
    """Return a file of the file system on the disk of an instance."""
    directory = cluster.file("/srv/ganeti/file-storage", node) / name
    (disk,) = directory.glob("*")
    argv = ["debugfs", "-R", f"cat {path}", disk]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.mark.timeout(300)
def test_noop_leaves_the_disk_alone(cluster):
    cluster.check(*ADD, "noop", "noop.vc.test")
    directory = cluster.file("/srv/ganeti/file-storage") / "noop.vc.test"
    (disk,) = map(pathlib.Path, directory.glob("*"))
    assert disk.stat().st_blocks == 0
    cluster.check("gnt-instance", "remove", "-f", "noop.vc.test")


@pytest.mark.timeout(1800)
def test_debian_is_installed_exported_imported_and_renamed(cluster):
    refused = cluster.run(*ADD, "debootstrap", "one.vc.test")
    assert "variant" in refused.output
    os = "debootstrap+default"
    refused = cluster.run(*ADD, os, "-O", "filesystem=ext9", "one.vc.test")
    assert "Invalid value 'ext9'" in refused.output
    cluster.check(*ADD, os, "-O", "filesystem=ext3", "one.vc.test", timeout_s=1200)
    assert inside(cluster, "one.vc.test", "/etc/hostname") == "one.vc.test\n"
    version = inside(cluster, "one.vc.test", "/etc/debian_version")
    assert version.startswith("12.")
    export = ("gnt-backup", "export", "-n", "node2", "one.vc.test")
    cluster.check(*export, timeout_s=600)
    restore = ("gnt-backup", "import", "-n", "node2", "--src-dir", "one.vc.test")
    cluster.check(*restore, "two.vc.test", timeout_s=600)
    assert inside(cluster, "two.vc.test", "/etc/hostname", "node2") == "two.vc.test\n"
    assert inside(cluster, "two.vc.test", "/etc/debian_version", "node2") == version
    cluster.check("gnt-instance", "rename", "two.vc.test", "three.vc.test")
    assert (
        inside(cluster, "three.vc.test", "/etc/hostname", "node2") == "three.vc.test\n"
    )
