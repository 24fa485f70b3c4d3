"""Opcodes: instance create."""

from typing import Annotated, Any, ClassVar

from ganeti.base.constants.parameters import forms
from ganeti.model import ht
from ganeti.model.ht import Doc
from ganeti.model.opcodes import common
from ganeti.model.opcodes.common import Opcode


class InstanceCreate(Opcode, tag="OP_INSTANCE_CREATE", frozen=True, kw_only=True):
    """Create, import or reserve an instance.

    The result is its node names, that of a reservation its uuid.
    """

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    #: Node names, for a reservation its uuid.
    RESULT: ClassVar[Any] = list[ht.NonEmptyStr] | ht.NonEmptyStr

    beparams: Annotated[dict[str, Any], Doc("backend params of the new instance")] = {}
    commit: Annotated[
        bool, Doc("turn an earlier forthcoming instance into a real one")
    ] = False
    compress: common.Compress = "none"
    conflicts_check: common.ConflictsCheck = True
    disk_template: common.DiskTemplate = None
    disks: Annotated[list[ht.DiskSpec], Doc("disks to create")]
    expires: common.ReservationExpires = None
    file_driver: Annotated[
        ht.FileDriver | None,
        Doc("recorded only: hypervisors choose how to open files"),
    ] = None
    file_storage_dir: Annotated[
        ht.NonEmptyStr | None,
        Doc("sub directory below the cluster's base dir"),
        forms.ANY,
    ] = None
    force_variant: common.ForceVariant = False
    forthcoming: Annotated[
        bool, Doc("only reserve resources, create nothing on nodes")
    ] = False
    group_name: Annotated[ht.NonEmptyStr | None, Doc("node group, name or uuid")] = None
    helper_shutdown_timeout: Annotated[
        int | None,
        Doc("seconds until a helper machine that began has powered itself off"),
    ] = None
    helper_startup_timeout: Annotated[
        int | None, Doc("seconds until a helper machine that installs an OS has begun")
    ] = None
    hvparams: Annotated[dict[str, Any], Doc("hypervisor parameters")] = {}
    hypervisor: Annotated[
        ht.Hypervisor | None,
        Doc("hypervisor; null takes the cluster default"),
        forms.UNSEPARATED,
    ] = None
    iallocator: common.Iallocator = None
    identify_defaults: Annotated[
        bool, Doc("store params equal to cluster defaults as defaults")
    ] = False
    ignore_ipolicy: common.IgnoreIpolicy = False
    instance_communication: Annotated[
        bool, Doc("give the instance a communication NIC")
    ] = False
    instance_name: common.InstanceName
    ip_check: Annotated[bool, Doc("ping to see the IP is unused; needs name_check")] = (
        False
    )
    mode: Annotated[ht.InstanceCreateMode, Doc("create, import or remote-import")]
    name_check: Annotated[bool, Doc("resolve the name and use the FQDN")] = False
    nics: Annotated[list[ht.NicSpec], Doc("NICs to create")]
    no_install: Annotated[
        bool | None, Doc("skip the OS create script; implies not starting")
    ] = None
    opportunistic_locking: Annotated[
        bool, Doc("take only the node locks that are free")
    ] = False
    no_nics: Annotated[
        bool | None, Doc("import without NICs, not with the exported ones")
    ] = None
    os_type: Annotated[
        ht.NonEmptyStr | None, Doc("OS to install, may carry +variant")
    ] = None
    osparams: Annotated[dict[str, Any], Doc("OS parameters")] = {}
    osparams_private: common.OsparamsPrivate = None
    osparams_secret: common.OsparamsSecret = None
    owner: common.ReservationOwner = None
    pnode: Annotated[ht.NonEmptyStr | None, Doc("primary node")] = None
    pnode_uuid: Annotated[
        ht.NonEmptyStr | None, Doc("uuid of the primary node, server filled")
    ] = None
    request_key: common.RequestKey = None
    reservation_priority: common.ReservationPriority = None
    snode: Annotated[ht.NonEmptyStr | None, Doc("secondary node")] = None
    snode_uuid: Annotated[
        ht.NonEmptyStr | None, Doc("uuid of the secondary node, server filled")
    ] = None
    source_handshake: Annotated[
        list[Any] | None, Doc("handshake from the source cluster (remote import)")
    ] = None
    source_instance_name: Annotated[
        ht.NonEmptyStr | None, Doc("name on the source cluster (remote import)")
    ] = None
    source_shutdown_timeout: Annotated[
        ht.NonNegInt, Doc("stop timeout used at the source (remote import)")
    ] = 120
    source_x509_ca: Annotated[
        ht.NonEmptyStr | None, Doc("signed CA of the source, PEM (remote import)")
    ] = None
    src_node: Annotated[
        ht.NonEmptyStr | None, Doc("node holding the export; null searches all")
    ] = None
    src_node_uuid: Annotated[
        ht.NonEmptyStr | None, Doc("uuid of that node, server filled")
    ] = None
    src_path: Annotated[
        ht.NonEmptyStr | None,
        Doc("export directory, absolute or export name"),
        forms.ANY,
    ] = None
    start: Annotated[bool, Doc("start after creation")] = True
    tags: Annotated[list[ht.NonEmptyStr], Doc("initial tags")] = []
    wait_for_sync: common.WaitForSync = True


class InstanceMultiAlloc(
    Opcode, tag="OP_INSTANCE_MULTI_ALLOC", frozen=True, kw_only=True
):
    """Allocate several instances with one allocator run."""

    RESULT: ClassVar[Any] = ht.MultiAllocResult
    SUBMITS_JOBS: ClassVar[bool] = True

    iallocator: common.Iallocator = None
    instances: Annotated[
        list[Any], Doc("list of serialised OP_INSTANCE_CREATE objects")
    ] = []
    opportunistic_locking: Annotated[
        bool, Doc("take only the node locks that are free")
    ] = False


class InstanceReinstall(Opcode, tag="OP_INSTANCE_REINSTALL", frozen=True, kw_only=True):
    """Run the OS create script again."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = None

    force_variant: common.ForceVariant = False
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    os_type: Annotated[
        ht.NonEmptyStr | None, Doc("OS to install, may carry +variant")
    ] = None
    osparams: Annotated[
        dict[str, Any] | None, Doc("OS params for this reinstall only")
    ] = None
    osparams_private: common.OsparamsPrivate = None
    osparams_secret: common.OsparamsSecret = None


class InstanceRemove(Opcode, tag="OP_INSTANCE_REMOVE", frozen=True, kw_only=True):
    """Remove an instance."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"
    RESULT: ClassVar[Any] = None

    if_expired: Annotated[
        bool, Doc("do nothing unless it is a reservation that has expired")
    ] = False
    ignore_failures: Annotated[
        bool, Doc("go on even if shutdown or disk removal fails")
    ] = False
    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    shutdown_timeout: common.ShutdownTimeout = 120


class InstanceRename(Opcode, tag="OP_INSTANCE_RENAME", frozen=True, kw_only=True):
    """Rename; result is the new name."""

    RESULT: ClassVar[Any] = ht.NonEmptyStr

    instance_name: common.InstanceName
    instance_uuid: common.InstanceUuid = None
    ip_check: Annotated[bool, Doc("ping to see the IP is unused; needs name_check")] = (
        False
    )
    name_check: Annotated[bool, Doc("resolve the name and use the FQDN")] = False
    new_name: common.NewName
