"""OP_BACKUP_PREPARE: make what a remote export needs to begin."""

from typing import Any, ClassVar

from ganeti.base.constants.protocols import export as constants
from ganeti.master import locking
from ganeti.model import opcodes
from ganeti.operations.instance import common
from ganeti.operations.trust import domain_secret


class BackupPrepare(common.InstanceUnit[opcodes.BackupPrepare]):
    """Unit that makes a key for an export to another cluster.

    The key is removed by that export, or by one without receivers if it is given up.
    ganeti-cleaner removes one that no export uses when its certificate has expired.
    """

    HOOKS_TYPE: ClassVar[str | None] = None
    NEEDS_EXISTING: ClassVar[str] = "there is nothing to export"

    def expand_names(self) -> None:
        """Look the instance up; nothing of it is changed."""
        super().expand_names()
        self.locks.shared.add(locking.Level.INSTANCE)

    def check_prereq(self) -> None:
        """Check that the instance can be exported, and that there is a secret."""
        self.require_online_primary()
        if self.op.mode != "remote":
            return
        domain_secret.load(self.ctx.paths)

    def execute(self) -> dict[str, Any] | None:
        """Make a key; return its name and certificate, and the handshake, signed.

        A local export needs nothing.
        """
        if self.op.mode != "remote":
            return None
        name, pem = self.ctx.rpc.call_one(
            "x509_cert_create", self.instance.primary_node, constants.RIE_CERT_VALIDITY
        ).unwrap(f"instance {self.instance.name}: cannot make a certificate")
        secret = domain_secret.load(self.ctx.paths)
        return {
            "handshake": secret.handshake(),
            "x509_key_name": secret.signed_name(name, self.instance.uuid),
            "x509_ca": secret.signed_certificate(pem),
        }
