"""OP_INSTANCE_REPLACE_DISKS: for mirrored templates, of which none is offered.

Every template that instances can have here keeps one copy of its data, or leaves
mirroring to others. So a request is checked, and refused with what helps instead.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, NoReturn

from ganeti import opcodes
from ganeti.cmdlib.instance import common
from ganeti.constants import disks as disk_words
from ganeti.constants import ecodes
from ganeti.objects import lookup

_NEW_SECONDARY: Final = "replace_new_secondary"


class InstanceReplaceDisks(common.InstanceUnit[opcodes.InstanceReplaceDisks]):
    """Refuse: there is no second copy that could be replaced."""

    HOOKS_PATH: ClassVar[str | None] = "mirrors-replace"
    LOCK_NODES: ClassVar[bool] = True

    def check_arguments(self) -> None:
        """Check that mode and new node fit together."""
        op, what = self.op, f"instance {self.op.instance_name}"
        wishes = [wish for wish in (op.remote_node, op.iallocator) if wish]
        if op.mode == _NEW_SECONDARY and len(wishes) != 1:
            raise self.prereq(f"{what}: give either a new secondary or an allocator")
        if op.mode != _NEW_SECONDARY and wishes:
            raise self.prereq(
                f"{what}: a new secondary goes with mode {_NEW_SECONDARY}, found"
                f" {op.mode}"
            )

    def expand_names(self) -> None:
        """Look instance and new secondary up."""
        super().expand_names()
        self.remote = (
            lookup.expand_node(self.ctx.snapshot, self.op.remote_node)
            if self.op.remote_node
            else None
        )

    def nodes_to_lock(self) -> Sequence[str]:
        """Return the instance's nodes and the new secondary."""
        known = super().nodes_to_lock()
        return sorted({*known, self.remote} if self.remote else {*known})

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance and of the request."""
        return super().hooks_env() | {
            "MODE": self.op.mode,
            "NEW_SECONDARY": self.op.remote_node,
            "OLD_SECONDARY": None,
        }

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master, the primary and the new secondary, for both phases."""
        more = [self.remote] if self.remote else []
        nodes = self.with_master([self.instance.primary_node, *more])
        return nodes, nodes

    def check_prereq(self) -> NoReturn:
        """Refuse."""
        self._refuse()

    def execute(self) -> NoReturn:
        """Refuse; a check that may be repeated cannot end otherwise."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        instance = self.instance
        template = self.ctx.snapshot.disk_template(instance)
        mirrored = " or ".join(disk_words.DTS_INT_MIRROR)
        if template in disk_words.DTS_INT_MIRROR:
            text = f"disk template {template} is not offered"
        else:
            text = (
                f"disk template {template} has no second copy to replace, only"
                f" {mirrored} has; 'gnt-instance recreate-disks' makes lost disks anew"
            )
        raise self.prereq(f"instance {instance.name}: {text}", ecodes.ECODE_INVAL)
