"""The part of LUXI that the remote API may use, on a socket of its own.

The daemon of the remote API has a user of its own, who cannot connect to the other
sockets. Whoever takes that daemon over can do what its users can do, but not, for
example, destroy the cluster, set its master, or call the test opcodes.
"""

import re
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import remote
from ganeti.decisions.jobs.remote import SOURCE
from ganeti.protocols.luxi.server import Call

_SOURCE_TEXT: Final = f'["{SOURCE}","'.encode()
#: A reason of `SOURCE` in a compact text: its start, and the end of its text.
_REQUESTER: Final = re.compile(
    re.escape(_SOURCE_TEXT).join((b"(", b")"))
    + rb'user (?:[^"\\]|\\.)*?, address (?:[^"\\]|\\.)*?, (request [0-9a-f]+")'
)


def check(call: Call) -> None:
    """Refuse a request that the remote API never makes.

    Raises:
        OpPrereqError: the method or an opcode is not on the list.
    """
    if call.method not in remote.METHODS:
        raise _refusal(f"method {call.method!r}")
    if call.method == "SubmitJob":
        for op in _opcodes(call.args):
            if op.get("OP_ID") not in remote.OPCODES:
                raise _refusal(f"opcode {op.get('OP_ID')!r}")
            if not _names_requester(op.get("reason")):
                raise _refusal(f"an opcode without a reason of {SOURCE!r}")


def without_requesters(text: bytes) -> bytes:
    """Return the JSON text of a result without who asked for jobs, and from where.

    Users of the remote API see each other's jobs. The number of the request remains;
    the commands of the master show all.
    """
    if _SOURCE_TEXT not in text:
        return text
    return _REQUESTER.sub(rb"\1\2", text)


def _opcodes(args: list[Any]) -> list[dict[str, Any]]:
    """Return the opcodes; whatever is none is refused when it is decoded."""
    ops = args[0] if args and isinstance(args[0], list) else []
    return [op for op in ops if isinstance(op, dict)]


def _names_requester(trail: Any) -> bool:
    return isinstance(trail, list) and any(
        isinstance(entry, list) and entry and entry[0] == SOURCE for entry in trail
    )


def _refusal(subject: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(
        f"{subject} is not available to the remote API", ecodes.ECODE_INVAL
    )
