"""Disks that DRBD mirrors between two nodes: template ``drbd``.

The logical id is ``(node, node, port, minor, minor, secret)``; the children are two
volumes with the same names on both nodes, data first, metadata second. Without a port,
as during a creation, a node does not connect. Every step looks at the present state
first, so that steps that were cut short can be repeated.
"""

import contextlib
import os
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors, pathutils
from ganeti.base.process import Runner
from ganeti.model.objects.filled import DiskX
from ganeti.node.storage import drbd_commands, volumes
from ganeti.node.storage.base import Device, DeviceStatus, LocalStatus
from ganeti.node.storage.drbd_device import SECRET, DrbdDevice
from ganeti.node.storage.drbd_state import Mirror
from ganeti.node.storage.volumes import VolumeDisk

_MAJOR: Final = 147
_CHILDREN: Final = 2


class MirrorDisk(Device):
    """A disk that DRBD mirrors."""

    new_generation = staticmethod(drbd_commands.new_generation)

    def __init__(self, paths: pathutils.Paths, disk: DiskX, process: Runner) -> None:
        super().__init__(paths, disk, process)
        if len(disk.children) != _CHILDREN:
            raise errors.BlockDeviceError(
                f"disk {disk.uuid}: wanted a data and a metadata volume, found"
                f" {len(disk.children)} children"
            )
        self.data, self.meta = (
            VolumeDisk(paths, child, process) for child in disk.children
        )
        values = disk.dynamic_params or {}
        minor = values.get("local-minor")
        if not isinstance(minor, int) or minor < 0:
            raise errors.BlockDeviceError(
                f"disk {disk.uuid}: this node is none of its two nodes"
            )
        self.minor: int = minor
        self._made: list[VolumeDisk] = []
        self._info = ""
        self.drbd = DrbdDevice(
            process, disk, minor, (self.data.path, self.meta.path), self.error
        )

    @property
    def path(self) -> str:
        """Path of the device, which can be used while this node is primary."""
        return f"/dev/drbd{self.minor}"

    # State
    def exists(self) -> bool:
        """Return whether this node has one of the volumes."""
        return self.data.exists() or self.meta.exists()

    def status(self) -> DeviceStatus:
        """Return the worse of both states; without a path while it is not active."""
        return self.status_among(drbd_commands.mirrors(self._process))

    def status_among(self, present: Mapping[int, Mirror]) -> DeviceStatus:
        """Return the status, as `status`; takes the states of all devices by minor."""
        mirror = self.drbd.among(present)
        if mirror is None:
            return DeviceStatus("", is_degraded=True, ldisk_status=LocalStatus.UNKNOWN)
        return DeviceStatus(
            self.path,
            major=_MAJOR,
            minor=self.minor,
            sync_percent=mirror.sync_percent,
            estimated_time=mirror.left_s,
            is_degraded=mirror.is_degraded,
            ldisk_status=mirror.local_status,
            mirror=self.drbd.words(mirror),
        )

    def size_bytes(self) -> int:
        """Return the size of the device, or of its data volume while it is closed."""
        # A secondary node cannot open the device.
        with contextlib.suppress(OSError), open(self.path, "rb") as src:
            return src.seek(0, os.SEEK_END)
        return self.data.size_bytes()

    # Life
    def create(
        self, size_mib: int, *, exclusive: bool = False, is_primary: bool = True
    ) -> None:
        """Create the volumes that are missing, and new metadata; stay inactive.

        On the primary node the content of the data volume becomes the valid one; the
        other node gets all of it when they connect.

        Raises:
            BlockDeviceError: it cannot be created; nothing of this call is left.
        """
        del size_mib
        if not self.drbd.is_free() and self.drbd.resource() is not None:
            raise self.error("is active already")
        # Options that cannot be split are refused here, not by the activation.
        params = self.disk.params or {}
        self.drbd.commands.attach(self.data.path, self.meta.path, params)
        drbd_commands.net_options(params)
        # A conversion brings the volume that has the instance's data: no undo may
        # remove what this call has not made.
        self._made = []
        try:
            for volume in (self.data, self.meta):
                if volume.ensure(volume.disk.size, self._info, exclusive=exclusive):
                    self._made.append(volume)
                volume.assemble()
                if self._info and volume not in self._made:
                    volume.set_info(self._info)
            self.drbd.write_metadata()
            if is_primary:
                self._make_valid()
        except errors.GenericError:
            self.undo_create()
            raise

    def create_labelled(
        self,
        size_mib: int,
        info: str,
        *,
        exclusive: bool = False,
        is_primary: bool = True,
    ) -> None:
        """Create the disk, with a text as the only tag of both volumes."""
        self._info = info
        self.create(size_mib, exclusive=exclusive, is_primary=is_primary)

    def undo_create(self) -> None:
        """Destroy the volumes that were made; those of a conversion were there."""
        with contextlib.suppress(errors.GenericError):
            self.shutdown()
        with contextlib.suppress(errors.GenericError):
            volumes.remove_all(self._made)

    def _make_valid(self) -> None:
        """Make the content of the data volume the valid one.

        Only an attachment shows whether DRBD knows the options of an administrator.
        """
        has_own = bool((self.disk.params or {}).get("disk-custom"))
        commands = self.drbd.commands
        if commands.SETS_GENERATION and not has_own:
            problem = drbd_commands.set_generation(
                *(self._process, self.meta.path, commands.METADATA),
                self.new_generation(),
            )
            if problem is not None:
                raise self.error(f"its data cannot be marked as complete: {problem}")
            return
        self.drbd.add_resource()
        self.drbd.attach()
        self.drbd.setup(*commands.primary(force=True))
        self.drbd.setup(*commands.secondary())
        self.drbd.setup(*commands.down())

    def remove(self) -> None:
        """Destroy the disk on this node."""
        # Without DRBD, nothing uses the volumes; nor does what else has the minor.
        with contextlib.suppress(errors.StorageError):
            if not self.drbd.is_free():
                resource = drbd_commands.resources(self._process).get(self.drbd.name)
                if resource is not None and resource.data in ("", self.data.path):
                    self.shutdown()
        volumes.remove_all([self.meta, self.data])

    def assemble(self) -> None:
        """Activate the volumes and the device, and begin to connect.

        Raises:
            BlockDeviceError: a volume is missing, or something else uses the minor.
            StorageError: DRBD is missing.
        """
        is_free = self.drbd.is_free()
        self.data.assemble()
        self.meta.assemble()
        resource = None if is_free else self.drbd.resource()
        if resource is None or self.minor not in resource.minors:
            resource = self.drbd.add_resource(resource)
        if resource is None or not resource.data:
            self.drbd.attach()
        else:
            for argv in self.drbd.commands.change_disk(
                resource, self.disk.params or {}
            ):
                self.drbd.setup(*argv)
        if self.drbd.has_peer:
            self.drbd.connect(resource, two_primaries=None)

    # Connection
    def connect(self, *, two_primaries: bool) -> None:
        """Connect to the peer, or change how many nodes may be primary.

        Raises:
            BlockDeviceError: it is not active, or has no peer.
        """
        resource = self.drbd.resource()
        if resource is None:
            raise self.error("is not active on this node")
        if not self.drbd.has_peer:
            raise self.error("has no port, so it cannot connect")
        self.drbd.connect(resource, two_primaries=two_primaries)

    def disconnect(self) -> None:
        """Stop the exchange with the peer; without a connection, do nothing."""
        self.drbd.disconnect()

    def needs_activation(self) -> bool:
        """Return whether assembly would change something: no device, disk or peer."""
        mirror = self.drbd.mirror()
        if mirror is None or mirror.is_diskless:
            return True
        return self.drbd.has_peer and mirror.is_standalone

    # Role
    def open(self, *, exclusive: bool) -> None:
        """Become primary, after the comparison with the data of the peer."""
        del exclusive
        self.drbd.become_primary()

    def close(self) -> None:
        """Become secondary."""
        if self.drbd.mirror() is not None:
            self.drbd.change_state(*self.drbd.commands.secondary())

    def shutdown(self) -> None:
        """Free the device; the volumes stay active."""
        if not self.drbd.is_free() and self.drbd.resource() is not None:
            self.drbd.change_state(*self.drbd.commands.down())

    # Parts
    def detach(self) -> None:
        """Give up the volumes of this node; the device goes on with its peer."""
        mirror = self.drbd.active()
        if mirror.is_diskless:
            return
        if mirror.role == "Primary" and not (
            mirror.is_connected and mirror.peer_disk == "UpToDate"
        ):
            raise self.error(f"the other node has no valid data ({mirror.text()})")
        self.drbd.setup(*self.drbd.commands.detach())

    def replace_parts(self) -> None:
        """Take the volumes with the recorded names as new ones, without valid data."""
        mirror = self.drbd.mirror()
        if mirror is None and self.drbd.resource() is None:
            raise self.error("is not active on this node")
        # Without volumes and without a connection, DRBD calls it unconfigured.
        if mirror is not None and not mirror.is_diskless:
            raise self.error(f"has volumes already ({mirror.text()})")
        self.data.assemble()
        self.meta.assemble()
        self.drbd.write_metadata()
        self.drbd.attach()

    def grow(
        self,
        amount_mib: int,
        *,
        dryrun: bool,
        backingstore: bool,
        exclusive: bool = False,
    ) -> None:
        """Grow the data volume, or the device above it.

        The device grows on both nodes at once, by what both volumes allow.
        """
        if backingstore:
            self.data.grow(
                amount_mib, dryrun=dryrun, backingstore=True, exclusive=exclusive
            )
            return
        mirror = self.drbd.active()
        if mirror.is_syncing:
            raise self.error(
                f"cannot grow during a synchronisation ({mirror.text()}); wait for its"
                " end"
            )
        if not dryrun:
            self.drbd.setup(
                *self.drbd.commands.resize(is_alone=not mirror.is_connected)
            )
            self.drbd.wait_until_copying(mirror.out_of_sync_kib)

    def rename(self, new_id: tuple[Any, ...]) -> None:
        """Refuse: a mirror has no name, its volumes have."""
        raise self.error(f"cannot be renamed to {list(new_id[:SECRET])}")

    def set_info(self, text: str) -> None:
        """Store a text with both volumes."""
        self.data.set_info(text)
        self.meta.set_info(text)

    def snapshot(self, name: str | None, size_mib: int | None) -> tuple[Any, ...]:
        """Create a snapshot of the data volume of this node; return its logical id."""
        return self.data.snapshot(name, size_mib)

    def change_sync(self, *, pause: bool) -> None:
        """Pause or resume the synchronisation by this node."""
        self.drbd.active()
        command, *rest = self.drbd.commands.sync(pause=pause)
        problem = drbd_commands.setup(self._process, command, *rest)
        # A repeated command finds the state that it wants.
        if problem is not None and "already" not in problem:
            raise self.error(f"cannot {command}: {problem}")
