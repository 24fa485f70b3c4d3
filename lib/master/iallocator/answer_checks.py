"""Strict checks of an allocator's answer against its request; the checked values. Pure.

Every error names the allocator, the part of its answer, the wanted and the actual
value.
"""

import collections
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import disks
from ganeti.base.text import control_chars
from ganeti.master.iallocator import requests
from ganeti.model import objects, opcodes


@dataclasses.dataclass(frozen=True)
class Evacuation:
    """Jobs that move instances.

    Attributes:
        moved: (instance, target group, node names).
        failed: (instance, reason).
        jobs: opcodes, one list per job.
    """

    moved: Sequence[tuple[str, str, Sequence[str]]]
    failed: Sequence[tuple[str, str]]
    jobs: Sequence[Sequence[opcodes.Opcode]]


@dataclasses.dataclass(frozen=True)
class MultiPlacement:
    """Nodes of new instances: name -> node names; and the names without a place."""

    placed: Mapping[str, Sequence[str]]
    failed: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Answer:
    """An allocator's answer.

    Attributes:
        success: whether it found a solution.
        info: its own text.
        result: node names for allocate and relocate, one for allocate-secondary, a
            JSON object for capacity, `Evacuation` or `MultiPlacement` for the others;
            None without success.
        explanation: one object per new instance with ``instance``, ``nodes`` and
            ``reasons``; empty unless requested. Only the built-in allocator has it.
    """

    success: bool
    info: str
    result: Any = None
    explanation: Sequence[Mapping[str, Any]] = ()


#: Most characters that are kept of an allocator's text; a job's log has them.
MOST_TEXT: Final = 1 << 16


class Checker:
    """Checker of one allocator's answer."""

    def __init__(self, name: str, snapshot: objects.Snapshot) -> None:
        self.name = name
        self.snapshot = snapshot

    def wrong(self, what: str, wanted: str, actual: Any) -> errors.GenericError:
        """Return the error for one part of an answer."""
        return errors.ResultValidationError(
            f"allocator {self.name}: {what}: wanted {wanted}, found {actual!r:.200}"
        )

    def check(self, fine: bool, what: str, wanted: str, actual: Any) -> None:
        """Raise an error unless a part is valid."""
        if not fine:
            raise self.wrong(what, wanted, actual)

    def node(self, name: str) -> objects.Node:
        """Return the record of a node whose name `nodes` has checked."""
        return self.snapshot.nodes[self.snapshot.uuid_of("nodes", name) or ""]

    def group(self, uuid: str) -> str:
        """Return a group's name."""
        return self.snapshot.nodegroups[uuid].name

    def nodes(self, answer: Any, count: int | None, what: str) -> list[str]:
        """Return distinct names of known nodes; any number if ``count`` is None."""
        self.check(isinstance(answer, list), what, "a list of node names", answer)
        if count is not None:
            self.check(len(answer) == count, what, f"{count} node names", answer)
        for item in answer:
            known = isinstance(item, str) and self.snapshot.uuid_of("nodes", item)
            self.check(bool(known), what, "names of known nodes", item)
        self.check(len(set(answer)) == len(answer), what, "distinct nodes", answer)
        return list(answer)

    def usable(self, answer: Any, count: int | None, what: str) -> list[str]:
        """Return names of nodes that may take instances."""
        names = self.nodes(answer, count, what)
        for name in names:
            self.require_usable(name, what)
        return names

    def require_usable(self, name: str, what: str) -> None:
        """Refuse a node that may not take instances."""
        node = self.node(name)
        states = (
            (node.offline, "offline"),
            (node.drained, "drained"),
            (not node.vm_capable, "not vm_capable"),
        )
        for is_excluded, state in states:
            wanted = "nodes that may take instances"
            self.check(not is_excluded, what, wanted, f"{name}, which is {state}")

    def placement(
        self, request: requests.Allocate, answer: Any, what: str
    ) -> list[str]:
        """Return the nodes of a new instance, all of them allowed by the request."""
        names = self.usable(answer, request.required_nodes, what)
        if request.group_name is not None:
            self.within([request.group_name], names, what)
        if request.restrict_to is not None:
            outside = [name for name in names if name not in request.restrict_to]
            wanted = "nodes that the request allows"
            self.check(not outside, what, wanted, "".join(outside[:1]))
        return names

    def within(self, groups: Collection[str], names: Sequence[str], what: str) -> None:
        """Refuse nodes outside some groups, given by name."""
        for name in names:
            group = self.group(self.node(name).group)
            wanted = f"nodes of group {' or '.join(sorted(groups))}"
            fine = group in groups
            self.check(fine, what, wanted, f"{name}, which is in group {group}")


