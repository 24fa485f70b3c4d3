"""A node below a temporary directory, and records as the master would send them."""

import os
from typing import Any

from ganeti.base import clock, pathutils, process
from ganeti.node import calls as backend
from ganeti.node import hypervisor
from ganeti.node.calls import guest_files
from ganeti.node.hypervisor import registry

UUID = "0c1d2e3f-4a5b-4c6d-8e7f-{:012d}"
STORAGE_DIR = "/srv/ganeti/file-storage"


class CountedClock(clock.SystemClock):
    """A clock that waiting moves on, and nothing else."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def wait(self, event: Any, timeout_s: float | None) -> bool:
        self.now += timeout_s or 0
        return event.is_set()


def make_node(
    directory: Any, name: str = "node1.example", *, time: clock.Clock | None = None
) -> backend.LocalNode:
    """Make an empty node with an allowed directory for disk files."""
    paths = pathutils.Paths(f"{directory}/{name}", name)
    for path in (paths.run_dir, paths.log_dir, paths.conf_dir, paths.at(STORAGE_DIR)):
        os.makedirs(path, exist_ok=True)
    with open(f"{paths.conf_dir}/file-storage-paths", "w", encoding="ascii") as out:
        out.write(f"# disks\n{STORAGE_DIR}\n")
    runner, ticking = process.SystemRunner(), time or clock.SystemClock()
    opener = guest_files.opener(paths, runner)
    effects = hypervisor.NodeEffects(paths, runner, ticking, opener)
    backend.load()
    return backend.LocalNode(paths, runner, ticking, registry.drivers(effects))


def call(node: backend.LocalNode, name: str, *args: Any) -> Any:
    """Call a procedure as the master does."""
    return backend.call(node, name, args)


def disk(index: int = 0, *, size: int = 4, instance: str = "web1", **more: Any) -> Any:
    """Return a disk in wire form."""
    uuid = UUID.format(index + 1)
    kind = more.get("dev_type", "file")
    path = f"{STORAGE_DIR}/{instance}/{uuid}.{kind}.disk{index}"
    return {
        "dev_type": kind,
        "logical_id": ["loop", path],
        "size": size,
        "uuid": uuid,
        "serial_no": 1,
        "iv_name": f"disk/{index}",
        "mode": "rw",
        "params": {},
        **more,
    }


def instance(name: str = "web1", *, disks: int = 0, **more: Any) -> dict[str, Any]:
    """Return an instance in wire form, for the fake hypervisor by default."""
    return {
        "name": name,
        "primary_node": UUID.format(100),
        "secondary_nodes": [],
        "os": "tiny+default",
        "hypervisor": "fake",
        "hvparams": {},
        "beparams": {"maxmem": 128, "minmem": 64, "vcpus": 1},
        "osparams": {},
        "admin_state": "up",
        "admin_state_source": "admin",
        "disks_active": True,
        "uuid": UUID.format(200),
        "serial_no": 1,
        "nics": [],
        "disks": [UUID.format(i + 1) for i in range(disks)],
        "disks_info": [disk(i, instance=name) for i in range(disks)],
        "tags": [],
        **more,
    }


def make_disks(node: backend.LocalNode, record: dict[str, Any]) -> None:
    """Create an instance's disks."""
    call(node, "file_storage_dir_create", f"{STORAGE_DIR}/{record['name']}")
    for item in record["disks_info"]:
        args = (item, item["size"], record["name"], True, "", False)
        call(node, "blockdev_create", *args)
