"""The interface to nodes; implemented by the network runner and by fakes."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ganeti.base.constants import misc
from ganeti.protocols.rpc.result import Result

_UUID: Final = re.compile(misc.UUID_REGEX)


class Target(NamedTuple):
    """Name and address of a node daemon.

    ``certified``: name that its certificate must have; by default the UUID, or the name
    if the caller does not know a UUID.
    """

    uuid: str
    name: str
    address: str
    port: int
    offline: bool = False
    certified: str = ""

    @property
    def identity(self) -> str:
        """The name that the certificate of the node must have."""
        if self.certified:
            return self.certified
        return self.uuid if _UUID.fullmatch(self.uuid) else self.name


class Runner(Protocol):
    """A caller of procedures in `ganeti.protocols.rpc.table` on nodes.

    A class that inherits from it only defines ``call``.
    """

    def call(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Sequence[Any] | Callable[[str], Sequence[Any]] = (),
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Result]:
        """Call many nodes in parallel.

        Args:
            procedure: its name in the table.
            nodes: node uuids, resolved with the newest snapshot.
            args: positional arguments, or a function of the node's uuid.
            timeout_s: time limit of the whole answer; by default that of the
                procedure's class.

        Returns:
            node uuid -> result; a failure is a result, too, and is not raised.
        """

    def call_one(
        self,
        procedure: str,
        node: str,
        *args: Any,
        timeout_s: float | None = None,
    ) -> Result:
        """Call one node."""
        return self.call(procedure, [node], args, timeout_s=timeout_s)[node]
