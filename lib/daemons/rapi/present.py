"""Present values of what a request changes.

Clients read an object, change a part, and write everything back. A value that is there
already gives them nothing, so it needs no right of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.daemons.rapi.handlers import Master

#: Opcode -> kind of the object, member with its name, its parameters.
_OBJECTS: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "OP_GROUP_SET_PARAMS": ("group", "group_name", ("diskparams", "ndparams")),
    "OP_INSTANCE_SET_PARAMS": ("instance", "instance_name", ("hvparams",)),
    "OP_NODE_SET_PARAMS": ("node", "node_name", ("ndparams",)),
}
_CLUSTER: Final = "OP_CLUSTER_SET_PARAMS"
#: Members that name an object in place of the name, or change what a value means.
_OTHERS: Final = ("group_uuid", "hypervisor", "instance_uuid", "node_uuid")


def values(master: Master, ops: Sequence[Mapping[str, Any]]) -> Any:
    """Return the present values that the one opcode of a request can change.

    They are nested as in the opcode. Of a request about several objects, or about one
    that is not found, nothing is known.
    """
    if len(ops) != 1 or any(ops[0].get(key) is not None for key in _OTHERS):
        return None
    op = ops[0]
    if op.get("OP_ID") == _CLUSTER:
        return master.call("QueryClusterInfo")
    kind, key, names = _OBJECTS.get(op.get("OP_ID", ""), ("", "", ()))
    if not names or not isinstance(op.get(key), str):
        return None
    try:
        (known,) = master.call("QueryObjects", [kind, [op[key]], list(names), False])
    except (errors.GenericError, ValueError):
        return None
    return known
