"""Parameter types: the form of values, and their descriptions.

Types are ordinary annotations checked by msgspec; constraints and descriptions
are attached to them. Specified in the opcode tables. Rules across fields do not
belong here: a logical unit checks them.
"""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.text import messages


class Doc(str):
    """One line of text about an opcode parameter, inside ``Annotated``."""

    __slots__ = ()


class Hidden(NamedTuple):
    """Mark of values that logs and queries, if not ``stored`` files too, never show."""

    stored: bool


NonEmptyStr = Annotated[str, Meta(min_length=1, description="a non-empty text")]
PosInt = Annotated[int, Meta(gt=0, description="a number above 0")]
NonNegInt = Annotated[int, Meta(ge=0, description="a number, 0 or more")]
DiskIndex = Annotated[int, Meta(ge=0, le=15, description="a disk index, 0 to 15")]
IPv4Address = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}\Z",
        description="an IPv4 address such as 192.0.2.1",
    ),
]
IPv4Network = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}\Z",
        description="an IPv4 range such as 192.0.2.0/24",
    ),
]
IPv6Address = Annotated[
    str,
    Meta(
        pattern=r"^[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\Z",
        description="an IPv6 address such as 2001:db8::1",
    ),
]
IPv6Network = Annotated[
    str,
    Meta(
        pattern=r"^[0-9a-fA-F:.]*:[0-9a-fA-F:.]*/[0-9]{1,3}\Z",
        description="an IPv6 range such as 2001:db8::/64",
    ),
]
#: The same, and the word ``none`` for the end of a value.
IPv4AddressOrNone = Annotated[
    str,
    Meta(
        pattern=r"^([0-9]{1,3}(\.[0-9]{1,3}){3}|none)\Z",
        description="an IPv4 address such as 192.0.2.1, or none",
    ),
]
IPv6AddressOrNone = Annotated[
    str,
    Meta(
        pattern=r"^([0-9a-fA-F:.]*:[0-9a-fA-F:.]*|none)\Z",
        description="an IPv6 address such as 2001:db8::1, or none",
    ),
]
IPv6NetworkOrNone = Annotated[
    str,
    Meta(
        pattern=r"^([0-9a-fA-F:.]*:[0-9a-fA-F:.]*/[0-9]{1,3}|none)\Z",
        description="an IPv6 range such as 2001:db8::/64, or none",
    ),
]
RequestKey = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_.:/+=@-]{1,128}\Z",
        description="1 to 128 letters, digits and _.:/+=@-",
    ),
]
Private = Annotated[Any, Hidden(stored=True)]
Secret = Annotated[Any, Hidden(stored=False)]

JobId = Annotated[int, Meta(ge=0)] | Annotated[str, Meta(pattern=r"^[0-9]{1,18}\Z")]
JobDependId = Annotated[int, Meta()] | Annotated[str, Meta(pattern=r"^[0-9]{1,18}\Z")]
FinalStatus = Literal["canceled", "success", "error"]
#: Most jobs that a job may depend on, and most ways to end of each, with repetitions.
MAX_DEPENDS = 2000
_MAX_WAYS = 10
Depends = Annotated[
    list[tuple[JobDependId, Annotated[list[FinalStatus], Meta(max_length=_MAX_WAYS)]]],
    Meta(max_length=MAX_DEPENDS),
]
ReasonEntry = tuple[str, str, int]

NicKey = Literal["bridge", "ip", "link", "mac", "mode", "name", "network", "vlan"]
NicSpec = dict[NicKey, str | None]
DiskSpec = dict[str, NonEmptyStr | int]
#: ``[[op, index or name, spec]]``, or the old ``[[op or index, spec]]``; the logical
#: unit parses them with `parse_mods`.
NicMods = list[list[Any]]
DiskMods = list[list[Any]]
# Not DiskIndex alone: msgspec 0.22 reads past its type when a number with bounds and a
# tuple of fixed length meet in a union. The logical unit checks plain indices.
RecreateDisks = list[int | tuple[DiskIndex, DiskSpec]]


class JobList(msgspec.Struct):
    """Result of an opcode that submits jobs: ``{"jobs": [[ok, id or text]]}``."""

    jobs: list[tuple[bool, int | str]]


class MultiAllocResult(JobList):
    """`JobList` with the names that were placed and those that were not."""

    allocatable: list[str]
    failed: list[str]


class FieldDef(msgspec.Struct):
    """Definition of one query field."""

    name: str
    title: str
    kind: str
    doc: str


class QueryFieldsResponse(msgspec.Struct):
    """Answer to a query of field definitions."""

    fields: list[FieldDef]


class QueryResponse(msgspec.Struct):
    """Answer to a query: rows of ``[status, value]``."""

    fields: list[FieldDef]
    data: list[list[tuple[int, Any]]]


