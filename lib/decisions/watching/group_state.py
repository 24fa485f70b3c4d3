"""State of one group between two runs: attempts per instance, boot ids of nodes.

The file ``watcher.UUID.data`` holds it as JSON::

    {"instance": {"web1": {"restart_count": 1, "restart_when": 1700000500.1,
                           "cleanup_count": 0, "cleanup_when": 0}},
     "node": {"node1": {"bootid": "5e1c..."}}}
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors

_KINDS: Final = ("restart", "cleanup")


@dataclasses.dataclass(frozen=True)
class Attempts:
    """Attempts of one kind for one instance.

    Attributes:
        count: number of attempts; one more than the limit once this was logged.
        when: time of the last attempt, in seconds since 1970.
    """

    count: int = 0
    when: float = 0.0


NO_ATTEMPTS: Final = Attempts()


@dataclasses.dataclass(frozen=True)
class InstanceRecord:
    """Attempts to restart an instance, and to record its guest's own shutdown."""

    restart: Attempts = NO_ATTEMPTS
    cleanup: Attempts = NO_ATTEMPTS


NO_RECORD: Final = InstanceRecord()


@dataclasses.dataclass(frozen=True)
class GroupState:
    """The state that a run leaves for the next run.

    Attributes:
        instances: instance name -> attempts; only instances with attempts.
        boot_ids: node name -> boot id for which its disks were activated.
    """

    instances: Mapping[str, InstanceRecord]
    boot_ids: Mapping[str, str]


EMPTY: Final = GroupState({}, {})


def parse(data: bytes) -> GroupState:
    """Return the state in a file's content; an empty file holds the empty state.

    Raises:
        ParseError: the content is damaged.
    """
    if not data.strip():
        return EMPTY
    try:
        top = _object(json.loads(data), "the file")
        instances = _object(top.get("instance", {}), "instance")
        nodes = _object(top.get("node", {}), "node")
        return GroupState(
            {name: _instance(row, name) for name, row in instances.items()},
            {name: _boot_id(row, name) for name, row in nodes.items()},
        )
    except (ValueError, RecursionError) as err:
        raise errors.ParseError(f"not the state of a group: {err}") from err


def _object(value: Any, what: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ValueError(f"{what}: wanted an object, found {value!r:.60}")


def _instance(row: Any, name: str) -> InstanceRecord:
    row = _object(row, name)
    return InstanceRecord(*(_attempts(row, kind, name) for kind in _KINDS))


def _attempts(row: Mapping[str, Any], kind: str, name: str) -> Attempts:
    count, when = row.get(f"{kind}_count", 0), row.get(f"{kind}_when", 0)
    is_count = isinstance(count, int) and not isinstance(count, bool) and count >= 0
    is_time = isinstance(when, (int, float)) and not isinstance(when, bool)
    if not (is_count and is_time and math.isfinite(when)):
        raise ValueError(f"{name}: {kind} {count!r:.20} at {when!r:.20}")
    return Attempts(count, float(when))


def _boot_id(row: Any, name: str) -> str:
    boot_id = _object(row, name).get("bootid")
    if isinstance(boot_id, str):
        return boot_id
    raise ValueError(f"{name}: wanted a boot id, found {boot_id!r:.60}")


def to_json(state: GroupState) -> bytes:
    """Return the file's content for a state."""
    top = {
        "instance": {
            name: {
                "restart_count": record.restart.count,
                "restart_when": record.restart.when,
                "cleanup_count": record.cleanup.count,
                "cleanup_when": record.cleanup.when,
            }
            for name, record in sorted(state.instances.items())
        },
        "node": {
            name: {"bootid": boot_id}
            for name, boot_id in sorted(state.boot_ids.items())
        },
    }
    return json.dumps(top).encode() + b"\n"
