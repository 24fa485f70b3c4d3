"""Hook variables of networks."""

from typing import Any

from ganeti.model import objects


def network_env(network: objects.Network) -> dict[str, Any]:
    """Return the variables of a network; those without a value are left out."""
    values = {
        "NETWORK_NAME": network.name,
        "NETWORK_SUBNET": network.network,
        "NETWORK_GATEWAY": network.gateway,
        "NETWORK_SUBNET6": network.network6,
        "NETWORK_GATEWAY6": network.gateway6,
        "NETWORK_MAC_PREFIX": network.mac_prefix,
        "NETWORK_TAGS": " ".join(sorted(network.tags)),
    }
    return {name: value for name, value in values.items() if value}


def connection_env(group: str, connection: dict[str, Any] | None) -> dict[str, Any]:
    """Return the variables of a connection, or of none, to a group of this name."""
    env = {"GROUP_NAME": group}
    if connection is not None:
        for key in ("mode", "link", "vlan"):
            env[f"GROUP_NETWORK_{key.upper()}"] = connection.get(key, "")
    return env
