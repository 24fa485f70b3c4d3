"""Index of the instances' addresses: link and IP address to instance.

The index follows the snapshot change by change, so its cost depends only on the changes
unless the cluster's default NIC parameters change.
"""

from collections.abc import Iterable, Iterator

from ganeti.model.objects import Instance, Snapshot, Update

#: Name of the cluster's only set of NIC parameters.
_DEFAULT = "default"


def default_link(snapshot: Snapshot) -> str:
    """Return the link of NICs that have none of their own."""
    return str(snapshot.cluster.nicparams.get(_DEFAULT, {}).get("link", ""))


class AddressIndex:
    """Instances by link and address; of several, the one that was set last counts."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Build the index of a snapshot."""
        self._default = default_link(snapshot)
        self._instances: dict[str, dict[str, dict[str, None]]] = {}
        for key, record in snapshot.instances.items():
            self._put(key, record)

    def find(self, link: str, address: str) -> str | None:
        """Return the uuid of the instance with an address."""
        owners = self._instances.get(link, {}).get(address)
        return next(reversed(owners)) if owners else None

    def on_link(self, link: str) -> list[str]:
        """Return the addresses on a link."""
        return list(self._instances.get(link, ()))

    def apply(
        self, before: Snapshot, after: Snapshot, updates: Iterable[Update]
    ) -> bool:
        """Apply changes; return false if the index must be built again instead."""
        if default_link(after) != self._default:
            return False
        for update in updates:
            if update.table != "instances":
                continue
            old = before.instances.get(update.key)
            if old is not None:
                self._drop(update.key, old)
            if isinstance(update.record, Instance):
                self._put(update.key, update.record)
        return True

    def _entries(self, record: Instance) -> Iterator[tuple[str, str]]:
        for nic in record.nics:
            if nic.ip:
                yield str(nic.nicparams.get("link", self._default)), nic.ip

    def _put(self, key: str, record: Instance) -> None:
        for link, address in self._entries(record):
            self._instances.setdefault(link, {}).setdefault(address, {})[key] = None

    def _drop(self, key: str, record: Instance) -> None:
        for link, address in self._entries(record):
            owners = self._instances.get(link, {}).get(address, {})
            owners.pop(key, None)
            if not owners:
                self._instances.get(link, {}).pop(address, None)
                if not self._instances.get(link):
                    self._instances.pop(link, None)
