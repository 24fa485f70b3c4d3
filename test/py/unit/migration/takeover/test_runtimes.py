"""Runtime files that Debian's Ganeti 3.0.2 wrote."""

import json
import os

import pytest

from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.migration.takeover import node as runtimes
from ganeti.node.hypervisor.kvm import runtime
from ganeti.node.hypervisor.kvm.files import Files

NAME = "web1.vc.test"
#: As Debian's 3.0.2 writes it, with fewer parameters.
DEBIAN = [
    ["/usr/bin/kvm", "-name", NAME, "-m", 96, "-smp", "1", "-daemonize", "-usb"],
    [
        {
            "mac": "aa:00:00:6d:f5:82",
            "nicparams": {"link": "br0", "mode": "bridged", "vlan": ""},
            "hvinfo": {
                "driver": "virtio-net-pci",
                "id": "nic-a312c776-2bcd-413d",
                "bus": "pci.0",
                "addr": "0xd",
            },
            "uuid": "a312c776-2bcd-413d-a76d-e24f09f58d40",
        }
    ],
    {"acpi": True, "disk_discard": "default", "vhost_net": False},
    [
        [
            {
                "dev_type": "file",
                "logical_id": ["loop", "/srv/ganeti/file-storage/web1/disk0"],
                "children": [],
                "nodes": ["f5889693-f9bf-4702-974f-def346e349ce"],
                "iv_name": "disk/0",
                "size": 8,
                "mode": "rw",
                "params": {},
                "hvinfo": {
                    "driver": "virtio-blk-pci",
                    "id": "disk-05e0ab35-3c16-451a",
                    "bus": "pci.0",
                    "addr": "0xc",
                },
                "serial_no": 1,
                "uuid": "05e0ab35-3c16-451a-b684-1bcd902a383b",
                "ctime": 1795416589.3,
                "mtime": 1795416589.3,
            },
            "/var/run/ganeti/instance-disks/web1.vc.test:0",
            None,
        ]
    ],
]


@pytest.fixture
def paths():
    # The paths of sockets must be short.
    return Paths(root="/tmp/node1", hostname="node1")


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Paths of a node with one runtime file, and the directory of originals."""
    monkeypatch.chdir(tmp_path)
    made = Paths(root="node1", hostname="node1")
    os.makedirs(runtimes.runtime_directory(made))
    with open(runtimes.runtime_path(made, NAME), "w") as stream:
        json.dump(DEBIAN, stream)
    return made


def text():
    return json.dumps(DEBIAN).encode()


def test_a_file_of_debian_becomes_ours(paths) -> None:
    with pytest.raises(errors.HypervisorError):
        runtime.parse(NAME, text())
    plan = runtime.parse(NAME, runtimes.convert_runtime(paths, NAME, text()))
    assert plan.argv[:5] == ("/usr/bin/kvm", "-name", NAME, "-m", "96")
    sockets = [
        f"unix:{Files(paths, NAME).control(kind)},server=on,wait=off"
        for kind in ("qmp", "kvmd")
    ]
    assert plan.argv[-4:] == ("-qmp", sockets[0], "-qmp", sockets[1])
    assert plan.hvparams == {"acpi": True, "disk_discard": "ignore", "vhost_net": False}
    assert (
        plan.find_disk("05e0ab35-3c16-451a-b684-1bcd902a383b").hvinfo["addr"] == "0xc"
    )
    assert [info["id"] for info in plan.hvinfos()] == [
        "disk-05e0ab35-3c16-451a",
        "nic-a312c776-2bcd-413d",
    ]


def test_a_converted_file_stays(paths) -> None:
    once = runtimes.convert_runtime(paths, NAME, text())
    assert runtimes.convert_runtime(paths, NAME, once) == once


@pytest.mark.parametrize(
    "damaged", [b"", b"{", b"[]", b"7", b'[["a"], [], 5, []]', b"[[], [7], {}, []]"]
)
def test_damage_is_named(paths, damaged) -> None:
    with pytest.raises(
        errors.HypervisorError, match=r"instance web1\.vc\.test: runtime"
    ):
        runtimes.convert_runtime(paths, NAME, damaged)


def test_files_come_back_unless_the_guest_was_started_since(node) -> None:
    path = runtimes.runtime_path(node, NAME)
    for _ in range(2):  # again after an interruption
        assert runtimes.convert_runtimes(node, "kept") == [NAME]
    with open(path, "rb") as stream:
        converted = stream.read()
    assert runtime.parse(NAME, converted)
    assert runtimes.restore_runtimes(node, "kept") == [NAME]
    with open(path, "rb") as stream:
        assert json.loads(stream.read()) == DEBIAN
    with open(path, "wb") as stream:
        stream.write(converted.replace(b'"96"', b'"128"'))
    assert runtimes.restore_runtimes(node, "kept") == []
    os.unlink(path)
    assert runtimes.restore_runtimes(node, "kept") == []


def test_a_node_without_guests_has_nothing_to_convert(tmp_path) -> None:
    empty = Paths(root=str(tmp_path / "node1"), hostname="node1")
    assert runtimes.convert_runtimes(empty, str(tmp_path / "kept")) == []
    assert runtimes.restore_runtimes(empty, str(tmp_path / "kept")) == []
