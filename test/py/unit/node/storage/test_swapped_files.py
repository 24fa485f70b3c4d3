"""Disks in files: copies of parts, growth, and links put there at any single step."""

import contextlib
import os

import msgspec
import pytest

from fakes import nodes
from ganeti.base import errors
from ganeti.model.objects.filled import DiskX
from ganeti.node import storage
from ganeti.node.storage import allowed, files

MIB = 1024 * 1024
SECRET = b"secret" * 100_000
#: Everything with which a driver could reach a file.
CALLS = (
    *("open", "lstat", "stat", "unlink", "link", "rename", "truncate", "rmdir"),
    *("mkdir", "ftruncate", "fstat"),
)


@pytest.fixture
def node(tmp_path):
    return nodes.make_node(tmp_path)


def device(node, name="web1/disk0"):
    path = f"{nodes.STORAGE_DIR}/{name}"
    wire = nodes.disk(logical_id=["loop", path], size=1)
    return storage.device(node.paths, msgspec.convert(wire, DiskX), node.process)


class Machine:
    """The files of one attempt: the storage, and what is none of its business."""

    def __init__(self, node, top):
        self.top = node.paths.at(f"{nodes.STORAGE_DIR}")
        self.outside = top
        os.makedirs(f"{self.outside}/disk0.d")
        for name in ("disk0", "new"):
            with open(f"{self.outside}/{name}", "wb") as out:
                out.write(SECRET)
        os.makedirs(f"{self.top}/web1", exist_ok=True)

    def swap_file(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.top}/web1/disk0")
        os.symlink(f"{self.outside}/disk0", f"{self.top}/web1/disk0")

    def swap_directory(self):
        os.rename(f"{self.top}/web1", f"{self.top}/moved")
        os.symlink(self.outside, f"{self.top}/web1")

    def seen(self):
        listed = sorted(os.listdir(self.outside))
        texts = []
        for name in ("disk0", "new"):
            with open(f"{self.outside}/{name}", "rb") as src:
                texts.append(src.read() == SECRET)
        return listed, texts


def copied(node):
    """Copy the disk to another one, which must never get what is outside."""
    target = device(node, "copy")
    target.create(1)
    target.fill_from(device(node), MIB)
    with open(target.path, "rb") as src:
        assert SECRET[:6] not in src.read()


OPERATIONS = {
    "create": lambda node: device(node, "web1/fresh").create(1),
    "remove": lambda node: device(node).remove(),
    "grow": lambda node: device(node).grow(1, dryrun=False, backingstore=True),
    "rename": lambda node: device(node).rename(
        ("loop", f"{nodes.STORAGE_DIR}/web1/renamed")
    ),
    "wipe": lambda node: device(node).wipe(0, 1),
    "size": lambda node: device(node).size_bytes(),
    "make a directory": lambda node: files.make_directory(
        node.paths, f"{nodes.STORAGE_DIR}/web1/below"
    ),
    "remove a directory": lambda node: files.remove_directory(
        node.paths, f"{nodes.STORAGE_DIR}/web1/disk0.d"
    ),
    "rename a directory": lambda node: files.rename_directory(
        node.paths, f"{nodes.STORAGE_DIR}/web1/disk0.d", f"{nodes.STORAGE_DIR}/web1/x"
    ),
    "copy": copied,
}


def attempt(node, machine, operation, swap, number):
    """Do an operation, with a swap before its n-th call; return whether it made it."""
    calls = []

    def hooked(really):
        def call(*args, **options):
            calls.append(args)
            if len(calls) == number:
                with pytest.MonkeyPatch.context() as plain:
                    for name, function in originals.items():
                        plain.setattr(os, name, function)
                    swap()
            return really(*args, **options)

        return call

    originals = {name: getattr(os, name) for name in CALLS}
    before = machine.seen()
    with pytest.MonkeyPatch.context() as patch:
        for name, function in originals.items():
            patch.setattr(os, name, hooked(function))
        with contextlib.suppress(errors.GenericError):
            OPERATIONS[operation](node)
    assert machine.seen() == before, (operation, number)
    return len(calls) >= number


