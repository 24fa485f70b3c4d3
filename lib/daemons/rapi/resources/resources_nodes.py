"""Resources of nodes, node groups and networks."""

from typing import Any, Final

from ganeti.daemons.rapi import bodies, fields, model, requests
from ganeti.daemons.rapi.model import (
    BULK,
    DRY_RUN,
    FORCE,
    LOCK,
    REASON,
    Argument,
    Body,
    Job,
    Kind,
    Resource,
)
from ganeti.daemons.rapi.resources.tags import tag_resources

_NODE: Final = "/2/nodes/[node_name]"
_GROUP: Final = "/2/groups/[group_name]"
_NETWORK: Final = "/2/networks/[network_name]"
_STORAGE_TYPE: Final = model.text("storage_type", "type of storage", "storage_type")
_UNIT_NAME: Final = model.text(
    "name", "name of the storage unit", "name", required=True
)


def _change(
    path: str,
    method: str,
    about: str,
    *arguments: Argument,
    body: Body = Body.PARAMETERS,
    **job: Any,
) -> Resource:
    """Return a resource that submits a job and needs ``write``.

    The variable of the path, if there is one, is the opcode parameter of that name.
    """
    start, bracket, rest = path.partition("[")
    del start
    variable = rest.partition("]")[0] if bracket else ""
    return Resource(
        path=path,
        method=method,
        about=about,
        result=int,
        access=(model.WRITE,),
        job=Job(**{"path": {variable: variable} if variable else {}, **job}),
        arguments=(*arguments, REASON),
        body=body,
    )


_NODES: Final = (
    model.reading(
        "/2/nodes",
        "list nodes",
        "list_objects",
        list[dict[str, Any]],
        BULK,
        kind="node",
        fields=fields.NODE,
        key="name",
        shown="id",
    ),
    model.reading(
        _NODE,
        "return a node",
        "get_object",
        dict[str, Any],
        LOCK,
        kind="node",
        fields=fields.NODE,
        copies={"secondary_ip": "sip"},
    ),
    _change(
        f"{_NODE}/evacuate",
        "POST",
        "move instances away from a node",
        DRY_RUN,
        op_id="OP_NODE_EVACUATE",
    ),
    _change(
        f"{_NODE}/migrate",
        "POST",
        "migrate the primary instances of a node",
        model.flag("live", "migrate live (old style; the body is ignored)"),
        model.text("mode", "live or non-live (old style; the body is ignored)"),
        op_id="OP_NODE_MIGRATE",
        adapt=requests.migrate_node,
    ),
    _change(f"{_NODE}/modify", "POST", "modify a node", op_id="OP_NODE_SET_PARAMS"),
    _change(
        f"{_NODE}/powercycle",
        "POST",
        "power-cycle a node",
        FORCE,
        op_id="OP_NODE_POWERCYCLE",
    ),
    model.reading(f"{_NODE}/role", "return the role of a node", "get_role", str, LOCK),
    Resource(
        path=f"{_NODE}/role",
        method="PUT",
        about="change the role of a node",
        result=int,
        access=(model.WRITE,),
        job=Job(
            op_id="OP_NODE_SET_PARAMS",
            path={"node_name": "node_name"},
            adapt=requests.set_role,
        ),
        arguments=(
            FORCE,
            model.flag(
                "auto-promote", "promote other nodes if necessary", "auto_promote"
            ),
            REASON,
        ),
        body=Body.OWN,
        body_type=bodies.Role,
    ),
)

