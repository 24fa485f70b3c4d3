"""Another node swaps a disk file, or its directory, for a link at every single step."""

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