@pytest.mark.parametrize("what", ["swap_file", "swap_directory"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_nothing_outside_is_read_or_changed_whenever_it_is_swapped(
    tmp_path, operation, what
):
    for number in range(1, 200):
        node = nodes.make_node(tmp_path / f"{number}")
        machine = Machine(node, str(tmp_path / f"{number}" / "outside"))
        device(node).create(1)
        os.makedirs(f"{machine.top}/web1/disk0.d")
        swap = getattr(machine, what)
        if not attempt(node, machine, operation, swap, number):
            break
    assert 2 < number < 199


def test_two_disks_are_compared_by_what_was_opened(node):
    """A copy keeps the file that it has opened, whatever has its name later."""
    machine = Machine(node, os.path.dirname(node.paths.root) + "/outside")
    device(node).create(1)
    with device(node).opened(os.O_RDWR) as fd:
        machine.swap_file()
        os.pwrite(fd, b"x", 0)
    assert machine.seen()[1] == [True, True]
    with (
        pytest.raises(errors.FileStoragePathError, match="symbolic link"),
        device(node).opened(os.O_RDWR),
    ):
        pass


def test_a_directory_behind_a_link_that_stays_inside_is_not_usable(node):
    top = node.paths.at(nodes.STORAGE_DIR)
    os.makedirs(f"{top}/real")
    os.symlink("real", f"{top}/link")
    assert allowed.check_usable(node.paths, f"{nodes.STORAGE_DIR}/real") is None
    problem = allowed.check_usable(node.paths, f"{nodes.STORAGE_DIR}/link")
    assert f"link is a symbolic link; below {top} none is followed" in problem
    missing = allowed.check_usable(node.paths, f"{nodes.STORAGE_DIR}/none")
    assert "found none" in missing


def test_a_list_of_directories_that_is_no_text_is_named_with_its_line(node):
    path = allowed.list_file(node.paths)
    with open(path, "wb") as out:
        out.write(b"# directories\n\n/srv/\xe4\n")
    text = f"{path}, line 3: wanted UTF-8, found 0xe4"
    with pytest.raises(errors.FileStoragePathError) as caught:
        allowed.load(node.paths)
    assert str(caught.value) == text
    assert allowed.check_usable(node.paths, nodes.STORAGE_DIR) == text


# Disks in files: copies of parts, and growth by nothing.


@pytest.fixture
def disk(tmp_path):
    """Return a disk of 4 MiB in a file."""
    node = nodes.make_node(tmp_path)
    path = f"{nodes.STORAGE_DIR}/disk0"
    wire = nodes.disk(logical_id=["loop", path], size=4)
    made = storage.device(node.paths, msgspec.convert(wire, DiskX), node.process)
    made.create(4)
    return made


def content(disk):
    with open(disk.path, "rb") as stream:
        return stream.read()


def test_a_part_is_copied_to_its_own_place(disk, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"".join(bytes([number]) * MIB for number in (1, 2, 3, 4)))
    disk.copy_part(str(source), 1, 2)
    assert content(disk) == bytes(MIB) + b"\2" * MIB + b"\3" * MIB + bytes(MIB)
    with pytest.raises(errors.BlockDeviceError, match="cannot copy 2 MiB at 3 MiB"):
        disk.copy_part(str(source), 3, 2)
    with pytest.raises(errors.BlockDeviceError, match="No such file"):
        disk.copy_part(f"{source}.gone", 0, 1)


def test_growth_by_nothing_changes_nothing(disk):
    disk.grow(0, dryrun=False, backingstore=True)
    assert disk.size_bytes() == 4 * MIB
    with pytest.raises(errors.BlockDeviceError, match="cannot grow by -1 MiB"):
        disk.grow(-1, dryrun=False, backingstore=True)
    disk.grow(1, dryrun=True, backingstore=True)
    disk.grow(1, dryrun=False, backingstore=False)
    assert disk.size_bytes() == 4 * MIB
    disk.grow(1, dryrun=False, backingstore=True)
    assert disk.size_bytes() == 5 * MIB
