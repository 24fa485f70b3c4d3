"""The result of one call of one node."""

import dataclasses
from typing import Any, NoReturn

from ganeti.base import errors

OFFLINE_TEXT = "Node is marked offline"


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of one call of one node.

    Attributes:
        call: procedure name.
        node: node name, for messages.
        payload: the answer, None on failure.
        fail_msg: the reason of a failure, None on success.
        offline: the node is marked offline and was not called.
        is_lost: the connection broke or timed out after the request was sent, so the
            node may have executed it.
        deposed: the node refused the call because it has seen a higher master term.
        refused: the node does not accept the certificate of the caller.
        is_silent: no answer came: the node may be down.
    """

    call: str
    node: str
    payload: Any = None
    fail_msg: str | None = None
    offline: bool = False
    is_lost: bool = False
    deposed: bool = False
    refused: bool = False
    is_silent: bool = False

    @property
    def failed(self) -> bool:
        """Return whether the call failed."""
        return self.fail_msg is not None

    @property
    def is_answered(self) -> bool:
        """Return whether the node carried the call out, with success or without."""
        return not (
            self.offline
            or self.is_lost
            or self.deposed
            or self.refused
            or self.is_silent
        )

    def unwrap(self, what: str) -> Any:
        """Return the payload.

        Args:
            what: the attempt, such as ``cannot start instance web1``.

        Raises:
            OpExecError: the call failed.
        """
        if self.fail_msg is not None:
            raise errors.OpExecError(self.describe(what))
        return self.payload

    def require(self, what: str, ecode: str) -> Any:
        """Return the payload, in checks before any change.

        Raises:
            OpPrereqError: the call failed.
        """
        if self.fail_msg is not None:
            raise errors.OpPrereqError(self.describe(what), ecode)
        return self.payload

    def describe(self, what: str) -> str:
        """Return the message for a failure."""
        return f"{what}: node {self.node}: {self.fail_msg}"


def fail(call: str, node: str, text: str) -> NoReturn:
    """Raise RpcError for a call."""
    raise errors.RpcError(f"{call} on node {node}: {text}")
