"""A real helper machine under QEMU zeroes the free space of a disk."""

import os
import shutil

import pytest

from fakes import guests, nodes
from fakes.guests import HALTS, MIB, ZEROES, image
from fakes.patience import until

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.skipif(
        not shutil.which("qemu-system-x86_64"), reason="needs an emulator"
    ),
]

USED = b"\xa5" * MIB


@pytest.fixture
def directory():
    with guests.short_directory() as path:
        yield path


@pytest.fixture
def node(directory):
    node = nodes.make_node(directory, "n1")
    with open(f"{node.paths.conf_dir}/image-sources", "w") as sources:
        sources.write("/\n")
    return node


@pytest.fixture
def record(node):
    """Return a stopped instance with a disk, used up to 1 MiB."""
    place = "/srv/ganeti/file-storage"
    with open(f"{node.paths.conf_dir}/file-storage-paths", "w") as allowed:
        allowed.write(f"{place}\n")
    path = f"{place}/web1/disk"
    os.makedirs(os.path.dirname(node.paths.at(path)))
    with open(node.paths.at(path), "wb") as disk:
        disk.write(USED * 16)
    disk = {
        "dev_type": "file",
        "logical_id": ["loop", path],
        "size": 16,
        "uuid": nodes.UUID.format(201),
        "serial_no": 1,
        "iv_name": "disk/0",
        "params": {},
        "children": [],
    }
    params = guests.kvm_params()
    return guests.kvm_instance("web1", params, disks_info=[disk])


def runs(node, record):
    return bool(nodes.call(node, "instance_info", "web1", "kvm", {}))


def content(node, record):
    path = record["disks_info"][0]["logical_id"][1]
    with open(node.paths.at(path), "rb") as disk:
        return disk.read()


@pytest.mark.sampled
@pytest.mark.timeout(300)
def test_a_helper_machine_works_on_the_disks_and_powers_itself_off(node, record):
    source = image(node.paths.root, ZEROES)
    assert nodes.call(node, "helper_image_add", record, source) == 1
    nodes.call(node, "helper_start", record, False, [])
    until("it has powered itself off", lambda: not runs(node, record))
    assert content(node, record) == USED + bytes(15 * MIB)
    nodes.call(node, "helper_end", record)
    assert os.listdir(f"{node.paths.data_dir}/helper-disks") == []
    assert os.listdir(f"{node.paths.run_dir}/helper-machines") == []


@pytest.mark.timeout(300)
def test_only_a_helper_machine_is_ended(node, record):
    source = image(node.paths.root, HALTS)
    nodes.call(node, "helper_image_add", record, source)
    nodes.call(node, "instance_start", record, False, [])
    with pytest.raises(Exception, match="wanted it to be stopped for a helper"):
        nodes.call(node, "helper_start", record, False, [])
    nodes.call(node, "helper_end", record)
    assert runs(node, record)
    nodes.call(node, "instance_shutdown", record, 0, [])
    nodes.call(node, "helper_image_add", record, source)
    nodes.call(node, "helper_start", record, False, [])
    assert runs(node, record)
    nodes.call(node, "helper_end", record)
    assert not runs(node, record)
    assert content(node, record) == USED * 16
