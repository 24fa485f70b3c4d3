"""Command lines of placement programs on made-up clusters, from a seed.

A case is small, so that hundreds of them go through two implementations quickly.
"""

import dataclasses
import json
import random
from collections.abc import Mapping
from typing import Any

from fakes import made_clusters
from fakes.made_clusters import Made, Shape

TOOLS = ("hail", "hbal", "hspace", "hcheck", "hinfo", "hroller", "hsqueeze")
MODES = (
    "allocate",
    "multi-allocate",
    "relocate",
    "node-evacuate",
    "change-group",
    "allocate-secondary",
)
_TEMPLATES = (*made_clusters.TEMPLATES, "mixed")


@dataclasses.dataclass(frozen=True)
class Case:
    """Request to one program.

    Attributes:
        tool: name of the program.
        seed: it came from.
        words: of the command line; files stand in the current directory.
        files: content by name.
        shape: of the cluster, for reports.
        is_spoilt: whether the input may be wrong.
    """

    tool: str
    seed: int
    words: tuple[str, ...]
    files: Mapping[str, str]
    shape: Shape
    is_spoilt: bool = False


def case(tool: str, seed: int) -> Case:
    """Make a case; the same one for the same seed."""
    dice = random.Random(f"{tool} {seed}")
    shape = some_shape(dice, tool)
    made = made_clusters.make(shape, seed)
    if tool == "hail":
        asked = some_request(dice, made)
        data = made.request(asked, dice.choice(("xen-pvm", "xen-pvm", "kvm")))
        words = (*_some(dice, _HAIL), "request")
        return Case(tool, seed, words, {"request": json.dumps(data)}, shape)
    files = {"cluster": made.text()}
    words = ["-t", "cluster"]
    if tool in {"hbal", "hcheck"}:
        words += _balancing(dice, made, files)
    if tool in {"hbal", "hroller"} and shape.groups > 1:
        words += ["-G", f"group{dice.randrange(shape.groups)}"]
    if tool == "hspace":
        words += _capacity(dice, shape)
    elif tool != "hcheck":
        words += _some(dice, _TABLES[tool])
    words += _some(dice, _WORDS[tool])
    if tool in {"hbal", "hspace", "hinfo"} and dice.random() < 0.2:
        for node in dice.sample(range(shape.nodes), dice.randint(1, 3)):
            words += ["-O", f"node{node:04d}"]
    return Case(tool, seed, tuple(words), files, shape)


_ALL_FIELDS = (
    "--print-nodes=idx,fqdn,status,amem,plist,slist,ptags,spindle_count"
    ",hi_spindles,inst_spindles,nosuch"
)
_HAIL = (
    ("-p",),
    (_ALL_FIELDS,),
    ("--no-capacity-checks",),
    ("--ignore-soft-errors",),
    ("--static-kvm-node-memory=0",),
)
_TABLES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "hbal": (("-p",), (_ALL_FIELDS,), ("--print-instances",), ("-C",), ("-v", "-v")),
    "hinfo": (("-p",), (_ALL_FIELDS,), ("--print-instances",), ("-v", "-v")),
    "hroller": (("--print-moves",), ("-v",), ("--no-headers",)),
    "hsqueeze": (("-v",), ("-C",), ("--no-headers",)),
}
_WORDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "hbal": (
        ("-l", "3"),
        ("-q",),
        ("--first-job-group",),
        ("--restricted-migration",),
        ("-p", "--print-nodes=+idx"),
    ),
    "hspace": (
        ("-l", "5"),
        ("--accept-existing-errors",),
        ("--independent-groups",),
        ("--no-capacity-checks",),
        ("--spindle-use=2",),
        ("--max-cpu=4",),
        ("--min-disk=0.2",),
        ("-v",),
        ("-p",),
    ),
    "hcheck": (("--no-simulation",), ("--no-capacity-checks",), ("-v",), ("-q",)),
    "hinfo": (("--ignore-dynu",),),
    "hroller": (
        ("--offline-maintenance",),
        ("--full-evacuation",),
        ("--skip-non-redundant",),
        ("--ignore-non-redundant",),
        ("--one-step-only",),
        ("--node-tags=hv:1,rack:1",),
    ),
    "hsqueeze": (("--minimal-resources=1.5",), ("--target-resources=3",)),
}


def _some(dice: random.Random, choices: tuple[tuple[str, ...], ...]) -> list[str]:
    return [word for words in choices if dice.random() < 0.25 for word in words]


