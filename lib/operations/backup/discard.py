"""OP_BACKUP_EXPORT in mode remote without receivers: give a prepared export up."""

from typing import ClassVar

from ganeti.model import opcodes
from ganeti.operations.instance import common
from ganeti.operations.trust import domain_secret


class PreparedExportDiscard(common.InstanceUnit[opcodes.BackupExport]):
    """Unit that removes the key of a prepared export; nothing is exported.

    It waits for an export of the instance that runs, so a key in use is removed only
    when that has ended. Not in Ganeti, which refuses an export without receivers.
    """

    HOOKS_TYPE: ClassVar[str | None] = None
    NEEDS_EXISTING: ClassVar[str] = "there is nothing to export"

    def check_prereq(self) -> None:
        """Refuse a key that this cluster did not prepare for the instance."""
        what = f"instance {self.instance.name}"
        self.require_online_primary()
        if not self.op.x509_key_name:
            raise self.prereq(
                f"{what}: an export without receivers removes the key that was prepared"
                " for it; wanted x509_key_name, found none"
            )
        secret = domain_secret.load(self.ctx.paths)
        signed = self.op.x509_key_name
        self._key = secret.key_name(signed, what, self.instance.uuid)

    def execute(self) -> tuple[bool, list[bool]]:
        """Remove the key."""
        self.ctx.rpc.call_one(
            "x509_cert_remove", self.instance.primary_node, self._key
        ).unwrap(f"instance {self.instance.name}: cannot remove the prepared key")
        return True, []
