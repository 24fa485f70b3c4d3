"""The answer of one node to one call."""

import dataclasses
from typing import Any, NoReturn

from ganeti import errors

OFFLINE_TEXT = "Node is marked offline"


@dataclasses.dataclass(frozen=True)
class Result:
    """The answer of a node to one call.

    Attributes:
        call: procedure name.
        node: node name, for messages.
        payload: the answer, None on failure.
        fail_msg: why it failed, None on success.
        offline: the node is marked offline and was not asked.
        is_lost: the connection broke or timed out after the request was sent, so that
            the node may have done the work.
        deposed: the node refused because it has seen a later master term.
    """

    call: str
    node: str
    payload: Any = None
    fail_msg: str | None = None
    offline: bool = False
    is_lost: bool = False
    deposed: bool = False

    @property
    def failed(self) -> bool:
        """Return whether there is no payload."""
        return self.fail_msg is not None

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
        """Return the payload, for checks before anything is changed.

        Raises:
            OpPrereqError: the call failed.
        """
        if self.fail_msg is not None:
            raise errors.OpPrereqError(self.describe(what), ecode)
        return self.payload

    def describe(self, what: str) -> str:
        """Return the message of a failure."""
        return f"{what}: node {self.node}: {self.fail_msg}"


def fail(call: str, node: str, text: str) -> NoReturn:
    """Raise RpcError for a call."""
    raise errors.RpcError(f"{call} on node {node}: {text}")