AdminStateSource = Literal["admin", "user"]
ReservationPriority = Literal["low", "normal", "high"]
AllocPolicy = Literal["preferred", "last_resort", "unallocable"]
DdmSimple = Literal["add", "attach", "detach", "remove"]
DdmFull = Literal["add", "attach", "detach", "modify", "remove"]
DiskTemplate = Literal[
    "blockdev",
    "diskless",
    "drbd",
    "ext",
    "file",
    "gluster",
    "plain",
    "rbd",
    "sharedfile",
]
EvacuateMode = Literal["all", "primary-only", "secondary-only"]
ExportMode = Literal["local", "remote"]
FileDriver = Literal["blktap", "blktap2", "loop"]
Hypervisor = Literal["chroot", "fake", "kvm", "lxc", "xen-hvm", "xen-pvm"]
IallocatorDirection = Literal["in", "out"]
IallocatorMode = Literal[
    "allocate",
    "allocate-secondary",
    "balance",
    "capacity",
    "change-group",
    "multi-allocate",
    "node-evacuate",
    "relocate",
]
InstanceCreateMode = Literal["create", "import", "remote-import"]
MigrationMode = Literal["live", "non-live"]
NicMode = Literal["bridged", "openvswitch", "pool", "routed"]
OobCommand = Literal["health", "power-cycle", "power-off", "power-on", "power-status"]
QueryResource = Literal[
    "cluster",
    "export",
    "extstorage",
    "filter",
    "group",
    "instance",
    "job",
    "lock",
    "network",
    "node",
    "os",
]
RebootType = Literal["full", "hard", "soft"]
ReplaceDisksMode = Literal[
    "replace_auto",
    "replace_new_secondary",
    "replace_on_primary",
    "replace_on_secondary",
]
ResultStatus = Literal[0, 1, 2, 3, 4]
SshKeyType = Literal["dsa", "ecdsa", "rsa"]
StorageType = Literal[
    "blockdev",
    "diskless",
    "ext",
    "file",
    "gluster",
    "lvm-pv",
    "lvm-vg",
    "rados",
    "sharedfile",
]
TagKind = Literal["cluster", "instance", "network", "node", "nodegroup"]
VerifyEcode = Literal[
    "ECLUSTERCERT",
    "ECLUSTERCFG",
    "ECLUSTERCLIENTCERT",
    "ECLUSTERDANGLINGINST",
    "ECLUSTERDANGLINGNODES",
    "ECLUSTERFILECHECK",
    "EEXTAGS",
    "EGROUPDIFFERENTPVSIZE",
    "EINSTANCEBADNODE",
    "EINSTANCEDOWN",
    "EINSTANCEFAULTYDISK",
    "EINSTANCELAYOUT",
    "EINSTANCEMISSINGCFGPARAMETER",
    "EINSTANCEMISSINGDISK",
    "EINSTANCEPOLICY",
    "EINSTANCESPLITGROUPS",
    "EINSTANCEUNSUITABLENODE",
    "EINSTANCEWRONGNODE",
    "ENODEDRBD",
    "ENODEDRBDHELPER",
    "ENODEDRBDVERSION",
    "ENODEFILECHECK",
    "ENODEFILESTORAGEPATHS",
    "ENODEFILESTORAGEPATHUNUSABLE",
    "ENODEGLUSTERSTORAGEPATHUNUSABLE",
    "ENODEHOOKS",
    "ENODEHV",
    "ENODELVM",
    "ENODEN1",
    "ENODENET",
    "ENODEOOBPATH",
    "ENODEORPHANINSTANCE",
    "ENODEORPHANLV",
    "ENODEOS",
    "ENODERPC",
    "ENODESETUP",
    "ENODESHAREDFILESTORAGEPATHUNUSABLE",
    "ENODESSH",
    "ENODETIME",
    "ENODEUSERSCRIPTS",
    "ENODEVERSION",
]
VerifyOptionalCheck = Literal["hvparam_assessment", "nplusone_mem"]


def convert(value: Any, kind: Any, what: str) -> Any:
    """Return ``value`` as ``kind``.

    Args:
        value: JSON types.
        kind: an annotation.
        what: name of the value in the error, such as ``OP_TEST_DELAY``.

    Raises:
        OpPrereqError: the value does not fit; contains place, wanted and found.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as err:
        raise errors.OpPrereqError(
            f"{what}: {messages.misfit(str(err), kind, value)}", ecodes.ECODE_INVAL
        ) from err


class Modification(NamedTuple):
    """One change of a list: operation, index or name or None, and the new values."""

    op: DdmFull
    item: int | str | None
    spec: dict[str, Any]


def parse_mods(mods: list[list[Any]], kind: Any, what: str) -> list[Modification]:
    """Return typed modifications for both wire forms.

    Args:
        mods: as in the opcode.
        kind: `NicSpec` or `DiskSpec`.
        what: name of the parameter in the error, such as ``instance web1: nics``.

    Raises:
        OpPrereqError: a row has neither form, or an unknown operation; or more than one
            row of two parts, which name no place, adds or removes something.
    """
    parsed = []
    for row in mods:
        if len(row) == 2:
            item: int | str | None
            op, item, spec = row[0], None, row[1]
            if op not in ("add", "attach", "detach", "remove"):
                op, item = "modify", op
            elif op not in {"add", "attach"}:
                item = -1
        elif len(row) == 3:
            op, item, spec = row
        else:
            raise errors.OpPrereqError(
                f"{what}: wanted [operation, item, values], found {row!r}",
                ecodes.ECODE_INVAL,
            )
        parsed.append(
            Modification(
                convert(op, DdmFull, what),
                convert(item, int | str | None, what),
                convert(spec, kind, what),
            )
        )
    short = [mod for mod, row in zip(parsed, mods, strict=True) if len(row) == 2]
    if sum(mod.op != "modify" for mod in short) > 1:
        raise errors.OpPrereqError(
            f"{what}: only one can be added, removed, attached or detached in the form"
            " [operation, values]; use [operation, index, values]",
            ecodes.ECODE_INVAL,
        )
    return parsed
