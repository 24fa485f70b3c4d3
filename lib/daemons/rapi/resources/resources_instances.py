"""Resources of instances."""

from typing import Any, Final

from ganeti.daemons.rapi import bodies, fields, model, requests
from ganeti.daemons.rapi.model import (
    DRY_RUN,
    FORCE,
    REASON,
    Argument,
    Body,
    Job,
    Resource,
)
from ganeti.daemons.rapi.resources.tags import tag_resources

_ALL: Final = "/2/instances"
_ONE: Final = "/2/instances/[instance_name]"
_NAME: Final = {"instance_name": "instance_name"}
_CREATE_RENAMES: Final = {"os": "os_type", "name": "instance_name"}
_NO_REMEMBER: Final = model.flag(
    "no_remember", "leave the recorded state as it is", "no_remember"
)


def _job(
    below: str,
    method: str,
    about: str,
    *arguments: Argument,
    body: Body = Body.PARAMETERS,
    **job: Any,
) -> Resource:
    """Return a resource that submits a job for one instance and needs ``write``."""
    return Resource(
        path=f"{_ONE}{below}",
        method=method,
        about=about,
        result=int,
        access=(model.WRITE,),
        job=Job(**{"path": _NAME, **job}),
        arguments=(*arguments, REASON),
        body=body,
    )


_COLLECTION: Final = (
    Resource(
        path=_ALL,
        method="GET",
        about="list instances",
        result=list[dict[str, Any]],
        direct="list_objects",
        options={
            "kind": "instance",
            "fields": fields.INSTANCE,
            "key": "name",
            "shown": "id",
        },
        arguments=(model.BULK, model.LOCK),
    ),
    Resource(
        path=_ALL,
        method="POST",
        about="create an instance, or reserve its resources with forthcoming",
        result=int,
        access=(model.WRITE,),
        job=Job(
            op_id="OP_INSTANCE_CREATE",
            renames=_CREATE_RENAMES,
            adapt=requests.create_instance,
        ),
        arguments=(DRY_RUN, REASON),
        body=Body.REQUIRED,
    ),
    Resource(
        path="/2/instances-multi-alloc",
        method="POST",
        about="create several instances with one run of an allocator",
        result=int,
        access=(model.WRITE,),
        job=Job(
            op_id="OP_INSTANCE_MULTI_ALLOC",
            renames=_CREATE_RENAMES,
            adapt=requests.create_instances,
        ),
        arguments=(DRY_RUN, REASON),
        body=Body.PARAMETERS,
        max_body=model.MAX_LIST,
    ),
    Resource(
        path=_ONE,
        method="GET",
        about="return an instance",
        result=dict[str, Any],
        direct="get_object",
        options={"kind": "instance", "fields": fields.INSTANCE},
        arguments=(model.LOCK,),
    ),
    Resource(
        path=f"{_ONE}/console",
        method="GET",
        about="return how to reach the console of a running instance",
        result=dict[str, Any],
        access=(model.WRITE, model.READ),
        direct="console",
    ),
    Resource(
        path=f"{_ONE}/info",
        method="GET",
        about="submit a job that collects the details of an instance",
        result=int,
        job=Job(op_id="OP_INSTANCE_QUERY_DATA", adapt=requests.instance_info),
        arguments=(
            model.flag("static", "only from the configuration", "static"),
            REASON,
        ),
    ),
)

_POWER: Final = (
    _job(
        "/reboot",
        "POST",
        "reboot an instance",
        model.text("type", "soft, hard or full", "reboot_type", default="hard"),
        model.flag(
            "ignore_secondaries",
            "go on if only secondary disks fail",
            "ignore_secondaries",
        ),
        DRY_RUN,
        op_id="OP_INSTANCE_REBOOT",
    ),
    _job(
        "/shutdown",
        "PUT",
        "stop an instance",
        _NO_REMEMBER,
        DRY_RUN,
        op_id="OP_INSTANCE_SHUTDOWN",
    ),
    _job(
        "/startup",
        "PUT",
        "start an instance",
        FORCE,
        DRY_RUN,
        _NO_REMEMBER,
        body=Body.IGNORED,
        op_id="OP_INSTANCE_STARTUP",
    ),
    _job("/failover", "PUT", "fail an instance over", op_id="OP_INSTANCE_FAILOVER"),
    _job("/migrate", "PUT", "migrate an instance", op_id="OP_INSTANCE_MIGRATE"),
)

