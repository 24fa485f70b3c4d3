"""Made-up clusters from a seed, as text files and as allocator requests.

For benches and for comparing placement programs: both forms of a cluster come from the
same rows, and nothing of the placement library is used.
"""

import dataclasses
import random
from typing import Any

TEMPLATES = ("drbd", "plain", "sharedfile")
LOCAL = frozenset({"drbd", "plain"})
#: Space that DRBD uses on each disk in addition to its data, in MiB.
_META = 128
_SPEC_KEYS = (
    "memory-size",
    "cpu-count",
    "disk-size",
    "disk-count",
    "nic-count",
    "spindle-use",
)
_STATES = {"running": "up", "ADMIN_down": "down", "ADMIN_offline": "offline"}
#: Cluster tags that give meaning to the tags of nodes and instances.
_RULES = {
    "exclusion": ("htools:iextags:svc",),
    "migration": ("htools:migration:hv", "htools:allowmigration:hv:1::hv:2"),
    "location": ("htools:nlocation:rack", "htools:desiredlocation:rack"),
}


@dataclasses.dataclass(frozen=True)
class Shape:
    """Properties of a generated cluster.

    Attributes:
        nodes, per_node: how many nodes; instances per node.
        template: of all instances, or ``mixed``.
        groups: node groups, the nodes go around.
        offline: nodes that are off.
        mixed: nodes of different sizes.
        odd: sizes that no one would choose.
        tags: exclusion, migration or location; empty for none.
        tight: a policy with little room.
        forthcoming: part of the instances that is still to come.
        exclusive: nodes with exclusive storage.
        level: instances are spread evenly.
    """

    nodes: int
    per_node: float = 10
    template: str = "drbd"
    groups: int = 1
    offline: int = 0
    mixed: bool = False
    odd: bool = False
    tags: str = ""
    tight: bool = False
    forthcoming: float = 0.0
    exclusive: bool = False
    level: bool = False

    def __str__(self) -> str:
        words = [f"{self.nodes} nodes", self.template]
        for field in dataclasses.fields(self)[3:]:
            value = getattr(self, field.name)
            if value != field.default:
                words.append(field.name if value is True else f"{field.name} {value}")
        return " ".join(words)


@dataclasses.dataclass
class Made:
    """A cluster as rows of plain values; nodes of instances are names."""

    groups: list[dict[str, Any]]
    nodes: dict[str, dict[str, Any]]
    instances: dict[str, dict[str, Any]]
    tags: list[str]

    def text(self) -> str:
        """Return the text form."""
        parts = (
            [_group_line(group) for group in self.groups],
            [_node_line(name, node) for name, node in self.nodes.items()],
            [_instance_line(name, inst) for name, inst in self.instances.items()],
            self.tags,
            [
                _policy_line("", self.groups[0]["policy"]),
                *(_policy_line(g["name"], g["policy"]) for g in self.groups),
            ],
        )
        return "\n".join("".join(f"{line}\n" for line in part) for part in parts)

    def request(
        self, asked: dict[str, Any], hypervisor: str = "xen-pvm"
    ) -> dict[str, Any]:
        """Return an allocator's whole input."""
        return {
            "version": 2,
            "cluster_name": "bench.test",
            "cluster_tags": self.tags,
            "enabled_hypervisors": [hypervisor],
            "ipolicy": _policy(self.groups[0]["policy"]),
            "nodegroups": {g["uuid"]: _group_object(g) for g in self.groups},
            "nodes": {name: _node_object(node) for name, node in self.nodes.items()},
            "instances": {
                name: _instance_object(inst) for name, inst in self.instances.items()
            },
            "request": asked,
        }

    def add(self, name: str, instance: dict[str, Any]) -> None:
        """Put an instance on its nodes; what they have free becomes less."""
        self.instances[name] = instance
        for place, host in enumerate(instance["nodes"]):
            node = self.nodes[host]
            if place == 0 and instance["status"] == "running":
                node["free_memory"] -= (
                    0 if instance["forthcoming"] else instance["memory"]
                )
            if instance["template"] in LOCAL and not instance["forthcoming"]:
                node["free_disk"] -= instance["disk"]
                node["free_spindles"] -= instance["spindles"] or 0


def instance(template: str, nodes: list[str], **changes: Any) -> dict[str, Any]:
    """Return the row of a running instance of middling size."""
    return {
        "memory": 1024,
        "disk": 10240,
        "vcpus": 1,
        "status": "running",
        "auto_balance": True,
        "nodes": nodes,
        "template": template,
        "tags": [],
        "spindle_use": 1,
        "spindles": None,
        "forthcoming": False,
    } | changes


