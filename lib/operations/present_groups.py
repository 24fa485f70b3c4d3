"""The volume groups that nodes have, for advice about mirrors that have lost a copy."""

from ganeti.decisions.verify import mirrors
from ganeti.model import objects
from ganeti.operations import base


class PresentGroups:
    """Asks each node once, and only if the answer is needed."""

    def __init__(self, ctx: base.Context) -> None:
        self._ctx = ctx
        self._known: dict[str, frozenset[str] | None] = {}

    def lacks(self, node: str, disk: objects.Disk) -> bool:
        """Return whether a node is known to lack a volume group of a mirror."""
        if node not in self._known:
            answer = self._ctx.rpc.call_one("vg_list", node)
            present = None if answer.failed else frozenset(answer.payload)
            self._known[node] = present
        return mirrors.lacks_group(self._known[node], disk)
