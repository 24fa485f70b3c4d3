"""Allocator requests about made-up clusters."""

import copy
import random
from typing import Any

_LEAST = {
    "memory-size": 128,
    "cpu-count": 1,
    "disk-size": 1024,
    "disk-count": 1,
    "nic-count": 1,
    "spindle-use": 1,
}
_MOST = {
    "memory-size": 32768,
    "cpu-count": 8,
    "disk-size": 1048576,
    "disk-count": 16,
    "nic-count": 8,
    "spindle-use": 12,
}
POLICY: dict[str, Any] = {
    "minmax": [{"min": _LEAST, "max": _MOST}],
    "std": _LEAST,
    "disk-templates": ["drbd", "plain", "sharedfile", "diskless"],
    "vcpu-ratio": 4.0,
    "spindle-ratio": 32.0,
}


def node(group: str = "g-0", **changes: Any) -> dict[str, Any]:
    """Return a live, empty node."""
    return {
        "group": group,
        "offline": False,
        "drained": False,
        "vm_capable": True,
        "tags": [],
        "ndparams": {"spindle_count": 10, "exclusive_storage": False},
        "total_memory": 16384,
        "reserved_memory": 1024,
        "free_memory": 15360,
        "total_disk": 200000,
        "free_disk": 200000,
        "total_spindles": 0,
        "free_spindles": 0,
        "total_cpus": 16,
        "reserved_cpus": 1,
    } | changes


def instance(template: str = "drbd", **changes: Any) -> dict[str, Any]:
    """Return what requests and clusters say of an instance."""
    has_disk = template != "diskless"
    extra = 128 if template == "drbd" else 0
    return {
        "disk_template": template,
        "memory": 1024,
        "vcpus": 1,
        "spindle_use": 1,
        "tags": [],
        "nics": [],
        "disks": [{"size": 4096, "mode": "rw"}] if has_disk else [],
        "disk_space_total": 4096 + extra if has_disk else 0,
    } | changes


def request(
    nodes: dict[str, Any],
    asked: dict[str, Any],
    instances: dict[str, Any] | None = None,
    groups: int = 1,
) -> dict[str, Any]:
    """Return a complete request; free means are lowered by what is there."""
    out: dict[str, Any] = {
        "cluster_tags": [],
        "enabled_hypervisors": ["xen-pvm"],
        "ipolicy": copy.deepcopy(POLICY),
        "nodegroups": {
            f"g-{n}": {
                "name": f"group{n}",
                "alloc_policy": "preferred",
                "networks": [],
                "tags": [],
                "ipolicy": copy.deepcopy(POLICY),
            }
            for n in range(groups)
        },
        "nodes": copy.deepcopy(nodes),
        "instances": copy.deepcopy(instances or {}),
        "request": asked,
    }
    for item in out["instances"].values():
        for place, name in enumerate(item["nodes"]):
            host = out["nodes"][name]
            if place == 0 and "free_memory" in host:
                host["free_memory"] -= item["memory"]
            if item["disk_template"] in ("drbd", "plain") and "free_disk" in host:
                host["free_disk"] -= item["disk_space_total"]
    return out


def allocation(
    template: str = "drbd", name: str = "new", **more: Any
) -> dict[str, Any]:
    """Return the request for one new instance."""
    count = 2 if template == "drbd" else 1
    return {
        "type": "allocate",
        "name": name,
        "required_nodes": count,
        **instance(template),
    } | more


def some_cluster(seed: int, template: str = "drbd") -> dict[str, Any]:
    """Return a request for one instance on a random cluster."""
    dice = random.Random(seed)
    nodes = {f"n{k}": node() for k in range(dice.randint(3, 7))}
    names = list(nodes)
    there = {}
    for k in range(dice.randint(0, 25)):
        kind = dice.choice(["drbd", "plain", "sharedfile"])
        pair = dice.sample(names, 2 if kind == "drbd" else 1)
        memory = dice.choice([512, 1024, 2048])
        there[f"i{k}"] = instance(kind, nodes=pair, memory=memory)
    return request(nodes, allocation(template), there)
