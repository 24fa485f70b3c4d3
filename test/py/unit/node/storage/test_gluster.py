"""Disks of template gluster below a stand-in for the mounted volume."""

import os
import pathlib

import msgspec
import pytest

from fakes import nodes
from ganeti.base import errors, process
from ganeti.node.calls.disks import storage_units
from ganeti.node.storage import external, gluster
from ganeti.protocols import ssconf

FILE = "ganeti/0c1d2e3f-4a5b-4c6d-8e7f-000000000200.0"
MIB = 1024 * 1024


class Mounts:
    """Runs ``mount``: makes the mount point count as one."""

    def __init__(self):
        self.points, self.calls, self.answer = set(), [], (0, "")

    def run_bounded(self, argv, *, env, timeout_s, max_output):
        self.calls.append(argv[:-1])
        code, text = self.answer
        if code == 0:
            self.points.add(argv[-1])
        return process.RunResult(tuple(argv), code, None, "", text)


@pytest.fixture
def mounts(monkeypatch):
    made = Mounts()
    monkeypatch.setattr(os.path, "ismount", made.points.__contains__)
    return made


@pytest.fixture
def node(tmp_path):
    node = nodes.make_node(tmp_path)
    os.makedirs(node.paths.data_dir)
    ssconf.write(node.paths, {"gluster_storage_dir": "/var/run/ganeti/gluster"})
    return node


def device(node, mounts, path=FILE, **params):
    given = {"host": "192.0.2.5", "port": 24007, "volume": "gv0", **params}
    record = nodes.disk(dev_type="gluster", logical_id=["loop", path], params=given)
    return gluster.GlusterDisk(
        node.paths, msgspec.convert(record, external.DiskX), mounts
    )


def test_a_volume_is_mounted_once_on_first_use(node, mounts):
    disk = device(node, mounts)
    assert not disk.exists()
    disk.create(4)
    assert os.stat(disk.path).st_size == 4 * MIB
    point = f"{node.paths.run_dir}/gluster/gv0@192.0.2.5.24007"
    assert disk.path == f"{point}/{FILE}"
    with pytest.raises(errors.BlockDeviceError, match="File exists"):
        disk.create(4)
    disk.grow(4, dryrun=False, backingstore=True)
    assert disk.size_bytes() == 8 * MIB
    disk.remove()
    disk.remove()
    options = ["mount", "-t", "glusterfs", "-o", "server-port=24007"]
    assert mounts.calls == [[*options, "192.0.2.5:/gv0"]]


def test_a_server_that_does_not_answer_is_named(node, mounts):
    mounts.answer = 1, "Mount failed. Check the log file  for more details.\n"
    text = "192.0.2.5:/gv0, port 24007: cannot be mounted: .*exited with code 1: Mount"
    with pytest.raises(errors.StorageError, match=text):
        device(node, mounts).exists()


def test_a_volume_that_was_mounted_at_that_moment_can_be_used(node, mounts):
    usual = mounts.run_bounded

    def late(argv, **options):
        usual(argv, **options)
        return process.RunResult(tuple(argv), 32, None, "", "already mounted")

    mounts.run_bounded = late
    assert not device(node, mounts).exists()


def test_a_volume_whose_client_has_ended_is_named_with_its_remedy(node, mounts):
    point = pathlib.Path(node.paths.run_dir, "gluster/gv0@192.0.2.5.24007")
    point.parent.mkdir()
    # As a mount without its program: there is something, which is no directory.
    point.touch()
    with pytest.raises(errors.StorageError, match=f"umount -l {point} on this node"):
        device(node, mounts).exists()
    assert mounts.calls == []


def test_a_cluster_without_a_directory_has_no_such_disks(node, mounts):
    ssconf.write(node.paths, {"gluster_storage_dir": ""})
    with pytest.raises(errors.StorageError, match="--gluster-storage-dir"):
        device(node, mounts).exists()
    ssconf.write(node.paths, {"gluster_storage_dir": "/etc/gluster"})
    with pytest.raises(errors.StorageError, match="not mounted in system directories"):
        device(node, mounts).exists()
    assert mounts.calls == []


def test_uri_is_for_kvm_with_access_userspace(node, mounts):
    assert device(node, mounts).uri("kvm") is None
    disk = device(node, mounts, access="userspace", host="2001:db8::5")
    assert disk.uri("kvm") == f"gluster://[2001:db8::5]:24007/gv0/{FILE}"
    with pytest.raises(errors.BlockDeviceError, match="cannot use access=userspace"):
        disk.uri("fake")


def test_links_do_not_lead_out_of_the_volume(node, mounts, tmp_path):
    disk = device(node, mounts)
    top = pathlib.Path(disk.path).parents[1]
    (top / "ganeti").symlink_to(tmp_path)
    with pytest.raises(
        errors.FileStoragePathError, match="ganeti is a symbolic link; below"
    ):
        disk.create(4)


@pytest.mark.parametrize(
    "params",
    [
        {"host": "-o"},
        {"host": "a b"},
        {"host": ""},
        {"port": 0},
        {"port": "24007"},
        {"volume": "gv/0"},
        {"volume": "-x"},
    ],
    ids=lambda given: "=".join(f"{k} {v}" for k, v in given.items()),
)
def test_parameters_that_are_no_address_are_refused(node, mounts, params):
    with pytest.raises(errors.BlockDeviceError, match="wanted host, port and volume"):
        device(node, mounts, **params)


@pytest.mark.parametrize("path", ["/etc/passwd", "ganeti/../../x", "", "a//b", "-x"])
def test_paths_out_of_the_volume_are_refused(node, mounts, path):
    with pytest.raises(errors.BlockDeviceError, match="a path in a volume"):
        device(node, mounts, path).exists()


def test_space_is_that_of_the_only_mounted_volume(node, mounts):
    directory = "/var/run/ganeti/gluster"
    with pytest.raises(errors.StorageError, match="found 0; a volume is mounted when"):
        storage_units.space_report(node.paths, mounts, "gluster", directory)
    device(node, mounts).exists()
    report = storage_units.space_report(node.paths, mounts, "gluster", directory)
    assert report["storage_size"] > 0
    rows = storage_units.list_storage_units(
        *(node.paths, mounts, "gluster"),
        args=[[directory]],
        name=None,
        fields=["name", "allocatable"],
    )
    assert rows == [[directory, True]]


def test_directory_is_checked_by_verify(node):
    assert "no directory" in gluster.check_usable(node.paths, "")
    assert "system directories" in gluster.check_usable(node.paths, "/usr/lib/g")
    place = pathlib.Path(node.paths.at("/srv/g"))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("")
    assert "found something else" in gluster.check_usable(node.paths, "/srv/g")
    program = gluster.check_usable(node.paths, "/srv/other")
    assert program is None or "glusterfs-client" in program
