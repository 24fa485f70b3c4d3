"""Links to instance disks after a node daemon that was killed."""

import os

import msgspec
import pytest

from fakes import nodes
from ganeti.base import errors, pathutils
from ganeti.model.objects.filled import DiskX
from ganeti.node import storage
from ganeti.node.calls.disks import disk_links


def test_a_link_that_was_being_replaced_goes_with_the_instance(tmp_path):
    paths = pathutils.Paths(str(tmp_path), "n1")
    link = disk_links.make(paths, "web1", 0, "/dev/a")
    os.symlink("/dev/b", f"{link}.new")  # killed before the rename
    disk_links.remove(paths, "web1", 1)
    assert os.listdir(disk_links.directory(paths)) == []


def test_a_link_follows_its_disk(tmp_path):
    paths = pathutils.Paths(str(tmp_path), "n1")
    link = disk_links.make(paths, "web1", 0, "/dev/old")
    assert disk_links.make(paths, "web1", 0, "/dev/new") == link
    assert os.readlink(link) == "/dev/new"
    before = os.lstat(link).st_ino
    disk_links.make(paths, "web1", 0, "/dev/new")
    assert os.lstat(link).st_ino == before
    assert os.listdir(disk_links.directory(paths)) == ["web1:0"]


def test_the_links_to_a_removed_disk_go_and_no_others(tmp_path):
    paths = pathutils.Paths(str(tmp_path), "n1")
    disk_links.remove_to(paths, "/dev/a")
    for index, target in enumerate(("/dev/a", "/dev/b", "/dev/a")):
        disk_links.make(paths, "web1", index, target)
    disk_links.remove_to(paths, "/dev/a")
    assert os.listdir(disk_links.directory(paths)) == ["web1:1"]


def test_a_hypervisor_gets_the_file_of_a_linked_disk_and_no_other(tmp_path):
    node = nodes.make_node(tmp_path)
    record = msgspec.convert(
        nodes.disk(logical_id=["loop", f"{nodes.STORAGE_DIR}/disk0"], size=1), DiskX
    )
    device = storage.device(node.paths, record, node.process)
    device.create(1)
    link = disk_links.make(node.paths, "web1", 0, device.path)
    opened = disk_links.opener(node.paths, node.process)
    fd = opened(record, link, os.O_RDWR)
    assert os.fstat(fd).st_ino == os.stat(device.path).st_ino
    os.close(fd)
    os.rename(device.path, f"{device.path}.kept")
    os.symlink(f"{device.path}.kept", device.path)
    with pytest.raises(errors.FileStoragePathError, match="is a symbolic link; below"):
        opened(record, link, os.O_RDWR)


def test_an_own_disk_of_a_helper_machine_is_no_link(tmp_path):
    node = nodes.make_node(tmp_path)
    record = msgspec.convert(nodes.disk(), DiskX)
    opened = disk_links.opener(node.paths, node.process)
    (tmp_path / "boot").write_bytes(b"x")
    os.close(opened(record, str(tmp_path / "boot"), os.O_RDONLY))
    (tmp_path / "link").symlink_to(tmp_path / "boot")
    with pytest.raises(OSError, match="symbolic links"):
        opened(record, str(tmp_path / "link"), os.O_RDONLY)
