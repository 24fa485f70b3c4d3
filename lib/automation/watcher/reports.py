"""Report of the master on one group."""

from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.decisions.watching.verdicts import GroupReport, InstanceReport, NodeReport
from ganeti.protocols import luxi

_INSTANCE: Final = (
    *("name", "status", "admin_state", "disks_active", "disk_template"),
    *("pnode", "snodes", "stuck"),
)
_NODE: Final = ("name", "bootid", "offline")
_UNFINISHED: Final = ("queued", "waiting", "canceling", "running")
_NORMAL: Final = 0
_PREFIX: Final = "instance/"


def load(client: luxi.Client, group: str) -> GroupReport:
    """Return the report on a group.

    Args:
        client: of the master daemon.
        group: uuid.

    Raises:
        GenericError: the master does not answer, or the answer is malformed.
    """
    in_group = ["==", "pnode.group.uuid", group]
    rows = query_rows(client, "instance", _INSTANCE, in_group)
    nodes = [
        NodeReport(row["name"], row["bootid"], bool(row["offline"]))
        for row in query_rows(client, "node", _NODE, ["==", "group.uuid", group])
    ]
    members = frozenset(node.name for node in nodes)
    instances = [_instance(row, members) for row in rows]
    return GroupReport(
        {item.name: item for item in instances},
        {item.name: item for item in nodes},
        _locked(client),
        unfinished(client),
    )


def query_rows(
    client: luxi.Client, kind: str, names: tuple[str, ...], qfilter: list[Any] | None
) -> list[dict[str, Any]]:
    """Return field -> value of each object, None for values that are not available."""
    answer = client.call("Query", [kind, list(names), qfilter])
    try:
        return [
            {
                name: value if status == _NORMAL else None
                for name, (status, value) in zip(names, row, strict=True)
            }
            for row in answer["data"]
        ]
    except (TypeError, ValueError, KeyError) as err:
        raise errors.ProtocolError(f"{kind}: the answer is malformed: {err}") from err


def _instance(row: Mapping[str, Any], members: frozenset[str]) -> InstanceReport:
    """Return the report on an instance; members are the nodes of its group."""
    return InstanceReport(
        name=row["name"],
        status=row["status"] or "",
        admin_state=row["admin_state"] or "",
        disks_active=bool(row["disks_active"]),
        disk_template=row["disk_template"] or "",
        secondaries=tuple(row["snodes"] or ()),
        is_split=not members.issuperset(row["snodes"] or ()),
        primary=row["pnode"] or "",
        is_stuck=bool(row["stuck"]),
    )


def _locked(client: luxi.Client) -> frozenset[str]:
    """Return the instances whose locks are in use or waited for."""
    rows = query_rows(client, "lock", ("name", "mode", "pending"), None)
    return frozenset(
        row["name"].removeprefix(_PREFIX)
        for row in rows
        if row["name"].startswith(_PREFIX) and (row["mode"] or row["pending"])
    )


def unfinished(client: luxi.Client) -> dict[str, int]:
    """Return the summaries of unfinished jobs' opcodes, with the jobs' ids."""
    in_progress = ["|", *(["==", "status", word] for word in _UNFINISHED)]
    rows = query_rows(client, "job", ("id", "summary"), in_progress)
    return {text: int(row["id"]) for row in rows for text in row["summary"] or ()}
