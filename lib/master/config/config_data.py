"""Import and export of the configuration in the form of ``config.data``.

The file's version must be ours; `UPGRADABLE` ones are read on request. Reading a
file and writing it back gives the same JSON value, serials and times included.
"""

import functools
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import versions
from ganeti.base.constants.instance import ADMINST_DOWN
from ganeti.base.constants.parameters.forms import is_added
from ganeti.base.constants.parameters.hvparams import HYPERVISOR
from ganeti.master.config.config import HEADER_KEY, Header
from ganeti.master.config.edit import new_records
from ganeti.model import objects
from ganeti.model.objects import TABLES, Disk, Instance, Nic, Record, Snapshot
from ganeti.store import Change, Document

#: Versions whose files have the same content as ours: 3.0.
UPGRADABLE: Final = (3000000,)

_TOP: Final = frozenset(objects.ConfigData.__struct_fields__)
#: Fields of the cluster and of groups whose values are objects themselves.
_MAPS_OF_MAPS: Final[dict[type[Record], tuple[str, ...]]] = {
    objects.Cluster: (
        "hvparams",
        "os_hvp",
        "beparams",
        "osparams",
        "osparams_private_cluster",
        "nicparams",
        "diskparams",
        "data_collectors",
    ),
    objects.NodeGroup: ("diskparams", "networks"),
}
#: Records inside records.
_NESTED: Final[dict[tuple[type[Record], str], type[Record]]] = {
    (Instance, "nics"): Nic,
    (Disk, "children"): Disk,
}


def import_config(data: Any, *, accept: Collection[int] = ()) -> list[Change]:
    """Return the updates that write a configuration into an empty store.

    Args:
        data: the decoded JSON of ``config.data``.
        accept: further versions to read, such as `UPGRADABLE`.

    Raises:
        ConfigVersionMismatch: the version is not accepted.
        ConfigurationError: a field is missing, unknown, or has the wrong type.
    """
    if not isinstance(data, Mapping):
        raise errors.ConfigurationError("config.data: wanted an object at the top")
    version = data.get("version")
    if version != versions.CONFIG_VERSION and version not in accept:
        raise errors.ConfigVersionMismatch(versions.CONFIG_VERSION, version)
    _check_fields("config.data", data, _TOP, _TOP - {"ctime", "mtime"})
    cluster = _read(objects.Cluster, data["cluster"], "cluster")
    assert isinstance(cluster, objects.Cluster)
    records: list[Record] = [cluster]
    for table, cls in TABLES.items():
        if table != "cluster":
            records += _read_table(table, cls, data[table])
    records = [_complete(record, cluster) for record in records]
    header = Header(
        serial_no=data["serial_no"],
        ctime=data.get("ctime") or 0.0,
        mtime=data.get("mtime") or 0.0,
    )
    return [
        *new_records(records),
        Document("meta", HEADER_KEY, msgspec.json.encode(header)),
    ]


def export_config(snapshot: Snapshot, header: Header) -> dict[str, Any]:
    """Return the value of ``config.data``: JSON types only.

    Args:
        snapshot: the configuration.
        header: value of `Config.header`.
    """
    document: dict[str, Any] = {
        "version": versions.CONFIG_VERSION,
        "cluster": objects.to_dict(_known_cluster(snapshot.cluster)),
    }
    for table in TABLES:
        if table != "cluster":
            rows = sorted(snapshot.table(table).items())
            document[table] = {key: _exported(record) for key, record in rows}
    document |= {
        "serial_no": header.serial_no,
        "ctime": header.ctime,
        "mtime": header.mtime,
    }
    return document


def _known_cluster(cluster: objects.Cluster) -> objects.Cluster:
    """Return the cluster without hypervisor parameters that only we have."""
    return cluster.replace(
        hvparams={n: _known_parameters(n, v) for n, v in cluster.hvparams.items()},
        os_hvp={
            os: {n: _known_parameters(n, v) for n, v in by_name.items()}
            for os, by_name in cluster.os_hvp.items()
        },
    )


def _known_parameters(hypervisor: str, values: Mapping[str, Any]) -> dict[str, Any]:
    table = HYPERVISOR.get(hypervisor, {})
    return {name: v for name, v in values.items() if not is_added(table, name)}


