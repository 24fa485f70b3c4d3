"""Conditional operations: whether objects have the serials that a client has read.

Each record counts its changes in ``serial_no``. An opcode with ``if_serial`` is refused
after another change of the object, so that of two writers who have read the same state
the second one does not undo what the first one did.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ganeti.model import objects
from ganeti.model.opcodes import Opcode
from ganeti.model.opcodes.codec import HIDDEN

#: Word for messages by table.
_KINDS: Final = {
    "instances": "instance",
    "nodes": "node",
    "nodegroups": "node group",
    "networks": "network",
    "disks": "disk",
}


def conflict(snapshot: objects.Snapshot, op: Opcode) -> str:
    """Return why the condition of an opcode does not hold, empty if it holds.

    The text has both serials and the present values of what the opcode would change.
    """
    for uuid, wanted in (op.if_serial or {}).items():
        kind, record = _find(snapshot, uuid)
        if record is None:
            return f"{uuid}: no object has this UUID, wanted one with serial {wanted}"
        if record.serial_no != wanted:
            name = getattr(record, "name", None) or uuid
            values = "".join(f"; {text}" for text in _present(op, record))
            return (
                f"{kind} {name}: was changed since it was read: wanted serial {wanted},"
                f" found {record.serial_no}{values}"
            )
    return ""


def _find(snapshot: objects.Snapshot, uuid: str) -> tuple[str, Any]:
    """Return word and record of an object; None if there is none."""
    if uuid == snapshot.cluster.uuid:
        return "cluster", snapshot.cluster
    for table, kind in _KINDS.items():
        record = snapshot.table(table).get(uuid)
        if record is not None:
            return kind, record
    return "", None


def _present(op: Opcode, record: Any) -> Iterator[str]:
    """Yield the values that an object has where the opcode gives others."""
    hidden = HIDDEN.get(op.op_id(), {})
    for name in type(op).__struct_fields__:
        asked, value = getattr(op, name), getattr(record, name, None)
        if asked is None or name in hidden:
            continue
        if isinstance(asked, Mapping) and isinstance(value, Mapping):
            value = {key: value[key] for key in asked if key in value}
        elif not isinstance(value, str | int | float):
            continue
        if value != asked:
            yield f"{name} is {json.dumps(value)}"
