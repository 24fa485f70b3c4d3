"""The configuration of a running cluster: snapshots, edits, reservations."""

import contextlib
import itertools
import os
import threading
import uuid
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Self, TypeVar

import msgspec

from ganeti.base import clock, errors
from ganeti.master.config import address_pool
from ganeti.master.config.address_pool import AddressPool
from ganeti.master.config.disk_notes import DiskNotes
from ganeti.master.config.edit import Edit
from ganeti.master.config.node_deaths import NodeDeaths
from ganeti.model import objects
from ganeti.model.objects import Snapshot
from ganeti.store import Document, Fork, Store
from ganeti.store.numbers import CONFIG_HEADER

# Values that a running job will write, so that no other job chooses them.
#
# Reservations are in memory, belong to an owner (a job's execution id), and end with
# the job. A restart of the master also ends the jobs that held them.

V = TypeVar("V", bound=Hashable)


class Reservations:
    """Reserved values by kind (``mac``, ``uuid``, ``lv``, …); thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[tuple[str, Hashable], str] = {}

    def copy(self) -> "Reservations":
        """Return an independent copy of the reservations."""
        copied = Reservations()
        with self._lock:
            copied._owners = self._owners.copy()
        return copied

    def reserve(
        self,
        owner: str,
        kind: str,
        value: Hashable,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Reserve a value; the same owner may reserve it twice.

        Args:
            owner: execution id.
            kind: of the value.
            value: the value.
            check: raises if the configuration has the value. It is called under the
                lock: an owner writes the value before it releases the reservation, so
                whoever looks at the reservations first misses neither.

        Raises:
            ReservationError: another owner has it.
        """
        with self._lock:
            check()
            holder = self._owners.setdefault((kind, value), owner)
        if holder != owner:
            raise errors.ReservationError(
                f"{kind} {value!r} is reserved by {holder}, wanted by {owner}"
            )

    def reserve_first(
        self, owner: str, kind: str, choose: Callable[[Collection[Hashable]], V]
    ) -> V:
        """Reserve the value that ``choose`` returns for the reserved ones.

        ``choose`` is called under the lock and looks at the configuration itself; see
        `reserve`.
        """
        with self._lock:
            taken = {value for known, value in self._owners if known == kind}
            value = choose(taken)
            self._owners[kind, value] = owner
        return value

    def held(self, kind: str) -> dict[Hashable, str]:
        """Return value -> owner for a kind."""
        with self._lock:
            return {
                value: owner
                for (known, value), owner in self._owners.items()
                if known == kind
            }

    def release(self, owner: str) -> None:
        """Release all values of an owner."""
        with self._lock:
            for key in [key for key, held in self._owners.items() if held == owner]:
                del self._owners[key]


#: Maximum number of random addresses to try.
MAC_ATTEMPTS = 128
#: Bytes of randomness in a DRBD secret (written as hexadecimal digits).
SECRET_BYTES = 20


class Header(msgspec.Struct, frozen=True):
    """Serial and times of the whole configuration, as at the top of ``config.data``."""

    serial_no: int = 0
    ctime: float = 0.0
    mtime: float = 0.0

    @classmethod
    def decode(cls, data: bytes | None) -> Self:
        """Return the header for a stored document, None for one never stored."""
        return msgspec.json.decode(data, type=cls) if data else cls()


#: Key of the header among the ``meta`` documents.
HEADER_KEY = CONFIG_HEADER


