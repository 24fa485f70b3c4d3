"""OP_BACKUP_EXPORT in mode remote: send the disks of an instance to another cluster."""

from typing import Any

import msgspec

from ganeti.operations.backup import export
from ganeti.operations.instance.create import stored_exports
from ganeti.operations.instance.move import disk_transfer, remote_transfer
from ganeti.operations.trust import domain_secret
from ganeti.protocols.rpc import encode


class RemoteInterrupted(export.Interrupted, frozen=True):
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

    state: RemoteInterrupted

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
            list(self.op.target_node), len(self.disks_of()), what
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
        wires = [encode.disk(snapshot, disk, instance) for disk in self.sources()]
        read = [
            stored_exports.end_of(instance.os, wire, i) for i, wire in enumerate(wires)
        ]
        private = encode.private_instance(snapshot, instance)
        remote_transfer.send(
            self.ctx,
            remote_transfer.LocalEnd(
                instance.name,
                disk_transfer.Side(instance.primary_node, private, read),
                [disk.size for disk in self.disks_of()],
                self.state.peer,
                self.op.compress,
            ),
            self.state.receivers,
            left=self.state.sending,
            save=lambda progress: self.save(sending=progress),
        )

    def complete(self) -> None:
        """The other cluster completes the instance."""

    def end_programs(self) -> None:
        """End the programs of an interrupted copy; failures are logged."""
        self.is_copied = True
        node = self.instance.primary_node
        remote_transfer.clean_up(self.ctx, node, self.state.sending)

    def drop_unfinished(self) -> None:
        """Remove the key if the copy, which removes it at its end, has not begun."""
        if not self.is_copied:
            remote_transfer.clean_up(
                self.ctx,
                self.instance.primary_node,
                msgspec.structs.replace(self.state.sending, started=()),
            )
