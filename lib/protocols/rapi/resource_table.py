"""The table of all resources of the remote API, and the search for a path."""

import re
import urllib.parse
from collections.abc import Mapping
from typing import Final, NamedTuple

from ganeti.protocols.rapi import (
    resources_cluster,
    resources_instances,
    resources_nodes,
)
from ganeti.protocols.rapi.model import Resource

#: One row per path and method.
RESOURCES: Final[tuple[Resource, ...]] = (
    *resources_cluster.RESOURCES,
    *resources_instances.RESOURCES,
    *resources_nodes.RESOURCES,
)
FEATURES: Final = resources_cluster.FEATURES
#: Methods of LUXI that the server calls for requests to any resource.
_FOR_ANY: Final = (
    *("PlanJob", "QueryClusterInfo", "QueryDiskName", "QueryObjects", "SubmitJob"),
    *("UseSession", "QueryLivingSessions", "RevokeSessions"),
)
#: Methods of LUXI and opcodes that the master daemon accepts of the remote API.
METHODS: Final = frozenset(
    {*_FOR_ANY, *(name for each in RESOURCES for name in each.luxi)}
)
OPCODES: Final = frozenset(op_id for each in RESOURCES for op_id in each.op_ids)


class PathMatch(NamedTuple):
    """The resources of a path.

    Attributes:
        methods: resource by method.
        variables: values of the path's variables.
    """

    methods: Mapping[str, Resource]
    variables: Mapping[str, str]


def _by_path() -> dict[str, dict[str, Resource]]:
    methods: dict[str, dict[str, Resource]] = {}
    for resource in RESOURCES:
        methods.setdefault(resource.path, {})[resource.method] = resource
    return methods


_METHODS: Final = _by_path()
_FIXED: Final = {
    path: PathMatch(methods, {})
    for path, methods in _METHODS.items()
    if "[" not in path
}
_PATTERNS: Final = tuple(
    (re.compile(next(iter(methods.values())).pattern()), methods)
    for path, methods in _METHODS.items()
    if "[" in path
)


def find(path: str) -> PathMatch | None:
    """Return the resources of a path, None if there is no such path.

    Args:
        path: its parts are in the form of `ganeti.protocols.rapi.model.segment`.
    """
    fixed = _FIXED.get(path)
    if fixed is not None:
        return fixed
    for pattern, methods in _PATTERNS:
        match = pattern.fullmatch(path)
        if match is not None:
            names = match.groupdict()
            return PathMatch(
                methods,
                {name: urllib.parse.unquote(text) for name, text in names.items()},
            )
    return None
