"""Instances and disks as nodes get them: defaults filled in, disks and networks inside.

The master's RPC encoders create them, the node daemon reads them. Other data that a
node needs is not part of the object but an argument of the call.
"""

from typing import Any

from ganeti.model.objects.records import Disk, Instance, Nic, Record


class DiskX(Disk, frozen=True, kw_only=True):
    """A disk with parameters filled from group and cluster.

    Children likewise. ``dynamic_params`` holds values that only the called node may
    know, such as a DRBD minor.
    """

    children: "tuple[DiskX, ...]" = ()
    dynamic_params: dict[str, Any] | None = None


class NetInfo(Record, frozen=True, kw_only=True):
    """The network of a NIC, as far as network scripts need it."""

    name: str
    uuid: str
    network: str = ""
    gateway: str | None = None
    network6: str | None = None
    gateway6: str | None = None
    mac_prefix: str | None = None
    tags: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        """Return ``NETWORK_*`` variables for scripts; unset ones are left out."""
        values = {
            "NAME": self.name,
            "UUID": self.uuid,
            "TAGS": " ".join(self.tags),
            "SUBNET": self.network,
            "GATEWAY": self.gateway,
            "SUBNET6": self.network6,
            "GATEWAY6": self.gateway6,
            "MAC_PREFIX": self.mac_prefix,
        }
        return {f"NETWORK_{key}": value for key, value in values.items() if value}


class NicX(Nic, frozen=True, kw_only=True):
    """A NIC with filled parameters, and its network if it has one."""

    netinfo: NetInfo | None = None


class InstanceX(Instance, frozen=True, kw_only=True):
    """An instance with filled hvparams, beparams and osparams."""

    nics: tuple[NicX, ...] = ()
    secondary_nodes: tuple[str, ...] = ()
    disks_info: tuple[DiskX, ...] = ()
    #: Clear text, only for OS scripts.
    osparams_secret: dict[str, Any] = {}
    #: File of the cloud-init seed -> content, only for calls that start a guest.
    cloud_init: dict[str, str] = {}
