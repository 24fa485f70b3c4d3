"""Values that parameters of disk templates and NICs can have; pure.

The types are in `ganeti.base.constants.parameters.params`. What a single disk may ask
for is in `ganeti.operations.instance.disks.disk_specs`.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import disks, ecodes
from ganeti.base.constants.parameters import params
from ganeti.base.net import ip
from ganeti.base.text import units
from ganeti.operations.parameters import typed_params

_DRBD_VALID_BARRIER_OPT: Final = (
    ("b", "d", "f"),
    ("b", "d"),
    ("b", "f"),
    ("b",),
    ("d", "f"),
    ("d",),
    ("f",),
    ("n",),
)

_CHOICES: Final = {
    "access": disks.DISK_VALID_ACCESS_MODES,
    "disk-barriers": tuple("".join(letters) for letters in _DRBD_VALID_BARRIER_OPT),
    "protocol": ("A", "B", "C"),
}
#: lvcreate(8) has no more stripes.
_STRIPES: Final = (1, 128)
#: In KiB, see lvcreate(8): powers of two; the extents of the volume group bound them
#: besides, which a node compares when it creates a volume.
_STRIPE_SIZES: Final = tuple(1 << bit for bit in range(2, 21))
#: Parameter with the size of stripes -> parameter with their number.
_STRIPED: Final = {
    f"{prefix}stripe_size": f"{prefix}stripes" for prefix in ("", "data-", "meta-")
}
#: In KiB/s, as drbdsetup(8) has it.
_FASTEST: Final = 4194304
#: Least and largest number; those of DRBD are in drbdsetup(8).
_BOUNDS: Final = {
    "c-delay-target": (1, 100),
    "c-fill-target": (0, 1048576),
    "c-max-rate": (250, _FASTEST),
    "c-min-rate": (0, _FASTEST),
    "c-plan-ahead": (0, 300),
    "data-stripes": _STRIPES,
    "meta-stripes": _STRIPES,
    "port": (1, 65535),
    "resync-rate": (1, _FASTEST),
    "stripes": _STRIPES,
}
#: Parts of commands and paths: a volume group, host, pool or volume.
_NAMES: Final = ("host", "metavg", "pool", "volume")
_NAME: Final = re.compile(r"(?![.-]+\Z)(?!-)[A-Za-z0-9+_.:\[\]-]{1,127}")


def typed(
    template: str, given: Mapping[str, Any], what: str, *, allow_default: bool = False
) -> dict[str, Any]:
    """Return parameters of a template in their types.

    Args:
        template: a disk template.
        given: from a request.
        what: kind of the parameters for messages, such as ``disk parameter plain``.
        allow_default: keep the value that removes an override.

    Raises:
        TypeEnforcementError: unknown name or wrong type.
        OpPrereqError: a value that the disks cannot have; contains wanted and found.
    """
    table = params.DISK[template]
    out = typed_params.typed(given, table, what, allow_default=allow_default)
    for name, value in out.items():
        if not allow_default or value != typed_params.DEFAULT:
            _check(name, value, f"{what} {name}")
    return out


def check_stripes(values: Mapping[str, Any], what: str) -> None:
    """Refuse a size of stripes where volumes have one stripe; takes values in force.

    Raises:
        OpPrereqError: names the parameter, its value and the one that it needs.
    """
    for size, count in _STRIPED.items():
        if values.get(size) and values.get(count, 1) == 1:
            raise errors.OpPrereqError(
                f"{what} {size}: {values[size]} needs {count} of 2 or more, found 1",
                ecodes.ECODE_INVAL,
            )


def _check(name: str, value: Any, what: str) -> None:
    if choices := _CHOICES.get(name):
        if value not in choices:
            raise _wrong(what, f"one of {', '.join(choices)}", value)
    elif bounds := _BOUNDS.get(name):
        if not bounds[0] <= value <= bounds[1]:
            raise _wrong(what, f"{bounds[0]} to {bounds[1]}", value)
    elif name in _STRIPED:
        if value and value not in _STRIPE_SIZES:
            low, high = _STRIPE_SIZES[0], _STRIPE_SIZES[-1]
            wanted = f"0, or a power of two from {low} to {high} (KiB)"
            raise _wrong(what, wanted, value)
    elif name in _NAMES:
        if not _NAME.fullmatch(value):
            raise _wrong(what, "a name of letters, digits and +_.:-", value)
    elif isinstance(value, str) and not value.isprintable():
        raise _wrong(what, "a text of printable characters", value)


def _wrong(what: str, wanted: str, value: Any) -> errors.OpPrereqError:
    return errors.OpPrereqError(
        f"{what}: wanted {wanted}, found {value!r}", ecodes.ECODE_INVAL
    )


_NIC_MODE_BRIDGED: Final = "bridged"
_NIC_MODE_ROUTED: Final = "routed"
_NIC_MODE_OVS: Final = "openvswitch"

#: The modes that a NIC can have.
MODES: Final = (
    _NIC_MODE_BRIDGED,
    _NIC_MODE_ROUTED,
    _NIC_MODE_OVS,
)
_VLAN: Final = re.compile(r"^(\d+|\.\d+|(\.\d+)?(:\d+)+)$", re.ASCII)
#: Numbers of VLANs that 802.1Q leaves to users.
FIRST_VLAN: Final = 1
LAST_VLAN: Final = 4094
#: Name of a routing table, a switch or an interface.
_TABLE: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}", re.ASCII)


def check_nic(given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return given parameters with the VLAN in its stored form.

    Args:
        given: some of mode, link and vlan; other keys are ignored.
        what: the object in errors.

    Raises:
        OpPrereqError: an unknown mode, a link that is no name, or a malformed VLAN.
    """
    mode = given.get("mode", _NIC_MODE_BRIDGED)
    if mode not in MODES:
        raise errors.OpPrereqError(
            f"{what}: wanted mode {', '.join(MODES[:-1])} or {MODES[-1]}, found"
            f" {mode!r}",
            ecodes.ECODE_INVAL,
        )
    link = str(given.get("link") or "")
    if link and not _TABLE.fullmatch(link):
        raise errors.OpPrereqError(
            f"{what}: wanted as link a name of letters, digits and . _ -, found"
            f" {link!r:.100}",
            ecodes.ECODE_INVAL,
        )
    checked = dict(given)
    if vlan := given.get("vlan"):
        checked["vlan"] = stored_vlan(str(vlan), what)
    return checked