def _exported(record: Record) -> dict[str, Any]:
    """Return the form that Ganeti reads: without the fields that only we have."""
    if not isinstance(record, Instance):
        return objects.to_dict(record)
    known = record.replace(
        creation="",
        reservation=None,
        request=None,
        firmware_state="",
        tpm_state="",
        hvparams=_known_parameters(record.hypervisor, record.hvparams),
    )
    data = objects.to_dict(known)
    if record.is_nameless:
        del data["name"]
    return data


def _complete(record: Record, cluster: objects.Cluster) -> Record:
    """Return a record with values for what a forthcoming instance may lack.

    Its name is the uuid until it has one. Each instance has a node here, so one without
    is on the master.
    """
    if not isinstance(record, Instance) or not record.forthcoming:
        return record
    return record.replace(
        name=record.name or record.uuid,
        primary_node=record.primary_node or cluster.master_node,
        hypervisor=record.hypervisor or cluster.enabled_hypervisors[0],
        admin_state=record.admin_state or ADMINST_DOWN,
        admin_state_source=record.admin_state_source or "admin",
        reservation=record.reservation or objects.Reservation(),
    )


def _read_table(table: str, cls: type[Record], rows: Any) -> list[Record]:
    if not isinstance(rows, Mapping):
        raise errors.ConfigurationError(f"config.data: {table}: wanted an object")
    records = []
    for key, value in rows.items():
        record = _read(cls, value, f"{table}/{key}")
        if record.uuid != key:  # type: ignore[attr-defined]
            raise errors.ConfigurationError(
                f"config.data: {table}/{key}: its uuid is {record.uuid}"  # type: ignore[attr-defined]
            )
        records.append(record)
    return records


def _read(cls: type[Record], value: Any, where: str) -> Record:
    try:
        return objects.from_dict(cls, _normal(cls, value, where))
    except errors.ConfigurationError as err:
        raise errors.ConfigurationError(f"config.data: {where}: {err}") from err


def _normal(cls: type[Record], value: Any, where: str) -> Any:
    """Return a stored form that `objects.from_dict` reads, without null values."""
    if not isinstance(value, Mapping):
        raise errors.ConfigurationError(f"{where}: wanted an object")
    required, optional = _field_names(cls)
    is_forthcoming = value.get("forthcoming") is True
    needed = {"uuid", "serial_no"} & required if is_forthcoming else required
    _check_fields(where, value, required | optional, needed)
    fields = {
        name: item for name, item in value.items() if item is not None or name in needed
    }
    for name in required - fields.keys():
        fields[name] = _neutral(cls, name)
    for name in _MAPS_OF_MAPS.get(cls, ()):
        rows = fields.get(name)
        for key, row in rows.items() if isinstance(rows, Mapping) else ():
            if not isinstance(row, Mapping):
                raise errors.ConfigurationError(
                    f"{where}: {name}: {key}: wanted an object, found {row!r:.80}"
                )
    for name, item in fields.items():
        nested = _NESTED.get((cls, name))
        if nested is not None:
            if not isinstance(item, (list, tuple)):
                raise errors.ConfigurationError(f"{where}/{name}: wanted a list")
            fields[name] = [_normal(nested, part, f"{where}/{name}") for part in item]
    return fields


@functools.cache
def _field_names(cls: type[Record]) -> tuple[frozenset[str], frozenset[str]]:
    fields = msgspec.structs.fields(cls)
    required = frozenset(field.name for field in fields if field.required)
    return required, frozenset(field.name for field in fields) - required


def _neutral(cls: type[Record], name: str) -> Any:
    """Return the placeholder for a field that a forthcoming object lacks."""
    kind = str(cls.__annotations__[name])
    for prefix, value in (("str", ""), ("bool", False), ("int", 0), ("dict", {})):
        if prefix in kind.partition("[")[0]:
            return value
    return ()


def _check_fields(
    where: str,
    value: Mapping[str, Any],
    known: Collection[str],
    needed: Collection[str],
) -> None:
    if unknown := sorted(value.keys() - set(known)):
        raise errors.ConfigurationError(
            f"{where}: unknown members {', '.join(map(str, unknown))}"
        )
    if missing := sorted(set(needed) - value.keys()):
        raise errors.ConfigurationError(f"{where}: {', '.join(missing)} missing")
