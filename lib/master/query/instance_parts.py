"""Query fields of disks and NICs of instances."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ganeti.base.constants import disks, query
from ganeti.master.query.model import (
    UNAVAIL,
    Cell,
    Field,
    Getter,
    QueryContext,
    maybe,
    normal,
    sparse_column,
)
from ganeti.model.objects import Disk, Instance, Nic, params

#: There are fields for this many disks and NICs, the maximum of an instance.
MAX_DISKS: Final = 16
MAX_NICS: Final = 8


# Disks
def _disk_field(
    name: str,
    title: str,
    kind: str,
    doc: str,
    *,
    get: Callable[[Disk], Any],
    index: int,
) -> Field:
    def bind(context: QueryContext) -> Getter:
        table = context.snapshot.disks

        def cell(instance: Instance) -> Cell:
            if index >= len(instance.disks):
                return UNAVAIL
            return maybe(get(table[instance.disks[index]]))

        return cell

    column = sparse_column(bind, lambda instance: len(instance.disks), index)
    return Field(name, title, kind, doc, bind, column=column)


def _disk_list(name: str, title: str, doc: str, get: Callable[[Disk], Any]) -> Field:
    def bind(context: QueryContext) -> Getter:
        table = context.snapshot.disks
        return lambda instance: normal([get(table[uuid]) for uuid in instance.disks])

    return Field(name, title, query.QFT_OTHER, doc, bind)


#: Name, title, kind and text of one; getter; word of the list.
_DISKS: Final[tuple[tuple[str, str, str, str, Callable[[Disk], Any], str], ...]] = (
    ("name", "DiskName", query.QFT_TEXT, "Name", lambda d: d.name, "names"),
    ("size", "Disk", query.QFT_UNIT, "Size", lambda d: d.size, "sizes"),
    (
        *("spindles", "DiskSpindles", query.QFT_NUMBER, "Spindles"),
        *(lambda d: d.spindles, "spindles"),
    ),
    ("uuid", "DiskUUID", query.QFT_TEXT, "UUID", lambda d: d.uuid, "UUIDs"),
)


def disk_fields() -> Iterable[Field]:
    """Yield the fields of disks."""
    for name, title, kind, doc, get, _many in _DISKS:
        for index in range(MAX_DISKS):
            yield _disk_field(
                f"disk.{name}/{index}",
                f"{title}/{index}",
                kind,
                f"{doc} of disk {index}",
                get=get,
                index=index,
            )
    for _name, _title, _kind, doc, get, many in _DISKS:
        text = f"{doc.removesuffix('s')}s of disks"
        yield _disk_list(f"disk.{many.lower()}", f"Disk_{many}", text, get)
    for name, index in (("sda_size", 0), ("sdb_size", 1)):
        yield _disk_field(
            name,
            f"Disk/{index}",
            query.QFT_UNIT,
            f"The same as disk.size/{index}",
            get=lambda disk: disk.size,
            index=index,
        )


_NO_SPACE: Final = frozenset({"diskless", "blockdev"})


def disk_space(disk: Disk) -> int:
    """Return the MiB that a disk takes on each of its nodes."""
    if disk.dev_type in _NO_SPACE:
        return 0
    return disk.size + (disks.DRBD_META_SIZE if disk.dev_type == "drbd" else 0)


def bind_disk_sum(of: Callable[[Disk], int]) -> Callable[[QueryContext], Getter]:
    """Return what binds the getter of a sum over the disks of an instance, in MiB."""

    def bind(context: QueryContext) -> Getter:
        table = context.snapshot.disks
        return lambda instance: normal(sum(of(table[uuid]) for uuid in instance.disks))

    return bind


def bind_template(context: QueryContext) -> Getter:
    """Return a getter of the disk template of an instance."""
    return lambda instance: normal(context.snapshot.disk_template(instance))


# NICs
NicGetter = Callable[[Nic], Any]


def _nic_plain(get: NicGetter) -> Callable[[QueryContext], NicGetter]:
    return lambda _context: get


def _nic_param(key: str, mode: str = "") -> Callable[[QueryContext], NicGetter]:
    """Return a NIC parameter, or None if the NIC has another mode."""

    def bind(context: QueryContext) -> NicGetter:
        base = params.nicparams_for(context.snapshot.cluster, {})

        def get(nic: Nic) -> Any:
            own = nic.nicparams
            if mode and (own["mode"] if "mode" in own else base["mode"]) != mode:
                return None
            return own[key] if key in own else base[key]

        return get

    return bind


def _nic_network_uuid(context: QueryContext) -> NicGetter:
    uuids = context.snapshot.names("networks")
    return lambda nic: uuids.get(nic.network or "", nic.network)


def _nic_network_name(context: QueryContext) -> NicGetter:
    uuid_of = _nic_network_uuid(context)
    networks = context.snapshot.networks

    def get(nic: Nic) -> str | None:
        network = networks.get(uuid_of(nic))
        return None if network is None else network.name

    return get


def _nic_field(
    name: str,
    title: str,
    doc: str,
    *,
    bind_nic: Callable[[QueryContext], NicGetter],
    index: int,
) -> Field:
    def bind(context: QueryContext) -> Getter:
        get = bind_nic(context)

        def cell(instance: Instance) -> Cell:
            nics = instance.nics
            return maybe(get(nics[index])) if index < len(nics) else UNAVAIL

        return cell

    def column(context: QueryContext, rows: Sequence[Instance]) -> Iterable[Cell]:
        most = context.once(
            "most NICs", lambda: max((len(row.nics) for row in rows), default=0)
        )
        if index >= most:
            return itertools.repeat(UNAVAIL, len(rows))

        def make() -> list[Cell]:
            return [
                maybe(values[index]) if index < len(values) else UNAVAIL
                for values in _nic_values(context, bind_nic, rows)
            ]

        # A field with an older name has two of these columns.
        return context.once(("column of NICs", bind_nic, index), make)

    return Field(name, title, query.QFT_TEXT, doc, bind, column=column)


def _nic_values(
    context: QueryContext,
    bind_nic: Callable[[QueryContext], NicGetter],
    rows: Sequence[Instance],
) -> list[list[Any]]:
    """Return one value of each NIC per row, which several columns share."""

    def make() -> list[list[Any]]:
        get = bind_nic(context)
        return [[get(nic) for nic in row.nics] for row in rows]

    return context.once(("values of NICs", bind_nic), make)


def _nic_list(
    name: str, title: str, doc: str, bind_nic: Callable[[QueryContext], NicGetter]
) -> Field:
    def bind(context: QueryContext) -> Getter:
        get = bind_nic(context)
        return lambda instance: normal([get(nic) for nic in instance.nics])

    def column(context: QueryContext, rows: Sequence[Instance]) -> Iterable[Cell]:
        return map(normal, _nic_values(context, bind_nic, rows))

    return Field(name, title, query.QFT_OTHER, doc, bind, column=column)


#: Word, title of one, name and title of the list, text, getter, older name for NIC 0.
_NICS: Final[
    tuple[tuple[str, str, str, str, str, Callable[[QueryContext], NicGetter], str], ...]
] = (
    (
        "bridge",
        "NicBridge",
        "nic.bridges",
        "NIC_bridges",
        "Bridge",
        _nic_param("link", "bridged"),
        "bridge",
    ),
    ("ip", "NicIP", "nic.ips", "NIC_IPs", "IP", _nic_plain(lambda n: n.ip), "ip"),
    (
        "link",
        "NicLink",
        "nic.links",
        "NIC_links",
        "Link",
        _nic_param("link"),
        "nic_link",
    ),
    (
        "mac",
        "NicMAC",
        "nic.macs",
        "NIC_MACs",
        "MAC",
        _nic_plain(lambda n: n.mac),
        "mac",
    ),
    (
        "mode",
        "NicMode",
        "nic.modes",
        "NIC_modes",
        "Mode",
        _nic_param("mode"),
        "nic_mode",
    ),
    (
        "name",
        "NicName",
        "nic.names",
        "NIC_Names",
        "Name",
        _nic_plain(lambda n: n.name),
        "",
    ),
    (
        "network",
        "NicNetwork",
        "nic.networks",
        "NIC_networks",
        "UUID of the network",
        _nic_network_uuid,
        "nic_network",
    ),
    (
        "network.name",
        "NicNetworkName",
        "nic.networks.names",
        "NIC_networks_names",
        "Name of the network",
        _nic_network_name,
        "",
    ),
    (
        "uuid",
        "NicUUID",
        "nic.uuids",
        "NIC_UUIDs",
        "UUID",
        _nic_plain(lambda n: n.uuid),
        "",
    ),
    (
        "vlan",
        "NicVLAN",
        "nic.vlans",
        "NIC_VLANs",
        "VLAN",
        _nic_param("vlan", "openvswitch"),
        "",
    ),
)


def nic_fields() -> Iterable[Field]:
    """Yield the fields of NICs."""
    for word, title, plural, list_title, doc, bind_nic, alias in _NICS:
        for index in range(MAX_NICS):
            yield _nic_field(
                f"nic.{word}/{index}",
                f"{title}/{index}",
                f"{doc} of NIC {index}",
                bind_nic=bind_nic,
                index=index,
            )
        yield _nic_list(plural, list_title, f"{doc} of each NIC", bind_nic)
        if alias:
            text = f"The same as nic.{word}/0"
            yield _nic_field(alias, f"{title}/0", text, bind_nic=bind_nic, index=0)