def stored_vlan(vlan: str, what: str) -> str:
    """Return a VLAN as it is stored: ``.N``, ``:A:B`` or ``.N:A:B``.

    Raises:
        OpPrereqError: it has another form, or a number is not of a VLAN.
    """
    if not _VLAN.fullmatch(vlan):
        raise errors.OpPrereqError(
            f"{what}: wanted vlan as number, .number or :trunk:trunk, found {vlan!r}",
            ecodes.ECODE_INVAL,
        )
    for number in re.findall(r"\d+", vlan):
        if not FIRST_VLAN <= (units.whole_number(number) or 0) <= LAST_VLAN:
            raise errors.OpPrereqError(
                f"{what}: wanted VLANs from {FIRST_VLAN} to {LAST_VLAN}, found"
                f" {number}",
                ecodes.ECODE_INVAL,
            )
    return f".{vlan}" if vlan.isdigit() else vlan


def connection(mode: str, link: str, vlan: str, what: str) -> dict[str, Any]:
    """Return the parameters of a network's connection to a group.

    Raises:
        OpPrereqError: an unknown mode, a malformed link or VLAN, or a VLAN in mode
            routed.
    """
    is_routed = mode == _NIC_MODE_ROUTED
    if not (_TABLE.fullmatch(link) if is_routed else ip.is_interface(link)):
        kind = "a routing table" if is_routed else "an interface, up to 15 characters"
        raise errors.OpPrereqError(
            f"{what}: wanted as link the name of {kind}, found {link!r}",
            ecodes.ECODE_INVAL,
        )
    checked = check_nic({"mode": mode, "link": link, "vlan": vlan}, what)
    if vlan and is_routed:
        raise errors.OpPrereqError(
            f"{what}: vlan {vlan} has no effect in mode routed", ecodes.ECODE_INVAL
        )
    return checked
