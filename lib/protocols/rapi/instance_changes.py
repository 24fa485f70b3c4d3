"""Methods that change disks of instances and move instances."""

from collections.abc import Sequence
from typing import Any

from ganeti.protocols.rapi import names
from ganeti.protocols.rapi.base import Base, arguments, given, part
from ganeti.protocols.rapi.instances import path_of


class InstanceChangeMethods(Base):
    """Disks, moves and exports."""

    def ActivateInstanceDisks(
        self,
        instance: str,
        ignore_size: bool | None = None,
        reason: str | None = None,
    ) -> Any:
        """Activate the disks of an instance; return the job id."""
        query = arguments(("ignore_size", ignore_size), reason=reason)
        return self._put(path_of(instance, "/activate-disks"), query)

    def DeactivateInstanceDisks(
        self, instance: str, reason: str | None = None, force: bool = False
    ) -> Any:
        """Deactivate the disks of an instance; return the job id."""
        query = arguments(("force", force), reason=reason)
        return self._put(path_of(instance, "/deactivate-disks"), query)

    def RecreateInstanceDisks(
        self,
        instance: str,
        disks: Sequence[Any] | None = None,
        nodes: Sequence[str] | None = None,
        reason: str | None = None,
        iallocator: str | None = None,
    ) -> Any:
        """Create disks of an instance again, without data; return the job id.

        Args:
            instance: its name.
            disks: indices, or pairs of index and new parameters; all by default.
            nodes: names of other nodes for the disks.
            reason: see the class.
            iallocator: allocator that chooses the nodes.
        """
        body = given(disks=disks, nodes=nodes, iallocator=iallocator)
        query = arguments(reason=reason)
        return self._post(path_of(instance, "/recreate-disks"), query, body)

    def GrowInstanceDisk(
        self,
        instance: str,
        disk: int,
        amount: int,
        wait_for_sync: bool | None = None,
        reason: str | None = None,
    ) -> Any:
        """Enlarge a disk of an instance; return the job id.

        Args:
            instance: its name.
            disk: index.
            amount: MiB to add.
            wait_for_sync: end the job when the copies are equal.
            reason: see the class.
        """
        body = given(amount=amount, wait_for_sync=wait_for_sync)
        path = path_of(instance, f"/disk/{part(disk)}/grow")
        return self._post(path, arguments(reason=reason), body)

    def ReplaceInstanceDisks(
        self,
        instance: str,
        disks: Sequence[int] | None = None,
        mode: str = names.REPLACE_DISK_AUTO,
        remote_node: str | None = None,
        iallocator: str | None = None,
        reason: str | None = None,
        early_release: bool | None = None,
    ) -> Any:
        """Replace disks of an instance; return the job id.

        Args:
            instance: its name.
            disks: indices; all by default.
            mode: one of the constants ``REPLACE_DISK_*``.
            remote_node: new secondary node.
            iallocator: allocator that chooses it.
            reason: see the class.
            early_release: drop locks before the old disks are removed.
        """
        body = given(
            mode=mode,
            disks=None if disks is None else list(disks),
            remote_node=remote_node,
            iallocator=iallocator,
            early_release=early_release,
        )
        query = arguments(reason=reason)
        return self._post(path_of(instance, "/replace-disks"), query, body)

    def PrepareExport(self, instance: str, mode: str, reason: str | None = None) -> Any:
        """Prepare the export of an instance; return the job id."""
        query = [("mode", mode), *arguments(reason=reason)]
        return self._put(path_of(instance, "/prepare-export"), query)

    def ExportInstance(
        self,
        instance: str,
        mode: str,
        destination: Any,
        shutdown: bool | None = None,
        remove_instance: bool | None = None,
        x509_key_name: Sequence[str] | None = None,
        destination_x509_ca: str | None = None,
        compress: str | None = None,
        reason: str | None = None,
    ) -> Any:
        """Export an instance; return the job id.

        Args:
            instance: its name.
            mode: ``local`` or ``remote``.
            destination: name of a node, or information of the other cluster.
            shutdown: stop the instance before.
            remove_instance: remove it afterwards.
            x509_key_name: name, digest and signature of the key, remote exports only.
            destination_x509_ca: certificate of the destination, remote exports only.
            compress: compression tool of the transfer.
            reason: see the class.
        """
        body = given(
            mode=mode,
            destination=destination,
            shutdown=shutdown,
            remove_instance=remove_instance,
            x509_key_name=x509_key_name,
            destination_x509_ca=destination_x509_ca,
            compress=compress,
        )
        return self._put(path_of(instance, "/export"), arguments(reason=reason), body)

    def MigrateInstance(
        self,
        instance: str,
        mode: str | None = None,
        cleanup: bool | None = None,
        target_node: str | None = None,
        reason: str | None = None,
    ) -> Any:
        """Migrate an instance; return the job id.

        Args:
            instance: its name.
            mode: ``live`` or ``non-live``.
            cleanup: only repair a migration that failed.
            target_node: node of instances whose disks are on shared storage.
            reason: see the class.
        """
        body = given(mode=mode, cleanup=cleanup, target_node=target_node)
        return self._put(path_of(instance, "/migrate"), arguments(reason=reason), body)

    def FailoverInstance(
        self,
        instance: str,
        iallocator: str | None = None,
        ignore_consistency: bool | None = None,
        target_node: str | None = None,
        reason: str | None = None,
    ) -> Any:
        """Fail an instance over; return the job id.

        Args:
            instance: its name.
            iallocator: allocator that chooses the node.
            ignore_consistency: go on even if disks are not consistent.
            target_node: node of instances whose disks are on shared storage.
            reason: see the class.
        """
        body = given(
            iallocator=iallocator,
            ignore_consistency=ignore_consistency,
            target_node=target_node,
        )
        return self._put(path_of(instance, "/failover"), arguments(reason=reason), body)
