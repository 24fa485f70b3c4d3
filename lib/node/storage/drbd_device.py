"""The device of DRBD below a mirrored disk: its state, connection and role.

Every step looks at the present state first, so that steps that were cut short can be
repeated.
"""

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.clock import Clock, SystemClock
from ganeti.base.constants import disks
from ganeti.base.net import ip
from ganeti.base.process import Runner
from ganeti.model.objects.filled import DiskX
from ganeti.node.storage import drbd_commands
from ganeti.node.storage.base import MirrorStatus
from ganeti.node.storage.drbd_state import Mirror, Resource

_DRBD_HMAC_ALG: Final = "md5"

#: Seconds until a connection under way counts as not possible, below those of a call.
_CONNECT_S: Final = 20.0
_POLL_S: Final = 0.2
#: Seconds until a growth goes on although the other node has not begun to copy.
_COPYING_S: Final = 10.0
#: The kernel's words for a state that ends by itself.
_TRANSIENT: Final = "In transient state"
#: Place of the secret in the logical id of a disk.
SECRET: Final = 5


class DrbdDevice:
    """The device of one mirror on this node, with its resource.

    Args:
        process: runs DRBD's tools.
        disk: the record of the mirror.
        minor: number of the device on this node.
        volumes: paths of data and metadata.
        error: returns an error that names the disk.
    """

    clock: Clock = SystemClock()

    def __init__(
        self,
        process: Runner,
        disk: DiskX,
        minor: int,
        volumes: tuple[str, str],
        error: Callable[[str], errors.BlockDeviceError],
    ) -> None:
        self._process, self._volumes, self._error = process, volumes, error
        self._params: Mapping[str, Any] = disk.params or {}
        self._values: Mapping[str, Any] = disk.dynamic_params or {}
        self._logical_id = disk.logical_id
        self.minor = minor
        #: Whether this object has given the device its data, or begun to connect.
        self._is_new = False

    @property
    def name(self) -> str:
        """Name of its resource."""
        return f"resource{self.minor}"

    @functools.cached_property
    def commands(self) -> drbd_commands.Commands:
        """The commands of the generation of DRBD that this kernel has.

        Raises:
            StorageError: DRBD is missing.
        """
        own = self._values.get("node-id", 0)
        place = drbd_commands.Place(self.name, self.minor, own, 1 - own)
        return drbd_commands.of_kernel(drbd_commands.read_proc())(place)

    # State
    def mirror(self) -> Mirror | None:
        """Return the state of the device, None if it is not active.

        Raises:
            StorageError: DRBD is missing.
        """
        return self.among(drbd_commands.mirrors(self._process))

    def among(self, present: Mapping[int, Mirror]) -> Mirror | None:
        """Return the state of the device among those of all; None if not active."""
        mirror = present.get(self.minor)
        return mirror if mirror is not None and mirror.is_in_use else None

    def is_free(self) -> bool:
        """Return whether nothing has the minor, if the kernel says so without a tool.

        Raises:
            StorageError: DRBD is missing.
        """
        return self.commands.has_minor(self.minor, drbd_commands.read_proc()) is False

    def resource(self) -> Resource | None:
        """Return the settings of the resource of this disk, None without one.

        Raises:
            BlockDeviceError: something else uses the minor, or the name.
        """
        known = drbd_commands.resources(self._process)
        for resource in known.values():
            is_own = resource.name == self.name
            # One without a disk may be ours: its steps were cut off before the
            # attachment.
            mine = resource.data in ("", self._volumes[0])
            if self.minor in resource.minors and not (is_own and mine):
                raise self._error(
                    f"minor {self.minor} is in use by resource {resource.name} with"
                    f" {resource.data or 'no disk'}, wanted for {self._volumes[0]}; if"
                    f" nothing needs it, run drbdsetup down {resource.name} on this"
                    " node"
                )
        return known.get(self.name)

    def words(self, mirror: Mirror) -> MirrorStatus:
        """Return the kernel's words for a state, with identifiers if they matter."""
        is_known = mirror.is_connected or mirror.is_diskless
        return MirrorStatus(
            mirror.connection,
            mirror.role,
            mirror.disk,
            mirror.peer_disk,
            ()
            if is_known
            else drbd_commands.generations(self._process, self.commands.generations()),
        )

    # Device
    def write_metadata(self) -> None:
        """Write metadata of a disk without valid data."""
        problem = drbd_commands.create_metadata(
            *(self._process, self._volumes[1]),
            *(self.commands.METADATA, self.commands.METADATA_OPTIONS),
        )
        if problem is not None:
            raise self._error(f"cannot get metadata: {problem}")

    def add_resource(self, known: Resource | None = None) -> Resource | None:
        """Make the device, and its resource unless it is known; return what was there.

        A resource without a device, as an interruption leaves it, is in no text of the
        kernel.
        """
        if known is None:
            problem = drbd_commands.setup(self._process, *self.commands.new_resource())
            if problem is not None:
                known = self.resource()
                if known is None:
                    raise self._error(problem)
        self.setup(*self.commands.new_device())
        return known

    def attach(self) -> None:
        """Give the device its volumes."""
        layout = self.commands.METADATA
        problem = drbd_commands.apply_log(self._process, self._volumes[1], layout)
        if problem is not None:
            raise self._error(f"its metadata cannot be used: {problem}")
        self.setup(*self.commands.attach(*self._volumes, self._params))
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

    def connect(self, resource: Resource | None, *, two_primaries: bool | None) -> None:
        """Connect, or change the connection; None leaves the number of primaries."""
        ends = [self._address("local-ip"), self._address("remote-ip")]
        wanted = [f"--allow-two-primaries={'yes' if two_primaries else 'no'}"]
        options = drbd_commands.net_options(self._params)
        if two_primaries:
            # Only this protocol allows it.
            options.append("--protocol=C")
        if resource is not None and resource.remote:
            if [resource.local, resource.remote] == ends:
                if two_primaries is not None:
                    options += wanted
                    self.setup(*self.commands.change_connection(resource, options))
                if self.commands.KEEPS_CONNECTIONS and self._is_standalone():
                    self.setup(*self.commands.connect_again())
                    self._is_new = True
                return
            for argv in self.commands.disconnect(resource):
                self.setup(*argv)
        secret = str(self._logical_id[SECRET])
        options += [
            *wanted,
            f"--cram-hmac-alg={_DRBD_HMAC_ALG}",
            f"--shared-secret={secret}",
        ]
        for argv in self.commands.connect(ends, options, self._params):
            self.setup(*argv, secret=secret)
        self._is_new = True

    def _is_standalone(self) -> bool:
        mirror = self.mirror()
        return mirror is not None and mirror.is_standalone

    def disconnect(self) -> None:
        """Stop the exchange with the peer; without a connection, do nothing."""
        resource = self.resource()
        if resource is None or not resource.remote:
            return
        first, *rest = self.commands.disconnect(resource)
        if drbd_commands.setup(self._process, *first) is not None:
            # The peer did not answer.
            first, *rest = self.commands.disconnect(resource, force=True)
            self.setup(*first)
        for argv in rest:
            self.setup(*argv)

    # Role
    def become_primary(self) -> None:
        """Become primary, after the comparison with the data of the peer.

        Raises:
            BlockDeviceError: it is not active, no node has valid data, or the peer has
                not answered, whose data may be newer.
        """
        mirror = self.active()
        if mirror.role == "Primary":
            return
        end = self.clock.monotonic() + _CONNECT_S
        mirror = self._after_handshake(mirror, end)
        if mirror.is_up_to_date and self._must_wait(mirror):
            raise self._error(
                f"the other node has not connected within {_CONNECT_S:.0f} s, and its"
                f" data may be newer ({mirror.text()}); check the network between the"
                " secondary addresses of both nodes"
            )
        problem = drbd_commands.setup(self._process, *self.commands.primary())
        while problem is not None and self.clock.monotonic() < end:
            mirror = self.active()
            if mirror.is_connected or mirror.is_standalone:
                problem = drbd_commands.setup(self._process, *self.commands.primary())
                break
            self.clock.wait(threading.Event(), _POLL_S)
        if problem is not None:
            raise self._error(
                f"cannot become primary ({self.active().text()}): {problem}"
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
            mirror = self.active()
        return mirror

    def _must_wait(self, mirror: Mirror) -> bool:
        """Return whether the peer, which could have newer data, is yet to answer.

        A device that was active before has kept what was written through its peer.
        """
        is_open = not (mirror.is_connected or mirror.is_standalone)
        return is_open and self._is_new and not self._values.get(disks.PEER_IS_AWAY)

    def active(self) -> Mirror:
        """Return the state; raise BlockDeviceError if it is not active."""
        mirror = self.mirror()
        if mirror is None:
            raise self._error("is not active on this node")
        return mirror

    def change_state(self, *argv: str) -> None:
        """Run a command again while another change of the state is under way."""
        end = self.clock.monotonic() + _CONNECT_S
        problem = drbd_commands.setup(self._process, *argv)
        while problem and _TRANSIENT in problem and self.clock.monotonic() < end:
            self.clock.wait(threading.Event(), _POLL_S)
            problem = drbd_commands.setup(self._process, *argv)
        if problem is not None:
            raise self._error(problem)

    def wait_until_copying(self, known_kib: int) -> None:
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

    def setup(self, *argv: str, secret: str = "") -> None:
        """Run a command of drbdsetup; raise BlockDeviceError if it failed."""
        problem = drbd_commands.setup(self._process, *argv, secret=secret)
        if problem is not None:
            raise self._error(problem)
