"""Addresses in networks, and who uses them.

`AddressPool` is the IPv4 pool of a network: two bit arrays over its range. Users of
addresses are nodes, the cluster and NICs, separate by network or link. Pure.
"""

import collections
import threading
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple, Self

from bitarray import bitarray, frozenbitarray

from ganeti.base import errors
from ganeti.base.net import ip
from ganeti.model.objects import Instance, Network, Nic, Snapshot
from ganeti.model.objects.params import fill_nicparams

#: Prefix lengths that a network may have.
LONGEST_PREFIX = 30
SHORTEST_PREFIX = 16


class PoolCounts(NamedTuple):
    """Sizes of a pool, in addresses."""

    total: int
    free: int


class _Parsed:
    """The bits of the texts that were used last; thread-safe.

    A text of a /16 network takes 0.2 ms to parse. One change of a network reads the
    same texts several times, the next change begins with the result of this one, and
    the array of the administrators seldom changes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bits: dict[str, frozenbitarray] = {}

    def bits(self, text: str) -> frozenbitarray:
        """Return the bits of a text. Raises ValueError."""
        with self._lock:
            bits = self._bits.pop(text, None)
            if bits is not None:
                self._bits[text] = bits
                return bits
        bits = frozenbitarray(text)
        self.keep(text, bits)
        return bits

    def keep(self, text: str, bits: bitarray) -> None:
        """Remember the bits of a text."""
        with self._lock:
            while len(self._bits) >= _KEPT:
                del self._bits[next(iter(self._bits))]
            self._bits[text] = frozenbitarray(bits)


#: Texts whose bits are kept.
_KEPT: Final = 16
#: Changed addresses up to which a text is edited, not written as a whole.
_FEW: Final = 32
_parsed: Final = _Parsed()


class AddressPool:
    """Addresses of one network: used by instances, reserved by administrators.

    A mutable helper: created from a network and changed; `result` returns the changed
    network.
    """

    def __init__(self, network: Network) -> None:
        """Read the pool of a network.

        Raises:
            AddressPoolError: the range is not usable, or an array has another size.
        """
        self._network = network
        try:
            self.range = ip.ipv4_range(network.network)
        except ValueError as err:
            raise errors.AddressPoolError(f"network {network.name}: {err}") from err
        if not SHORTEST_PREFIX <= self.range.prefixlen <= LONGEST_PREFIX:
            raise errors.AddressPoolError(
                f"network {network.name}: {network.network} is not between"
                f" /{LONGEST_PREFIX} and /{SHORTEST_PREFIX}"
            )
        self._used = self._array(network.reservations)
        self._external = self._array(network.ext_reservations)
        #: Indexes that were marked or released, of instances and of administrators.
        self._touched: tuple[set[int], set[int]] = set(), set()

    def _array(self, text: str | None) -> bitarray:
        try:
            bits = bitarray(_parsed.bits(text) if text else self.range.num_addresses)
        except ValueError as err:
            raise errors.AddressPoolError(
                f"network {self._network.name}: reservations: {err}"
            ) from err
        if not text:
            bits.setall(0)
        if len(bits) != self.range.num_addresses:
            raise errors.AddressPoolError(
                f"network {self._network.name}: {self.range} has"
                f" {self.range.num_addresses} addresses, its reservations"
                f" {len(bits)}"
            )
        return bits

    @classmethod
    def fresh(cls, network: Network) -> Self:
        """Return the pool of a new network, with only its ends and gateway reserved."""
        pool = cls(network.replace(reservations=None, ext_reservations=None))
        pool.reserve(str(pool.range[0]), external=True)
        pool.reserve(str(pool.range[-1]), external=True)
        if network.gateway:
            pool.reserve(network.gateway, external=True)
        return pool

    def result(self) -> Network:
        """Return the network with the pool as it is now; serials are untouched."""
        return self._network.replace(
            reservations=_text(
                self._used, self._network.reservations, self._touched[False]
            ),
            ext_reservations=_text(
                self._external, self._network.ext_reservations, self._touched[True]
            ),
        )

    def contains(self, address: str) -> bool:
        """Return whether an address belongs to the range."""
        try:
            return ip.ipv4(address) in self.range
        except ValueError:
            return False

    def is_used(self, address: str) -> bool:
        """Return whether an instance has an address. Raises AddressPoolError."""
        return bool(self._used[self._index(address)])

    def is_external(self, address: str) -> bool:
        """Return whether an address is reserved. Raises AddressPoolError."""
        return bool(self._external[self._index(address)])

    def _index(self, address: str) -> int:
        if not self.contains(address):
            if ":" in address:
                network = self._network
                range6 = network.network6 or "an IPv6 range, which it does not have"
                raise errors.AddressPoolError(
                    f"network {network.name}: wanted an IPv4 address of {self.range},"
                    f" found {address}: guests take their addresses in {range6}"
                    " themselves"
                )
            raise errors.AddressPoolError(
                f"{address} is not in network {self._network.name} ({self.range})"
            )
        return int(ip.ipv4(address)) - int(self.range.network_address)

    def reserve(self, address: str, *, external: bool = False) -> None:
        """Mark an address as reserved.

        Raises:
            AddressPoolError: it is outside the range, or already in use.
        """
        index = self._index(address)
        if self._external[index]:
            raise errors.AddressPoolError(
                f"{address} is reserved externally in network {self._network.name}"
            )
        if self._used[index]:
            raise errors.AddressPoolError(
                f"{address} is used by an instance in network {self._network.name}"
            )
        self._mark(index, external, 1)

    def use(self, address: str) -> None:
        """Mark an address as an instance's, even if it is reserved externally.

        Raises:
            AddressPoolError: it is outside the range, or another instance has it.
        """
        index = self._index(address)
        if self._used[index]:
            raise errors.AddressPoolError(
                f"{address} is used by an instance in network {self._network.name}"
            )
        self._mark(index, False, 1)

    def release(self, address: str, *, external: bool = False) -> None:
        """Mark an address as free.

        Raises:
            AddressPoolError: it is outside the range, or not marked in that way.
        """
        index = self._index(address)
        bits = self._external if external else self._used
        if not bits[index]:
            how = "reserved externally" if external else "used by an instance"
            raise errors.AddressPoolError(
                f"{address} is not {how} in network {self._network.name}"
            )
        self._mark(index, external, 0)

    def _mark(self, index: int, external: bool, value: int) -> None:
        (self._external if external else self._used)[index] = value
        self._touched[external].add(index)

    def generate(self, avoid: Collection[str] = ()) -> str:
        """Return the lowest free address, without marking it.

        Raises:
            AddressPoolError: there is none.
        """
        for index in (self._used | self._external).search(bitarray("0")):
            address = str(self.range[index])
            if address not in avoid:
                return address
        raise errors.AddressPoolError(
            f"network {self._network.name} ({self.range}) has no free address"
        )

    def counts(self) -> PoolCounts:
        """Return the number of all and of free addresses."""
        taken = (self._used | self._external).count()
        return PoolCounts(self.range.num_addresses, self.range.num_addresses - taken)

    def external(self) -> list[str]:
        """Return the externally reserved addresses in order."""
        return [str(self.range[i]) for i in self._external.search(bitarray("1"))]

    def used(self) -> list[str]:
        """Return the addresses of instances in order."""
        return [str(self.range[i]) for i in self._used.search(bitarray("1"))]

    def map(self) -> str:
        """Return one character per address: ``X`` taken, ``.`` free."""
        return (self._used | self._external).to01().replace("1", "X").replace("0", ".")


def _text(bits: bitarray, before: str | None, touched: Collection[int]) -> str:
    """Return bits as text, the one before if they are the same.

    Args:
        bits: of the array.
        before: text that the array was made of, if any.
        touched: indexes that may differ from it.
    """
    # A text of another size has separators, which arrays ignore.
    if not before or len(before) != len(bits):
        return before if before and _parsed.bits(before) == bits else bits.to01()
    changed = [index for index in sorted(touched) if before[index] != "01"[bits[index]]]
    if not changed:
        return before
    if len(changed) > _FEW:
        text = bits.to01()
    else:
        pieces: list[str] = []
        end = 0
        for index in changed:
            pieces += (before[end:index], "01"[bits[index]])
            end = index + 1
        text = "".join([*pieces, before[end:]])
    _parsed.keep(text, bits)
    return text


#: The scope of an address (a network's uuid, or a link), and the address.
Place = tuple[str, str]


def place(snapshot: Snapshot, nic: Nic) -> Place | None:
    """Return the scope and address of a NIC, None without an address."""
    if not nic.ip:
        return None
    return str(nic.network or fill_nicparams(snapshot, nic)["link"]), nic.ip


def used(snapshot: Snapshot) -> dict[Place, list[str]]:
    """Return the users of each address, as texts."""
    users: dict[Place, list[str]] = collections.defaultdict(list)
    for where, who in _of_hosts(snapshot):
        users[where].append(who)
    for instance in snapshot.instances.values():
        for index, nic in enumerate(instance.nics):
            if (where_nic := place(snapshot, nic)) is not None:
                users[where_nic].append(_nic(instance, index))
    return users


def holder(snapshot: Snapshot, target: Place, *, but: str) -> str | None:
    """Return the user of an address as text, None if it is free.

    Args:
        snapshot: the configuration.
        target: scope and address.
        but: uuid of an instance to ignore.
    """
    for where, who in _of_hosts(snapshot):
        if where == target:
            return who
    for instance in snapshot.instances.values():
        for index, nic in enumerate(instance.nics):
            # The scope takes longer to compute than the comparison of addresses.
            if nic.ip != target[1] or instance.uuid == but:
                continue
            if place(snapshot, nic) == target:
                return _nic(instance, index)
    return None


def claiming_network(snapshot: Snapshot, address: str, group: str) -> str | None:
    """Return the name of the group's network that contains an address, if any."""
    for uuid in sorted(snapshot.nodegroups[group].networks):
        network = snapshot.networks.get(uuid)
        if network is None:
            continue
        try:
            if AddressPool(network).contains(address):
                return network.name
        except errors.AddressPoolError:
            continue
    return None


def _of_hosts(snapshot: Snapshot) -> Iterator[tuple[Place, str]]:
    link = str(snapshot.cluster.nicparams.get("default", {}).get("link", ""))
    yield (link, snapshot.cluster.master_ip), "the cluster"
    for node in snapshot.nodes.values():
        yield (link, node.primary_ip), f"node {node.name} (primary)"
        if node.secondary_ip != node.primary_ip:
            yield (link, node.secondary_ip), f"node {node.name} (secondary)"


def _nic(instance: Instance, index: int) -> str:
    return f"instance {instance.name} (NIC {index})"
