"""The choice among the units of OP_BACKUP_EXPORT."""

from ganeti import opcodes
from ganeti.cmdlib import base
from ganeti.cmdlib.backup import discard, export, remote


class BackupExporting(export.BackupExport):
    """Unit that exports to a node; exports to other clusters have their own."""

    @classmethod
    def for_request(
        cls, op: opcodes.BackupExport
    ) -> type[base.LogicalUnit[opcodes.BackupExport]]:
        """Return the unit that executes a request."""
        if op.mode != "remote":
            return export.BackupExport
        has_receivers = op.target_node != []
        return (
            remote.BackupExportRemote
            if has_receivers
            else discard.PreparedExportDiscard
        )
