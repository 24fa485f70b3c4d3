"""``capacity``: how many more instances fit, as counted by the master."""

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ganeti.base.text.control_chars import escape
from ganeti.base.text.units import exact_mib
from ganeti.commands.cli.context import CommandContext

#: Kind of refusal -> description.
_KINDS: Final = {
    "FailMem": "memory",
    "FailDisk": "disk space",
    "FailCPU": "virtual CPUs",
    "FailN1": "room for failovers",
    "FailTags": "exclusion tags",
    "FailMig": "migration tags",
    "FailDiskCount": "number of disks",
    "FailSpindles": "spindles",
    "FailInternal": "an error of the allocator",
}
_WHY: Final = {
    "full": "The next instance is refused for",
    "limit": "The limit is reached; the next instance is refused for",
    "unsafe": "Nodes already lack capacity for failovers, so no instance is placed:",
}


def run(ctx: CommandContext) -> None:
    """Print the master's answer."""
    opts = ctx.opts
    request = {
        "disk_template": opts.disk_template,
        "memory": opts.memory,
        "disk": opts.disk,
        "vcpus": opts.vcpus,
        "tiered": bool(opts.tiered),
        "groups": list(opts.groups or ()),
        "limit": opts.limit,
        "allocator": opts.iallocator,
    }
    answer = ctx.call("QueryCapacity", request)
    if opts.json:
        if not opts.explain:
            answer = {key: answer[key] for key in answer if key != "stopped"}
        ctx.out(json.dumps(answer, indent=2, sort_keys=True))
        return
    for line in lines(answer, with_all=bool(opts.explain)):
        ctx.out(escape(line))


def lines(answer: Mapping[str, Any], *, with_all: bool) -> Iterator[str]:
    """Yield the lines of an answer; ``with_all`` adds the placements and reasons."""
    template = answer["disk_template"]
    where = f" in {', '.join(answer['groups'])}" if answer["groups"] else ""
    count = answer["count"]
    word = "instance fits" if count == 1 else "instances fit"
    yield f"{count} more {word}{where}, with disk template {template}:"
    for size, members in itertools.groupby(answer["instances"], _size):
        yield f"  {len(list(members)):4d} of {size}"
    if not count:
        yield f"     0 of {_size(answer['sizes'][0])}"
    if with_all:
        for row in answer["instances"]:
            yield f"{row.get('name', '-')}: {', '.join(row['nodes'])}"
    if answer["stopped"]:
        yield from _stopped(answer["stopped"], with_all=with_all)


def _size(row: Mapping[str, Any]) -> str:
    memory, disk = exact_mib(row["memory"]), exact_mib(row["disk"])
    return f"{memory} memory, {disk} disk, {row['vcpus']} vcpus"


def _stopped(stopped: Mapping[str, Any], *, with_all: bool) -> Iterator[str]:
    failures = stopped.get("failures") or {}
    counts = [f"{_KINDS.get(kind, kind)} ({failures[kind]})" for kind in failures]
    if counts or stopped["why"] == "unsafe":
        yield f"{_WHY.get(stopped['why'], stopped['why'])} {', '.join(counts)}".rstrip()
    if not with_all:
        return
    nodes: dict[str, list[str]] = {}
    for reason in stopped.get("reasons") or ():
        nodes.setdefault(_reason(reason), []).append(reason["node"])
    for words, names in nodes.items():
        yield f"  {', '.join(names)}: {words}"


def _reason(reason: Mapping[str, Any]) -> str:
    role = "as secondary: " if reason["role"] == "secondary" else ""
    unit = reason["unit"]
    limit = f"{reason['relation']} {_value(reason['wanted'], unit)}".strip()
    actual = _value(reason["found"], unit)
    return f"{role}{reason['check']}: wanted {limit}, found {actual}"


def _value(value: float | str, unit: str) -> str:
    if isinstance(value, str):
        return value
    return exact_mib(value) if unit == "MiB" else f"{value:.10g} {unit}".strip()
