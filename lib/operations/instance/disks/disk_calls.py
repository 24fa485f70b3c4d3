"""Calls for the disks of an instance, of which a silent node gets few."""

from collections import Counter
from typing import Any, Final

from ganeti.operations import base
from ganeti.protocols import rpc

#: Calls without an answer in succession, after which a node is not called any more. A
#: node daemon that is restarted loses one call.
_ENOUGH: Final = 2


class DiskCalls:
    """Calls of one procedure, one for each disk on each of its nodes."""

    def __init__(self, ctx: base.Context, procedure: str) -> None:
        self._ctx, self._procedure = ctx, procedure
        self._unanswered: Counter[str] = Counter()
        self._last: dict[str, rpc.Result] = {}

    def on(self, node: str, *args: Any) -> rpc.Result:
        """Call a node; if it has been silent for long, return its last failure."""
        if self._unanswered[node] >= _ENOUGH:
            return self._last[node]
        result = self._ctx.rpc.call_one(self._procedure, node, *args)
        if result.is_silent:
            self._unanswered[node] += 1
            self._last[node] = result
        else:
            del self._unanswered[node]
        return result
