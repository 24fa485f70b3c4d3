"""The table of all resources of the remote API, and the search for a path."""

import re
import urllib.parse
from collections.abc import Mapping
from typing import Final, NamedTuple

from ganeti.daemons.rapi.model import Resource
from ganeti.daemons.rapi.resources import (
    resources_cluster,
    resources_instances,
    resources_nodes,
)

#: One row per path and method.
RESOURCES: Final[tuple[Resource, ...]] = (
    *resources_cluster.RESOURCES,
    *resources_instances.RESOURCES,
    *resources_nodes.RESOURCES,
)
FEATURES: Final = resources_cluster.FEATURES


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
        path: its parts are in the form of `ganeti.daemons.rapi.model.segment`.
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