def allocation(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return the request for a new instance like a row."""
    return {
        "type": "allocate",
        "name": name,
        "required_nodes": 2 if row["template"] == "drbd" else 1,
        "nics": [],
        "os": "tiny",
        "hypervisor": "xen-pvm",
        **{
            key: value
            for key, value in _instance_object(row).items()
            if key not in {"nodes", "admin_state", "forthcoming"}
        },
    }


def make(shape: Shape, seed: int) -> Made:
    """Make the cluster that a shape and a seed determine."""
    dice = random.Random(f"{shape} {seed}")
    made = Made(
        groups=[_a_group(shape, n) for n in range(shape.groups)],
        nodes={
            f"node{n:04d}.bench.test": _a_node(shape, n, dice)
            for n in range(shape.nodes)
        },
        instances={},
        tags=list(_RULES.get(shape.tags, ())),
    )
    for number in range(int(shape.nodes * shape.per_node)):
        row = _an_instance(shape, number, made, dice)
        made.add(f"inst{number:05d}.bench.test", row)
    return made


def _a_group(shape: Shape, number: int) -> dict[str, Any]:
    least = (128, 1, 512, 1, 0, 1)
    policy = {
        "std": (512, 1, 10240, 1, 1, 1),
        "ranges": [(least, (32768, 8, 1048576, 16, 8, 12))],
        "templates": ("diskless", *TEMPLATES),
        "vcpu_ratio": 16.0,
        "spindle_ratio": 128.0,
    }
    if shape.tight:
        middle = (1024, 2, 20480, 1, 1, 2)
        policy["ranges"] = [(least, middle), (middle, (4096, 4, 204800, 4, 2, 4))]
        policy["vcpu_ratio"] = 2.0
        policy["spindle_ratio"] = 8.0
    return {
        "name": f"group{number}",
        "uuid": f"aaaaaaaa-0000-4000-8000-{number:012d}",
        "alloc_policy": "last_resort" if number == 2 else "preferred",
        "policy": policy,
    }


def _a_node(shape: Shape, number: int, dice: random.Random) -> dict[str, Any]:
    memory, disk = 65536, 2097152
    if shape.mixed:
        memory, disk = dice.choice((65536, 98304)), dice.choice((2097152, 4194304))
    if shape.odd:
        memory, disk = dice.randrange(48000, 99000), dice.randrange(900000, 3000000)
    tags = []
    if shape.tags == "migration":
        tags = [dice.choice(("hv:1", "hv:2"))]
    elif shape.tags == "location":
        tags = [f"rack:{number % 4}"]
    spindles = 48 if shape.exclusive else 4
    return {
        "memory": memory,
        "own_memory": 1024,
        "free_memory": memory - 1024,
        "disk": disk,
        "free_disk": disk,
        "cpus": dice.choice((8, 12, 24)) if shape.odd else 16,
        "offline": number >= shape.nodes - shape.offline,
        "master": number == 0,
        "group": number % shape.groups,
        "spindles": spindles,
        "free_spindles": spindles if shape.exclusive else 0,
        "tags": tags,
        "exclusive": shape.exclusive,
    }


def _an_instance(
    shape: Shape, number: int, made: Made, dice: random.Random
) -> dict[str, Any]:
    template = dice.choice(TEMPLATES) if shape.template == "mixed" else shape.template
    names = list(made.nodes)
    first = dice.randrange(len(names))
    if not shape.level and dice.random() < 0.5:
        first = min(first, dice.randrange(len(names)))
    group = made.nodes[names[first]]["group"]
    peers = [n for n in range(group, len(names), shape.groups) if n != first]
    hosts = [names[first]]
    if template == "drbd" and peers:
        hosts.append(names[dice.choice(peers)])
    elif template == "drbd":
        template = "plain"
    spindles = 1 if shape.exclusive and template in LOCAL else None
    sizes, tags = _sizes(shape, dice), _tags(shape, dice)
    return instance(template, hosts, **sizes, tags=tags, spindles=spindles)


def _sizes(shape: Shape, dice: random.Random) -> dict[str, Any]:
    fits = [s for s in (512, 1024, 2048, 4096) if s * shape.per_node <= 24576] or [512]
    memory, disk = dice.choice(fits), dice.choice((5120, 10240, 20480))
    if shape.odd:
        memory = dice.randrange(128, fits[-1] + 100)
        disk = dice.randrange(512, 29000)
    status = dice.choices(tuple(_STATES), (18, 1, 1 if shape.odd else 0))[0]
    return {
        "memory": memory,
        "disk": disk,
        "vcpus": dice.choice((1, 1, 2)),
        "status": status,
        "auto_balance": not shape.odd or dice.random() < 0.9,
        "spindle_use": dice.choice((1, 2)) if shape.tight else 1,
        "forthcoming": dice.random() < shape.forthcoming,
    }


def _tags(shape: Shape, dice: random.Random) -> list[str]:
    if shape.tags == "exclusion" and dice.random() < 0.5:
        return [f"svc:{dice.randrange(max(2, int(shape.nodes * shape.per_node) // 6))}"]
    if shape.tags == "location" and dice.random() < 0.5:
        return [f"rack:{dice.randrange(4)}"]
    return []


def _yes(value: bool) -> str:
    return "Y" if value else "N"


def _line(*cells: Any) -> str:
    return "|".join(str(cell) for cell in cells)


def _group_line(group: dict[str, Any]) -> str:
    return _line(group["name"], group["uuid"], group["alloc_policy"], "", "")


def _node_line(name: str, node: dict[str, Any]) -> str:
    return _line(
        name,
        node["memory"],
        node["own_memory"],
        max(0, node["free_memory"]),
        node["disk"],
        max(0, node["free_disk"]),
        node["cpus"],
        "Y" if node["offline"] else "M" if node["master"] else "N",
        f"aaaaaaaa-0000-4000-8000-{node['group']:012d}",
        node["spindles"],
        ",".join(node["tags"]),
        _yes(node["exclusive"]),
        max(0, node["free_spindles"]),
        1,
        "1.0",
    )


def _instance_line(name: str, inst: dict[str, Any]) -> str:
    return _line(
        name,
        inst["memory"],
        inst["disk"],
        inst["vcpus"],
        inst["status"],
        _yes(inst["auto_balance"]),
        inst["nodes"][0],
        "".join(inst["nodes"][1:]),
        inst["template"],
        ",".join(inst["tags"]),
        inst["spindle_use"],
        "-" if inst["spindles"] is None else inst["spindles"],
        _yes(inst["forthcoming"]),
    )


def _policy_line(owner: str, policy: dict[str, Any]) -> str:
    bounds = [_line_of(spec) for pair in policy["ranges"] for spec in pair]
    return _line(
        owner,
        _line_of(policy["std"]),
        ";".join(bounds),
        ",".join(policy["templates"]),
        policy["vcpu_ratio"],
        policy["spindle_ratio"],
    )


def _line_of(spec: tuple[int, ...]) -> str:
    return ",".join(str(value) for value in spec)


def _spec(values: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(_SPEC_KEYS, values, strict=True))


def _policy(policy: dict[str, Any]) -> dict[str, Any]:
    return {
        "minmax": [
            {"min": _spec(low), "max": _spec(high)} for low, high in policy["ranges"]
        ],
        "std": _spec(policy["std"]),
        "disk-templates": list(policy["templates"]),
        "vcpu-ratio": policy["vcpu_ratio"],
        "spindle-ratio": policy["spindle_ratio"],
    }


def _group_object(group: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": group["name"],
        "alloc_policy": group["alloc_policy"],
        "networks": [],
        "tags": [],
        "ipolicy": _policy(group["policy"]),
    }


def _node_object(node: dict[str, Any]) -> dict[str, Any]:
    live = {
        "total_memory": node["memory"],
        "reserved_memory": node["own_memory"],
        "free_memory": max(0, node["free_memory"]),
        "total_disk": node["disk"],
        "free_disk": max(0, node["free_disk"]),
        "total_spindles": node["spindles"] if node["exclusive"] else 0,
        "free_spindles": max(0, node["free_spindles"]),
        "total_cpus": node["cpus"],
        "reserved_cpus": 1,
        "i_pri_memory": 0,
        "i_pri_up_memory": 0,
    }
    return {
        "group": f"aaaaaaaa-0000-4000-8000-{node['group']:012d}",
        "offline": node["offline"],
        "drained": False,
        "vm_capable": True,
        "tags": node["tags"],
        "ndparams": {
            "spindle_count": node["spindles"],
            "exclusive_storage": node["exclusive"],
        },
        **({} if node["offline"] else live),
    }


def _instance_object(inst: dict[str, Any]) -> dict[str, Any]:
    extra = _META if inst["template"] == "drbd" else 0
    disk = {"size": inst["disk"] - extra, "mode": "rw", "spindles": inst["spindles"]}
    return {
        "nodes": inst["nodes"],
        "admin_state": _STATES[inst["status"]],
        "memory": inst["memory"],
        "vcpus": inst["vcpus"],
        "tags": inst["tags"],
        "spindle_use": inst["spindle_use"],
        "disk_template": inst["template"],
        "disks": [disk],
        "disk_space_total": inst["disk"],
        "nics": [],
        "forthcoming": inst["forthcoming"],
    }
