"""Values that the parameters of disk templates can have; pure.

The types are in `ganeti.base.constants.parameters.params`. What a single disk may ask
for is in `ganeti.operations.instance.disks.disk_specs`.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import disks, ecodes
from ganeti.base.constants.parameters import params
from ganeti.operations.parameters import typed_params

_CHOICES: Final = {
    "access": disks.DISK_VALID_ACCESS_MODES,
    "disk-barriers": tuple(
        "".join(letters) for letters in disks.DRBD_VALID_BARRIER_OPT
    ),
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
