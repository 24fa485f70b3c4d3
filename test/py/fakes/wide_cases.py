"""Stranger cases than `made_cases`: other templates, states, back ends, bad input.

A made cluster is stirred: what seldom meets in one cluster does here. With the same
seed a case is always the same.
"""

import dataclasses
import json
import random
from collections.abc import Callable
from typing import Any

from fakes import made_cases, made_clusters, master_answers
from fakes.made_cases import Case
from fakes.made_clusters import Made
from ganeti.decisions.htools.model import text

_SHARED = ("diskless", "rbd", "ext", "gluster", "blockdev", "file")
_STATES = (
    "ERROR_up",
    "ERROR_down",
    "ERROR_nodedown",
    "ERROR_nodeoffline",
    "ERROR_wrongnode",
    "USER_down",
)
#: Part of the cases whose input is spoilt.
_SPOILT = 0.15
#: Where tools read clusters; that others count each instance of a request twice is
#: not worth a case.
_SOURCES = {
    "hbal": ("text", "text", "rest"),
    "hspace": ("text", "text", "rest", "simulate"),
    "hcheck": ("text", "text", "rest"),
    "hinfo": ("text", "text", "rest"),
    "hroller": ("text", "text", "rest"),
    "hsqueeze": ("text",),
}
_MORE: dict[str, tuple[tuple[str, ...], ...]] = {
    "hail": (
        ("-S", "saved"),
        ("--restrict-allocation-to=node0001.bench.test,node0002.bench.test",),
    ),
    "hbal": (
        ("-S", "saved"),
        ("-C", "commands"),
        ("--mond=yes", "--mond-data=mond"),
        ("--mond=yes", "--mond-data=mond", "--mond-xen"),
        ("-v", "-v", "-v", "-v"),
        ("--print-instances",),
    ),
    "hspace": (("-S", "saved"), ("-q",), ("-v", "-v"), ("--machine-readable=no",)),
    "hcheck": (("--machine-readable",), ("-O", "node0001"), ("-l", "2")),
    "hinfo": (("--mond=yes", "--mond-data=mond"), ("-q",)),
    "hroller": (("-S", "saved"), ("-O", "node0001"), ("-f",), ("-v", "-v")),
    "hsqueeze": (("-S", "saved"), ("-C", "commands"), ("-v", "-v")),
}


def case(tool: str, seed: int) -> Case:
    """Make a case."""
    dice = random.Random(f"wide {tool} {seed}")
    base = made_cases.case(tool, seed)
    made = made_clusters.make(base.shape, seed)
    stir(made, dice)
    more = [w for words in _MORE[tool] if dice.random() < 0.15 for w in words]
    if tool == "hail":
        asked = made_cases.some_request(dice, made)
        data = made.request(asked, dice.choice(("xen-pvm", "xen-pvm", "kvm")))
        _stir_request(data, dice)
        is_spoilt = dice.random() < _SPOILT
        content = json.dumps(_spoilt(data, dice) if is_spoilt else data)
        words = (*base.words[:-1], *more, "request")
        files = {"request": content}
        return dataclasses.replace(base, words=words, files=files, is_spoilt=is_spoilt)
    source = dice.choice(_SOURCES[tool])
    if tool == "hsqueeze":
        _some_standby(made, dice)
    _strange_states(made, dice)
    words = [*_source(source, dice), *base.words[2:], *more]
    is_spoilt = dice.random() < _SPOILT
    files = dict(base.files) | _files(made, source, dice, is_spoilt=is_spoilt)
    if "--mond-data=mond" in words:
        files["mond"] = json.dumps(_loads(made, dice))
    return dataclasses.replace(
        base, words=tuple(words), files=files, is_spoilt=is_spoilt
    )


def _source(source: str, dice: random.Random) -> list[str]:
    """Return the words that name a source of the cluster."""
    if source == "simulate":
        policy = dice.choice(("preferred", "p", "last_resort", "u"))
        size = dice.choice(("100g,32g,8", "2t,65536,16,4", "512G,16g,4,12,True"))
        return [
            f"--simulate={policy},{dice.randint(1, 6)},{size}"
            for _ in range(dice.randint(1, 2))
        ]
    return ["-tcluster" if source == "text" else "-mfile://."]


