"""Query fields of OS definitions and external storage providers on the nodes."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, query
from ganeti.base.text import nicesort
from ganeti.master.query.model import (
    Field,
    Getter,
    QueryContext,
    Resource,
    by_name,
    normal,
    plain,
)
from ganeti.model.objects import Cluster
from ganeti.protocols.rpc import Request, calls


@dataclasses.dataclass(frozen=True)
class _OnNodes:
    """One name and its matches on each node, first match first.

    Attributes:
        name: of the OS or provider.
        by_node: node uuid -> list of entries as the node sent them, without name.
    """

    name: str
    by_node: dict[str, list[list[Any]]]

    @property
    def first(self) -> list[list[Any] | None]:
        """The entry in force on each node, None if there is none."""
        return [entries[0] if entries else None for entries in self.by_node.values()]

    @property
    def is_valid(self) -> bool:
        """Whether every node can use it."""
        return all(entry is not None and bool(entry[1]) for entry in self.first)

    def common(self, index: int) -> list[Any]:
        """Return the intersection of the lists at an index, sorted by name.

        Empty unless every node can use it.
        """
        if not self.is_valid:
            return []
        lists = [_hashable(entry[index]) for entry in self.first if entry is not None]
        shared = set(lists[0]).intersection(*lists[1:]) if lists else set()
        return sorted(shared, key=lambda item: nicesort.key(str(item)))


def _hashable(items: Iterable[Any]) -> list[Any]:
    return [tuple(item) if isinstance(item, list) else item for item in items or ()]


def _find(
    context: QueryContext,
    request: Request[Any],
    names: Sequence[Any] | None,
) -> list[_OnNodes]:
    """Ask all nodes that can host instances; those that fail are left out."""
    nodes = [
        node.uuid
        for node in context.snapshot.nodes.values()
        if node.vm_capable and not node.offline
    ]
    answers = context.call(nodes, request)
    asked = {
        uuid: result.payload for uuid, result in answers.items() if not result.failed
    }
    by_name: dict[str, dict[str, list[list[Any]]]] = {}
    for uuid, entries in asked.items():
        for name, *rest in entries:
            by_node = by_name.setdefault(name, {node: [] for node in asked})
            by_node[uuid].append(rest)
    if names is None:
        names = nicesort.nice_names(by_name)
    missing = [str(name) for name in names if name not in by_name]
    if missing:
        raise errors.OpPrereqError(
            f"not found on any node: {', '.join(missing)}", ecodes.ECODE_NOENT
        )
    return [_OnNodes(name, by_name[name]) for name in names]


# Operating systems
def _os_rows(context: QueryContext, names: Sequence[Any] | None) -> list[_OnNodes]:
    return _find(context, calls.os_diagnose(), names)


def _os_names(os: _OnNodes) -> list[str]:
    """Return the name and its forms with variants."""
    return [os.name, *(f"{os.name}+{item}" for item in os.common(3))]


def _of_cluster(
    get: Callable[[Cluster, _OnNodes], Any],
) -> Callable[[QueryContext], Getter]:
    def bind(context: QueryContext) -> Getter:
        cluster = context.snapshot.cluster
        return lambda os: normal(get(cluster, os))

    return bind


def _is_listed(names: Sequence[str], os: _OnNodes) -> bool:
    """Return whether an OS, or all of its variants, are on a list."""
    if os.name in names:
        return True
    variants = _os_names(os)[1:]
    return bool(variants) and all(name in names for name in variants)


OS: Final = Resource(
    query.QR_OS,
    "name",
    by_name(
        (
            plain("name", "Name", query.QFT_TEXT, "OS name", lambda os: os.name),
            plain(
                "valid",
                "Valid",
                query.QFT_BOOL,
                "Usable on all nodes",
                lambda os: os.is_valid,
            ),
            plain(
                "trusted",
                "Trusted",
                query.QFT_BOOL,
                "Trusted on all nodes",
                lambda os: os.is_valid and all(entry[6] for entry in os.first),
            ),
            plain(
                "variants",
                "Variants",
                query.QFT_OTHER,
                "Variants that all nodes have",
                lambda os: os.common(3),
            ),
            plain(
                "parameters",
                "Parameters",
                query.QFT_OTHER,
                "Parameters that all nodes know",
                lambda os: os.common(4),
            ),
            plain(
                "api_versions",
                "ApiVersions",
                query.QFT_OTHER,
                "API versions that all nodes know",
                lambda os: os.common(5),
            ),
            plain(
                "node_status",
                "NodeStatus",
                query.QFT_OTHER,
                "Definitions on each node",
                lambda os: os.by_node,
            ),
            Field(
                "hidden",
                "Hidden",
                query.QFT_BOOL,
                "Left out of lists",
                _of_cluster(lambda r, os: _is_listed(r.hidden_os, os)),
            ),
            Field(
                "blacklisted",
                "Blacklisted",
                query.QFT_BOOL,
                "Not for new instances",
                _of_cluster(lambda r, os: _is_listed(r.blacklisted_os, os)),
            ),
            Field(
                "os_hvp",
                "OsHypervisorParams",
                query.QFT_OTHER,
                "Hypervisor parameters, by name with variant",
                _of_cluster(
                    lambda r, os: {
                        name: r.os_hvp.get(name, {}) for name in _os_names(os)
                    }
                ),
            ),
            Field(
                "osparams",
                "OsParameters",
                query.QFT_OTHER,
                "OS parameters, by name with variant",
                _of_cluster(
                    lambda r, os: {
                        name: r.osparams.get(name, {}) for name in _os_names(os)
                    }
                ),
            ),
        )
    ),
    _os_rows,
)


# External storage
def _ext_rows(context: QueryContext, names: Sequence[Any] | None) -> list[_OnNodes]:
    return _find(context, calls.extstorage_diagnose(), names)


def _bind_group_status(context: QueryContext) -> Getter:
    snapshot = context.snapshot

    def get(os: _OnNodes) -> dict[str, bool]:
        result: dict[str, bool] = {}
        for group in snapshot.nodegroups.values():
            members = snapshot.nodes_in_group(group.uuid)
            entries = [os.by_node[uuid] for uuid in members if uuid in os.by_node]
            result[group.name] = bool(entries) and all(
                item and bool(item[0][1]) for item in entries
            )
        return result

    return lambda os: normal(get(os))


EXTSTORAGE: Final = Resource(
    query.QR_EXTSTORAGE,
    "name",
    by_name(
        (
            plain("name", "Name", query.QFT_TEXT, "Provider", lambda os: os.name),
            plain(
                "node_status",
                "NodeStatus",
                query.QFT_OTHER,
                "Definitions on each node",
                lambda os: os.by_node,
            ),
            Field(
                "nodegroup_status",
                "NodegroupStatus",
                query.QFT_OTHER,
                "Usable on all nodes of each group",
                _bind_group_status,
            ),
            plain(
                "parameters",
                "Parameters",
                query.QFT_OTHER,
                "Parameters that all nodes know",
                lambda os: os.common(3),
            ),
        )
    ),
    _ext_rows,
)