class Config:
    """Reads and changes the configuration of a store; thread-safe."""

    def __init__(
        self,
        store: Store,
        clock: clock.Clock,
        *,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Wrap a store.

        Args:
            store: holds the configuration.
            clock: returns times of change.
            entropy: number -> that many random bytes.
        """
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._reservations = Reservations()
        #: Disks that are about to be made.
        self.disk_notes = DiskNotes(store)
        #: Nodes that do not answer, and what was done about them.
        self.node_deaths = NodeDeaths(store)
        #: Called with the nodes and the keys of ssconf files that a job has written
        #: beside the distributor: a later file may have been there already.
        self.on_ssconf: Callable[[Collection[str], Collection[str]], None] = (
            lambda _nodes, _keys: None
        )
        self._header: Header | None = None  # guarded by the store's writers' lock

    def snapshot(self) -> Snapshot:
        """Return the newest durable configuration; never blocks."""
        return self._store.snapshot()

    def header(self) -> Header:
        """Return serial and times of the whole configuration."""
        return Header.decode(self._store.read("meta", HEADER_KEY))

    @contextlib.contextmanager
    def edit(
        self, owner: str, *, skipped: int = 0, also: Sequence[Document] = ()
    ) -> Iterator[Edit]:
        """Change the configuration: read, decide and commit as one step.

        The body runs under the writers' lock and must be quick. Leaving it blocks
        until the changes are durable; an exception drops them.

        Args:
            owner: execution id whose reservations are about to be used.
            skipped: serials of the whole configuration to leave out.
            also: documents to commit with a change.

        Raises:
            StorageError: nothing was changed.
            CommitUnknownError: the changes may be durable.
            TermError: another node became master; the changes may be durable.
        """
        now = self._clock.time()
        header = self._header or self.header()
        try:
            with self._store.writing() as batch:
                edit = Edit(batch, now=now, owner=owner)
                yield edit
                if edit.is_changed:
                    header = self._header or header
                    self._header = Header(
                        serial_no=header.serial_no + 1 + skipped,
                        ctime=header.ctime or now,
                        mtime=now,
                    )
                    data = msgspec.json.encode(self._header)
                    batch.put(Document("meta", HEADER_KEY, data), *also)
        except (errors.StorageError, errors.TermError):
            self._header = None  # the counted serials are lost; read them again
            raise

    def release_copy(self, node: str, seconds: float) -> bool:
        """Make the end of a node's candidacy take full effect; return whether it did.

        See `ganeti.store.Store.release_copy`.
        """
        return self._store.release_copy(node, seconds)

    def leave_out(self, serial: int) -> None:
        """Give the whole configuration a higher serial than this one, if it has none.

        Blocks until that is durable. Same errors as `edit`.
        """
        header = self._header or self.header()
        try:
            with self._store.writing() as batch:
                header = self._header or header
                if header.serial_no <= serial:
                    self._header = msgspec.structs.replace(header, serial_no=serial + 1)
                    data = msgspec.json.encode(self._header)
                    batch.put(Document("meta", HEADER_KEY, data))
        except (errors.StorageError, errors.TermError):
            self._header = None
            raise

    def fork(self, clock: clock.Clock) -> tuple["Config", Fork]:
        """Return a fork of the current configuration, and its store.

        Changes of the fork do not affect this configuration. Values that are reserved
        here are reserved in the fork.

        Args:
            clock: returns the fork's times of change.
        """
        store = Fork(self._store)
        forked = Config(store, clock, entropy=self._entropy)
        forked._reservations = self._reservations.copy()
        return forked, store

    # Reservations
    def reserve(self, owner: str, kind: str, value: str) -> None:
        """Reserve a name of a kind, such as a volume, until the owner ends.

        Raises:
            ReservationError: another owner has it.
        """
        self._reservations.reserve(owner, kind, value)

    def reserved(self, kind: str) -> dict[Hashable, str]:
        """Return value -> owner of the names of a kind that are reserved."""
        return self._reservations.held(kind)

    def release(self, owner: str) -> None:
        """Release all reservations of an owner, whose opcode has ended."""
        self._reservations.release(owner)
        self.disk_notes.drop(owner)

    def reserve_uuid(self, owner: str) -> str:
        """Return a new uuid."""
        value = str(uuid.UUID(bytes=self._entropy(16), version=4))
        self._reservations.reserve(owner, "uuid", value)
        return value

    def reserve_secret(self, owner: str) -> str:
        """Return a new DRBD secret, 40 hexadecimal digits."""
        value = self._entropy(SECRET_BYTES).hex()
        self._reservations.reserve(owner, "secret", value)
        return value

    def reserve_mac(self, owner: str, network_uuid: str | None = None) -> str:
        """Return a new MAC with the prefix of a network, or of the cluster.

        Raises:
            ReservationError: there is no free address.
        """
        snapshot = self.snapshot()
        network = snapshot.networks[network_uuid] if network_uuid else None
        prefix = (network and network.mac_prefix) or snapshot.cluster.mac_prefix
        for _attempt in range(MAC_ATTEMPTS):
            mac = f"{prefix}:{self._entropy(3).hex(':')}"
            with contextlib.suppress(errors.ReservationError):
                self.take_mac(owner, mac)
                return mac
        raise errors.ReservationError(
            f"no free MAC address with prefix {prefix} in {MAC_ATTEMPTS} attempts"
        )

    def take_mac(self, owner: str, mac: str) -> None:
        """Reserve a MAC that the user chose.

        Raises:
            ReservationError: an instance or another owner has it.
        """

        def check() -> None:
            snapshot = self.snapshot()
            holder = snapshot.mac_owner(mac)
            if holder is not None:
                name = snapshot.instances[holder].name
                raise errors.ReservationError(f"MAC {mac} is used by instance {name}")

        self._reservations.reserve(owner, "mac", mac, check)

    def take_address(
        self, owner: str, place: address_pool.Place, *, instance: str
    ) -> None:
        """Reserve an address outside of networks that the user chose.

        Args:
            owner: execution id.
            place: scope and address.
            instance: uuid of an instance that may already have it.

        Raises:
            ReservationError: a node, another instance or another owner has it.
        """

        def check() -> None:
            holder = address_pool.holder(self.snapshot(), place, but=instance)
            if holder is not None:
                raise errors.ReservationError(f"address {place[1]} is used by {holder}")

        self._reservations.reserve(owner, "address", place, check)

    def reserve_minors(self, owner: str, nodes: Sequence[str]) -> list[int]:
        """Return a new DRBD minor for each entry, the lowest unused of its node.

        Args:
            owner: execution id.
            nodes: node uuids, each once per requested minor.
        """
        return [self._reserve_minor(owner, node) for node in nodes]

    def _reserve_minor(self, owner: str, node: str) -> int:
        def lowest(taken: Collection[Hashable]) -> int:
            used = self._used_minors(node)
            return next(
                minor
                for minor in itertools.count()
                if minor not in used and minor not in taken
            )

        return self._reservations.reserve_first(owner, f"minor/{node}", lowest)

    def _used_minors(self, node: str) -> set[int]:
        """Return the minors of recorded disks, and of noted ones that may be active."""
        snapshot = self.snapshot()
        noted = [
            made.device or made.disk
            for made in self.disk_notes.all_disks()
            if node in made.nodes
        ]
        recorded = [snapshot.disks[uuid] for uuid in snapshot.disks_on_node(node)]
        return {
            minor
            for disk in (*recorded, *noted)
            if disk.dev_type == "drbd"
            for holder, minor in drbd_minors(disk)
            if holder == node
        }

    def reserve_ip(
        self, owner: str, network_uuid: str, address: str, *, check: bool = True
    ) -> None:
        """Reserve an address of a network until the instance is written.

        Args:
            owner: execution id.
            network_uuid: the network.
            address: in its range.
            check: refuse externally reserved addresses.

        Raises:
            ReservationError: it is in use or reserved.
            AddressPoolError: it is not in the network.
        """

        def refuse_used() -> None:
            network = self.snapshot().networks[network_uuid]
            pool = AddressPool(network)
            if pool.is_used(address) or (check and pool.is_external(address)):
                how = "used by an instance" if pool.is_used(address) else "reserved"
                raise errors.ReservationError(
                    f"{address} in network {network.name} is {how}"
                )

        self._reservations.reserve(owner, f"ip/{network_uuid}", address, refuse_used)

    def generate_ip(self, owner: str, network_uuid: str) -> str:
        """Reserve and return the lowest free address of a network.

        Raises:
            ReservationError: there is none.
        """

        def lowest(taken: Collection[Hashable]) -> str:
            pool = AddressPool(self.snapshot().networks[network_uuid])
            return pool.generate({str(item) for item in taken})

        try:
            return self._reservations.reserve_first(owner, f"ip/{network_uuid}", lowest)
        except errors.AddressPoolError as err:
            raise errors.ReservationError(*err.args) from err


def drbd_minors(disk: objects.Disk) -> list[tuple[str, int]]:
    """Return (node uuid, minor) of both ends of a DRBD disk."""
    node_a, node_b, _port, minor_a, minor_b, *_secret = disk.logical_id
    return [(node_a, minor_a), (node_b, minor_b)]
