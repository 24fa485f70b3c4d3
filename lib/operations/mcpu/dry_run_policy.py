"""Answers to node calls of a dry run, where they depend on the arguments.

`ganeti.protocols.rpc.table` has one row per procedure. The row states whether a call
only reads. A dry run sends reading calls to the nodes, so checks see the real cluster.
It never sends an acting call, but returns the answer of a successful one. The functions
that rows name for these purposes are here.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base.constants.protocols import ssh as constants
from ganeti.base.tls import authority
from ganeti.protocols.rpc.table import Procedure

Args = Sequence[Any]

#: Out-of-band commands that only read.
_OOB_QUESTIONS: Final = frozenset(("health", "power-status"))


def only_reads(row: Procedure, args: Args) -> bool:
    """Return whether a call with these arguments changes nothing on a node."""
    return READS_IF[row.reads_if](args) if row.reads_if else row.reads


def answer(row: Procedure, args: Args) -> Any:
    """Return the payload of a successful acting call."""
    if row.answer_from:
        return ANSWERS[row.answer_from](args)
    return copy.deepcopy(row.answer)


def device_path(disk: Mapping[str, Any]) -> str:
    """Return the most likely path of a disk after its assembly."""
    kind, address = disk.get("dev_type"), disk.get("logical_id") or ("", "")
    if kind == "plain":
        return f"/dev/{address[0]}/{address[1]}"
    if kind == "drbd":
        return "/dev/drbd"
    return str(address[1])


def _assembled_device(args: Args) -> list[Any]:
    disk, instance, on_primary, index = args[:4]
    if not on_primary:
        return [True, True]
    link = f"/var/run/ganeti/instance-disks/{instance['name']}:{index}"
    return [device_path(disk), link, None]


def _snapshot_volume(args: Args) -> list[Any]:
    """Return the volume group of the disk, and the name given."""
    return [args[0]["logical_id"][0], args[1]]


def _new_tokens(args: Args) -> list[Any]:
    """Return placeholders: the new token is not known in advance."""
    _key, request = authority.new_request("planned")
    tokens = {constants.CRYPTO_REQUEST: request.decode()}
    return [[row[0], tokens.get(row[1], "planned-token")] for row in args[0]]


#: Functions of the arguments that return whether the call only reads.
READS_IF: Final[Mapping[str, Callable[[Args], bool]]] = {
    "is_tried_only": lambda args: bool(args[2]),
    "gets_all_tokens": lambda args: all(row[1] == "get" for row in args[0]),
    "is_oob_question": lambda args: args[1] in _OOB_QUESTIONS,
}
#: Functions of the arguments that return the payload of an acting call.
ANSWERS: Final[Mapping[str, Callable[[Args], Any]]] = {
    "assembled_device": _assembled_device,
    "snapshot_volume": _snapshot_volume,
    "new_tokens": _new_tokens,
    "success_per_disk": lambda args: [[True, None] for _disk in args[0]],
    "success_per_helper": lambda args: [[True, None] for _helper in args[0]],
    "null_per_file": lambda args: [None for _pair in args[0]],
}
