"""Allocator answers: strict checks, typed results. Pure."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ganeti import errors, objects, opcodes
from ganeti.iallocator import requests

#: Opcodes that an allocator may ask for.
_ALLOWED: Final = frozenset(
    {"OP_INSTANCE_FAILOVER", "OP_INSTANCE_MIGRATE", "OP_INSTANCE_REPLACE_DISKS"}
)


@dataclasses.dataclass(frozen=True)
class Evacuation:
    """Jobs that move instances.

    Attributes:
        moved: (instance, target group, node names).
        failed: (instance, reason).
        jobs: opcodes, one list a job.
    """

    moved: Sequence[tuple[str, str, Sequence[str]]]
    failed: Sequence[tuple[str, str]]
    jobs: Sequence[Sequence[opcodes.Opcode]]


@dataclasses.dataclass(frozen=True)
class MultiPlacement:
    """Where new instances go: name -> node names; and the names without a place."""

    placed: Mapping[str, Sequence[str]]
    failed: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Answer:
    """What an allocator said.

    Attributes:
        success: whether it found something.
        info: its own words.
        result: node names for allocate and relocate, one for allocate-secondary, a
            JSON object for capacity, `Evacuation` or `MultiPlacement` for the others;
            None without success.
        explanation: for each new instance an object with ``instance``, ``nodes`` and
            ``reasons``; empty unless asked for, and known of the built-in one only.
    """

    success: bool
    info: str
    result: Any = None
    explanation: Sequence[Mapping[str, Any]] = ()


def parse(
    name: str, data: Any, request: requests.Request, snapshot: objects.Snapshot
) -> Answer:
    """Return the checked answer to a request.

    Args:
        name: of the allocator, for messages.
        data: its decoded output.
        request: what it was asked.
        snapshot: for node names and groups.

    Raises:
        ResultValidationError: the answer is malformed; wanted and found.
    """
    checker = _Checker(name, snapshot)
    if not isinstance(data, dict):
        raise checker.wrong("answer", "an object", data)
    if "result" not in data and "nodes" in data:
        data = dict(data, result=data["nodes"])
    for key in ("success", "info", "result"):
        if key not in data:
            raise checker.wrong("answer", f"the key {key}", sorted(data))
    checker.check(
        isinstance(data["success"], bool), "success", "a flag", data["success"]
    )
    checker.check(isinstance(data["info"], str), "info", "a text", data["info"])
    told = data.get("explanation", ())
    if not data["success"]:
        return Answer(success=False, info=data["info"], explanation=told)
    result = checker.result(request, data["result"])
    return Answer(success=True, info=data["info"], result=result, explanation=told)


class _Checker:
    """Checks results of one allocator."""

    def __init__(self, name: str, snapshot: objects.Snapshot) -> None:
        self.name = name
        self.snapshot = snapshot

    def wrong(self, what: str, wanted: str, found: Any) -> errors.GenericError:
        """Return the error for one part of an answer."""
        return errors.ResultValidationError(
            f"allocator {self.name}: {what}: wanted {wanted}, found {found!r:.200}"
        )

    def check(self, fine: bool, what: str, wanted: str, found: Any) -> None:
        """Raise unless a part is as wanted."""
        if not fine:
            raise self.wrong(what, wanted, found)

    def result(self, request: requests.Request, found: Any) -> Any:
        """Return the typed result for a mode."""
        if isinstance(request, requests.Allocate):
            return self._nodes(found, request.required_nodes, "result")
        if isinstance(request, requests.Relocate):
            return self._relocation(request, found)
        if isinstance(request, requests.AllocateSecondary):
            self.check(isinstance(found, str), "result", "a node name", found)
            return self._nodes([found], 1, "result")[0]
        if isinstance(request, requests.MultiAllocate):
            return self._placement(request, found)
        if isinstance(request, requests.Capacity):
            return self._capacity(request, found)
        if isinstance(request, requests.Balance):
            every = [item.name or "" for item in self.snapshot.instances.values()]
            result = self._evacuation(every, found)
            most = request.max_moves
            jobs = len(result.jobs)
            self.check(jobs <= most, "jobs", f"{most} or fewer", jobs)
            return result
        return self._evacuation(request.instances, found)

    def _nodes(self, found: Any, count: int | None, what: str) -> list[str]:
        self.check(isinstance(found, list), what, "a list of node names", found)
        if count is not None:
            self.check(len(found) == count, what, f"{count} node names", found)
        for item in found:
            known = isinstance(item, str) and self.snapshot.uuid_of("nodes", item)
            self.check(bool(known), what, "names of known nodes", item)
        self.check(len(set(found)) == len(found), what, "different nodes", found)
        return list(found)

    def _relocation(self, request: requests.Relocate, found: Any) -> list[str]:
        nodes = self._nodes(found, 1, "result")
        uuid = self.snapshot.uuid_of("instances", request.name)
        primary = self.snapshot.instances[uuid or ""].primary_node
        allowed = self._groups(request.relocate_from, primary)
        used = self._groups(nodes, primary)
        self.check(used <= allowed, "result", "nodes of the present groups", found)
        return nodes

    def _groups(self, names: Sequence[str], primary: str) -> set[str]:
        uuids = [self.snapshot.uuid_of("nodes", name) or "" for name in names]
        return {self.snapshot.nodes[uuid].group for uuid in [*uuids, primary]}

    def _placement(self, request: requests.MultiAllocate, found: Any) -> MultiPlacement:
        self.check(_is_list(found, 2), "result", "[placed, failed]", found)
        placed, failed = found
        self.check(isinstance(placed, list), "placed", "a list", placed)
        self.check(_all_texts(failed), "failed", "a list of names", failed)
        wanted = {item.name: item.required_nodes for item in request.instances}
        places = {}
        for row in placed:
            fine = _is_list(row, 2) and _is_one_of(row[0], wanted)
            self.check(fine, "placed", "[requested name, [node]]", row)
            places[row[0]] = self._nodes(row[1], wanted[row[0]], f"nodes of {row[0]}")
        named = sorted([*(row[0] for row in placed), *failed])
        self.check(named == sorted(wanted), "result", f"{sorted(wanted)}", named)
        return MultiPlacement(places, list(failed))

    def _capacity(self, request: requests.Capacity, found: Any) -> dict[str, Any]:
        """Return count, instances and what stopped; an allocator may not tell that."""
        self.check(isinstance(found, dict), "result", "an object", found)
        instances, count = found.get("instances"), found.get("count")
        self.check(isinstance(instances, list), "instances", "a list", instances)
        self.check(count == len(instances), "count", f"{len(instances)}", count)
        for row in instances:
            fine = isinstance(row, dict) and all(
                isinstance(row.get(key), int) for key in ("memory", "disk", "vcpus")
            )
            wanted = "objects with memory, disk, vcpus, nodes"
            self.check(fine, "instances", wanted, row)
            self._nodes(row.get("nodes"), request.required_nodes, "nodes")
        stopped = found.get("stopped")
        fine = stopped is None or isinstance(stopped, dict)
        self.check(fine, "stopped", "an object", stopped)
        return {"count": count, "instances": instances, "stopped": stopped}

    def _evacuation(self, asked: Sequence[str], found: Any) -> Evacuation:
        self.check(_is_list(found, 3), "result", "[moved, failed, jobs]", found)
        moved, failed, jobs = found
        for part, value in (("moved", moved), ("failed", failed), ("jobs", jobs)):
            self.check(isinstance(value, list), part, "a list", value)
        for row in moved:
            fine = _is_list(row, 3) and _all_texts(row[:2])
            self.check(fine, "moved", "[instance, group, [node]]", row)
            self.check(row[0] in asked, "moved", "an instance of the request", row)
            table = self.snapshot.names("nodegroups")
            known = row[1] in table or row[1] in self.snapshot.nodegroups
            self.check(known, "moved", "a known group", row)
            self._nodes(row[2], None, f"nodes of {row[0]}")
        for row in failed:
            fine = _is_list(row, 2) and _all_texts(row)
            self.check(fine, "failed", "[instance, reason]", row)
            self.check(row[0] in asked, "failed", "an instance of the request", row)
        return Evacuation(
            [(row[0], row[1], list(row[2])) for row in moved],
            [(row[0], row[1]) for row in failed],
            [self._job(asked, job) for job in jobs],
        )

    def _job(self, asked: Sequence[str], job: Any) -> list[opcodes.Opcode]:
        self.check(isinstance(job, list) and bool(job), "job", "a list of opcodes", job)
        out = []
        for item in job:
            op_id = item.get("OP_ID") if isinstance(item, dict) else None
            fine = _is_one_of(op_id, _ALLOWED)
            self.check(fine, "job", f"one of {sorted(_ALLOWED)}", op_id)
            name = item.get("instance_name")
            self.check(name in asked, "job", "an instance of the request", name)
            try:
                out.append(opcodes.decode(item))
            except errors.OpPrereqError as err:
                raise self.wrong("job", "valid opcodes", err.args[0]) from err
        return out


def _is_list(value: Any, length: int) -> bool:
    return isinstance(value, list) and len(value) == length


def _is_one_of(value: Any, known: Collection[str]) -> bool:
    return isinstance(value, str) and value in known


def _all_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
