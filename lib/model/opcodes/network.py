"""Opcodes: network."""

from typing import Annotated, Any, ClassVar

from ganeti.model import ht
from ganeti.model.ht import Doc
from ganeti.model.opcodes import common
from ganeti.model.opcodes.common import Opcode


class NetworkAdd(Opcode, tag="OP_NETWORK_ADD", frozen=True, kw_only=True):
    """Create a network."""

    SUMMARY_FIELD: ClassVar[str | None] = "network_name"
    RESULT: ClassVar[Any] = None

    add_reserved_ips: Annotated[
        list[ht.IPv4Address] | None,
        Doc("addresses to mark as externally reserved in the pool"),
    ] = None
    conflicts_check: common.ConflictsCheck = True
    gateway: Annotated[ht.IPv4Address | None, Doc("IPv4 gateway")] = None
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

    conflicts_check: common.ConflictsCheck = True
    group_name: common.GroupName
    network_link: Annotated[
        ht.NonEmptyStr, Doc("link used by NICs of the network in that group")
    ]
    network_mode: Annotated[ht.NicMode, Doc("NIC mode used in that group")]
    network_name: common.NetworkName
    network_vlan: Annotated[str, Doc("VLAN used in that group")] = ""


class NetworkDisconnect(Opcode, tag="OP_NETWORK_DISCONNECT", frozen=True, kw_only=True):
    """Disconnect a network from a group."""

    SUMMARY_FIELD: ClassVar[str | None] = "network_name"
    RESULT: ClassVar[Any] = None

    group_name: common.GroupName
    network_name: common.NetworkName


class NetworkRemove(Opcode, tag="OP_NETWORK_REMOVE", frozen=True, kw_only=True):
    """Delete a network."""

    SUMMARY_FIELD: ClassVar[str | None] = "network_name"
    RESULT: ClassVar[Any] = None

    force: common.Force = False
    network_name: common.NetworkName


class NetworkRename(Opcode, tag="OP_NETWORK_RENAME", frozen=True, kw_only=True):
    """Rename a network; result is the new name (new in 3.1)."""

    RESULT: ClassVar[Any] = ht.NonEmptyStr

    network_name: common.NetworkName
    new_name: common.NewName


class NetworkSetParams(Opcode, tag="OP_NETWORK_SET_PARAMS", frozen=True, kw_only=True):
    """Change a network."""

    SUMMARY_FIELD: ClassVar[str | None] = "network_name"
    RESULT: ClassVar[Any] = None

    add_reserved_ips: Annotated[
        list[ht.IPv4Address] | None,
        Doc("addresses to newly mark as externally reserved"),
    ] = None
    gateway: Annotated[
        ht.IPv4AddressOrNone | None, Doc("IPv4 gateway, none removes it")
    ] = None
    gateway6: Annotated[
        ht.IPv6AddressOrNone | None, Doc("IPv6 gateway, none removes it")
    ] = None
    mac_prefix: Annotated[
        ht.NonEmptyStr | None, Doc("network specific MAC prefix, none removes it")
    ] = None
    network6: Annotated[
        ht.IPv6NetworkOrNone | None,
        Doc("IPv6 subnet in CIDR form, none removes it"),
    ] = None
    network_name: common.NetworkName
    remove_reserved_ips: Annotated[
        list[ht.IPv4Address] | None, Doc("external reservations to drop")
    ] = None
