"""Links to instance disks after a node daemon that was killed."""

import os

from ganeti import pathutils
from ganeti.backend import disk_links


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
