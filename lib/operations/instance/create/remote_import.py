"""OP_INSTANCE_CREATE in mode remote-import: create an instance of another cluster."""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from ganeti.base import errors
from ganeti.base.constants.jobqueue import ELOG_REMOTE_IMPORT
from ganeti.base.constants.protocols import export as constants
from ganeti.base.net import hostnames
from ganeti.operations.instance.create import filled, stored_exports
from ganeti.operations.instance.move import disk_transfer, remote_transfer
from ganeti.operations.trust import domain_secret
from ganeti.protocols.rpc import encode


class Receiving(msgspec.Struct, frozen=True):
    """The state of a remote import whose master daemon ended.

    Attributes:
        uuid: of the new instance, which has its record.
        peer: PEM certificate of the source cluster's node.
        receiving: progress of the copy.
    """

    uuid: str
    peer: str
    receiving: remote_transfer.Progress = remote_transfer.Progress()


class InstanceRemoteImport(filled.FilledInstance):
    """Unit that creates an instance and receives its disks from another cluster.

    The client reads in the job log where it listens, and passes that to the other one.
    """

    MODE: ClassVar[str] = "remote-import"

    state: Receiving | None = None
    _peer: str

    def check_arguments(self) -> None:
        """Check the parameters of the other cluster."""
        super().check_arguments()
        op, what = self.op, f"instance {self.name}"
        missing = [
            name
            for name in ("source_handshake", "source_x509_ca", "source_instance_name")
            if not getattr(op, name)
        ]
        if missing:
            raise self.prereq(
                f"{what}: an import from another cluster needs {', '.join(missing)},"
                " the results of the preparation of the export there"
            )
        if any("adopt" in disk for disk in op.disks):
            raise self.prereq(
                f"{what}: the disks get the content of the other cluster, so none can"
                " be adopted"
            )
        if not op.disks:
            raise self.prereq(f"{what}: wanted the disks to receive, found none")
        self._old_name = hostnames.normalize(str(op.source_instance_name))

    def expand_names(self) -> None:
        """Check the signatures of the other cluster, and look the nodes up."""
        saved = self.ctx.resumption
        if saved is not None and "receiving" in saved:
            self.state = msgspec.convert(saved, Receiving)
            self.take_over(self.state.uuid)
            return
        what = f"instance {self.name}"
        secret = domain_secret.load(self.ctx.paths)
        secret.check_handshake(self.op.source_handshake or [], what)
        self._peer = secret.certificate(self.op.source_x509_ca or "", what)
        super().expand_names()

    def check_prereq(self) -> None:
        """Check everything, and the compression tool."""
        super().check_prereq()
        if self.repeated is None:
            nodes = [self.primary]
            disk_transfer.require_tool(self.ctx, self.op.compress, nodes, self.name)

    @property
    def old_name(self) -> str:
        """Name of the instance in the other cluster."""
        return self._old_name

    def fill(self) -> None:
        """Receive the disks."""
        if self.state is None:
            self.state = Receiving(self.plan.instance.uuid, self._peer)
        ctx, instance, state = self.ctx, self.instance, self.state
        snapshot = ctx.snapshot
        made = snapshot.instance_disks(instance)
        wires = [encode.disk(snapshot, disk, instance) for disk in made]
        written = [
            stored_exports.end_of(instance.os, wire, i) for i, wire in enumerate(wires)
        ]
        end = remote_transfer.LocalEnd(
            instance.name,
            disk_transfer.Side(instance.primary_node, self.private_wire(), written),
            [disk.size for disk in made],
            state.peer,
            self.op.compress,
        )
        remote_transfer.receive(
            ctx,
            end,
            self._announce,
            timeout_s=constants.RIE_CONNECT_TIMEOUT + self.op.source_shutdown_timeout,
            left=state.receiving,
            save=self._save_progress,
        )

    def end_copy(self) -> None:
        """End the receivers of an interrupted run."""
        if self.state is not None:
            remote_transfer.clean_up(
                self.ctx, self.instance.primary_node, self.state.receiving
            )

    def _announce(self, where: Mapping[str, Any]) -> None:
        self.ctx.log.entry(ELOG_REMOTE_IMPORT, dict(where))

    def _save_progress(self, progress: remote_transfer.Progress) -> None:
        if self.state is None:
            raise errors.ProgrammerError("an import without a state was continued")
        self.state = msgspec.structs.replace(self.state, receiving=progress)
        self.ctx.save_resumption(msgspec.to_builtins(self.state))