_CHANGES: Final = (
    _job(
        "",
        "DELETE",
        "remove an instance",
        DRY_RUN,
        op_id="OP_INSTANCE_REMOVE",
        constants={"ignore_failures": False},
    ),
    _job(
        "/modify",
        "PUT",
        "modify an instance",
        body=Body.REQUIRED,
        op_id="OP_INSTANCE_SET_PARAMS",
        renames={"custom_beparams": "beparams", "custom_hvparams": "hvparams"},
        adapt=requests.modify_instance,
    ),
    _job(
        "/create",
        "POST",
        "create an instance whose resources are reserved",
        DRY_RUN,
        op_id="OP_INSTANCE_CREATE",
        constants={"commit": True},
        renames={"os": "os_type"},
        adapt=requests.commit_instance,
    ),
    _job("/rename", "PUT", "rename an instance", op_id="OP_INSTANCE_RENAME"),
    Resource(
        path=f"{_ONE}/reinstall",
        method="POST",
        about="stop an instance, install its operating system again, and start it",
        result=int,
        access=(model.WRITE,),
        job=Job(op_id="OP_INSTANCE_REINSTALL", adapt=requests.reinstall, traced=False),
        arguments=(
            model.text("os", "operating system (old style, without a body)"),
            model.flag("nostartup", "leave it stopped (old style, without a body)"),
        ),
        body=Body.OWN,
        body_type=bodies.Reinstall,
    ),
    _job(
        "/export",
        "PUT",
        "export an instance",
        op_id="OP_BACKUP_EXPORT",
        renames={"destination": "target_node"},
    ),
    _job(
        "/prepare-export",
        "PUT",
        "prepare the export of an instance",
        model.text("mode", "local or remote", "mode"),
        body=Body.IGNORED,
        op_id="OP_BACKUP_PREPARE",
    ),
)

_DISKS: Final = (
    _job(
        "/activate-disks",
        "PUT",
        "activate the disks of an instance",
        model.flag("ignore_size", "do not compare the recorded size", "ignore_size"),
        body=Body.IGNORED,
        op_id="OP_INSTANCE_ACTIVATE_DISKS",
    ),
    _job(
        "/deactivate-disks",
        "PUT",
        "deactivate the disks of an instance",
        FORCE,
        body=Body.IGNORED,
        op_id="OP_INSTANCE_DEACTIVATE_DISKS",
    ),
    _job(
        "/disk/[disk_index]/grow",
        "POST",
        "enlarge a disk of an instance",
        op_id="OP_INSTANCE_GROW_DISK",
        path={"instance_name": "instance_name", "disk": "disk_index"},
        adapt=requests.grow_disk,
    ),
    _job(
        "/recreate-disks",
        "POST",
        "create the disks of an instance again, without data",
        op_id="OP_INSTANCE_RECREATE_DISKS",
    ),
    _job(
        "/replace-disks",
        "POST",
        "replace the disks of an instance",
        model.text("remote_node", "new secondary node (old style, without a body)"),
        model.text("mode", "disks to replace (old style, without a body)"),
        model.text("disks", "indices, such as 0,1 (old style, without a body)"),
        model.text("iallocator", "allocator (old style, without a body)"),
        op_id="OP_INSTANCE_REPLACE_DISKS",
        adapt=requests.replace_disks,
    ),
)

RESOURCES: Final = (
    *_COLLECTION,
    *_POWER,
    *_CHANGES,
    *_DISKS,
    *tag_resources(_ONE, "instance", "instance_name"),
)
