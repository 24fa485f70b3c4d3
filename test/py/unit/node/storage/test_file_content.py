"""Disks in files: copies of parts, and growth by nothing."""

import msgspec
import pytest

from fakes import nodes
from ganeti.base import errors
from ganeti.model.objects.filled import DiskX
from ganeti.node import storage

MIB = 1024 * 1024


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
