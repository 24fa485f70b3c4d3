"""Opcodes: network."""

from typing import Annotated, Any, ClassVar

from ganeti import ht
from ganeti.ht import Doc
from ganeti.opcodes.base import Opcode


class NetworkAdd(Opcode, tag="OP_NETWORK_ADD", frozen=True, kw_only=True):
    """Create a network."""

    SUMMARY_FIELD: ClassVar[str | None] = "network_name"
    RESULT: ClassVar[Any] = None

    add_reserved_ips: Annotated[
        list[ht.IPv4Address] | None,
        Doc("addresses to mark as externally reserved in the pool"),
    ] = None
    conflicts_check: Annotated[
        bool, Doc("refuse IPs that clash with known networks/nodes")
    ] = True
    gateway: Annotated[
        ht.IPv4Address | None,
        Doc("IPv4 gateway; 'none' handling is done by the client"),
    ] = None
    gateway6: Annotated[ht.IPv6Address | None, Doc("IPv6 gateway")] = None
    mac_prefix: Annotated[ht.NonEmptyStr | None, Doc("network specific MAC prefix")] = (
        None
    )
    network: Annotated[ht.IPv4Network, Doc("IPv4 subnet in CIDR form")]
    network6: Annotated[ht.IPv6Network | None, Doc("IPv6 subnet in CIDR form")] = None
    network_name: Annotated[ht.NonEmptyStr, Doc("name of the new network")]
    tags: Annotated[list[ht.NonEmptyStr], Doc("initial tags")] = []


class NetworkConnect(Opcode, tag="OP_NETWORK_CONNECT", frozen=True, kw_only=True):
    """Connect a network to a group."""

    SUMMARY_FIELD: ClassVar[str | None] = "network_name"
    RESULT: ClassVar[Any] = None

    conflicts_check: Annotated[
        bool, Doc("refuse IPs that clash with known networks/nodes")
    ] = True
    group_name: Annotated[ht.NonEmptyStr, Doc("node group, name or uuid")]
    network_link: Annotated[
        ht.NonEmptyStr, Doc("link used by NICs of the network in that group")
    ]
    network_mode: Annotated[ht.NicMode, Doc("NIC mode used in that group")]
    network_name: Annotated[ht.NonEmptyStr, Doc("network, name or uuid")]
    network_vlan: Annotated[str, Doc("VLAN used in that group")] = ""


class NetworkDisconnect(Opcode, tag="OP_NETWORK_DISCONNECT", frozen=True, kw_only=True):
    """Disconnect a network from a group."""

    SUMMARY_FIELD: ClassVar[str | None] = "network_name"
    RESULT: ClassVar[Any] = None

    group_name: Annotated[ht.NonEmptyStr, Doc("node group, name or uuid")]
    network_name: Annotated[ht.NonEmptyStr, Doc("network, name or uuid")]


class NetworkRemove(Opcode, tag="OP_NETWORK_REMOVE", frozen=True, kw_only=True):
    """Delete a network."""

    SUMMARY_FIELD: ClassVar[str | None] = "network_name"
    RESULT: ClassVar[Any] = None

    force: Annotated[bool, Doc("skip some safety checks")] = False
    network_name: Annotated[ht.NonEmptyStr, Doc("network, name or uuid")]


class NetworkRename(Opcode, tag="OP_NETWORK_RENAME", frozen=True, kw_only=True):
    """Rename a network; result is the new name (new in 3.1)."""

    RESULT: ClassVar[Any] = ht.NonEmptyStr

    network_name: Annotated[ht.NonEmptyStr, Doc("network, name or uuid")]
    new_name: Annotated[ht.NonEmptyStr, Doc("new name")]


class NetworkSetParams(Opcode, tag="OP_NETWORK_SET_PARAMS", frozen=True, kw_only=True):
    """Change a network."""

    SUMMARY_FIELD: ClassVar[str | None] = "network_name"
    RESULT: ClassVar[Any] = None

    add_reserved_ips: Annotated[
        list[ht.IPv4Address] | None,
        Doc("addresses to newly mark as externally reserved"),
    ] = None
    gateway: Annotated[
        ht.IPv4Address | None,
        Doc("IPv4 gateway; 'none' handling is done by the client"),
    ] = None
    gateway6: Annotated[ht.IPv6Address | None, Doc("IPv6 gateway")] = None
    mac_prefix: Annotated[ht.NonEmptyStr | None, Doc("network specific MAC prefix")] = (
        None
    )
    network6: Annotated[ht.IPv6Network | None, Doc("IPv6 subnet in CIDR form")] = None
    network_name: Annotated[ht.NonEmptyStr, Doc("network, name or uuid")]
    remove_reserved_ips: Annotated[
        list[ht.IPv4Address] | None, Doc("external reservations to drop")
    ] = None
