"""Recorded hypervisor and disk state, as administrators set it.

Such values replace data that a node cannot report itself.
"""

from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.parameters import hvparams
from ganeti.base.constants.parameters.forms import Param
from ganeti.operations.parameters import typed_params

_HV_STATE: Final = {
    "cpu_node": Param("int", 1, "CPUs that the node itself uses"),
    "cpu_total": Param("int", 1, "CPUs of the node"),
    "mem_hv": Param("int", 0, "MiB that the hypervisor uses"),
    "mem_node": Param("int", 0, "MiB that the node itself uses"),
    "mem_total": Param("int", 0, "MiB of the node"),
}
_DISK_STATE: Final = {
    "disk_overhead": Param("int", 0, "MiB of overhead"),
    "disk_reserved": Param("int", 0, "MiB kept free"),
    "disk_total": Param("int", 0, "MiB in all"),
}
#: Templates whose storage state may be recorded.
_DISK_STATE_TEMPLATES: Final = ("plain",)


def new_hv_state(
    old: Mapping[str, Any], given: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return recorded hypervisor state with changes: hypervisor -> values.

    Raises:
        OpPrereqError: unknown hypervisor or value, or wrong type.
    """
    out = dict(old)
    for name, values in (given or {}).items():
        if name not in hvparams.HYPER_TYPES:
            raise errors.OpPrereqError(
                f"hypervisor state: {name} is not a hypervisor; known are"
                f" {', '.join(hvparams.HYPER_TYPES)}",
                ecodes.ECODE_INVAL,
            )
        out[name] = _merged(out.get(name, {}), values, _HV_STATE, "hypervisor state")
    return out


def new_disk_state(
    old: Mapping[str, Any], given: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return recorded disk state with changes: template -> volume group -> values.

    Raises:
        OpPrereqError: unknown template or value, or wrong type.
    """
    out = dict(old)
    for template, groups in (given or {}).items():
        if template not in _DISK_STATE_TEMPLATES:
            raise errors.OpPrereqError(
                f"disk state: wanted one of {', '.join(_DISK_STATE_TEMPLATES)}, found"
                f" {template}",
                ecodes.ECODE_INVAL,
            )
        known = dict(out.get(template, {}))
        for group, values in _mapping(groups, "disk state").items():
            known[group] = _merged(
                known.get(group, {}), values, _DISK_STATE, "disk state"
            )
        out[template] = known
    return out


def _merged(
    old: Mapping[str, Any], given: Any, table: Mapping[str, Param], what: str
) -> dict[str, Any]:
    changes = typed_params.typed(_mapping(given, what), table, what, allow_default=True)
    defaults = {name: row.default for name, row in table.items()}
    return {**defaults, **typed_params.merge(old, changes)}


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise errors.OpPrereqError(
            f"{what}: wanted name=value pairs, found {value!r}", ecodes.ECODE_INVAL
        )
    return value
