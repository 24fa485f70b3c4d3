"""Answers of a master about a cluster of the placement tools.

Turns the values of ``ganeti.decisions.htools.model.cluster`` back into REST objects and LUXI tables.
"""

import json
import pathlib
from typing import Any

from ganeti.decisions.htools.model import query
from ganeti.decisions.htools.model.cluster import Cluster
from ganeti.decisions.htools.model.policy import Policy, Spec


def _spec(spec: Spec) -> dict[str, int]:
    return {
        "memory-size": spec.memory,
        "cpu-count": spec.cpus,
        "disk-size": spec.disk,
        "disk-count": spec.disks,
        "nic-count": spec.nics,
        "spindle-use": spec.spindles,
    }


def _policy(policy: Policy) -> dict[str, Any]:
    return {
        "std": _spec(policy.std),
        "minmax": [{"min": _spec(a), "max": _spec(b)} for a, b in policy.ranges],
        "disk-templates": list(policy.templates),
        "vcpu-ratio": policy.vcpu_ratio,
        "spindle-ratio": policy.spindle_ratio,
    }


def info(cluster: Cluster) -> dict[str, Any]:
    """Answer of /2/info and QueryClusterInfo, as far as the tools read it."""
    masters = [node.name for node in cluster.nodes if node.master]
    return {
        "name": "cluster.test",
        "tags": list(cluster.tags),
        "ipolicy": _policy(cluster.policy),
        "master": masters[0] if masters else "",
        "default_hypervisor": "xen-pvm",
    }


def groups(cluster: Cluster) -> list[dict[str, Any]]:
    """Node groups as REST has them."""
    return [
        {
            "uuid": group.uuid,
            "name": group.name,
            "alloc_policy": group.alloc_policy.value,
            "ipolicy": _policy(group.policy),
            "tags": list(group.tags),
        }
        for group in cluster.groups
    ]


def nodes(cluster: Cluster) -> list[dict[str, Any]]:
    """Nodes as REST has them."""
    return [
        {
            "name": node.name,
            "offline": node.offline,
            "drained": False,
            "vm_capable": True,
            "mtotal": int(node.total_memory),
            "mnode": node.node_memory,
            "mfree": node.free_memory,
            "dtotal": int(node.total_disk),
            "dfree": node.free_disk,
            "ctotal": int(node.cpus),
            "cnos": node.node_cpus,
            "sptotal": node.spindles,
            "spfree": node.free_spindles,
            "group.uuid": cluster.groups[node.group].uuid,
            "tags": list(node.tags),
            "ndparams": {
                "spindle_count": node.spindles,
                "exclusive_storage": node.exclusive,
            },
        }
        for node in cluster.nodes
    ]


def instances(cluster: Cluster) -> list[dict[str, Any]]:
    """Instances as REST has them."""
    names = [node.name for node in cluster.nodes]
    return [
        {
            "name": inst.name,
            "disk_usage": inst.disk,
            "disk.sizes": [inst.disk],
            "disk.spindles": [inst.spindles],
            "status": inst.status,
            "pnode": names[inst.primary],
            "snodes": [names[inst.secondary]] if inst.secondary >= 0 else [],
            "tags": list(inst.tags),
            "disk_template": inst.template,
            "oper_ram": inst.memory if inst.running else None,
            "forthcoming": inst.forthcoming,
            "beparams": {
                "memory": inst.memory,
                "maxmem": inst.memory,
                "vcpus": inst.vcpus,
                "auto_balance": inst.auto_balance,
                "spindle_use": inst.spindle_use,
            },
        }
        for inst in cluster.instances
    ]


def rest(cluster: Cluster) -> dict[str, Any]:
    """All REST answers by the names of their files."""
    return {
        "groups": groups(cluster),
        "nodes": nodes(cluster),
        "instances": instances(cluster),
        "info": info(cluster),
    }


def write(cluster: Cluster, directory: pathlib.Path) -> str:
    """Write the files of ``file://`` back ends; return the address."""
    for name, content in rest(cluster).items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    return f"file://{directory}"


def table(cluster: Cluster, kind: str, fields: list[str]) -> dict[str, Any]:
    """Answer a LUXI query; fields without a value get status 2."""
    actual = rest(cluster)
    answers = query.from_rest(
        "", actual["groups"], actual["nodes"], actual["instances"], info=actual["info"]
    )
    rows = getattr(answers, f"{kind}s")
    return {
        "data": [
            [[0, row[f]] if row.get(f) is not None else [2, None] for f in fields]
            for row in rows
        ]
    }
