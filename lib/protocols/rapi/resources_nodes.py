"""Resources of nodes, node groups and networks."""

from collections.abc import Sequence
from typing import Final

from ganeti.protocols.rapi import model, row_parts
from ganeti.protocols.rapi.client_method import (
    PARAMETERS,
    WHOLE,
    Parameter,
    method,
    optional,
    switch,
)
from ganeti.protocols.rapi.model import (
    DRY_RUN,
    FORCE,
    LOCK,
    Argument,
    Body,
    Kind,
    job,
)
from ganeti.protocols.rapi.row_parts import tag_resources

_NODE: Final = "/2/nodes/[node_name]"
_GROUP: Final = "/2/groups/[group_name]"
_NETWORK: Final = "/2/networks/[network_name]"
_STORAGE_TYPE: Final = model.text("storage_type", "type of storage", "storage_type")
_UNIT_NAME: Final = model.text(
    "name", "name of the storage unit", "name", required=True
)
_NEW_NAME: Final = Parameter("new_name")
_NAMED: Final = Parameter("network_name", str, "its name")


def _split(values: str | Sequence[str] | None) -> list[str] | None:
    """Return the parts of a list, or of a text with commas."""
    if values is None:
        return None
    return values.split(",") if isinstance(values, str) else list(values)


_NODES: Final = (
    model.listing(
        "/2/nodes",
        "list nodes",
        "node",
        row_parts.NODE,
        shown="id",
        client=method("GetNodes"),
    ),
    model.one(
        _NODE,
        "return a node",
        "node",
        row_parts.NODE,
        copies={"secondary_ip": "sip"},
        client=method("GetNode"),
    ),
    job(
        "POST",
        f"{_NODE}/evacuate",
        "move instances away from a node",
        "OP_NODE_EVACUATE",
        DRY_RUN,
    ),
    job(
        "POST",
        f"{_NODE}/migrate",
        "migrate the primary instances of a node",
        "OP_NODE_MIGRATE",
        model.flag("live", "migrate live (old style; the body is ignored)"),
        model.text("mode", "live or non-live (old style; the body is ignored)"),
        adapt="migrate_node",
    ),
    job(
        "POST",
        f"{_NODE}/modify",
        "modify a node",
        "OP_NODE_SET_PARAMS",
        present=("ndparams",),
        client=method("ModifyNode", PARAMETERS),
    ),
    job(
        "POST",
        f"{_NODE}/powercycle",
        "power-cycle a node",
        "OP_NODE_POWERCYCLE",
        FORCE,
        client=method("PowercycleNode", switch("force")),
    ),
    model.reading(
        f"{_NODE}/role",
        "return the role of a node",
        "get_role",
        str,
        LOCK,
        luxi="QueryObjects",
        client=method(
            "GetNodeRole",
            about="Return the role of a node, one of the constants ``NODE_ROLE_*``.",
        ),
    ),
    job(
        "PUT",
        f"{_NODE}/role",
        "change the role of a node",
        "OP_NODE_SET_PARAMS",
        FORCE,
        model.flag("auto-promote", "promote other nodes if necessary", "auto_promote"),
        adapt="set_role",
        body=Body.OWN,
        body_type="Role",
        client=method(
            "SetNodeRole",
            Parameter(
                "role",
                str,
                "one of the constants ``NODE_ROLE_*``, not the master",
                member=WHOLE,
            ),
            switch("force", "skip some safety checks"),
            optional(
                "auto_promote", bool, "promote other nodes if necessary", is_late=True
            ),
            leave_out=False,
        ),
    ),
)

_STORAGE: Final = (
    job(
        "GET",
        f"{_NODE}/storage",
        "submit a job that lists the storage units of a node",
        "OP_NODE_QUERY_STORAGE",
        _STORAGE_TYPE,
        Argument(
            name="output_fields",
            kind=Kind.NAMES,
            about="names of fields with commas between them",
            field="output_fields",
            required=True,
        ),
        body=Body.IGNORED,
        variables={"nodes": ["node_name"]},
        client=method(
            "GetNodeStorageUnits",
            Parameter("storage_type", str, "such as ``lvm-vg``"),
            Parameter("output_fields", str, "names with commas between them"),
            about="Return the id of a job that lists storage units of a node.",
        ),
    ),
    job(
        "PUT",
        f"{_NODE}/storage/modify",
        "modify a storage unit of a node",
        "OP_NODE_MODIFY_STORAGE",
        _STORAGE_TYPE,
        _UNIT_NAME,
        model.flag("allocatable", "whether new disks may use the unit"),
        body=Body.IGNORED,
        adapt="modify_storage",
        client=method(
            "ModifyNodeStorageUnits",
            Parameter("storage_type", str, "such as ``lvm-pv``"),
            Parameter("name", str, "of the unit"),
            optional(
                "allocatable",
                bool,
                "whether new disks may use it",
                in_query=True,
                convert=int,
            ),
        ),
    ),
    job(
        "PUT",
        f"{_NODE}/storage/repair",
        "repair a storage unit of a node",
        "OP_REPAIR_NODE_STORAGE",
        _STORAGE_TYPE,
        _UNIT_NAME,
        body=Body.IGNORED,
        client=method(
            "RepairNodeStorageUnits", Parameter("storage_type"), Parameter("name")
        ),
    ),
)

