"""Links and other files of guests that a killed node daemon left behind."""

import os

import msgspec
import pytest

from fakes import nodes
from ganeti.base import errors, pathutils
from ganeti.model.objects.filled import DiskX
from ganeti.node import storage
from ganeti.node.calls import guest_files
from ganeti.protocols import ssconf

HOUR_S = 3600.0


@pytest.fixture
def node(tmp_path):
    made = nodes.make_node(tmp_path)
    for name in ("instance-disks", "instance-reason"):
        os.makedirs(f"{made.paths.run_dir}/{name}")
    os.makedirs(made.paths.data_dir, exist_ok=True)
    return made


def listing(node, *names):
    ssconf.write(node.paths, {"instance_list": "\n".join(names)})


def link(node, name, target, age_s=0.0):
    path = f"{node.paths.run_dir}/instance-disks/{name}"
    os.symlink(target, path)
    when = node.clock.time() - age_s
    os.utime(path, (when, when), follow_symlinks=False)
    return path


def trail(node, name, age_s=0.0):
    path = f"{node.paths.run_dir}/instance-reason/{name}"
    with open(path, "w") as out:
        out.write("[]")
    when = node.clock.time() - age_s
    os.utime(path, (when, when))
    return path


def test_old_files_of_unknown_instances_go(node, tmp_path):
    listing(node, "web1", "web2")
    old = HOUR_S + 1
    gone = [link(node, "web3:0", str(tmp_path), old), trail(node, "web3", old)]
    kept = [link(node, "web1:0", str(tmp_path), old), trail(node, "web1", old)]
    assert sorted(guest_files.sweep(node)) == sorted(gone)
    assert all(os.path.lexists(path) for path in kept)
    assert guest_files.sweep(node) == []


def test_files_of_a_new_instance_stay_although_the_list_is_behind(node, tmp_path):
    listing(node, "web1")
    link(node, "new1:0", str(tmp_path))
    trail(node, "new1")
    assert guest_files.sweep(node) == []


def test_links_to_nothing_and_trails_of_removed_instances_go_at_once(node, tmp_path):
    listing(node, "web1")
    gone = [link(node, "web3:0", "/nowhere"), trail(node, "web3")]
    link(node, "web3:1", str(tmp_path))
    link(node, "web1:0", "/nowhere")
    trail(node, "web4")
    assert sorted(guest_files.sweep(node, {"web3"})) == sorted(gone)


def test_without_a_list_everything_stays(node, tmp_path):
    link(node, "web3:0", "/nowhere", 2 * HOUR_S)
    trail(node, "web3", 2 * HOUR_S)
    assert guest_files.sweep(node, {"web3"}) == []


def test_an_instance_that_leaves_the_list_takes_its_files_along(node):
    listing(node, "web1", "web3")
    gone, kept = trail(node, "web3"), trail(node, "web1")
    nodes.call(node, "write_ssconf_files", {"instance_list": "web1\n"})
    assert not os.path.exists(gone)
    assert os.path.exists(kept)


def test_with_a_damaged_list_everything_stays(node, caplog):
    link(node, "web1:0", "/nowhere")
    with open(ssconf.SimpleStore(node.paths).path("instance_list"), "wb") as out:
        out.write(b"\xff\xfe")
    assert guest_files.listed(node) is None
    assert guest_files.sweep(node) == []
    assert "cannot read the list of instances" in caplog.text


def test_a_node_that_never_had_an_instance_has_nothing_to_remove(node):
    listing(node)
    for name in ("instance-disks", "instance-reason"):
        os.rmdir(f"{node.paths.run_dir}/{name}")
    assert guest_files.sweep(node) == []


def test_a_file_that_goes_by_itself_is_no_error(node, monkeypatch):
    listing(node)
    path = link(node, "web1:0", "/nowhere")
    assert guest_files._age_s(node, f"{path}.none") == 0.0
    kept = list(guest_files._instance_files(node))
    os.unlink(path)
    monkeypatch.setattr(guest_files, "_instance_files", lambda _node: kept)
    assert guest_files.sweep(node) == []


def variables(node, name):
    path = f"{node.paths.data_dir}/kvm/{name}"
    os.makedirs(path)
    with open(f"{path}/efi-vars.fd", "w") as out:
        out.write("x")
    return path


def test_uefi_variables_go_with_their_instance(node):
    listing(node, "web1")
    kept, gone, young = (variables(node, name) for name in ("web1", "web2", "new1"))
    assert guest_files.sweep(node, removed=["web2"]) == [gone]
    assert os.path.isdir(kept)
    assert os.path.isdir(young)
    assert not os.path.exists(gone)


# Links to instance disks after a node daemon that was killed.


def test_a_link_that_was_being_replaced_goes_with_the_instance(tmp_path):
    paths = pathutils.Paths(str(tmp_path), "n1")
    link = guest_files.make_link(paths, "web1", 0, "/dev/a")
    os.symlink("/dev/b", f"{link}.new")  # killed before the rename
    guest_files.remove_links(paths, "web1", 1)
    assert os.listdir(guest_files.link_directory(paths)) == []


def test_a_link_follows_its_disk(tmp_path):
    paths = pathutils.Paths(str(tmp_path), "n1")
    link = guest_files.make_link(paths, "web1", 0, "/dev/old")
    assert guest_files.make_link(paths, "web1", 0, "/dev/new") == link
    assert os.readlink(link) == "/dev/new"
    before = os.lstat(link).st_ino
    guest_files.make_link(paths, "web1", 0, "/dev/new")
    assert os.lstat(link).st_ino == before
    assert os.listdir(guest_files.link_directory(paths)) == ["web1:0"]


def test_the_links_to_a_removed_disk_go_and_no_others(tmp_path):
    paths = pathutils.Paths(str(tmp_path), "n1")
    guest_files.remove_links_to(paths, "/dev/a")
    for index, target in enumerate(("/dev/a", "/dev/b", "/dev/a")):
        guest_files.make_link(paths, "web1", index, target)
    guest_files.remove_links_to(paths, "/dev/a")
    assert os.listdir(guest_files.link_directory(paths)) == ["web1:1"]


def test_a_hypervisor_gets_the_file_of_a_linked_disk_and_no_other(tmp_path):
    node = nodes.make_node(tmp_path)
    record = msgspec.convert(
        nodes.disk(logical_id=["loop", f"{nodes.STORAGE_DIR}/disk0"], size=1), DiskX
    )
    device = storage.device(node.paths, record, node.process)
    device.create(1)
    link = guest_files.make_link(node.paths, "web1", 0, device.path)
    opened = guest_files.opener(node.paths, node.process)
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
    opened = guest_files.opener(node.paths, node.process)
    (tmp_path / "boot").write_bytes(b"x")
    os.close(opened(record, str(tmp_path / "boot"), os.O_RDONLY))
    (tmp_path / "link").symlink_to(tmp_path / "boot")
    with pytest.raises(OSError, match="symbolic links"):
        opened(record, str(tmp_path / "link"), os.O_RDONLY)
