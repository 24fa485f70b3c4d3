"""The part of LUXI that the remote API may use, on a socket of its own.

The daemon of the remote API has a user of its own, who cannot connect to the other
sockets. Whoever takes that daemon over can do what its users can do, but not, for
example, destroy the cluster, set its master, or call the test opcodes.
"""

from typing import Any

from ganeti import errors
from ganeti.constants import ecodes, remote
from ganeti.luxi.server import Call


def check(call: Call) -> None:
    """Refuse a request that the remote API never makes.

    Raises:
        OpPrereqError: the method or an opcode is not on the list.
    """
    if call.method not in remote.METHODS:
        raise _refusal(f"method {call.method!r}")
    if call.method == "SubmitJob":
        for op_id in _op_ids(call.args):
            if op_id not in remote.OPCODES:
                raise _refusal(f"opcode {op_id!r}")


def _op_ids(args: list[Any]) -> list[Any]:
    """Return the names of opcodes; whatever has none is refused when it is decoded."""
    ops = args[0] if args and isinstance(args[0], list) else []
    return [op.get("OP_ID") for op in ops if isinstance(op, dict)]


def _refusal(subject: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(
        f"{subject} is not available to the remote API", ecodes.ECODE_INVAL
    )
