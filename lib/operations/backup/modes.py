"""The choice among the units of OP_BACKUP_EXPORT."""

from ganeti.model import opcodes
from ganeti.operations import base
from ganeti.operations.backup import discard, export, remote


class BackupExporting(export.BackupExport):
    """Unit that exports to a node; exports to other clusters have their own."""

    @classmethod
    def for_request(
        cls, op: opcodes.BackupExport
    ) -> type[base.LogicalUnit[opcodes.BackupExport]]:
        """Return the unit that executes a request."""
        if op.mode != "remote":
            return export.BackupExport
        # A client that has lost its receivers must not take this for its export.
        is_given_up = op.target_node == [] and not (
            op.destination_x509_ca or op.remove_instance
        )
        return (
            discard.PreparedExportDiscard if is_given_up else remote.BackupExportRemote
        )