def instance_of(snapshot: objects.Snapshot, name: str) -> objects.Instance:
    """Return the record of an instance of the request."""
    return snapshot.instances[snapshot.uuid_of("instances", name) or ""]


def printable(text: str) -> str:
    """Return an allocator's text without control characters and limited in length."""
    shown = control_chars.replace(text[:MOST_TEXT])
    if len(text) <= MOST_TEXT:
        return shown
    return f"{shown} [{len(text) - MOST_TEXT} more characters]"


def is_list(value: Any, length: int) -> bool:
    """Return whether a value is a list of a length."""
    return isinstance(value, list) and len(value) == length


def is_one_of(value: Any, known: Collection[str]) -> bool:
    """Return whether a value is one of some strings."""
    return isinstance(value, str) and value in known


def all_texts(value: Any) -> bool:
    """Return whether a value is a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


# Checks that an allocator's jobs do only what the request allows. Pure.
#
# For the answers of evacuations, group changes and balancing: [moved, failed, jobs].

#: Opcodes that an allocator may return.
_ALLOWED: Final = frozenset(
    {"OP_INSTANCE_FAILOVER", "OP_INSTANCE_MIGRATE", "OP_INSTANCE_REPLACE_DISKS"}
)
#: Parameters of these opcodes that name a node.
_TARGETS: Final = ("target_node", "remote_node")

JobRequest = requests.Balance | requests.NodeEvacuate | requests.ChangeGroup


def jobs_result(checker: Checker, request: JobRequest, answer: Any) -> Evacuation:
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
    count = 2 if template in disks.DTS_INT_MIRROR else 1
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
    jobs = collections.Counter(
        name
        for job in answer.jobs
        for name in {op.instance_name for op in job}  # type: ignore[attr-defined]
    )
    unclear = [name for name in asked if jobs[name] != (name in moved)]
    wanted = "one job for each instance that moves"
    checker.check(not unclear, "jobs", wanted, _times(jobs, unclear))


def _times(counted: collections.Counter[str], names: Sequence[str]) -> str:
    return ", ".join(f"{name} {counted[name]} times" for name in names)


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


#: Sizes of an instance in a capacity answer.
_SIZES: Final = ("memory", "disk", "vcpus")


def parse(
    name: str, data: Any, request: requests.Request, snapshot: objects.Snapshot
) -> Answer:
    """Return the checked answer to a request.

    Args:
        name: name of the allocator, for messages.
        data: its decoded output.
        request: the request.
        snapshot: for node names and groups.

    Raises:
        ResultValidationError: the answer is malformed or does not fit the request.
    """
    checker = Checker(name, snapshot)
    if not isinstance(data, dict):
        raise checker.wrong("answer", "an object", data)
    if "result" not in data and "nodes" in data:
        data = dict(data, result=data["nodes"])
    for key in ("success", "info", "result"):
        if key not in data:
            raise checker.wrong("answer", f"the key {key}", sorted(data))
    success, explanation = data["success"], data.get("explanation", ())
    checker.check(isinstance(success, bool), "success", "true or false", success)
    checker.check(isinstance(data["info"], str), "info", "a text", data["info"])
    info = printable(data["info"])
    if not success:
        return Answer(success=False, info=info, explanation=explanation)
    result = _result(checker, request, data["result"])
    return Answer(success=True, info=info, result=result, explanation=explanation)


def _result(checker: Checker, request: requests.Request, answer: Any) -> Any:
    """Return the typed result for a mode."""
    if isinstance(request, requests.Allocate):
        return checker.placement(request, answer, "result")
    if isinstance(request, requests.Relocate):
        return _relocation(checker, request, answer)
    if isinstance(request, requests.AllocateSecondary):
        checker.check(isinstance(answer, str), "result", "a node name", answer)
        (chosen,) = checker.usable([answer], 1, "result")
        _refuse_own(checker, request.name, [chosen])
        return chosen
    if isinstance(request, requests.MultiAllocate):
        return _multi_placement(checker, request, answer)
    if isinstance(request, requests.Capacity):
        return _capacity(checker, request, answer)
    return jobs_result(checker, request, answer)


def _refuse_own(checker: Checker, instance: str, names: Sequence[str]) -> None:
    """Refuse the primary node of an instance as its new node."""
    record = instance_of(checker.snapshot, instance)
    primary = checker.snapshot.nodes[record.primary_node].name
    wanted = f"a node other than {primary}, the primary node of {instance}"
    checker.check(primary not in names, "result", wanted, primary)


def _relocation(checker: Checker, request: requests.Relocate, answer: Any) -> list[str]:
    names = checker.usable(answer, 1, "result")
    left = sorted(request.relocate_from)
    wanted = f"a node other than {', '.join(left)}"
    checker.check(names[0] not in left, "result", wanted, names[0])
    record = instance_of(checker.snapshot, request.name)
    if checker.snapshot.disk_template(record) in disks.DTS_INT_MIRROR:
        _refuse_own(checker, request.name, names)
    allowed = _groups(checker, request.relocate_from, record.primary_node)
    used = _groups(checker, names, record.primary_node)
    checker.check(used <= allowed, "result", "nodes of the present groups", answer)
    return names


def _groups(checker: Checker, names: Sequence[str], primary: str) -> set[str]:
    uuids = {checker.node(name).group for name in names}
    return {*uuids, checker.snapshot.nodes[primary].group}


def _multi_placement(
    checker: Checker, request: requests.MultiAllocate, answer: Any
) -> MultiPlacement:
    checker.check(is_list(answer, 2), "result", "[placed, failed]", answer)
    placed, failed = answer
    checker.check(isinstance(placed, list), "placed", "a list", placed)
    checker.check(all_texts(failed), "failed", "a list of names", failed)
    wanted = {item.name: item for item in request.instances}
    places = {}
    for row in placed:
        fine = is_list(row, 2) and is_one_of(row[0], wanted)
        checker.check(fine, "placed", "[requested name, [node]]", row)
        what = f"nodes of {row[0]}"
        places[row[0]] = checker.placement(wanted[row[0]], row[1], what)
    named = sorted([*(row[0] for row in placed), *failed])
    checker.check(named == sorted(wanted), "result", f"{sorted(wanted)}", named)
    return MultiPlacement(places, list(failed))


def _capacity(
    checker: Checker, request: requests.Capacity, answer: Any
) -> dict[str, Any]:
    """Return count, instances and, if the allocator reports it, the stop reason."""
    checker.check(isinstance(answer, dict), "result", "an object", answer)
    instances, count = answer.get("instances"), answer.get("count")
    checker.check(isinstance(instances, list), "instances", "a list", instances)
    fine = type(count) is int and count == len(instances)
    checker.check(fine, "count", f"{len(instances)}", count)
    most = request.limit
    wanted = f"{most} or fewer"
    checker.check(most is None or count <= most, "count", wanted, count)
    for row in instances:
        _check_instance(checker, request, row)
    stopped = answer.get("stopped")
    fine = stopped is None or isinstance(stopped, dict)
    checker.check(fine, "stopped", "an object", stopped)
    return {"count": count, "instances": instances, "stopped": stopped}


def _check_instance(checker: Checker, request: requests.Capacity, row: Any) -> None:
    """Check one instance of a capacity answer."""
    fine = isinstance(row, dict) and all(_is_size(row, key) for key in _SIZES)
    wanted = "objects with memory, disk, vcpus, nodes"
    checker.check(fine, "instances", wanted, row)
    names = checker.usable(row.get("nodes"), request.required_nodes, "nodes")
    if request.groups is not None:
        checker.within(request.groups, names, "nodes")


def _is_size(row: Mapping[str, Any], key: str) -> bool:
    value = row.get(key)
    return type(value) is int and value >= 0
