"""Disks that DRBD mirrors between two nodes: template ``drbd``.

The logical id is ``(node, node, port, minor, minor, secret)``; the children are two
volumes with the same names on both nodes, data first, metadata second. Without a port,
as during a creation, a node does not connect. Every step looks at the present state
first, so that steps that were cut short can be repeated.
"""

import contextlib
import functools
import os
import threading
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors, pathutils
from ganeti.base.clock import Clock, SystemClock
from ganeti.base.constants import disks as constants
from ganeti.base.net import ip
from ganeti.base.process import Runner
from ganeti.model.objects.filled import DiskX
from ganeti.node.storage import drbd_commands, volumes
from ganeti.node.storage import drbd_tools as tools
from ganeti.node.storage.base import Device, DeviceStatus, LocalStatus, MirrorStatus
from ganeti.node.storage.drbd_state import Mirror, Resource
from ganeti.node.storage.volumes import VolumeDisk

_MAJOR: Final = 147
#: Seconds until a connection under way counts as not possible, below those of a call.
_CONNECT_S: Final = 20.0
_POLL_S: Final = 0.2
#: Seconds until a growth goes on although the other node has not begun to copy.
_COPYING_S: Final = 10.0
#: The kernel's words for a state that ends by itself.
_TRANSIENT: Final = "In transient state"
_SECRET: Final = 5
_CHILDREN: Final = 2


