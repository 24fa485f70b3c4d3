"""Strict checks of an allocator's answer against its request. Pure.

Every error names the allocator, the part of its answer, the wanted and the actual
value. ``answer_checks_jobs`` checks jobs that move instances.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base.constants import disks as disk_constants
from ganeti.master.iallocator import answer_checks_jobs, requests
from ganeti.master.iallocator.answers import Answer, MultiPlacement
from ganeti.master.iallocator.checker import (
    Checker,
    all_texts,
    instance_of,
    is_list,
    is_one_of,
    printable,
)
from ganeti.model import objects

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
    return answer_checks_jobs.result(checker, request, answer)


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
    if checker.snapshot.disk_template(record) in disk_constants.DTS_INT_MIRROR:
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