def some_shape(dice: random.Random, tool: str) -> Shape:
    """Return a small cluster, simple ones more often than strange ones."""

    def rarely(value: Any, other: Any, part: float = 0.25) -> Any:
        return value if dice.random() < part else other

    nodes = dice.randint(3, 12)
    template = "sharedfile" if tool == "hsqueeze" else dice.choice(_TEMPLATES)
    return Shape(
        nodes=nodes,
        per_node=dice.choice((2, 4, 6)),
        template=template,
        groups=rarely(dice.randint(2, 3), 1),
        offline=rarely(dice.randint(1, 2), 0),
        mixed=rarely(True, False),
        odd=rarely(True, False, 0.4),
        tags=rarely(dice.choice(("exclusion", "migration", "location")), "", 0.4),
        tight=rarely(True, False),
        forthcoming=rarely(0.2, 0.0, 0.2),
        exclusive=template in made_clusters.LOCAL and dice.random() < 0.15,
        level=rarely(True, False),
    )


def some_request(dice: random.Random, made: Made) -> dict[str, Any]:
    """Return what an allocator is asked, any mode."""
    mode, names = dice.choice(MODES), list(made.instances)
    if mode == "allocate":
        return {**_new(dice, made, "new.bench.test")}
    if mode == "multi-allocate":
        asked: dict[str, Any] = {"type": mode}
        several = [_new(dice, made, f"new{n}.bench.test") for n in range(3)]
        for one in several:
            # Where these belong: other implementations read them there only.
            asked |= {k: one.pop(k) for k in ("group_name",) if k in one}
            one.pop("restrict-to-nodes", None)
        return asked | {"instances": several}
    chosen = dice.sample(names, min(len(names), dice.randint(1, 4)))
    if mode == "relocate":
        inst = made.instances[chosen[0]]
        return {
            "type": mode,
            "name": chosen[0],
            "required_nodes": 1,
            "disk_space_total": inst["disk"],
            "relocate_from": inst["nodes"][-1:],
        }
    if mode == "node-evacuate":
        evac = dice.choice(("primary-only", "secondary-only", "all"))
        return {"type": mode, "instances": chosen, "evac_mode": evac}
    if mode == "change-group":
        targets = [g["uuid"] for g in made.groups if dice.random() < 0.5]
        return {"type": mode, "instances": chosen, "target_groups": targets}
    return {"type": mode, "name": chosen[0]}


def _new(dice: random.Random, made: Made, name: str) -> dict[str, Any]:
    template = dice.choice(made_clusters.TEMPLATES)
    exclusive = next(iter(made.nodes.values()))["exclusive"]
    row = made_clusters.instance(
        template,
        [],
        memory=dice.choice((512, 1024, 3072, 20000)),
        disk=dice.choice((2048, 20480, 100000)),
        vcpus=dice.choice((1, 2, 4)),
        tags=dice.choice(([], ["svc:1"], ["rack:1"])),
        spindles=1 if exclusive else None,
    )
    asked = made_clusters.allocation(name, row)
    if dice.random() < 0.2:
        asked["group_name"] = made.groups[-1]["name"]
    if dice.random() < 0.2:
        asked["restrict-to-nodes"] = list(made.nodes)[::2]
    return asked


def _balancing(dice: random.Random, made: Made, files: dict[str, str]) -> list[str]:
    names = list(made.instances)
    choices = (
        ("-E",),
        ("--no-disk-moves",),
        ("--no-instance-moves",),
        ("--ignore-soft-errors",),
        ("--ignore-dynu",),
        ("--max-cpu=2",),
        ("--min-disk=0.3",),
        ("-g", "0.05", "--min-gain-limit=3"),
        ("-e", "0.5"),
        ("-e", "0", "-g", "0", "--min-gain-limit=0"),
        ("--exclusion-tags=rack,svc",),
        (f"--select-instances={','.join(names[::2])}",),
        (f"--exclude-instances={','.join(names[:3])}",),
        ("-U", "use"),
    )
    words = [w for group in choices if dice.random() < 0.12 for w in group]
    if "-U" in words:
        files["use"] = "".join(
            f"{name} {dice.random():.3f} 1 {dice.random() * 3:.3f} 0.5\n"
            for name in names
        )
    return words


def _capacity(dice: random.Random, shape: Shape) -> list[str]:
    template = dice.choice(("drbd", "plain", "sharedfile"))
    sizes = dice.choice(("40960,4096,2", "10240,8192,4", "100000,2048,1"))
    words = [f"--disk-template={template}", f"--standard-alloc={sizes}"]
    words += [f"--tiered-alloc={dice.choice(('200000,16384,4', '100000,8192,4'))}"]
    if dice.random() < 0.5:
        words.append("--machine-readable")
    if shape.exclusive:
        words = [word + ",2" if "-alloc=" in word else word for word in words]
    return words
