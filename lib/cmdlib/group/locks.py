"""Locks on a whole group: itself, its nodes, its instances.

Instances are locked first, so their set is taken from the configuration and checked
once all locks are held.
"""

from typing import Any

from ganeti import locking, objects
from ganeti.cmdlib.base import Context, LockRequest
from ganeti.constants import ecodes
from ganeti.locking import Level
from ganeti.objects import lookup
from ganeti.utils import messages


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
        if self.opportunistic:
            self.locks.opportunistic.update((Level.INSTANCE, Level.NODE))

    def declare_locks(self, level: locking.Level) -> None:
        """Lock the current nodes of the group."""
        if level is Level.NODE:
            self.locks.names[level] = sorted(
                self.ctx.snapshot.nodes_in_group(self.group)
            )

    def check_prereq(self) -> None:
        """Check that the group did not change while the job waited for locks."""
        if not self.opportunistic:
            check_unmoved(self.ctx, self.group, self.prereq)


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


def check_unmoved(ctx: Context, group: str, prereq: Any) -> None:
    """Refuse to go on if the members of a group changed while the job waited.

    Raises:
        OpPrereqError: wrong state; the user should retry.
    """
    snapshot = ctx.snapshot
    record = snapshot.nodegroups.get(group)
    if record is None:
        raise prereq(
            f"node group {group}: was removed while the job waited for locks",
            ecodes.ECODE_NOENT,
        )
    missing = set(instance_names(snapshot, group)) - ctx.locks.owned(Level.INSTANCE)
    missing_nodes = snapshot.nodes_in_group(group) - ctx.locks.owned(Level.NODE)
    if missing or missing_nodes:
        what = messages.some(missing) or f"{len(missing_nodes)} node(s)"
        raise prereq(
            f"node group {record.name}: {what} were added while the job waited for"
            " locks, retry",
            ecodes.ECODE_STATE,
        )
