"""The form of node answers; values of another form are left out and named.

All other modules of this package rely on these forms, and treat a missing key as not
reported.
"""

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from ganeti.base.constants.protocols import nodeverify

_TEXTS: Final = list[str]
_FAILURES: Final = dict[str, str]
#: Name, path, valid, problem, variants, parameters, API versions, trusted.
_OsRow: TypeAlias = tuple[
    str,
    str,
    bool,
    str | None,
    list[str] | None,
    list[list[str]] | None,
    list[int] | None,
    bool,
]
#: A volume's group and name, in the letters that LVM allows: it is shown in a command.
_Volume = Annotated[
    str,
    msgspec.Meta(pattern=r"(?a)\A[\w+.][\w+.-]*/[\w+.][\w+.-]*\Z", max_length=256),
]
_Minor = Annotated[int, msgspec.Meta(ge=0, lt=1 << 20)]
#: It is shown.
_Version = Annotated[str, msgspec.Meta(pattern=r"(?a)\A\d{1,4}(\.\d{1,6}){1,3}\Z")]
_Path = Annotated[str, msgspec.Meta(max_length=4096)]
_Name = Annotated[str, msgspec.Meta(max_length=255)]
#: Name of a daemon or a user: it is shown.
_Word = Annotated[str, msgspec.Meta(pattern=r"(?a)\A[\w.-]{1,64}\Z")]
#: Kind of a finding. A node of a later release may have kinds that nobody knows here;
#: their readers leave these out one by one.
_Kind = Annotated[str, msgspec.Meta(max_length=64)]
_KeyLines = Annotated[
    list[Annotated[str, msgspec.Meta(max_length=16384)]], msgspec.Meta(max_length=16)
]
#: Key -> type of its value.
FORMS: Final[dict[str, Any]] = {
    nodeverify.NV_VERSION: tuple[int, str],
    nodeverify.NV_TIME: tuple[float, float],
    nodeverify.NV_DAEMON_USERS: dict[_Word, _Word],
    nodeverify.NV_FILELIST: _FAILURES,
    nodeverify.NV_CLIENT_CERT: tuple[str | None, str | None],
    nodeverify.NV_NODELIST: _FAILURES,
    nodeverify.NV_NODENETTEST: _FAILURES,
    nodeverify.NV_MASTERIP: bool,
    nodeverify.NV_HYPERVISOR: dict[str, str | None],
    nodeverify.NV_HVPARAMS: list[tuple[str, str, str]],
    nodeverify.NV_INSTANCELIST: _TEXTS,
    nodeverify.NV_GUEST_FILES: dict[_Name, set[_Kind]],
    nodeverify.NV_HVINFO: dict[str, Any],
    nodeverify.NV_NODESETUP: _TEXTS,
    nodeverify.NV_OSLIST: list[_OsRow],
    nodeverify.NV_BRIDGES: _TEXTS,
    nodeverify.NV_USERSCRIPTS: _TEXTS,
    nodeverify.NV_OOB_PATHS: list[str | None],
    nodeverify.NV_ACCEPTED_STORAGE_PATHS: _TEXTS,
    nodeverify.NV_FILE_STORAGE_PATH: str | None,
    nodeverify.NV_SHARED_FILE_STORAGE_PATH: str | None,
    nodeverify.NV_GLUSTER_STORAGE_PATH: str | None,
    nodeverify.NV_DISK_FILES: dict[str, int],
    nodeverify.NV_EXPORTS: dict[_Name, _Kind],
    nodeverify.NV_COMPRESSION: _TEXTS,
    nodeverify.NV_SSH_SETUP: _TEXTS,
    nodeverify.NV_SSH_AUTHORISED: _TEXTS,
    nodeverify.NV_SSH_CANDIDATE_KEYS: dict[str, _KeyLines],
    nodeverify.NV_SSH_CLUTTER: _TEXTS,
    nodeverify.NV_VGLIST: dict[str, float],
    nodeverify.NV_LVLIST: dict[_Volume, tuple[str, bool, bool]],
    nodeverify.NV_PVLIST: list[tuple[_Path, float]],
    nodeverify.NV_EXCLUSIVEPVS: list[tuple[_Path, list[_Volume]]],
    nodeverify.NV_DRBDLIST: list[_Minor],
    nodeverify.NV_DRBDVERSION: _Version,
    nodeverify.NV_DRBDHELPER: _Path,
}


def clean(raw: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the usable part of an answer of ``node_verify``, and the keys left out.

    Keys that were not requested are left out silently.
    """
    if not isinstance(raw, dict):
        return {}, ["everything"]
    good: dict[str, Any] = {}
    wrong: list[str] = []
    for key, value in raw.items():
        form = FORMS.get(key)
        if form is None:
            continue
        try:
            good[key] = msgspec.convert(value, form)
        except msgspec.ValidationError:
            wrong.append(key)
    return good, sorted(wrong)


def disk_rows(raw: Any, count: int, problem: str | None) -> list[tuple[bool, Any]]:
    """Return (known, status object or text) for each disk of the request.

    Args:
        raw: answer of ``blockdev_getmirrorstatus_multi`` for these disks.
        count: number of disks.
        problem: reason why there is no answer, if there is none.
    """
    try:
        rows = msgspec.convert(raw, list[tuple[bool, dict[str, Any] | str | None]])
    except msgspec.ValidationError:
        rows = []
    if problem is not None or len(rows) != count:
        return [(False, problem or "malformed answer")] * count
    return rows
