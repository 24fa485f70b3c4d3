"""Locks on a whole group: itself, its nodes, its instances.

Instances are locked first, so their set is taken from the configuration before the
locks are held. Units that only read leave out the instances and nodes that came or went
in between: on a busy cluster there nearly always are some.
"""

from collections.abc import Iterable
from typing import Any

from ganeti.base.constants import ecodes
from ganeti.base.text import messages
from ganeti.master.locking import Level
from ganeti.model import objects
from ganeti.model.objects import lookup
from ganeti.operations.base import Context, LockRequest


class GroupLocks:
    """Mixin for units that read one whole group with shared locks."""

    op: Any
    ctx: Context
    locks: LockRequest
    prereq: Any
    group: str
    #: Take only the instances and nodes that are free.
    opportunistic: bool = False

    def expand_names(self) -> None:
        """Look the group up and lock it with all its instances."""
        snapshot = self.ctx.snapshot
        self.group = lookup.expand_group(snapshot, self.op.group_name)
        self.locks.names[Level.INSTANCE] = instance_names(snapshot, self.group)
        self.locks.names[Level.NODEGROUP] = [self.group]
        self.locks.names[Level.NODE] = []
        self.locks.shared.update(self.locks.names)
        self.locks.without_removed.update((Level.INSTANCE, Level.NODE))
        if self.opportunistic:
            self.locks.opportunistic.update((Level.INSTANCE, Level.NODE))

    def declare_locks(self, level: Level) -> None:
        """Lock the current nodes of the group."""
        if level is Level.NODE:
            self.locks.names[level] = sorted(
                self.ctx.snapshot.nodes_in_group(self.group)
            )

    def check_prereq(self) -> None:
        """Check that the group still exists."""
        if self.group not in self.ctx.snapshot.nodegroups:
            raise self.prereq(
                f"node group {self.op.group_name}: was removed while the job waited for"
                " locks",
                ecodes.ECODE_NOENT,
            )

    def locked_instances(self, names: Iterable[str]) -> frozenset[str]:
        """Return the names of locked instances among some, and log the others."""
        owned = self.ctx.locks.owned(Level.INSTANCE)
        wanted = frozenset(names)
        if not self.opportunistic and (others := wanted - owned):
            self.ctx.log.info(
                f"left out {messages.some(others)}: added while the job waited for"
                " locks"
            )
        return wanted & owned


def instance_names(snapshot: objects.Snapshot, group: str) -> list[str]:
    """Return the names of the instances with a node in a group, sorted."""
    uuids = {
        uuid
        for node in snapshot.nodes_in_group(group)
        for uuid in (
            *snapshot.primary_instances(node),
            *snapshot.secondary_instances(node),
        )
    }
    return sorted(snapshot.instances[uuid].name or uuid for uuid in uuids)