class MirrorDisk(Device):
    """A disk that DRBD mirrors."""

    clock: Clock = SystemClock()
    new_generation = staticmethod(tools.new_generation)

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
        self._values = values
        self._made: list[VolumeDisk] = []
        self._info = ""
        #: Whether this object has given the device its data, or begun to connect.
        self._is_new = False

    @property
    def path(self) -> str:
        """Path of the device, which can be used while this node is primary."""
        return f"/dev/drbd{self.minor}"

    @property
    def name(self) -> str:
        """Name of its resource."""
        return f"resource{self.minor}"

    @functools.cached_property
    def _drbd(self) -> drbd_commands.Commands:
        """The commands of the generation of DRBD that this kernel has.

        Raises:
            StorageError: DRBD is missing.
        """
        own = self._values.get("node-id", 0)
        place = drbd_commands.Place(self.name, self.minor, own, 1 - own)
        return drbd_commands.of_kernel(tools.read_proc())(place)

    # State
    def mirror(self) -> Mirror | None:
        """Return the state of the device, None if it is not active.

        Raises:
            StorageError: DRBD is missing.
        """
        return self._among(drbd_commands.mirrors(self._process))

    def _among(self, present: Mapping[int, Mirror]) -> Mirror | None:
        mirror = present.get(self.minor)
        return mirror if mirror is not None and mirror.is_in_use else None

    def _is_free(self) -> bool:
        """Return whether nothing has the minor, if the kernel says so without a tool.

        Raises:
            StorageError: DRBD is missing.
        """
        return self._drbd.has_minor(self.minor, tools.read_proc()) is False

    def _resource(self) -> Resource | None:
        """Return the settings of the resource of this disk, None without one.

        Raises:
            BlockDeviceError: something else uses the minor, or the name.
        """
        known = drbd_commands.resources(self._process)
        for resource in known.values():
            is_own = resource.name == self.name
            mine = resource.data in ("", self.data.path)
            if self.minor in resource.minors and not (is_own and mine):
                raise self.error(
                    f"minor {self.minor} is in use by resource {resource.name} with"
                    f" {resource.data or 'no disk'}, wanted for {self.data.path}; if"
                    f" nothing needs it, run drbdsetup down {resource.name} on this"
                    " node"
                )
        return known.get(self.name)

    def exists(self) -> bool:
        """Return whether this node has one of the volumes."""
        return self.data.exists() or self.meta.exists()

    def status(self) -> DeviceStatus:
        """Return the worse of both states; without a path while it is not active."""
        return self.status_among(drbd_commands.mirrors(self._process))

    def status_among(self, present: Mapping[int, Mirror]) -> DeviceStatus:
        """Return the status, as `status`; takes the states of all devices by minor."""
        mirror = self._among(present)
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
            mirror=self._words(mirror),
        )

    def _words(self, mirror: Mirror) -> MirrorStatus:
        """Return the kernel's words for a state, with identifiers if they matter."""
        is_known = mirror.is_connected or mirror.is_diskless
        return MirrorStatus(
            mirror.connection,
            mirror.role,
            mirror.disk,
            mirror.peer_disk,
            ()
            if is_known
            else tools.generations(self._process, self._drbd.generations()),
        )

    def size_bytes(self) -> int:
        """Return the size of the device, or of its data volume while it is closed."""
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
        if not self._is_free() and self._resource() is not None:
            raise self.error("is active already")
        # Options that cannot be split are refused here, not by the activation.
        params = self.disk.params or {}
        self._drbd.attach(self.data.path, self.meta.path, params)
        tools.net_options(params)
        self._made = []
        try:
            for volume in (self.data, self.meta):
                if volume.ensure(volume.disk.size, self._info, exclusive=exclusive):
                    self._made.append(volume)
                volume.assemble()
                if self._info and volume not in self._made:
                    volume.set_info(self._info)
            self.write_metadata()
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

    def write_metadata(self) -> None:
        """Write metadata of a disk without valid data."""
        layout, options = self._drbd.METADATA, self._drbd.METADATA_OPTIONS
        problem = tools.create_metadata(self._process, self.meta.path, layout, options)
        if problem is not None:
            raise self.error(f"cannot get metadata: {problem}")

    def _make_valid(self) -> None:
        """Make the content of the data volume the valid one.

        Only an attachment shows whether DRBD knows the options of an administrator.
        """
        has_own = bool((self.disk.params or {}).get("disk-custom"))
        if self._drbd.SETS_GENERATION and not has_own:
            problem = tools.set_generation(
                *(self._process, self.meta.path, self._drbd.METADATA),
                self.new_generation(),
            )
            if problem is not None:
                raise self.error(f"its data cannot be marked as complete: {problem}")
            return
        self._add_resource()
        self._attach()
        self._setup(*self._drbd.primary(force=True))
        self._setup(*self._drbd.secondary())
        self._setup(*self._drbd.down())

    def remove(self) -> None:
        """Destroy the disk on this node."""
        # Without DRBD, nothing uses the volumes; nor does what else has the minor.
        with contextlib.suppress(errors.StorageError):
            if not self._is_free():
                resource = drbd_commands.resources(self._process).get(self.name)
                if resource is not None and resource.data in ("", self.data.path):
                    self.shutdown()
        volumes.remove_all([self.meta, self.data])

    def assemble(self) -> None:
        """Activate the volumes and the device, and begin to connect.

        Raises:
            BlockDeviceError: a volume is missing, or something else uses the minor.
            StorageError: DRBD is missing.
        """
        is_free = self._is_free()
        self.data.assemble()
        self.meta.assemble()
        resource = None if is_free else self._resource()
        if resource is None or self.minor not in resource.minors:
            resource = self._add_resource(resource)
        if resource is None or not resource.data:
            self._attach()
        else:
            for argv in self._drbd.change_disk(resource, self.disk.params or {}):
                self._setup(*argv)
        if self.has_peer:
            self._connect(resource, two_primaries=None)

    def _add_resource(self, known: Resource | None = None) -> Resource | None:
        """Make the device, and its resource unless it is known; return what was there.

        A resource without a device, as an interruption leaves it, is in no text of the
        kernel.
        """
        if known is None:
            problem = tools.setup(self._process, *self._drbd.new_resource())
            if problem is not None:
                known = self._resource()
                if known is None:
                    raise self.error(problem)
        self._setup(*self._drbd.new_device())
        return known

    def _attach(self) -> None:
        layout = self._drbd.METADATA
        problem = tools.apply_log(self._process, self.meta.path, layout)
        if problem is not None:
            raise self.error(f"its metadata cannot be used: {problem}")
        volumes = self.data.path, self.meta.path
        self._setup(*self._drbd.attach(*volumes, self.disk.params or {}))
        self._is_new = True

    # Connection
    @property
    def has_peer(self) -> bool:
        """Whether the addresses of both nodes are known."""
        names = ("port", "local-ip", "remote-ip")
        return all(self._values.get(name) for name in names)

    def _address(self, name: str) -> str:
        address = ip.parse(self._values[name])
        host = f"[{address}]" if address.version == 6 else str(address)
        return f"ipv{address.version}:{host}:{self._values['port']}"

    def _connect(
        self, resource: Resource | None, *, two_primaries: bool | None
    ) -> None:
        """Connect, or change the connection; None leaves the number of primaries."""
        ends = [self._address("local-ip"), self._address("remote-ip")]
        wanted = [f"--allow-two-primaries={'yes' if two_primaries else 'no'}"]
        options = tools.net_options(self.disk.params or {})
        if two_primaries:
            # Only this protocol allows it.
            options.append("--protocol=C")
        if resource is not None and resource.remote:
            if [resource.local, resource.remote] == ends:
                if two_primaries is not None:
                    options += wanted
                    self._setup(*self._drbd.change_connection(resource, options))
                if self._drbd.KEEPS_CONNECTIONS and self._is_standalone():
                    self._setup(*self._drbd.connect_again())
                    self._is_new = True
                return
            for argv in self._drbd.disconnect(resource):
                self._setup(*argv)
        secret = str(self.disk.logical_id[_SECRET])
        options += [
            *wanted,
            f"--cram-hmac-alg={constants.DRBD_HMAC_ALG}",
            f"--shared-secret={secret}",
        ]
        for argv in self._drbd.connect(ends, options, self.disk.params or {}):
            self._setup(*argv, secret=secret)
        self._is_new = True

    def _is_standalone(self) -> bool:
        mirror = self.mirror()
        return mirror is not None and mirror.is_standalone

    def connect(self, *, two_primaries: bool) -> None:
        """Connect to the peer, or change how many nodes may be primary.

        Raises:
            BlockDeviceError: it is not active, or has no peer.
        """
        resource = self._resource()
        if resource is None:
            raise self.error("is not active on this node")
        if not self.has_peer:
            raise self.error("has no port, so it cannot connect")
        self._connect(resource, two_primaries=two_primaries)

    def disconnect(self) -> None:
        """Stop the exchange with the peer; without a connection, do nothing."""
        resource = self._resource()
        if resource is None or not resource.remote:
            return
        first, *rest = self._drbd.disconnect(resource)
        if tools.setup(self._process, *first) is not None:
            # The peer did not answer.
            first, *rest = self._drbd.disconnect(resource, force=True)
            self._setup(*first)
        for argv in rest:
            self._setup(*argv)

    def needs_activation(self) -> bool:
        """Return whether assembly would change something: no device, disk or peer."""
        mirror = self.mirror()
        if mirror is None or mirror.is_diskless:
            return True
        return self.has_peer and mirror.is_standalone

    # Role
    def open(self, *, exclusive: bool) -> None:
        """Become primary, after the comparison with the data of the peer.

        Raises:
            BlockDeviceError: it is not active, no node has valid data, or the peer has
                not answered, whose data may be newer.
        """
        del exclusive
        mirror = self._active()
        if mirror.role == "Primary":
            return
        end = self.clock.monotonic() + _CONNECT_S
        mirror = self._after_handshake(mirror, end)
        if mirror.is_up_to_date and self._must_wait(mirror):
            raise self.error(
                f"the other node has not connected within {_CONNECT_S:.0f} s, and its"
                f" data may be newer ({mirror.text()}); check the network between the"
                " secondary addresses of both nodes"
            )
        problem = tools.setup(self._process, *self._drbd.primary())
        while problem is not None and self.clock.monotonic() < end:
            mirror = self._active()
            if mirror.is_connected or mirror.is_standalone:
                problem = tools.setup(self._process, *self._drbd.primary())
                break
            self.clock.wait(threading.Event(), _POLL_S)
        if problem is not None:
            raise self.error(
                f"cannot become primary ({self._active().text()}): {problem}"
            )

    def _after_handshake(self, mirror: Mirror, end: float) -> Mirror:
        """Wait while the nodes compare their data; return the state then.

        A node calls its data complete from its activation on, also if the peer was
        written to alone since. As primary it would keep the older data, and the nodes
        would have two histories.
        """
        while (
            mirror.is_in_handshake or self._must_wait(mirror)
        ) and self.clock.monotonic() < end:
            self.clock.wait(threading.Event(), _POLL_S)
            mirror = self._active()
        return mirror

    def _must_wait(self, mirror: Mirror) -> bool:
        """Return whether the peer, which could have newer data, is yet to answer.

        A device that was active before has kept what was written through its peer.
        """
        is_open = not (mirror.is_connected or mirror.is_standalone)
        return is_open and self._is_new and not self._values.get(constants.PEER_IS_AWAY)

    def _active(self) -> Mirror:
        mirror = self.mirror()
        if mirror is None:
            raise self.error("is not active on this node")
        return mirror

    def close(self) -> None:
        """Become secondary."""
        if self.mirror() is not None:
            self._change_state(*self._drbd.secondary())

    def shutdown(self) -> None:
        """Free the device; the volumes stay active."""
        if not self._is_free() and self._resource() is not None:
            self._change_state(*self._drbd.down())

    def _change_state(self, *argv: str) -> None:
        """Run a command again while another change of the state is under way."""
        end = self.clock.monotonic() + _CONNECT_S
        problem = tools.setup(self._process, *argv)
        while problem and _TRANSIENT in problem and self.clock.monotonic() < end:
            self.clock.wait(threading.Event(), _POLL_S)
            problem = tools.setup(self._process, *argv)
        if problem is not None:
            raise self.error(problem)

    # Parts
    def detach(self) -> None:
        """Give up the volumes of this node; the device goes on with its peer."""
        mirror = self._active()
        if mirror.is_diskless:
            return
        if mirror.role == "Primary" and not (
            mirror.is_connected and mirror.peer_disk == "UpToDate"
        ):
            raise self.error(f"the other node has no valid data ({mirror.text()})")
        self._setup(*self._drbd.detach())

    def replace_parts(self) -> None:
        """Take the volumes with the recorded names as new ones, without valid data."""
        mirror = self.mirror()
        if mirror is None and self._resource() is None:
            raise self.error("is not active on this node")
        # Without volumes and without a connection, DRBD calls it unconfigured.
        if mirror is not None and not mirror.is_diskless:
            raise self.error(f"has volumes already ({mirror.text()})")
        self.data.assemble()
        self.meta.assemble()
        self.write_metadata()
        self._attach()

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
        mirror = self._active()
        if mirror.is_syncing:
            raise self.error(
                f"cannot grow during a synchronisation ({mirror.text()}); wait for its"
                " end"
            )
        if not dryrun:
            self._setup(*self._drbd.resize(is_alone=not mirror.is_connected))
            self._wait_until_copying(mirror.out_of_sync_kib)

    def _wait_until_copying(self, known_kib: int) -> None:
        """Wait until the new part is being copied, if the nodes are connected.

        Until the other node has enlarged its device, too, the kernel calls the data of
        both complete, so that whoever waits for the copy would be content at once.

        Args:
            known_kib: size of the blocks that were marked before, as by an online
                verification; nothing copies these.
        """
        end = self.clock.monotonic() + _COPYING_S
        while self.clock.monotonic() < end:
            mirror = self.mirror()
            if mirror is None or not mirror.is_about_to_sync:
                return
            if mirror.out_of_sync_kib <= known_kib:
                return
            self.clock.wait(threading.Event(), _POLL_S)

    def rename(self, new_id: tuple[Any, ...]) -> None:
        """Refuse: a mirror has no name, its volumes have."""
        raise self.error(f"cannot be renamed to {list(new_id[:_SECRET])}")

    def set_info(self, text: str) -> None:
        """Store a text with both volumes."""
        self.data.set_info(text)
        self.meta.set_info(text)

    def snapshot(self, name: str | None, size_mib: int | None) -> tuple[Any, ...]:
        """Create a snapshot of the data volume of this node; return its logical id."""
        return self.data.snapshot(name, size_mib)

    def change_sync(self, *, pause: bool) -> None:
        """Pause or resume the synchronisation by this node."""
        self._active()
        command, *rest = self._drbd.sync(pause=pause)
        problem = tools.setup(self._process, command, *rest)
        if problem is not None and "already" not in problem:
            raise self.error(f"cannot {command}: {problem}")

    def _setup(self, *argv: str, secret: str = "") -> None:
        problem = tools.setup(self._process, *argv, secret=secret)
        if problem is not None:
            raise self.error(problem)
