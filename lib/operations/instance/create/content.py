"""Contents that exist already, for the disks of new instances.

Here are the interface and the content of another cluster, for mode remote-import; that
of an export is in `export_content`.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.jobqueue import ELOG_REMOTE_IMPORT
from ganeti.base.net import netutils
from ganeti.model import objects, opcodes
from ganeti.operations import base
from ganeti.operations.backup import stored_exports
from ganeti.operations.instance.move import disk_transfer, remote_transfer
from ganeti.operations.trust import domain_secret
from ganeti.protocols.rpc import encode


class Content(abc.ABC):
    """A content that exists, and its copy to the disks of a new instance.

    The unit of the creation calls the methods in the order in which they stand here.
    """

    def __init__(
        self, ctx: base.Context, op: opcodes.InstanceCreate, name: str
    ) -> None:
        self.ctx, self.op, self.name = ctx, op, name

    @abc.abstractmethod
    def check_arguments(self) -> None:
        """Check the request alone."""

    @abc.abstractmethod
    def restore(self, saved: Mapping[str, Any]) -> str:
        """Take over the state of an interrupted copy.

        Returns:
            the uuid of the instance, empty if the creation was interrupted before.
        """

    @abc.abstractmethod
    def complete(self) -> opcodes.InstanceCreate:
        """Return the request with the missing parts from the content."""

    @abc.abstractmethod
    def check(self, instance: objects.Instance, made: Sequence[objects.Disk]) -> None:
        """Check the content against the planned records."""

    def hooks_env(self) -> dict[str, Any]:
        """Return hook variables of the content."""
        return {}

    @property
    @abc.abstractmethod
    def old_name(self) -> str:
        """Name of the instance that the content is of."""

    @abc.abstractmethod
    def copy(self, instance: objects.Instance) -> None:
        """Copy the content, or continue with that.

        Whatever happens, no program of the copy is left at the end.
        """

    @abc.abstractmethod
    def end_copy(self, instance: objects.Instance) -> None:
        """End the programs of an interrupted copy; failures are logged."""

    # Helpers of the kinds of content
    def prereq(
        self, text: str, ecode: str = ecodes.ECODE_INVAL
    ) -> errors.OpPrereqError:
        """Return the error for a request that cannot be done."""
        return errors.OpPrereqError(f"instance {self.name}: {text}", ecode)


#: Seconds until the other cluster must connect, as in Ganeti.
_RIE_CONNECT_TIMEOUT: Final = 180


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


class RemoteContent(Content):
    """The disks of an instance of another cluster.

    The client reads in the job log where this cluster listens, and passes that to the
    other one.
    """

    state: Receiving | None = None
    _peer: str

    def check_arguments(self) -> None:
        """Check the parameters of the other cluster."""
        op = self.op
        missing = [
            name
            for name in ("source_handshake", "source_x509_ca", "source_instance_name")
            if not getattr(op, name)
        ]
        if missing:
            raise self.prereq(
                f"an import from another cluster needs {', '.join(missing)},"
                " the results of the preparation of the export there"
            )
        if any("adopt" in disk for disk in op.disks):
            raise self.prereq(
                "the disks get the content of the other cluster, so none can be adopted"
            )
        if not op.disks:
            raise self.prereq("wanted the disks to receive, found none")
        self._old_name = netutils.normalize_host_name(str(op.source_instance_name))

    def restore(self, saved: Mapping[str, Any]) -> str:
        """Take over the state of an interrupted copy."""
        if "receiving" not in saved:
            return ""
        self.state = msgspec.convert(saved, Receiving)
        return self.state.uuid

    def complete(self) -> opcodes.InstanceCreate:
        """Check the signatures of the other cluster; the request is complete."""
        what = f"instance {self.name}"
        secret = domain_secret.load(self.ctx.paths)
        secret.check_handshake(self.op.source_handshake or [], what)
        self._peer = secret.certificate(self.op.source_x509_ca or "", what)
        return self.op

    def check(self, instance: objects.Instance, made: Sequence[objects.Disk]) -> None:
        """Check the compression tool."""
        del made
        nodes = [instance.primary_node]
        disk_transfer.require_tool(self.ctx, self.op.compress, nodes, self.name)

    @property
    def old_name(self) -> str:
        """Name of the instance in the other cluster."""
        return self._old_name

    def copy(self, instance: objects.Instance) -> None:
        """Receive the disks."""
        if self.state is None:
            self.state = Receiving(instance.uuid, self._peer)
        ctx, state = self.ctx, self.state
        snapshot = ctx.snapshot
        made = snapshot.instance_disks(instance)
        written = stored_exports.disk_ends(snapshot, instance, made)
        private = encode.private_instance(
            ctx.snapshot, instance, osparams_secret=self.op.osparams_secret
        )
        end = remote_transfer.LocalEnd(
            instance.name,
            disk_transfer.Side(instance.primary_node, private, written),
            [disk.size for disk in made],
            # A continued import has not read the certificate of the request.
            state.peer,
            self.op.compress,
        )
        remote_transfer.receive(
            ctx,
            end,
            lambda where: ctx.log.entry(ELOG_REMOTE_IMPORT, dict(where)),
            # The other cluster stops its guest before it connects.
            timeout_s=_RIE_CONNECT_TIMEOUT + self.op.source_shutdown_timeout,
            left=state.receiving,
            save=self._save_progress,
        )

    def end_copy(self, instance: objects.Instance) -> None:
        """End the receivers of an interrupted run."""
        if self.state is not None:
            remote_transfer.clean_up(
                self.ctx, instance.primary_node, self.state.receiving
            )

    def _save_progress(self, progress: remote_transfer.Progress) -> None:
        if self.state is None:
            raise errors.ProgrammerError("an import without a state was continued")
        self.state = msgspec.structs.replace(self.state, receiving=progress)
        self.ctx.save_resumption(msgspec.to_builtins(self.state))
