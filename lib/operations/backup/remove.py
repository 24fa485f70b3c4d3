"""OP_BACKUP_REMOVE: remove the exports of an instance, which may no longer exist."""

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.net import hostnames
from ganeti.master import locking
from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations import base
from ganeti.operations.instance.create import stored_exports


class BackupRemove(base.LogicalUnit[opcodes.BackupRemove]):
    """Unit that removes the exports of one name from all nodes."""

    name: str

    def expand_names(self) -> None:
        """Determine the name; an instance that exists is locked."""
        name = self.op.instance_name
        try:
            uuid = lookup.expand_instance(self.ctx.snapshot, name)
        except errors.OpPrereqError:
            self.name = hostnames.normalize(name)
            return
        self.name = self.ctx.snapshot.instances[uuid].name
        self.locks.names[locking.Level.INSTANCE] = [self.name]

    def check_prereq(self) -> None:
        """Refuse a name without exports."""
        self.holders = stored_exports.holders(self.ctx, self.name)
        if not self.holders:
            raise self.prereq(
                f"export {self.name}: not found on any node that answers; gnt-backup"
                " list shows all exports, whose full names are wanted",
                ecodes.ECODE_NOENT,
            )

    def execute(self) -> None:
        """Remove the exports."""
        for uuid in self.holders:
            node = self.ctx.snapshot.nodes[uuid].name
            self.ctx.log.message(f"* removing the export on node {node}")
            self.ctx.rpc.call_one("export_remove", uuid, self.name).unwrap(
                f"export {self.name}: cannot be removed on node {node}"
            )
