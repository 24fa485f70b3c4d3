"""Resources of instances."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from ganeti.protocols.rapi import model, names, row_parts
from ganeti.protocols.rapi.client_method import (
    DRY_RUN_PARAMETER,
    PARAMETERS,
    REASON_PARAMETER,
    Parameter,
    as_list,
    further,
    method,
    optional,
    switch,
)
from ganeti.protocols.rapi.model import DRY_RUN, FORCE, LOCK, Body, job
from ganeti.protocols.rapi.row_parts import tag_resources

_ONE: Final = "/2/instances/[instance_name]"
_CREATE_RENAMES: Final = {"os": "os_type", "name": "instance_name"}
_NO_REMEMBER: Final = model.flag(
    "no_remember", "leave the recorded state as it is", "no_remember"
)
_TARGET: Final = optional(
    "target_node", str, "node of instances whose disks are on shared storage"
)


_COLLECTION: Final = (
    model.listing(
        "/2/instances",
        "list instances",
        "instance",
        row_parts.INSTANCE,
        shown="id",
        arguments=(LOCK,),
        client=method("GetInstances"),
    ),
    job(
        "POST",
        "/2/instances",
        "create an instance, or reserve its resources with forthcoming",
        "OP_INSTANCE_CREATE",
        DRY_RUN,
        renames=_CREATE_RENAMES,
        adapt="create_instance",
        body=Body.REQUIRED,
        creates="instance_name",
    ),
    job(
        "POST",
        "/2/instances-multi-alloc",
        "create several instances with one run of an allocator",
        "OP_INSTANCE_MULTI_ALLOC",
        DRY_RUN,
        renames=_CREATE_RENAMES,
        adapt="create_instances",
        max_body=model.MAX_LIST,
        client=method(
            "InstancesMultiAlloc",
            Parameter(
                "instances",
                Sequence[dict[str, Any]],
                "results of `InstanceAllocation`",
                convert=list,
            ),
            further("further parameters of the opcode; ``dry_run`` only checks"),
            has_dry_run=False,
        ),
    ),
    model.one(
        _ONE,
        "return an instance",
        "instance",
        row_parts.INSTANCE,
        client=method("GetInstance"),
    ),
    model.reading(
        f"{_ONE}/console",
        "return how to reach the console of a running instance",
        "console",
        dict[str, Any],
        luxi="QueryObjects",
        access=(model.WRITE, model.READ),
        client=method("GetInstanceConsole"),
    ),
    model.acting(
        "POST",
        f"{_ONE}/console",
        "issue a ticket with which one viewer opens a console (not in Ganeti)",
        "open_console",
        luxi="OpenConsole",
        result=dict[str, Any],
        body=Body.OWN,
        body_type="Console",
    ),
    job(
        "GET",
        f"{_ONE}/info",
        "submit a job that collects the details of an instance",
        "OP_INSTANCE_QUERY_DATA",
        model.flag("static", "only from the configuration", "static"),
        body=Body.IGNORED,
        variables={"instances": ["instance_name"]},
        access=(),
        client=method(
            "GetInstanceInfo",
            optional(
                "static", bool, "use the configuration only, and do not ask the nodes"
            ),
            about="Return the id of a job that collects details of an instance.",
        ),
    ),
)

_POWER: Final = (
    job(
        "POST",
        f"{_ONE}/reboot",
        "reboot an instance",
        "OP_INSTANCE_REBOOT",
        model.text("type", "soft, hard or full", "reboot_type", default="hard"),
        model.flag(
            "ignore_secondaries",
            "go on if only secondary disks fail",
            "ignore_secondaries",
        ),
        DRY_RUN,
        client=method(
            "RebootInstance",
            optional(
                "reboot_type",
                str,
                "``soft``, ``hard`` or ``full``; the server's default is hard",
                is_late=True,
            ),
            optional(
                "ignore_secondaries",
                bool,
                "go on if only secondary disks fail",
                is_late=True,
            ),
            further(),
        ),
    ),
    job(
        "PUT",
        f"{_ONE}/shutdown",
        "stop an instance",
        "OP_INSTANCE_SHUTDOWN",
        _NO_REMEMBER,
        DRY_RUN,
        client=method(
            "ShutdownInstance",
            DRY_RUN_PARAMETER,
            switch("no_remember", "do not record that it is to be stopped"),
            further(),
        ),
    ),
    job(
        "PUT",
        f"{_ONE}/startup",
        "start an instance",
        "OP_INSTANCE_STARTUP",
        FORCE,
        DRY_RUN,
        _NO_REMEMBER,
        body=Body.IGNORED,
        client=method(
            "StartupInstance",
            DRY_RUN_PARAMETER,
            switch("no_remember"),
            about="Start an instance; return the job id. See `ShutdownInstance`.",
        ),
    ),
    job(
        "PUT",
        f"{_ONE}/failover",
        "fail an instance over",
        "OP_INSTANCE_FAILOVER",
        client=method(
            "FailoverInstance",
            optional("iallocator", str, "allocator that chooses the node"),
            optional(
                "ignore_consistency", bool, "go on even if disks are not consistent"
            ),
            _TARGET,
        ),
    ),
    job(
        "PUT",
        f"{_ONE}/migrate",
        "migrate an instance",
        "OP_INSTANCE_MIGRATE",
        client=method(
            "MigrateInstance",
            optional("mode", str, "``live`` or ``non-live``"),
            optional("cleanup", bool, "only repair a migration that failed"),
            _TARGET,
        ),
    ),
)

_CHANGES: Final = (
    job(
        "DELETE",
        _ONE,
        "remove an instance",
        "OP_INSTANCE_REMOVE",
        DRY_RUN,
        constants={"ignore_failures": False},
        client=method("DeleteInstance", further("")),
    ),
    job(
        "PUT",
        f"{_ONE}/modify",
        "modify an instance",
        "OP_INSTANCE_SET_PARAMS",
        body=Body.REQUIRED,
        renames={"custom_beparams": "beparams", "custom_hvparams": "hvparams"},
        adapt="modify_instance",
        present=("hvparams",),
        client=method("ModifyInstance", PARAMETERS),
    ),
    job(
        "POST",
        f"{_ONE}/create",
        "create an instance whose resources are reserved",
        "OP_INSTANCE_CREATE",
        DRY_RUN,
        constants={"commit": True},
        renames={"os": "os_type"},
        adapt="commit_instance",
        client=method(
            "CommitInstance",
            switch("dry_run", "only check", in_query=True),
            further(
                "parameters of the opcode ``OP_INSTANCE_CREATE`` that take no"
                " resources, such as ``os`` and ``start``"
            ),
            about="Create a forthcoming instance",
            subject=Parameter("instance", str, "its name or uuid"),
        ),
    ),
    job(
        "PUT",
        f"{_ONE}/rename",
        "rename an instance",
        "OP_INSTANCE_RENAME",
        creates="new_name",
        client=method(
            "RenameInstance",
            Parameter("new_name"),
            optional("ip_check", bool),
            optional("name_check", bool),
        ),
    ),
    model.Resource(
        path=f"{_ONE}/reinstall",
        method="POST",
        about="stop an instance, install its operating system again, and start it",
        result=int,
        access=(model.WRITE,),
        job=model.Job(
            op_id="OP_INSTANCE_REINSTALL",
            further=("OP_INSTANCE_SHUTDOWN", "OP_INSTANCE_STARTUP"),
            adapt="reinstall",
            traced=False,
        ),
        arguments=(
            model.text("os", "operating system (old style, without a body)"),
            model.flag("nostartup", "leave it stopped (old style, without a body)"),
            model.PLAN,
        ),
        body=Body.OWN,
        body_type="Reinstall",
    ),
    job(
        "PUT",
        f"{_ONE}/export",
        "export an instance",
        "OP_BACKUP_EXPORT",
        renames={"destination": "target_node"},
        client=method(
            "ExportInstance",
            Parameter("mode", str, "``local`` or ``remote``"),
            Parameter(
                "destination",
                Any,
                "name of a node, or information of the other cluster",
            ),
            optional("shutdown", bool, "stop the instance before"),
            optional("remove_instance", bool, "remove it afterwards"),
            optional(
                "x509_key_name",
                Sequence[str],
                "name, digest and signature of the key, remote exports only",
            ),
            optional(
                "destination_x509_ca",
                str,
                "certificate of the destination, remote exports only",
            ),
            optional("compress", str, "compression tool of the transfer"),
        ),
    ),
    job(
        "PUT",
        f"{_ONE}/prepare-export",
        "prepare the export of an instance",
        "OP_BACKUP_PREPARE",
        model.text("mode", "local or remote", "mode"),
        body=Body.IGNORED,
        client=method("PrepareExport", Parameter("mode")),
    ),
)

_DISKS: Final = (
    job(
        "PUT",
        f"{_ONE}/activate-disks",
        "activate the disks of an instance",
        "OP_INSTANCE_ACTIVATE_DISKS",
        model.flag("ignore_size", "do not compare the recorded size", "ignore_size"),
        body=Body.IGNORED,
        client=method(
            "ActivateInstanceDisks", optional("ignore_size", bool, is_flag=True)
        ),
    ),
    job(
        "PUT",
        f"{_ONE}/deactivate-disks",
        "deactivate the disks of an instance",
        "OP_INSTANCE_DEACTIVATE_DISKS",
        FORCE,
        body=Body.IGNORED,
        client=method(
            "DeactivateInstanceDisks",
            dataclasses.replace(REASON_PARAMETER, is_late=True),
            switch("force"),
        ),
    ),
    job(
        "POST",
        f"{_ONE}/disk/[disk_index]/grow",
        "enlarge a disk of an instance",
        "OP_INSTANCE_GROW_DISK",
        variables={"instance_name": "instance_name", "disk": "disk_index"},
        client=method(
            "GrowInstanceDisk",
            Parameter("amount", int, "MiB to add"),
            optional("wait_for_sync", bool, "end the job when the copies are equal"),
        ),
    ),
    job(
        "POST",
        f"{_ONE}/recreate-disks",
        "create the disks of an instance again, without data",
        "OP_INSTANCE_RECREATE_DISKS",
        client=method(
            "RecreateInstanceDisks",
            optional(
                "disks",
                Sequence[Any],
                "indices, or pairs of index and new parameters; all by default",
            ),
            optional("nodes", Sequence[str], "names of other nodes for the disks"),
            REASON_PARAMETER,
            optional("iallocator", str, "allocator that chooses the nodes"),
            about="Create disks of an instance again, without data",
        ),
    ),
    job(
        "POST",
        f"{_ONE}/replace-disks",
        "replace the disks of an instance",
        "OP_INSTANCE_REPLACE_DISKS",
        model.text("remote_node", "new secondary node (old style, without a body)"),
        model.text("mode", "disks to replace (old style, without a body)"),
        model.text(
            "disks",
            "indices, such as 0,1 (old style, without a body)",
            form=model.INDICES,
        ),
        model.text("iallocator", "allocator (old style, without a body)"),
        adapt="replace_disks",
        client=method(
            "ReplaceInstanceDisks",
            optional(
                "disks", Sequence[int], "indices; all by default", convert=as_list
            ),
            Parameter(
                "mode",
                str,
                "one of the constants ``REPLACE_DISK_*``",
                names.REPLACE_DISK_AUTO,
            ),
            optional("remote_node", str, "new secondary node"),
            optional("iallocator", str, "allocator that chooses it"),
            REASON_PARAMETER,
            optional(
                "early_release", bool, "drop locks before the old disks are removed"
            ),
            about="Replace disks of an instance",
        ),
    ),
)

RESOURCES: Final = (
    *_COLLECTION,
    *_POWER,
    *_CHANGES,
    *_DISKS,
    *tag_resources(_ONE, "instance", "Instance", "an instance"),
)