_GROUPS: Final = (
    model.listing(
        "/2/groups",
        "list node groups",
        "group",
        row_parts.GROUP,
        client=method("GetGroups"),
    ),
    job(
        "POST",
        "/2/groups",
        "create a node group",
        "OP_GROUP_ADD",
        DRY_RUN,
        renames={"name": "group_name"},
        creates="group_name",
        client=method(
            "CreateGroup",
            Parameter("name", str, "of the group"),
            optional(
                "alloc_policy", str, "``preferred``, ``last_resort`` or ``unallocable``"
            ),
            leave_out=False,
        ),
    ),
    model.one(
        _GROUP,
        "return a node group",
        "group",
        row_parts.GROUP,
        client=method("GetGroup"),
    ),
    job(
        "DELETE",
        _GROUP,
        "remove a node group",
        "OP_GROUP_REMOVE",
        DRY_RUN,
        body=Body.IGNORED,
        client=method("DeleteGroup"),
    ),
    job(
        "PUT",
        f"{_GROUP}/assign-nodes",
        "assign nodes to a node group",
        "OP_GROUP_ASSIGN_NODES",
        DRY_RUN,
        FORCE,
        touches={"nodes": "/2/nodes"},
        client=method(
            "AssignGroupNodes",
            Parameter("nodes", Sequence[str], "their names"),
            switch("force", "assign even if instances become split between groups"),
        ),
    ),
    job(
        "PUT",
        f"{_GROUP}/modify",
        "modify a node group",
        "OP_GROUP_SET_PARAMS",
        renames={
            "custom_ndparams": "ndparams",
            "custom_ipolicy": "ipolicy",
            "custom_diskparams": "diskparams",
        },
        present=("diskparams", "ndparams"),
        client=method("ModifyGroup", PARAMETERS),
    ),
    job(
        "PUT",
        f"{_GROUP}/rename",
        "rename a node group",
        "OP_GROUP_RENAME",
        DRY_RUN,
        creates="new_name",
        client=method("RenameGroup", _NEW_NAME, has_dry_run=False),
    ),
    job(
        "PUT",
        f"{_GROUP}/verify-disks",
        "look for missing disks of a node group (not in Ganeti)",
        "OP_GROUP_VERIFY_DISKS",
        client=method(
            "VerifyGroupDisks",
            about="Look for missing disks of a node group; return the job id.",
        ),
    ),
)

_NETWORKS: Final = (
    model.listing(
        "/2/networks",
        "list networks",
        "network",
        row_parts.NETWORK,
        client=method("GetNetworks"),
    ),
    job(
        "POST",
        "/2/networks",
        "create a network",
        "OP_NETWORK_ADD",
        DRY_RUN,
        renames={"name": "network_name"},
        creates="network_name",
        client=method(
            "CreateNetwork",
            _NAMED,
            Parameter("network", str, "addresses, such as ``192.0.2.0/24``"),
            optional("gateway", str, "address of the gateway"),
            optional("network6", str, "IPv6 addresses"),
            optional("gateway6", str, "IPv6 address of the gateway"),
            optional("mac_prefix", str, "first three bytes of MAC addresses"),
            optional(
                "add_reserved_ips",
                str | Sequence[str],
                "addresses that instances do not get, a list or a text with commas",
                convert=_split,
            ),
            optional(
                "tags",
                str | Sequence[str],
                "of the network, a list or a text with commas",
                convert=_split,
            ),
            leave_out=False,
        ),
    ),
    model.one(
        _NETWORK,
        "return a network",
        "network",
        row_parts.NETWORK,
        client=method("GetNetwork"),
    ),
    job(
        "DELETE",
        _NETWORK,
        "remove a network",
        "OP_NETWORK_REMOVE",
        DRY_RUN,
        client=method("DeleteNetwork"),
    ),
    job(
        "PUT",
        f"{_NETWORK}/connect",
        "connect a network to a node group",
        "OP_NETWORK_CONNECT",
        DRY_RUN,
        touches={"group_name": "/2/groups"},
        client=method(
            "ConnectNetwork",
            Parameter("group_name", str, "name of the group"),
            Parameter("mode", str, "of NICs in that group", member="network_mode"),
            Parameter("link", str, "of NICs in that group", member="network_link"),
            Parameter("vlan", str, "of NICs in that group", "", member="network_vlan"),
            subject=_NAMED,
        ),
    ),
    job(
        "PUT",
        f"{_NETWORK}/disconnect",
        "disconnect a network from a node group",
        "OP_NETWORK_DISCONNECT",
        DRY_RUN,
        touches={"group_name": "/2/groups"},
        client=method("DisconnectNetwork", Parameter("group_name"), subject=_NAMED),
    ),
    job(
        "PUT",
        f"{_NETWORK}/modify",
        "modify a network",
        "OP_NETWORK_SET_PARAMS",
        client=method("ModifyNetwork", PARAMETERS),
    ),
    job(
        "PUT",
        f"{_NETWORK}/rename",
        "rename a network",
        "OP_NETWORK_RENAME",
        DRY_RUN,
        creates="new_name",
        client=method(
            "RenameNetwork",
            _NEW_NAME,
            about="Rename a network; return the job id. Earlier clients have no such"
            " method.",
        ),
    ),
)

RESOURCES: Final = (
    *_NODES,
    *_STORAGE,
    *tag_resources(_NODE, "node", "Node", "a node"),
    *_GROUPS,
    *tag_resources(_GROUP, "nodegroup", "Group", "a node group"),
    *_NETWORKS,
    *tag_resources(_NETWORK, "network", "Network", "a network"),
)
