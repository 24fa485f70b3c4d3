"""Parts that rows of several objects share: query fields, and resources of tags."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ganeti.protocols.rapi import model
from ganeti.protocols.rapi.client_method import Parameter, method
from ganeti.protocols.rapi.model import Argument, Body, Kind, Resource

_TAG = Argument(
    name="tag",
    kind=Kind.TEXTS,
    about="a tag; may be repeated",
    field="tags",
    default=[],
)


def tag_resources(path: str, kind: str, owner: str, noun: str) -> tuple[Resource, ...]:
    """Return the resources of an object's tags.

    Args:
        path: of the object.
        kind: of the object, as in opcodes.
        owner: the object in names of the client's methods.
        noun: the object in their texts.
    """
    variable = path.partition("[")[2].rstrip("]")

    def change(verb: str, op_id: str, name: str, about: str) -> Resource:
        return model.job(
            verb,
            f"{path}/tags",
            f"{about} the {kind}",
            op_id,
            _TAG,
            model.DRY_RUN,
            body=Body.IGNORED,
            variables={"name": variable} if variable else {},
            constants={"kind": kind, **({} if variable else {"name": None})},
            client=method(
                f"{name}{owner}Tags",
                Parameter("tags", Iterable[str]),
                about=f"{about.capitalize()} {noun}",
            ),
        )

    return (
        model.reading(
            f"{path}/tags",
            f"list the tags of the {kind}",
            "get_tags",
            list[str],
            luxi="QueryTags",
            client=method(f"Get{owner}Tags", about=f"Return the tags of {noun}."),
            kind=kind,
        ),
        change("PUT", "OP_TAGS_SET", "Add", "add tags to"),
        change("DELETE", "OP_TAGS_DEL", "Delete", "remove tags of"),
    )


_COMMON: Final = ("ctime", "mtime", "uuid", "serial_no", "tags")

INSTANCE: Final = (
    *("name", "admin_state", "os", "pnode", "snodes", "disk_template"),
    *("nic.ips", "nic.macs", "nic.modes", "nic.uuids", "nic.names", "nic.links"),
    *("nic.networks", "nic.networks.names", "nic.bridges", "network_port"),
    *("disk.sizes", "disk.spindles", "disk_usage", "disk.uuids", "disk.names"),
    *("beparams", "hvparams", "oper_state", "oper_ram", "oper_vcpus", "status"),
    *("custom_hvparams", "custom_beparams", "custom_nicparams", "custom_osparams"),
    *_COMMON,
)
NODE: Final = (
    *("name", "offline", "master_candidate", "drained", "dtotal", "dfree", "sptotal"),
    *("spfree", "mtotal", "mnode", "mfree", "pinst_cnt", "sinst_cnt", "ctotal"),
    *("cnos", "cnodes", "csockets", "pip", "sip", "role", "pinst_list", "sinst_list"),
    *("master_capable", "vm_capable", "ndparams", "group.uuid", *_COMMON),
)
NETWORK: Final = (
    *("name", "network", "gateway", "network6", "gateway6", "mac_prefix"),
    *("free_count", "reserved_count", "map", "group_list", "inst_list"),
    *("external_reservations", *_COMMON),
)
GROUP: Final = (
    *("alloc_policy", "name", "node_cnt", "node_list", "ipolicy", "custom_ipolicy"),
    *("diskparams", "custom_diskparams", "ndparams", "custom_ndparams", *_COMMON),
)
FILTER: Final = (
    "watermark",
    "priority",
    "predicates",
    "action",
    "reason_trail",
    "uuid",
)
JOB_IN_BULK: Final = (
    *("id", "ops", "status", "summary", "opstatus", "received_ts", "start_ts"),
    "end_ts",
)
JOB: Final = (*JOB_IN_BULK, "oplog", "opresult")

#: The member that has a further, older name of one of its values.
_BEPARAMS: Final = "beparams"


def _with_memory(beparams: Any) -> Any:
    """Return backend parameters with ``memory``, the older name of ``maxmem``."""
    if not isinstance(beparams, dict) or "maxmem" not in beparams:
        return beparams
    return {**beparams, "memory": beparams["maxmem"]}


def object_of(names: Sequence[str], values: Iterable[Any]) -> dict[str, Any]:
    """Return one object by the names of its members."""
    actual = dict(zip(names, values, strict=True))
    if _BEPARAMS in actual:
        actual[_BEPARAMS] = _with_memory(actual[_BEPARAMS])
    return actual
