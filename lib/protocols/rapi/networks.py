"""Methods of networks."""

from collections.abc import Iterable, Sequence
from typing import Any

from ganeti.protocols.rapi.base import Base, arguments, changes, part


def path_of(network: str, rest: str = "") -> str:
    """Return the path of a network, or of a resource below it."""
    return f"/networks/{part(network)}{rest}"


def _listed(values: str | Sequence[str] | None) -> list[str] | None:
    if values is None:
        return None
    return values.split(",") if isinstance(values, str) else list(values)


class NetworkMethods(Base):
    """Lists, creation, connection, modification, removal and tags."""

    def GetNetworks(self, bulk: bool = False, reason: str | None = None) -> list[Any]:
        """Return the names of all networks, or whole objects."""
        answer: list[Any] = self._list("/networks", "name", bulk, reason)
        return answer

    def GetNetwork(self, network: str, reason: str | None = None) -> dict[str, Any]:
        """Return a network."""
        answer: dict[str, Any] = self._get(path_of(network), arguments(reason=reason))
        return answer

    def CreateNetwork(
        self,
        network_name: str,
        network: str,
        gateway: str | None = None,
        network6: str | None = None,
        gateway6: str | None = None,
        mac_prefix: str | None = None,
        add_reserved_ips: str | Sequence[str] | None = None,
        tags: str | Sequence[str] | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Create a network; return the job id.

        Args:
            network_name: its name.
            network: addresses, such as ``192.0.2.0/24``.
            gateway: address of the gateway.
            network6: IPv6 addresses.
            gateway6: IPv6 address of the gateway.
            mac_prefix: first three bytes of MAC addresses.
            add_reserved_ips: addresses that instances do not get, a list or a text with
                commas.
            tags: of the network, a list or a text with commas.
            dry_run: see the class.
            reason: see the class.
        """
        body = {
            "network_name": network_name,
            "network": network,
            "gateway": gateway,
            "network6": network6,
            "gateway6": gateway6,
            "mac_prefix": mac_prefix,
            "add_reserved_ips": _listed(add_reserved_ips),
            "tags": _listed(tags),
        }
        return self._post("/networks", changes(dry_run, reason), body)

    def ConnectNetwork(
        self,
        network_name: str,
        group_name: str,
        mode: str,
        link: str,
        vlan: str = "",
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Connect a network to a node group; return the job id.

        Args:
            network_name: its name.
            group_name: name of the group.
            mode: of NICs in that group.
            link: of NICs in that group.
            vlan: of NICs in that group.
            dry_run: see the class.
            reason: see the class.
        """
        body = {
            "group_name": group_name,
            "network_mode": mode,
            "network_link": link,
            "network_vlan": vlan,
        }
        path = path_of(network_name, "/connect")
        return self._put(path, changes(dry_run, reason), body)

    def DisconnectNetwork(
        self,
        network_name: str,
        group_name: str,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Disconnect a network from a node group; return the job id."""
        path = path_of(network_name, "/disconnect")
        return self._put(path, changes(dry_run, reason), {"group_name": group_name})

    def ModifyNetwork(
        self, network: str, reason: str | None = None, **kwargs: Any
    ) -> Any:
        """Modify a network; return the job id.

        Args:
            network: its name.
            reason: see the class.
            kwargs: parameters of the opcode ``OP_NETWORK_SET_PARAMS``.
        """
        return self._put(path_of(network, "/modify"), arguments(reason=reason), kwargs)

    def RenameNetwork(
        self,
        network: str,
        new_name: str,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Rename a network; return the job id. Earlier clients have no such method."""
        path = path_of(network, "/rename")
        return self._put(path, changes(dry_run, reason), {"new_name": new_name})

    def DeleteNetwork(
        self, network: str, dry_run: bool = False, reason: str | None = None
    ) -> Any:
        """Remove a network; return the job id."""
        return self._delete(path_of(network), changes(dry_run, reason))

    def GetNetworkTags(self, network: str, reason: str | None = None) -> list[str]:
        """Return the tags of a network."""
        path = path_of(network, "/tags")
        tags: list[str] = self._get(path, arguments(reason=reason))
        return tags

    def AddNetworkTags(
        self,
        network: str,
        tags: Iterable[str],
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Add tags to a network; return the job id."""
        return self._tags(self._put, path_of(network), tags, *changes(dry_run, reason))

    def DeleteNetworkTags(
        self,
        network: str,
        tags: Iterable[str],
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Remove tags of a network; return the job id."""
        more = changes(dry_run, reason)
        return self._tags(self._delete, path_of(network), tags, *more)
