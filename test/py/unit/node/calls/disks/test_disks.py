"""Disk procedures on file storage."""

import os
import resource
import stat
import types

import pytest

from fakes import nodes
from ganeti.base import errors
from ganeti.node.calls.disks import blockdev as disks
from ganeti.node.storage import files

MIB = 1024 * 1024


@pytest.fixture
def node(tmp_path):
    return nodes.make_node(tmp_path)


@pytest.fixture
def record(node):
    record = nodes.instance(disks=1)
    nodes.make_disks(node, record)
    return record


def file_of(node, disk):
    return node.paths.at(disk["logical_id"][1])


def test_created_file_is_sparse_private_and_exactly_sized(node, record):
    info = os.stat(file_of(node, record["disks_info"][0]))
    assert info.st_size == 4 * MIB
    assert info.st_blocks == 0
    assert info.st_mode & 0o777 == 0o600


def test_creating_twice_fails_and_keeps_the_content(node, record):
    disk = record["disks_info"][0]
    with open(file_of(node, disk), "r+b") as out:
        out.write(b"precious")
    with pytest.raises(errors.BlockDeviceError, match="File exists"):
        nodes.call(node, "blockdev_create", disk, 4, "web1", True, "", False)
    with open(file_of(node, disk), "rb") as src:
        assert src.read(8) == b"precious"