_STORAGE: Final = (
    Resource(
        path=f"{_NODE}/storage",
        method="GET",
        about="submit a job that lists the storage units of a node",
        result=int,
        access=(model.WRITE,),
        job=Job(op_id="OP_NODE_QUERY_STORAGE", adapt=requests.query_storage),
        arguments=(
            _STORAGE_TYPE,
            Argument(
                name="output_fields",
                kind=Kind.NAMES,
                about="names of fields with commas between them",
                field="output_fields",
                required=True,
            ),
            REASON,
        ),
    ),
    _change(
        f"{_NODE}/storage/modify",
        "PUT",
        "modify a storage unit of a node",
        _STORAGE_TYPE,
        _UNIT_NAME,
        model.flag("allocatable", "whether new disks may use the unit"),
        body=Body.IGNORED,
        op_id="OP_NODE_MODIFY_STORAGE",
        adapt=requests.modify_storage,
    ),
    _change(
        f"{_NODE}/storage/repair",
        "PUT",
        "repair a storage unit of a node",
        _STORAGE_TYPE,
        _UNIT_NAME,
        body=Body.IGNORED,
        op_id="OP_REPAIR_NODE_STORAGE",
    ),
)

_GROUPS: Final = (
    model.reading(
        "/2/groups",
        "list node groups",
        "list_objects",
        list[dict[str, Any]],
        BULK,
        kind="group",
        fields=fields.GROUP,
        key="name",
        shown="name",
    ),
    _change(
        "/2/groups",
        "POST",
        "create a node group",
        DRY_RUN,
        op_id="OP_GROUP_ADD",
        renames={"name": "group_name"},
    ),
    model.reading(
        _GROUP,
        "return a node group",
        "get_object",
        dict[str, Any],
        LOCK,
        kind="group",
        fields=fields.GROUP,
    ),
    _change(
        _GROUP,
        "DELETE",
        "remove a node group",
        DRY_RUN,
        body=Body.IGNORED,
        op_id="OP_GROUP_REMOVE",
    ),
    _change(
        f"{_GROUP}/assign-nodes",
        "PUT",
        "assign nodes to a node group",
        DRY_RUN,
        FORCE,
        op_id="OP_GROUP_ASSIGN_NODES",
    ),
    _change(
        f"{_GROUP}/modify",
        "PUT",
        "modify a node group",
        op_id="OP_GROUP_SET_PARAMS",
        renames={
            "custom_ndparams": "ndparams",
            "custom_ipolicy": "ipolicy",
            "custom_diskparams": "diskparams",
        },
    ),
    _change(
        f"{_GROUP}/rename",
        "PUT",
        "rename a node group",
        DRY_RUN,
        op_id="OP_GROUP_RENAME",
    ),
)

_NETWORKS: Final = (
    model.reading(
        "/2/networks",
        "list networks",
        "list_objects",
        list[dict[str, Any]],
        BULK,
        kind="network",
        fields=fields.NETWORK,
        key="name",
        shown="name",
    ),
    _change(
        "/2/networks",
        "POST",
        "create a network",
        DRY_RUN,
        op_id="OP_NETWORK_ADD",
        renames={"name": "network_name"},
    ),
    model.reading(
        _NETWORK,
        "return a network",
        "get_object",
        dict[str, Any],
        LOCK,
        kind="network",
        fields=fields.NETWORK,
    ),
    _change(_NETWORK, "DELETE", "remove a network", DRY_RUN, op_id="OP_NETWORK_REMOVE"),
    _change(
        f"{_NETWORK}/connect",
        "PUT",
        "connect a network to a node group",
        DRY_RUN,
        op_id="OP_NETWORK_CONNECT",
    ),
    _change(
        f"{_NETWORK}/disconnect",
        "PUT",
        "disconnect a network from a node group",
        DRY_RUN,
        op_id="OP_NETWORK_DISCONNECT",
    ),
    _change(
        f"{_NETWORK}/modify", "PUT", "modify a network", op_id="OP_NETWORK_SET_PARAMS"
    ),
    _change(
        f"{_NETWORK}/rename",
        "PUT",
        "rename a network",
        DRY_RUN,
        op_id="OP_NETWORK_RENAME",
    ),
)

RESOURCES: Final = (
    *_NODES,
    *_STORAGE,
    *tag_resources(_NODE, "node", "node_name"),
    *_GROUPS,
    *tag_resources(_GROUP, "nodegroup", "group_name"),
    *_NETWORKS,
    *tag_resources(_NETWORK, "network", "network_name"),
)
