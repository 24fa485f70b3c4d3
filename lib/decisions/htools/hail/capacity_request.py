"""Allocator mode ``capacity``: how many instances fit, and their nodes in order.

The request has the size of one instance and whether sizes may shrink. The answer has
each new instance with its nodes, and the reason why no further one fits. Source: the
design for version 2.1, "Cluster capacity calculation".
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ganeti.decisions.htools.capacity import stop_reasons
from ganeti.decisions.htools.capacity.search import (
    CapacityOptions,
    CapacitySearch,
    NoRoomError,
)
from ganeti.decisions.htools.capacity.tiers import InstanceSize
from ganeti.decisions.htools.model.cluster import Cluster
from ganeti.decisions.htools.model.json_reader import JsonPart
from ganeti.decisions.htools.model.policy import TEMPLATES
from ganeti.decisions.htools.state.node_state import ClusterState

MODE: Final = "capacity"


class CapacityRequest(msgspec.Struct, frozen=True):
    """A capacity request.

    Attributes:
        sizes: initial sizes; several only with ``tiered``.
        how: other properties of the instances.
        tiered: whether sizes shrink.
        groups: positions of the only groups allowed; None for all.
    """

    sizes: Sequence[InstanceSize]
    how: CapacityOptions
    tiered: bool = False
    groups: Sequence[int] | None = None


def is_asked(data: Any) -> bool:
    """Return whether a decoded request is of this mode."""
    request = data.get("request") if isinstance(data, dict) else None
    return isinstance(request, dict) and request.get("type") == MODE


def read(data: Any, cluster: Cluster, *, capacity_checks: bool) -> CapacityRequest:
    """Return the request.

    Raises:
        DataError: names the key, what was wanted and found.
    """
    part = JsonPart(data, "", "request").part("request")
    template = part.text("disk_template", TEMPLATES)
    count = part.size("required_nodes")
    how = CapacityOptions(
        template=template,
        spindle_use=part.size("spindle_use", 1),
        limit=part.size("limit") if part.has("limit") else None,
        capacity_checks=capacity_checks,
        extra_disk=part.size("disk_extra", 0),
    )
    if count != how.nodes:
        raise part.wrong("required_nodes", f"{how.nodes} for {template}", count)
    sizes = [_size(item) for item in part.parts("sizes")]
    if not sizes:
        raise part.wrong("sizes", "at least one size", [])
    tiered = part.flag("tiered", default=False)
    if len(sizes) > 1 and not tiered:
        raise part.wrong("sizes", "one size unless they shrink", len(sizes))
    return CapacityRequest(sizes, how, tiered, _groups(part, cluster))


def _size(part: JsonPart) -> InstanceSize:
    return InstanceSize(
        memory=part.size("memory"),
        disk=part.size("disk"),
        vcpus=part.size("vcpus"),
        spindles=part.size("spindles", 1),
    )


def _groups(part: JsonPart, cluster: Cluster) -> list[int] | None:
    if not part.has("groups"):
        return None
    out = []
    for name in part.texts("groups"):
        groups = [
            place
            for place, group in enumerate(cluster.groups)
            if name in (group.name, group.uuid)
        ]
        if len(groups) != 1:
            raise part.wrong("groups", "names or uuids of node groups", name)
        out += groups
    return out


def solve(
    cluster: Cluster, ask: CapacityRequest
) -> tuple[dict[str, Any], ClusterState]:
    """Return the answer (success, info, result), and the state with the instances."""
    state = ClusterState(cluster)
    try:
        search = CapacitySearch(state, ask.how, groups=ask.groups)
    except NoRoomError as err:
        info = f"Request failed: {err}"
        return {"success": False, "info": info, "result": []}, state
    sizes = ask.sizes
    outcome = search.tiered(sizes) if ask.tiered else search.standard(sizes[0])
    result = stop_reasons.data(search, outcome)
    info = f"Request successful: {result['count']} instances fit"
    return {"success": True, "info": info, "result": result}, outcome.after
