"""Exports to other clusters: prepared, sent or given up; and the choice of the unit."""

from typing import Any, ClassVar, cast

import msgspec

from ganeti.base.constants.protocols import export as constants
from ganeti.master import locking
from ganeti.model import opcodes
from ganeti.operations import base
from ganeti.operations.backup import export, export_source, stored_exports
from ganeti.operations.instance import common
from ganeti.operations.instance.move import disk_transfer, remote_transfer
from ganeti.operations.trust import domain_secret
from ganeti.protocols.rpc import calls, encode


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
        name, pem = self.ctx.rpc.call_node(
            self.instance.primary_node,
            calls.x509_cert_create(constants.RIE_CERT_VALIDITY),
        ).unwrap(f"instance {self.instance.name}: cannot make a certificate")
        secret = domain_secret.load(self.ctx.paths)
        return {
            "handshake": secret.handshake(),
            "x509_key_name": secret.signed_name(name, self.instance.uuid),
            "x509_ca": secret.signed_certificate(pem),
        }


class RemoteInterrupted(export_source.Interrupted, frozen=True):
    """The state of a remote export whose master daemon ended.

    Attributes:
        peer: PEM certificate of the other cluster's node.
        receivers: where each disk is sent.
        sending: progress of the copy.
    """

    peer: str = ""
    receivers: tuple[domain_secret.Receiver, ...] = ()
    sending: remote_transfer.Progress = remote_transfer.Progress()


class BackupExportRemote(export.BackupExport):
    """Unit that exports an instance to another cluster, which creates it there.

    The other cluster listens for each disk. The key that the preparation made on the
    primary node is removed at the end.
    """

    STATE = RemoteInterrupted

    @property
    def _state(self) -> RemoteInterrupted:
        return cast("RemoteInterrupted", self.source.state)

    def check_mode(self) -> None:
        """Check the parameters of a remote export."""
        op, what = self.op, f"instance {self.op.instance_name}"
        if not isinstance(op.target_node, list):
            raise self.prereq(
                f"{what}: an export to another cluster needs the list of its receivers"
                " as target, found the name of a node"
            )
        missing = [
            name
            for name in ("x509_key_name", "destination_x509_ca")
            if not getattr(op, name)
        ]
        if missing:
            raise self.prereq(
                f"{what}: an export to another cluster needs {' and '.join(missing)};"
                " prepare it first, see move-instance"
            )

    def find_target(self) -> None:
        """No node of this cluster is the target."""
        self.target = ""

    def check_target(self) -> None:
        """Refuse values that were not signed with the secret of both clusters."""
        what = f"instance {self.instance.name}"
        secret = domain_secret.load(self.ctx.paths)
        signed = self.op.x509_key_name or []
        self._key = secret.key_name(signed, what, self.instance.uuid)
        self._peer = secret.certificate(self.op.destination_x509_ca or "", what)
        self._receivers = secret.receivers(
            list(self.op.target_node),
            len(self.ctx.snapshot.instance_disks(self.instance)),
            what,
        )

    def begin(self, **values: Any) -> RemoteInterrupted:
        """Return the state before the first step."""
        return RemoteInterrupted(
            **values,
            peer=self._peer,
            receivers=self._receivers,
            sending=remote_transfer.Progress(key=self._key),
        )

    def copy(self) -> None:
        """Send all disks."""
        snapshot, instance = self.ctx.snapshot, self.instance
        read = stored_exports.disk_ends(snapshot, instance, self.source.sources())
        private = encode.private_instance(snapshot, instance)
        remote_transfer.send(
            self.ctx,
            remote_transfer.LocalEnd(
                instance.name,
                disk_transfer.Side(instance.primary_node, private, read),
                [disk.size for disk in self.ctx.snapshot.instance_disks(self.instance)],
                self._state.peer,
                self.op.compress,
            ),
            self._state.receivers,
            left=self._state.sending,
            save=lambda progress: self.source.save(sending=progress),
        )

    def complete(self) -> None:
        """The other cluster completes the instance."""

    def end_programs(self) -> None:
        """End the programs of an interrupted copy; failures are logged."""
        self.is_copied = True
        node = self.instance.primary_node
        remote_transfer.clean_up(self.ctx, node, self._state.sending)

    def drop_unfinished(self) -> None:
        """Remove the key if the copy, which removes it at its end, has not begun."""
        if not self.is_copied:
            remote_transfer.clean_up(
                self.ctx,
                self.instance.primary_node,
                msgspec.structs.replace(self._state.sending, started=()),
            )


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
        self.ctx.rpc.call_node(
            self.instance.primary_node, calls.x509_cert_remove(self._key)
        ).unwrap(f"instance {self.instance.name}: cannot remove the prepared key")
        return True, []


# The choice among the units of OP_BACKUP_EXPORT.


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
        return PreparedExportDiscard if is_given_up else BackupExportRemote
