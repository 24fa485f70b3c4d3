"""Checks that an allocator's jobs do only what the request allows. Pure.

For the answers of evacuations, group changes and balancing: [moved, failed, jobs].
"""

import collections
from collections.abc import Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.master.iallocator import requests
from ganeti.master.iallocator.answers import Evacuation
from ganeti.master.iallocator.checker import (
    Checker,
    all_texts,
    instance_of,
    is_list,
    is_one_of,
    printable,
)
from ganeti.model import objects, opcodes

#: Opcodes that an allocator may return.
_ALLOWED: Final = frozenset(
    {"OP_INSTANCE_FAILOVER", "OP_INSTANCE_MIGRATE", "OP_INSTANCE_REPLACE_DISKS"}
)
#: Parameters of these opcodes that name a node.
_TARGETS: Final = ("target_node", "remote_node")

JobRequest = requests.Balance | requests.NodeEvacuate | requests.ChangeGroup


def result(checker: Checker, request: JobRequest, answer: Any) -> Evacuation:
    """Return the checked jobs.

    Raises:
        ResultValidationError: the answer is malformed or does not fit the request.
    """
    if isinstance(request, requests.Balance):
        every = [item.name or "" for item in checker.snapshot.instances.values()]
        out = _evacuation(checker, every, answer)
        most, jobs = request.max_moves, len(out.jobs)
        checker.check(jobs <= most, "jobs", f"{most} or fewer", jobs)
        return out
    out = _evacuation(checker, request.instances, answer)
    _check_all(checker, request.instances, out)
    for name, group, nodes in out.moved:
        _check_move(checker, request, instance_of(checker.snapshot, name), nodes)
        if isinstance(request, requests.ChangeGroup):
            _check_group(checker, request, name, group, nodes)
    return out


def _evacuation(checker: Checker, asked: Sequence[str], answer: Any) -> Evacuation:
    checker.check(is_list(answer, 3), "result", "[moved, failed, jobs]", answer)
    moved, failed, jobs = answer
    for part, value in (("moved", moved), ("failed", failed), ("jobs", jobs)):
        checker.check(isinstance(value, list), part, "a list", value)
    for row in failed:
        fine = is_list(row, 2) and all_texts(row)
        checker.check(fine, "failed", "[instance, reason]", row)
        checker.check(row[0] in asked, "failed", "an instance of the request", row)
    return Evacuation(
        [_moved(checker, asked, row) for row in moved],
        [(row[0], printable(row[1])) for row in failed],
        [_job(checker, asked, job) for job in jobs],
    )


def _moved(
    checker: Checker, asked: Sequence[str], row: Any
) -> tuple[str, str, list[str]]:
    """Return a checked row: instance, name of the group, nodes."""
    fine = is_list(row, 3) and all_texts(row[:2])
    checker.check(fine, "moved", "[instance, group, [node]]", row)
    name, group, nodes = row
    checker.check(name in asked, "moved", "an instance of the request", row)
    snapshot, what = checker.snapshot, f"nodes of {name}"
    uuid = group if group in snapshot.nodegroups else None
    uuid = uuid or snapshot.uuid_of("nodegroups", group)
    if uuid is None:
        raise checker.wrong("moved", "a known group", row)
    template = snapshot.disk_template(instance_of(snapshot, name))
    count = 2 if template in disk_constants.DTS_INT_MIRROR else 1
    checked = checker.nodes(nodes, count, what)
    checker.within([checker.group(uuid)], checked[:1], what)
    return name, checker.group(uuid), checked


def _job(checker: Checker, asked: Sequence[str], job: Any) -> list[opcodes.Opcode]:
    fine = isinstance(job, list) and bool(job)
    checker.check(fine, "job", "a list of opcodes", job)
    return [_opcode(checker, asked, item) for item in job]


def _opcode(checker: Checker, asked: Sequence[str], item: Any) -> opcodes.Opcode:
    op_id = item.get("OP_ID") if isinstance(item, dict) else None
    fine = is_one_of(op_id, _ALLOWED)
    checker.check(fine, "job", f"one of {sorted(_ALLOWED)}", op_id)
    name = item.get("instance_name")
    checker.check(name in asked, "job", "an instance of the request", name)
    try:
        opcode = opcodes.decode(item)
    except errors.OpPrereqError as err:
        raise checker.wrong("job", "valid opcodes", err.args[0]) from err
    for parameter in _TARGETS:
        target = getattr(opcode, parameter, None)
        if target is not None:
            checker.usable([target], 1, f"job: {op_id}: {parameter}")
    return opcode


def _check_all(checker: Checker, asked: Sequence[str], answer: Evacuation) -> None:
    """Check that each instance either moves by one job or is reported as failed."""
    moved = [name for name, _group, _nodes in answer.moved]
    counts = collections.Counter([*moved, *(name for name, _why in answer.failed)])
    unclear = [name for name in asked if counts[name] != 1]
    wanted = "each instance once, as moved or failed"
    checker.check(not unclear, "result", wanted, _times(counts, unclear))
    jobs = collections.Counter(name for job in answer.jobs for name in _names(job))
    unclear = [name for name in asked if jobs[name] != (name in moved)]
    wanted = "one job for each instance that moves"
    checker.check(not unclear, "jobs", wanted, _times(jobs, unclear))


def _times(counted: collections.Counter[str], names: Sequence[str]) -> str:
    return ", ".join(f"{name} {counted[name]} times" for name in names)


def _names(job: Sequence[opcodes.Opcode]) -> set[str]:
    return {op.instance_name for op in job}  # type: ignore[attr-defined]


def _check_move(
    checker: Checker,
    request: requests.NodeEvacuate | requests.ChangeGroup,
    instance: objects.Instance,
    nodes: Sequence[str],
) -> None:
    """Check that an instance leaves the right nodes, for nodes that may take it."""
    snapshot, what = checker.snapshot, f"nodes of {instance.name}"
    now = [
        snapshot.nodes[uuid].name
        for uuid in (instance.primary_node, *snapshot.secondary_nodes(instance))
    ]
    mode = request.mode if isinstance(request, requests.NodeEvacuate) else "all"
    leaves = now if mode == "all" else now[:1] if mode == "primary-only" else now[1:]
    stays = [name for name in nodes if name in leaves]
    if mode == "primary-only":
        stays = [name for name in stays if name == nodes[0]]
    wanted = f"nodes other than {', '.join(leaves)}"
    checker.check(not stays, what, wanted, ", ".join(stays))
    for place, name in enumerate(nodes):
        # The old primary node may be offline and become the secondary.
        current = now[:1] if place == 0 else now
        if name not in current:
            checker.require_usable(name, what)


def _check_group(
    checker: Checker,
    request: requests.ChangeGroup,
    name: str,
    group: str,
    nodes: Sequence[str],
) -> None:
    """Check that an instance goes to a requested group."""
    snapshot = checker.snapshot
    own = snapshot.nodes[instance_of(snapshot, name).primary_node].group
    targets = request.target_groups or [u for u in snapshot.nodegroups if u != own]
    names = {checker.group(u) if u in snapshot.nodegroups else u for u in targets}
    wanted = f"group {' or '.join(sorted(names))}"
    checker.check(group in names, f"group of {name}", wanted, group)
    checker.within([group], nodes, f"nodes of {name}")