def test_size_that_the_file_system_refuses_leaves_nothing(node, record):
    disk = nodes.disk(1, size=64)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 * MIB, old[1]))
    try:
        with pytest.raises(errors.BlockDeviceError, match="File too large"):
            nodes.call(node, "blockdev_create", disk, 64, "web1", True, "", False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert not os.path.exists(file_of(node, disk))


@pytest.mark.parametrize(
    "path",
    [
        "/srv/elsewhere/disk",
        "/srv/ganeti/file-storage/../../../etc/disk",
        "/srv/ganeti/file-storage",
        "/usr/bin/disk",
    ],
)
def test_paths_outside_the_list_are_refused(node, path):
    disk = nodes.disk(logical_id=["loop", path])
    with pytest.raises(errors.FileStoragePathError):
        nodes.call(node, "blockdev_create", disk, 4, "web1", True, "", False)
    with pytest.raises(errors.FileStoragePathError):
        nodes.call(node, "blockdev_remove", disk)


def calls_on(node, disk, good):
    """Yield a call of each procedure that reads, writes or links a disk's file."""
    record = nodes.instance(disks=1)
    for name, *args in (
        ("blockdev_assemble", disk, record, True, 0),
        ("blockdev_open", "web1", [disk], False),
        ("blockdev_find", disk),
        ("blockdev_getmirrorstatus", [disk]),
        ("blockdev_getdimensions", [disk]),
        ("blockdev_grow", disk, 1, False, True, False),
        ("blockdev_wipe", disk, 0, 1),
        ("blockdev_image", disk, "/etc/hostname", 1),
        ("blockdev_convert", disk, good),
        ("blockdev_convert", good, disk),
        ("blockdev_convert_part", good, disk, 0, 1),
        ("blockdev_rename", [[disk, ["loop", good["logical_id"][1] + ".new"]]]),
        ("blockdev_rename", [[good, disk["logical_id"]]]),
        ("blockdev_remove", disk),
    ):
        yield pytest.param(name, args, id=name)


ESCAPES = ["outside", "link", "directory link"]


@pytest.mark.parametrize("escape", ESCAPES)
def test_no_call_reaches_a_file_outside_of_the_listed_directories(
    node, record, tmp_path, escape
):
    good = record["disks_info"][0]
    storage = os.path.dirname(os.path.dirname(file_of(node, good)))
    victim = f"{tmp_path}/victim"
    os.makedirs(victim)
    with open(f"{victim}/disk", "wb") as out:
        out.truncate(2 * MIB)
        out.write(b"precious")
    os.symlink(f"{victim}/disk", f"{storage}/link")
    os.symlink(victim, f"{storage}/dir")
    path = {
        "outside": f"{victim}/disk",
        "link": f"{storage}/link",
        "directory link": f"{storage}/dir/disk",
    }[escape]
    root = node.paths.root
    # A plain path is below the root of a virtual node.
    inside = path.removeprefix(root) if path.startswith(root) else path
    disk = nodes.disk(5, size=2, logical_id=["loop", inside])
    if escape == "outside":
        os.makedirs(os.path.dirname(node.paths.at(inside)), exist_ok=True)
        os.link(f"{victim}/disk", node.paths.at(inside))
    for call in calls_on(node, disk, good):
        name, args = call.values
        try:
            answer = nodes.call(node, name, *args)
        except errors.GenericError as err:
            texts = ("not below", "is a symbolic link", f"{storage}/link: File exists")
            assert any(text in str(err) for text in texts), name  # noqa: PT017
        else:
            assert answer == [None], name
    with open(f"{victim}/disk", "rb") as src:
        assert src.read() == b"precious" + bytes(2 * MIB - 8)
    assert os.stat(f"{victim}/disk").st_size == 2 * MIB
    links = f"{node.paths.run_dir}/instance-disks"
    assert not os.path.isdir(links) or os.listdir(links) == []


def test_system_directories_are_refused_even_when_listed(node):
    with open(f"{node.paths.conf_dir}/file-storage-paths", "a") as out:
        out.write("/etc/disks\n")
    with pytest.raises(errors.FileStoragePathError, match="system directories"):
        nodes.call(node, "file_storage_dir_create", "/etc/disks/web1")


def test_assembly_links_on_the_primary_only(node, record):
    disk = record["disks_info"][0]
    path, link, uri = nodes.call(node, "blockdev_assemble", disk, record, True, 0)
    assert (path, uri) == (file_of(node, disk), None)
    assert link == f"{node.paths.run_dir}/instance-disks/web1:0"
    assert os.readlink(link) == path
    actual = nodes.call(node, "blockdev_assemble", disk, record, False, 0)
    assert actual == [True, True]


def test_find_and_status(node, record):
    disk, missing = record["disks_info"][0], nodes.disk(7)
    status = nodes.call(node, "blockdev_find", disk)
    assert (status.dev_path, int(status.ldisk_status)) == (file_of(node, disk), 1)
    assert nodes.call(node, "blockdev_find", missing) is None
    rows = nodes.call(node, "blockdev_getmirrorstatus_multi", [disk, missing])
    assert [row[0] for row in rows] == [True, False]
    sizes = nodes.call(node, "blockdev_getdimensions", [disk, missing])
    assert sizes == [[4 * MIB, None], None]


def test_grow_adds_to_the_storage_once(node, record):
    disk = record["disks_info"][0]
    nodes.call(node, "blockdev_grow", disk, 3, True, True, False)
    assert os.path.getsize(file_of(node, disk)) == 4 * MIB
    nodes.call(node, "blockdev_grow", disk, 3, False, True, False)
    nodes.call(node, "blockdev_grow", disk, 3, False, False, False)
    assert os.path.getsize(file_of(node, disk)) == 7 * MIB
    with pytest.raises(errors.BlockDeviceError, match="-1 MiB"):
        nodes.call(node, "blockdev_grow", disk, -1, False, True, False)


def test_growth_that_was_cut_off_is_not_added_again(node, record):
    disk = record["disks_info"][0]
    for _attempt in range(2):  # the record has the old size still
        nodes.call(node, "blockdev_grow", disk, 3, False, True, False)
    assert os.stat(file_of(node, disk)).st_size == 7 * MIB
    nodes.call(node, "blockdev_grow", disk, 1, False, True, False)
    assert os.stat(file_of(node, disk)).st_size == 7 * MIB


def test_disk_files_are_found_by_their_names(node, record):
    path = record["disks_info"][0]["logical_id"][1]
    folder = os.path.dirname(path)
    with open(node.paths.at(f"{folder}/notes.txt"), "w", encoding="ascii") as out:
        out.write("mine")
    asked = {"disk-files": [nodes.STORAGE_DIR, "/srv/none", "/etc"]}
    answer = nodes.call(node, "node_verify", asked, "c", {})["disk-files"]
    assert answer == {path: 4 * MIB}


def test_what_another_node_made_on_shared_storage_does_not_hide_disk_files(
    node, record, monkeypatch
):
    path = record["disks_info"][0]["logical_id"][1]
    top = node.paths.at(nodes.STORAGE_DIR)
    name = os.path.basename(path)
    for odd in (b"\xff", b"line\nbreak", b"\x1b[2J"):
        os.mkdir(os.fsencode(top) + b"/" + odd)
        with open(os.fsencode(f"{top}/") + odd + b"/" + name.encode(), "wb"):
            pass
    # A thousand levels are more than a call stack and the open files of a process have.
    deep = f"{top}{'/d' * 40}"
    os.makedirs(deep)
    with open(f"{deep}/{name}", "wb"):
        pass
    asked = {"disk-files": [nodes.STORAGE_DIR]}
    answer = nodes.call(node, "node_verify", asked, "c", {})["disk-files"]
    assert answer == {path: 4 * MIB}
    monkeypatch.setattr(files, "_MAX_FOUND", 0)
    answer = nodes.call(node, "node_verify", asked, "c", {})["disk-files"]
    assert answer == {}


def test_wipe_zeroes_the_part_and_nothing_else(node, record):
    disk = record["disks_info"][0]
    with open(file_of(node, disk), "wb") as out:
        out.write(b"\xff" * 4 * MIB)
    nodes.call(node, "blockdev_wipe", disk, 1, 2)
    with open(file_of(node, disk), "rb") as src:
        data = src.read()
    assert data == b"\xff" * MIB + bytes(2 * MIB) + b"\xff" * MIB
    with pytest.raises(errors.BlockDeviceError, match="cannot wipe 2 MiB at 3 MiB"):
        nodes.call(node, "blockdev_wipe", disk, 3, 2)


def test_rename_never_replaces(node, record):
    disk, other = record["disks_info"][0], nodes.disk(1)
    nodes.call(node, "blockdev_create", other, 4, "web1", True, "", False)
    with pytest.raises(errors.BlockDeviceError, match="File exists"):
        nodes.call(node, "blockdev_rename", [[disk, other["logical_id"]]])
    free = nodes.disk(2)
    nodes.call(node, "blockdev_rename", [[disk, free["logical_id"]]])
    assert nodes.call(node, "blockdev_find", disk) is None
    assert nodes.call(node, "blockdev_find", free) is not None


def test_image_and_convert_copy(node, record, tmp_path):
    disk, other = record["disks_info"][0], nodes.disk(1)
    nodes.call(node, "blockdev_create", other, 4, "web1", True, "", False)
    image = tmp_path / "image"
    image.write_bytes(b"image" * 1000)
    nodes.call(node, "blockdev_image", disk, str(image), 4)
    nodes.call(node, "blockdev_convert", disk, other)
    with open(file_of(node, other), "rb") as src:
        assert src.read(5003) == b"image" * 1000 + bytes(3)
    image.write_bytes(b"x" * (3 * MIB))
    nodes.call(node, "blockdev_image", disk, str(image), 4)
    nodes.call(node, "blockdev_convert_part", disk, other, 1, 1)
    with open(file_of(node, other), "rb") as src:
        content = src.read()
    assert content[MIB : 2 * MIB] == b"x" * MIB
    assert set(content[2 * MIB :]) | {content[MIB - 1]} == {0}
    with pytest.raises(errors.BlockDeviceError, match="cannot copy 2 MiB at 3 MiB"):
        nodes.call(node, "blockdev_convert_part", disk, other, 3, 2)
    image.write_bytes(bytes(4 * MIB + 1))
    with pytest.raises(errors.BlockDeviceError, match="4194305 bytes"):
        nodes.call(node, "blockdev_image", disk, str(image), 5)


def test_content_is_on_the_device_when_a_call_returns(
    node, record, tmp_path, monkeypatch
):
    """A machine may lose its power afterwards."""
    disk, other = record["disks_info"][0], nodes.disk(1)
    nodes.call(node, "blockdev_create", other, 4, "web1", True, "", False)
    (tmp_path / "image").write_bytes(b"image")
    synced, fsync = [], os.fsync

    def note(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    nodes.call(node, "blockdev_wipe", disk, 1, 2)
    nodes.call(node, "blockdev_image", disk, str(tmp_path / "image"), 4)
    nodes.call(node, "blockdev_convert", disk, other)
    nodes.call(node, "blockdev_convert_part", disk, other, 1, 1)
    assert synced == [file_of(node, each) for each in (disk, disk, other, other)]


def test_remove_twice_is_fine(node, record):
    disk = record["disks_info"][0]
    nodes.call(node, "blockdev_remove", disk)
    nodes.call(node, "blockdev_remove", disk)
    nodes.call(node, "file_storage_dir_remove", f"{nodes.STORAGE_DIR}/web1")
    nodes.call(node, "file_storage_dir_remove", f"{nodes.STORAGE_DIR}/web1")


def test_directory_with_disks_is_not_removed_but_renamed(node, record):
    old, new = f"{nodes.STORAGE_DIR}/web1", f"{nodes.STORAGE_DIR}/web2"
    with pytest.raises(errors.StorageError, match="not empty"):
        nodes.call(node, "file_storage_dir_remove", old)
    nodes.call(node, "file_storage_dir_rename", old, new)
    nodes.call(node, "file_storage_dir_rename", old, new)
    assert os.path.isdir(node.paths.at(new))
    nodes.call(node, "file_storage_dir_create", old)
    with pytest.raises(errors.StorageError, match="both exist"):
        nodes.call(node, "file_storage_dir_rename", old, new)
    assert os.listdir(node.paths.at(old)) == []
    assert len(os.listdir(node.paths.at(new))) == len(record["disks_info"])


def test_refused_kinds_are_named(node, record):
    disk = nodes.disk(dev_type="diskless")
    with pytest.raises(errors.BlockDeviceError, match="type diskless is not offered"):
        nodes.call(node, "blockdev_find", disk)
    with pytest.raises(errors.BlockDeviceError, match="no snapshots"):
        nodes.call(node, "blockdev_snapshot", record["disks_info"][0], None, None)


def test_listing_and_reports(node, record):
    with open(file_of(node, record["disks_info"][0]), "wb") as out:
        out.write(b"x" * 2 * MIB)
    fields = ["name", "used", "size", "free", "allocatable"]
    args = ("file", [[nodes.STORAGE_DIR]], None, fields)
    [[name, used, size, free, allocatable]] = nodes.call(node, "storage_list", *args)
    assert (name, used, allocatable) == (nodes.STORAGE_DIR, 2, True)
    assert 0 < free < size
    with pytest.raises(errors.StorageError, match="unknown fields type"):
        nodes.call(node, "storage_list", "file", [[nodes.STORAGE_DIR]], None, ["type"])
    with pytest.raises(errors.StorageError, match="cannot fix-consistency"):
        nodes.call(node, "storage_execute", "file", [], "x", "fix-consistency")
    with pytest.raises(errors.StorageError, match="cannot change allocatable"):
        nodes.call(node, "storage_modify", "file", [], "x", {"allocatable": True})


def test_space_reports_are_none_for_other_types(node):
    from ganeti.node.calls.disks import storage_units

    units = [("file", nodes.STORAGE_DIR, []), ("lvm-vg", "xenvg", [False])]
    report, other = storage_units.space_reports(node, units)
    assert other is None
    assert (report["type"], report["name"]) == ("file", nodes.STORAGE_DIR)
    assert 0 < report["storage_free"] <= report["storage_size"]


def test_all_paths_of_an_adopted_device_have_its_numbers(node, monkeypatch):
    device = types.SimpleNamespace(st_mode=stat.S_IFBLK, st_rdev=os.makedev(8, 16))
    real, paths = os.stat, ["/dev/disk/by-id/a", "/dev/disk/by-path/b"]
    monkeypatch.setattr(
        os, "stat", lambda path, **more: device if path in paths else real(path, **more)
    )
    wires = [
        nodes.disk(dev_type="blockdev", logical_id=["manual", path], uuid=path, size=0)
        for path in [*paths, "/dev/disk/by-id/none"]
    ]
    *known, missing = nodes.call(node, "blockdev_getmirrorstatus_multi", wires)
    assert {(status.major, status.minor) for _, status in known} == {(8, 16)}
    assert missing[0] is False


def test_sizes_only_of_adoptable_devices(node, record):
    path = file_of(node, record["disks_info"][0])
    assert nodes.call(node, "bdev_sizes", [path, "/dev/disk/none"]) == {}


class Steps:
    """Disks whose steps are only noted."""

    path = "/dev/noted"

    def uri(self, hypervisor):
        return f"uri:{hypervisor}"

    def __init__(self):
        self.done = []

    def assemble(self):
        self.done.append("assemble")

    def open(self, *, exclusive):
        self.done.append(("open", exclusive))

    def require(self):
        self.done.append("require")

    def set_info(self, text):
        self.done.append(("info", text))


@pytest.fixture
def steps(monkeypatch):
    made = Steps()
    monkeypatch.setattr(disks, "_device", lambda _node, _disk: made)
    return made


def mirror(record):
    return record["disks_info"][0] | {"dev_type": "drbd"}


def test_a_mirror_is_opened_on_the_primary_alone(node, record, steps):
    args = (mirror(record), record)
    link = f"{node.paths.run_dir}/instance-disks/web1:3"
    actual = nodes.call(node, "blockdev_assemble", *args, True, 3)
    assert actual == ["/dev/noted", link, "uri:fake"]
    assert os.readlink(link) == "/dev/noted"
    assert steps.done == ["assemble", ("open", True)]
    steps.done.clear()
    actual = nodes.call(node, "blockdev_assemble", *args, False, 3)
    assert actual == ["/dev/noted", None, None]
    assert steps.done == ["assemble"]


@pytest.mark.parametrize("exclusive", [True, False])
def test_opened_disks_are_linked_in_their_order(node, record, steps, exclusive):
    given = [mirror(record), mirror(record)]
    nodes.call(node, "blockdev_open", "web1", given, exclusive)
    assert steps.done == [("open", exclusive)] * 2
    assert sorted(os.listdir(f"{node.paths.run_dir}/instance-disks")) == [
        "web1:0",
        "web1:1",
    ]


def test_a_text_is_kept_with_a_disk_that_exists(node, record, steps):
    nodes.call(node, "blockdev_setinfo", record["disks_info"][0], "of web1")
    assert steps.done == ["require", ("info", "of web1")]