def _files(
    made: Made, source: str, dice: random.Random, *, is_spoilt: bool
) -> dict[str, str]:
    written = made.text()
    if source == "rest":
        answers = master_answers.rest(text.load(written, "made"))
        if dice.random() < 0.3:
            for node in answers["nodes"]:
                node["drained"] = dice.random() < 0.15
                node["vm_capable"] = dice.random() < 0.9
        if is_spoilt:
            answers = _spoilt(answers, dice)
        return {f"{name}.json": json.dumps(data) for name, data in answers.items()}
    return {"cluster": _spoilt_text(written, dice) if is_spoilt else written}


# Clusters
def stir(made: Made, dice: random.Random) -> None:
    """Change many things a little, each in some clusters only."""
    changes: tuple[Callable[[Made, random.Random], None], ...] = (
        _other_templates,
        _mixed_storage,
        _odd_nodes,
        _odd_groups,
        _odd_instances,
        _split,
    )
    for change in changes:
        if dice.random() < 0.3:
            change(made, dice)


def _other_templates(made: Made, dice: random.Random) -> None:
    # Others count spindles of disks that are elsewhere.
    if any(node["exclusive"] for node in made.nodes.values()):
        return
    for row in made.instances.values():
        if row["template"] != "drbd" and dice.random() < 0.4:
            row["template"] = dice.choice(_SHARED)
    for group in made.groups:
        group["policy"]["templates"] = (*made_clusters.TEMPLATES, *_SHARED)


def _mixed_storage(made: Made, dice: random.Random) -> None:
    """Give some nodes exclusive storage, where all instances have disks there."""
    if any(r["template"] not in made_clusters.LOCAL for r in made.instances.values()):
        return
    for node in made.nodes.values():
        node["exclusive"] = dice.random() < 0.5
        node["free_spindles"] = dice.randint(0, 12) if node["exclusive"] else 0
        node["spindles"] = dice.choice((1, 4, 12))
    for row in made.instances.values():
        row["spindles"] = dice.choice((None, 1, 2))


def _odd_nodes(made: Made, dice: random.Random) -> None:
    for node in made.nodes.values():
        if dice.random() < 0.4:
            node["free_memory"] -= dice.randint(0, 9000)
        if dice.random() < 0.3:
            node["free_disk"] -= dice.randint(0, 900000)
        node["cpus"] = dice.choice((node["cpus"], 1, 4))
        node["own_memory"] = dice.choice((node["own_memory"], 0, 3000))
        node["spindles"] = dice.choice((node["spindles"], 1, 2))
        node["tags"] = [*node["tags"], *dice.sample(("hv:1", "rack:7", "x"), 1)]


def _odd_groups(made: Made, dice: random.Random) -> None:
    for group in made.groups:
        group["alloc_policy"] = dice.choice(("preferred", "last_resort", "unallocable"))
        policy = dict(group["policy"])
        policy["vcpu_ratio"] = dice.choice((0.5, 1.0, 2.5, 16.0))
        policy["spindle_ratio"] = dice.choice((1.0, 2.0, 32.0))
        policy["templates"] = dice.sample(policy["templates"], 3)
        group["policy"] = policy


def _odd_instances(made: Made, dice: random.Random) -> None:
    for row in made.instances.values():
        row["auto_balance"] = dice.random() < 0.7
        row["spindle_use"] = dice.choice((1, 1, 3, 8))
        row["vcpus"] = dice.choice((row["vcpus"], 4))
        row["disk"] = dice.choice((row["disk"], 256, 600))
        row["tags"] = [*row["tags"], *dice.sample(("svc:1", "svc:2", "rack:1"), 1)]


