"""NICs in requests: conversion of requested parameters to NIC records."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.errors import refusal
from ganeti.base.net import ip as ip_texts
from ganeti.master.config import address_pool
from ganeti.model import objects
from ganeti.model.objects import lookup
from ganeti.operations import base
from ganeti.operations.instance.disks import disk_specs
from ganeti.operations.parameters import device_params, typed_params
from ganeti.protocols.rpc import calls

#: Maximum number of NICs of an instance.
MAX_NICS: Final = 8
_MAC: Final = re.compile(r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")
#: No device can have it: the kernel takes it for an address that is missing.
_NO_MAC: Final = "00:00:00:00:00:00"
_GENERATED: Final = ("auto", "generate")
_KEYS: Final = ("mode", "link", "vlan")
#: Addresses in networks: uuid of the network, address.
Owned = frozenset[tuple[str | None, str | None]]
#: Value for an address that the network chooses.
_POOL: Final = "pool"


def build(
    ctx: base.Context,
    spec: Mapping[Any, Any],
    *,
    group: str,
    what: str,
    auto_ip: str | None = None,
    owned: Owned = frozenset(),
) -> objects.Nic:
    """Return the record of a new NIC; its MAC and uuid are reserved.

    Args:
        ctx: dependencies of the opcode.
        spec: parameters of the request.
        group: uuid of the group whose network connections apply.
        what: name of the NIC in errors, such as ``instance web1: nic 0``.
        auto_ip: address that ``ip=auto`` means.
        owned: addresses that the instance has, which are not reserved again.

    Raises:
        OpPrereqError: a value is wrong, or an address or MAC is in use.
    """
    network = _network(ctx.snapshot, spec.get("network"), what)
    nicparams = _nicparams(ctx.snapshot, spec, network, group, what)
    mac = (spec.get("mac") or "auto").lower()
    if mac in _GENERATED:
        mac = ctx.config.reserve_mac(ctx.owner, network.uuid if network else None)
    else:
        take_mac(ctx, mac, what)
    filled = _filled(ctx.snapshot, nicparams, what)
    ip = _address(spec.get("ip"), filled, what, auto_ip)
    return objects.Nic(
        uuid=ctx.config.reserve_uuid(ctx.owner),
        mac=mac,
        ip=_take_address(ctx, ip, network, what, owned),
        nicparams=nicparams,
        network=network.uuid if network else None,
        name=disk_specs.check_name(spec.get("name"), what),
    )


def change(
    ctx: base.Context,
    nic: objects.Nic,
    spec: Mapping[Any, Any],
    *,
    group: str,
    what: str,
    owned: Owned,
) -> objects.Nic:
    """Return a NIC with the values of a request changed. Same errors as `build`."""
    merged: dict[str, Any] = dict(nic.nicparams) | {"ip": nic.ip, "name": nic.name}
    network = nic.network
    if "network" in spec:
        merged["network"] = spec["network"]
        for key in _KEYS:
            merged.pop(key, None)
    elif network:
        merged["network"] = network
        for key in _KEYS:
            merged.pop(key, None)
    merged |= spec
    requested = (spec.get("mac") or "").lower()
    merged["mac"] = nic.mac
    changed = _complete(ctx, nic, merged, group=group, what=what, owned=owned)
    if requested in _GENERATED:
        mac = ctx.config.reserve_mac(ctx.owner, changed.network)
    elif requested and requested != nic.mac:
        take_mac(ctx, requested, what)
        mac = requested
    else:
        mac = nic.mac
    return changed.replace(mac=mac)


def _complete(
    ctx: base.Context,
    old: objects.Nic,
    spec: Mapping[Any, Any],
    *,
    group: str,
    what: str,
    owned: Owned,
) -> objects.Nic:
    """Return a record for complete values; reserve the address if it is new."""
    network = _network(ctx.snapshot, spec.get("network"), what)
    nicparams = _nicparams(ctx.snapshot, spec, network, group, what)
    filled = _filled(ctx.snapshot, nicparams, what)
    ip = _address(spec.get("ip"), filled, what, None)
    uuid = network.uuid if network else None
    if (ip, uuid) != (old.ip, old.network):
        ip = _take_address(ctx, ip, network, what, owned)
    return objects.Nic(
        uuid=old.uuid,
        mac=spec["mac"],
        ip=ip,
        nicparams=nicparams,
        network=uuid,
        name=disk_specs.check_name(spec.get("name"), what),
    )


def _network(
    snapshot: objects.Snapshot, name: str | None, what: str
) -> objects.Network | None:
    if name is None or name.lower() in ("", typed_params.NONE):
        return None
    try:
        return snapshot.networks[lookup.expand_network(snapshot, name)]
    except errors.OpPrereqError as err:
        raise errors.OpPrereqError(f"{what}: {err.args[0]}", err.args[1]) from err


def _nicparams(
    snapshot: objects.Snapshot,
    spec: Mapping[Any, Any],
    network: objects.Network | None,
    group: str,
    what: str,
) -> dict[str, Any]:
    given = {
        key: value
        for key in _KEYS
        if (value := spec.get(key)) not in (None, "", typed_params.DEFAULT)
    }
    if (bridge := spec.get("bridge")) not in (None, ""):
        if given.get("link", bridge) != bridge:
            raise refusal(
                f"{what}: bridge {bridge!r} and link {given['link']!r} differ"
            )
        given["link"] = bridge
    if network is not None:
        if given:
            raise refusal(
                f"{what}: {', '.join(sorted(given))} cannot be given together with"
                f" network {network.name}, whose connection sets them"
            )
        connection = snapshot.nodegroups[group].networks.get(network.uuid)
        if connection is None:
            raise errors.OpPrereqError(
                f"{what}: network {network.name} is not connected to node group"
                f" {snapshot.nodegroups[group].name}",
                ecodes.ECODE_STATE,
            )
        return dict(connection)
    return device_params.check_nic(given, what)


def _filled(
    snapshot: objects.Snapshot, nicparams: Mapping[str, Any], what: str
) -> dict[str, Any]:
    """Return parameters with cluster defaults; refuse a bridge without a name."""
    filled = {**snapshot.cluster.nicparams["default"], **nicparams}
    if filled["mode"] in ("bridged", "openvswitch") and not filled["link"]:
        raise refusal(
            f"{what}: mode {filled['mode']} needs link=BRIDGE,"
            " the cluster has no default"
        )
    return filled


def _address(
    ip: str | None, filled: Mapping[str, Any], what: str, auto_ip: str | None
) -> str | None:
    if ip is None or ip.lower() in ("", typed_params.NONE):
        if filled["mode"] == "routed":
            raise refusal(f"{what}: mode routed needs an ip address")
        return None
    if ip.lower() == "auto":
        if auto_ip is None:
            raise refusal(f"{what}: ip auto needs the instance name to be checked")
        return auto_ip
    if ip.lower() == _POOL:
        return _POOL
    try:
        return str(ip_texts.parse(ip))
    except ValueError as err:
        raise refusal(
            f"{what}: wanted an ip address, auto, pool or none, found {ip!r}"
        ) from err


def _take_address(
    ctx: base.Context,
    ip: str | None,
    network: objects.Network | None,
    what: str,
    owned: Owned,
) -> str | None:
    """Return the address, reserved in its network if it has one."""
    if network is None:
        if ip == _POOL:
            raise refusal(f"{what}: ip pool needs a network")
        return ip
    from_pool = ip == _POOL
    try:
        if from_pool:
            return ctx.config.generate_ip(ctx.owner, network.uuid)
        if ip is not None and (network.uuid, ip) not in owned:
            ctx.config.reserve_ip(ctx.owner, network.uuid, ip)
    except (errors.ReservationError, errors.AddressPoolError) as err:
        code = ecodes.ECODE_NORES if from_pool else ecodes.ECODE_NOTUNIQUE
        raise errors.OpPrereqError(f"{what}: {err.args[0]}", code) from err
    return ip


def take_mac(ctx: base.Context, mac: str, what: str) -> None:
    """Reserve a requested MAC; refuse one that no device can have, or in use.

    Raises:
        OpPrereqError: contains wanted and found, or the user of the address.
    """
    if not _MAC.fullmatch(mac) or int(mac[:2], 16) & 1 or mac == _NO_MAC:
        raise refusal(
            f"{what}: wanted a unicast MAC such as aa:00:00:12:34:56, found {mac!r}"
        )
    try:
        ctx.config.take_mac(ctx.owner, mac)
    except errors.ReservationError as err:
        raise errors.OpPrereqError(
            f"{what}: {err.args[0]}", ecodes.ECODE_NOTUNIQUE
        ) from err


def check_all(nics: Sequence[objects.Nic], instance: str) -> None:
    """Refuse too many NICs; names, MACs, addresses in networks that occur twice."""
    if len(nics) > MAX_NICS:
        raise refusal(
            f"instance {instance}: wanted at most {MAX_NICS} NICs, found {len(nics)}"
        )
    disk_specs.check_unique_names([nic.name for nic in nics], instance, "NIC")
    for index, nic in enumerate(nics):
        first = [other.mac for other in nics].index(nic.mac)
        if first != index:
            raise errors.OpPrereqError(
                f"instance {instance}: nic {index}: MAC {nic.mac} is also the MAC of"
                f" nic {first}",
                ecodes.ECODE_NOTUNIQUE,
            )
    taken_by: dict[tuple[str, str], int] = {}
    for index, nic in enumerate(nics):
        if not (nic.network and nic.ip):
            continue
        other = taken_by.setdefault((nic.network, nic.ip), index)
        if other != index:
            raise _twice(instance, index, nic, other)


def _twice(
    instance: str, index: int, nic: objects.Nic, other: int
) -> errors.OpPrereqError:
    return errors.OpPrereqError(
        f"instance {instance}: nic {index}: address {nic.ip} is also the address of nic"
        f" {other}",
        ecodes.ECODE_NOTUNIQUE,
    )


def take_addresses(
    ctx: base.Context,
    instance: objects.Instance,
    *,
    group: str,
    before: Sequence[objects.Nic] = (),
) -> None:
    """Reserve the addresses that NICs have outside of networks.

    Args:
        ctx: dependencies of the opcode.
        instance: the future record.
        group: uuid of the group whose networks apply.
        before: its current NICs; their addresses are not checked again.

    Raises:
        OpPrereqError: contains the user of an address, or the network of the address.
    """
    snapshot = ctx.snapshot
    known = {address_pool.place(snapshot, nic) for nic in before}
    taken_by: dict[address_pool.Place, int] = {}
    for index, nic in enumerate(instance.nics):
        place = address_pool.place(snapshot, nic)
        if place is None or nic.network:
            continue
        what = f"instance {instance.name}: nic {index}"
        if place in taken_by:
            raise _twice(instance.name, index, nic, taken_by[place])
        taken_by[place] = index
        if place not in known:
            _take_free_address(ctx, instance.uuid, place, group, what)


def check_unclaimed(
    snapshot: objects.Snapshot,
    instance: objects.Instance,
    group: str,
    before: Sequence[objects.Nic] = (),
) -> None:
    """Refuse addresses outside of networks that a network of the group contains.

    For the moment of the commit: a network may have been connected since the checks.

    Raises:
        OpPrereqError: contains the network of the address.
    """
    known = {address_pool.place(snapshot, nic) for nic in before}
    for index, nic in enumerate(instance.nics):
        place = address_pool.place(snapshot, nic)
        if place is not None and not nic.network and place not in known:
            what = f"instance {instance.name}: nic {index}"
            _refuse_claimed(snapshot, place[1], group, what)


def _refuse_claimed(
    snapshot: objects.Snapshot, address: str, group: str, what: str
) -> None:
    network = address_pool.claiming_network(snapshot, address, group)
    if network is not None:
        raise errors.OpPrereqError(
            f"{what}: address {address} is in network {network}, take it from there"
            f" with network={network}",
            ecodes.ECODE_STATE,
        )


def _take_free_address(
    ctx: base.Context, uuid: str, place: address_pool.Place, group: str, what: str
) -> None:
    _refuse_claimed(ctx.snapshot, place[1], group, what)
    try:
        ctx.config.take_address(ctx.owner, place, instance=uuid)
    except errors.ReservationError as err:
        raise errors.OpPrereqError(
            f"{what}: {err.args[0]}", ecodes.ECODE_NOTUNIQUE
        ) from err


def check_connections(
    snapshot: objects.Snapshot, instance: objects.Instance, group: str
) -> None:
    """Refuse a group to which networks of an instance's NICs are not connected.

    Raises:
        OpPrereqError: contains NIC, network and group.
    """
    target = snapshot.nodegroups[group]
    for index, nic in enumerate(instance.nics):
        network = snapshot.networks.get(nic.network or "")
        if network is not None and network.uuid not in target.networks:
            raise errors.OpPrereqError(
                f"instance {instance.name}: nic {index}: network {network.name} is not"
                f" connected to node group {target.name}",
                ecodes.ECODE_STATE,
            )


def check_bridges(
    ctx: base.Context, nics: Sequence[objects.Nic], node: str, instance: str
) -> None:
    """Refuse NICs whose bridges a node does not have.

    Raises:
        OpPrereqError: a bridge is missing; contains node and bridge.
    """
    default = ctx.snapshot.cluster.nicparams["default"]
    bridges = sorted(
        {
            filled["link"]
            for nic in nics
            if (filled := default | nic.nicparams)["mode"] == "bridged"
        }
    )
    if bridges:
        ctx.rpc.call_node(node, calls.bridges_exist(bridges)).require(
            f"instance {instance}: cannot use its bridges", ecodes.ECODE_ENVIRON
        )
