"""The base of all opcodes, and the parameters that several share."""

from typing import Annotated, Any, ClassVar

import msgspec

from ganeti.base.constants.parameters import forms
from ganeti.base.text import control_chars
from ganeti.model import ht
from ganeti.model.ht import Doc

Compress = Annotated[str, Doc("compression tool for the transfer")]
ConflictsCheck = Annotated[bool, Doc("refuse IPs that clash with known networks/nodes")]
DebugSimulateErrors = Annotated[bool, Doc("pretend every check failed, for testing")]
DiskState = Annotated[
    dict[str, Any] | None, Doc("per storage type disk state overrides")
]
DiskTemplate = Annotated[ht.DiskTemplate | None, Doc("disk template")]
Diskparams = Annotated[
    dict[ht.DiskTemplate, dict[str, Any]] | None, Doc("per-template disk parameters")
]
EarlyRelease = Annotated[bool, Doc("drop locks on old storage before it is removed")]
ErrorCodes = Annotated[bool, Doc("machine readable message format")]
Force = Annotated[bool, Doc("skip some safety checks")]
ForceVariant = Annotated[bool, Doc("accept an OS variant the OS does not declare")]
GroupName = Annotated[ht.NonEmptyStr, Doc("node group, name or uuid")]
HvState = Annotated[dict[str, Any] | None, Doc("per hypervisor state overrides")]
Iallocator = Annotated[
    ht.NonEmptyStr | None, Doc("allocator plugin name"), forms.ALLOCATOR
]
IgnoreConsistency = Annotated[bool, Doc("go on even if disks are not consistent")]
IgnoreErrors = Annotated[
    list[ht.VerifyEcode], Doc("verify codes to downgrade to warnings")
]
IgnoreIpolicy = Annotated[bool, Doc("do not enforce the instance policy")]
InstanceName = Annotated[str, Doc("instance name")]
InstanceUuid = Annotated[
    ht.NonEmptyStr | None, Doc("instance uuid; filled in by the server, may be omitted")
]
Ipolicy = Annotated[dict[str, Any] | None, Doc("instance policy changes")]
Kind = Annotated[ht.TagKind, Doc("kind of the tagged object")]
Name = Annotated[str | None, Doc("object name; must be null for the cluster")]
Ndparams = Annotated[dict[str, Any] | None, Doc("node parameters")]
NetworkName = Annotated[ht.NonEmptyStr, Doc("network, name or uuid")]
NewName = Annotated[ht.NonEmptyStr, Doc("new name")]
NodeName = Annotated[ht.NonEmptyStr, Doc("node name")]
NodeUuid = Annotated[
    ht.NonEmptyStr | None, Doc("node uuid; filled in by the server, may be omitted")
]
NodeUuids = Annotated[
    list[ht.NonEmptyStr] | None,
    Doc("node uuids, server side counterpart of the name list"),
]
OsparamsPrivate = Annotated[
    dict[str, ht.Private] | None, Doc("OS params hidden from logs and queries")
]
OsparamsSecret = Annotated[
    dict[str, ht.Secret] | None, Doc("OS params never written to disk")
]
OutputFields = Annotated[list[ht.NonEmptyStr], Doc("wanted fields")]
RemoteNodeUuid = Annotated[
    ht.NonEmptyStr | None, Doc("uuid of that node, server filled")
]
RequestKey = Annotated[
    ht.RequestKey | None,
    Doc("key chosen by the client; a repeated request makes no second instance"),
]
ReservationExpires = Annotated[
    ht.NonNegInt | None,
    Doc("seconds from now after which the reservation is released; 0 for never"),
]
ReservationOwner = Annotated[str | None, Doc("who needs the reservation, free text")]
ReservationPriority = Annotated[
    ht.ReservationPriority | None,
    Doc("priority of the reservation; failovers may take the memory of low ones"),
]
ShutdownTimeout = Annotated[ht.NonNegInt, Doc("seconds to wait for a clean stop")]
TargetGroups = Annotated[
    list[ht.NonEmptyStr] | None, Doc("allowed target groups; null means all others")
]
TargetNode = Annotated[ht.NonEmptyStr | None, Doc("target node")]
TargetNodeUuid = Annotated[
    ht.NonEmptyStr | None, Doc("uuid of the target node, server filled")
]
UseLocking = Annotated[bool, Doc("take locks while querying")]
Verbose = Annotated[bool, Doc("more progress messages")]
WaitForSync = Annotated[bool, Doc("wait until mirrors are in sync")]


class Opcode(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="OP_ID",
):
    """One request to the master, as a typed record.

    Class attributes: ``SUMMARY_FIELD`` names the parameter shown in job summaries,
    ``RESULT`` is the type of the result, ``SUBMITS_JOBS`` marks opcodes whose logical
    unit returns further jobs.
    """

    SUMMARY_FIELD: ClassVar[str | None] = None
    RESULT: ClassVar[Any] = Any
    SUBMITS_JOBS: ClassVar[bool] = False

    comment: Annotated[str | None, Doc("free text kept with the opcode")] = None
    debug_level: Annotated[ht.NonNegInt | None, Doc("debug verbosity")] = None
    depends: Annotated[
        ht.Depends | None, Doc("jobs that must end first, and how they may end")
    ] = None
    dry_run: Annotated[bool | None, Doc("stop after the checks")] = None
    if_serial: Annotated[
        dict[str, ht.NonNegInt] | None,
        Doc("uuid of an object -> serial that it must have; else nothing is done"),
    ] = None
    priority: Annotated[
        int, Doc("queue priority at submission; smaller runs first")
    ] = 0
    reason: Annotated[
        list[ht.ReasonEntry], Doc("reason trail: source, text, nanoseconds")
    ] = []

    @classmethod
    def op_id(cls) -> str:
        """Return the wire name, such as ``OP_INSTANCE_STARTUP``."""
        return str(cls.__struct_config__.tag)

    def summary(self) -> str:
        """Return the text that job lists show, such as ``INSTANCE_STARTUP(web1)``.

        It is one printable line, whatever the request contains.
        """
        name = self.op_id().removeprefix("OP_")
        if self.SUMMARY_FIELD is None:
            return name
        value = getattr(self, self.SUMMARY_FIELD)
        if isinstance(value, list):
            value = ",".join(str(item) for item in value)
        return f"{name}({control_chars.escape(str(value))})"

    def replace(self, **changes: Any) -> "Opcode":
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)