def _split(made: Made, dice: random.Random) -> None:
    """Put some secondaries anywhere."""
    names = list(made.nodes)
    for row in made.instances.values():
        if row["template"] == "drbd" and dice.random() < 0.15:
            others = [name for name in names if name != row["nodes"][0]]
            row["nodes"] = [row["nodes"][0], dice.choice(others)]


def _strange_states(made: Made, dice: random.Random) -> None:
    if dice.random() < 0.3:
        for row in made.instances.values():
            if dice.random() < 0.3:
                row["status"] = dice.choice(_STATES)


def _some_standby(made: Made, dice: random.Random) -> None:
    for node in made.nodes.values():
        if dice.random() < 0.3:
            node["tags"] = [*node["tags"], "htools:standby:auto"]
            node["offline"] = node["offline"] or dice.random() < 0.3


def _stir_request(data: dict[str, Any], dice: random.Random) -> None:
    """Change what only requests can say: several disks, networks, drained nodes."""
    if dice.random() < 0.3:
        for node in data["nodes"].values():
            node["drained"] = dice.random() < 0.15
            node["vm_capable"] = dice.random() < 0.9
    if dice.random() < 0.3:
        for inst in data["instances"].values():
            inst["disks"] = inst["disks"] * dice.randint(1, 3)
    if dice.random() < 0.2:
        for group in data["nodegroups"].values():
            group["networks"] = dice.sample(("net1", "net2"), dice.randint(0, 2))
        nic = {"mac": "aa:00:00:00:00:01", "ip": None, "network": "net1"}
        for new in (data["request"], *data["request"].get("instances", ())):
            if isinstance(new, dict) and "nics" in new:
                new["nics"] = [nic]


def _loads(made: Made, dice: random.Random) -> list[dict[str, Any]]:
    """Return the answers of monitoring daemons, sometimes not of all nodes."""
    everybody = dice.random() < 0.8
    actual = []
    for name in made.nodes:
        mine = [n for n, row in made.instances.items() if row["nodes"][0] == name]
        reports = [
            _report("cpu-avg-load", _average(dice)),
            _report("xen-cpu-avg-load", {n: round(dice.random(), 3) for n in mine}),
        ]
        if everybody or dice.random() < 0.8:
            actual.append({"node": name, "reports": reports})
    return actual


def _average(dice: random.Random) -> dict[str, Any]:
    total = round(dice.random() * 20, 2)
    return {"cpu_number": 1, "cpus": [total], "cpu_total": total}


def _report(name: str, data: Any) -> dict[str, Any]:
    return {
        "name": name,
        "version": "B",
        "format_version": 1,
        "timestamp": 1351607182000000000,
        "category": None,
        "kind": 0,
        "data": data,
    }


# Bad input
_BAD = ("", "x", "-1", "1.5", "99999999999999999999", "Y", "node0000", " 7", "?")


def _spoilt_text(written: str, dice: random.Random) -> str:
    """Spoil one line: a cell, their number, the line itself, or the sections."""
    lines = written.split("\n")
    at = dice.randrange(len(lines))
    way = dice.randrange(5)
    cells = lines[at].split("|")
    if way == 0:
        cells[dice.randrange(len(cells))] = dice.choice(_BAD)
    elif way == 1:
        del cells[dice.randrange(len(cells))]
    elif way == 2:
        cells.append("more")
    lines[at] = "|".join(cells)
    if way == 3:
        lines.insert(at, lines[dice.randrange(len(lines))])
    if way == 4:
        del lines[at]
    return "\n".join(lines)


_WRONG = (None, "", "x", -1, 1.5, [], {}, True, 10**30)


def _spoilt(data: Any, dice: random.Random) -> Any:
    """Replace or leave out one value somewhere inside."""
    data = json.loads(json.dumps(data))
    at = data
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = dice.choice(keys)
        inner = at[key]
        if isinstance(inner, dict | list) and inner and dice.random() < 0.9:
            at = inner
            continue
        if dice.random() < 0.4:
            del at[key]
        else:
            at[key] = dice.choice(_WRONG)
        return data
