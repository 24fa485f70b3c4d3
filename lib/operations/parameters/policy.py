"""Changes of instance policies and disk parameters, at cluster and group level."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import disks, ecodes
from ganeti.base.constants.parameters import params
from ganeti.model import objects
from ganeti.operations.instance import checks
from ganeti.operations.parameters import device_params, typed_params

_RATIOS: Final = (params.IPOLICY_SPINDLE_RATIO, params.IPOLICY_VCPU_RATIO)


def _refuse(text: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(f"instance policy: {text}", ecodes.ECODE_INVAL)


def new_policy(
    old: Mapping[str, Any], given: Mapping[str, Any] | None, *, for_group: bool
) -> dict[str, Any]:
    """Return a policy with changes, checked.

    Args:
        old: the current policy; only overrides for a group.
        given: key -> new value; in a group `typed_params.DEFAULT` removes an override.
        for_group: a group has no standard values.

    Raises:
        OpPrereqError: unknown key, wrong type, or bounds that contradict.
    """
    out = dict(old)
    for key, value in (given or {}).items():
        if key not in params.IPOLICY_ALL_KEYS:
            known = ", ".join(params.IPOLICY_ALL_KEYS)
            raise _refuse(f"{key}: unknown; known are {known}")
        if for_group and key == params.ISPECS_STD:
            raise _refuse("std: can only be set for the cluster")
        if value == typed_params.DEFAULT:
            if not for_group:
                raise _refuse(
                    f"{key}: 'default' is not possible for the cluster,"
                    " which has no level above it"
                )
            out.pop(key, None)
        else:
            if key == params.ISPECS_STD and isinstance(value, Mapping):
                value = {**old.get(key, {}), **value}  # noqa: PLW2901
            out[key] = _value(key, value)
    check_policy(out)
    return out


def _value(key: str, value: Any) -> Any:
    if key in _RATIOS:
        ratio = typed_params.coerce(value, "float", f"instance policy: {key}")
        if not 0 <= ratio < math.inf:
            raise _refuse(f"{key}: wanted a number from 0, found {value!r}")
        return ratio
    if key == params.IPOLICY_DTS:
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            raise _refuse(f"{key}: wanted at least one template, found {value!r}")
        if unknown := sorted(set(value) - set(disks.DISK_TEMPLATES)):
            raise _refuse(f"{key}: unknown templates {', '.join(unknown)}")
        return list(value)
    if key == params.ISPECS_STD:
        return _specs(value, "std")
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise _refuse(f"{key}: wanted at least one pair of bounds, found {value!r}")
    return [_bounds(item) for item in value]


def _bounds(item: Any) -> dict[str, Any]:
    keys = sorted(params.ISPECS_MINMAX_KEYS)
    if not isinstance(item, Mapping) or sorted(item) != keys:
        raise _refuse(f"minmax: wanted {' and '.join(keys)}, found {item!r}")
    return {key: _specs(item[key], key) for key in keys}


def _specs(value: Any, what: str) -> dict[str, int]:
    names = params.ISPECS_PARAMETERS
    if not isinstance(value, Mapping) or sorted(value) != sorted(names):
        given = sorted(value) if isinstance(value, Mapping) else value
        raise _refuse(f"{what}: wanted {', '.join(names)}, found {given}")
    return {
        name: typed_params.coerce(
            value[name], _kind(name), f"instance policy: {what}/{name}"
        )
        for name in names
    }


def _kind(name: str) -> str:
    return "size" if name.endswith("-size") else "int"


def check_policy(policy: Mapping[str, Any]) -> None:
    """Check that bounds do not contradict each other or the standard values.

    Raises:
        OpPrereqError: they do; names the value.
    """
    for number, bounds in enumerate(policy.get(params.ISPECS_MINMAX, ())):
        for name in params.ISPECS_PARAMETERS:
            low, high = bounds["min"][name], bounds["max"][name]
            if low > high:
                raise _refuse(
                    f"{name}: minimum {low} is above maximum {high} (bounds {number})"
                )
    std = policy.get(params.ISPECS_STD)
    if std is None:
        return
    for name in params.ISPECS_PARAMETERS:
        if not any(
            bounds["min"][name] <= std[name] <= bounds["max"][name]
            for bounds in policy.get(params.ISPECS_MINMAX, ())
        ):
            raise _refuse(f"std/{name}: {std[name]} is not within any of the bounds")


# Disk parameters
def new_disk_parameters(
    old: Mapping[str, Mapping[str, Any]],
    given: Mapping[Any, Mapping[str, Any]] | None,
    *,
    inherited: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return disk parameters with changes: template -> values.

    Args:
        old: present ones.
        given: changes.
        inherited: of a group, those of the cluster.

    Raises:
        OpPrereqError: unknown template or name, or wrong value.
    """
    out = {template: dict(values) for template, values in old.items()}
    for template, values in (given or {}).items():
        what = f"disk parameter {template}"
        changes = device_params.typed(
            template, values, what, allow_default=inherited is not None
        )
        out[template] = typed_params.merge(out.get(template, {}), changes)
        below = (inherited or {}).get(template, {})
        device_params.check_stripes({**below, **out[template]}, what)
    return out


# Violations
def new_violations(
    before: objects.Snapshot, after: objects.Snapshot, instances: Sequence[str]
) -> list[str]:
    """Return the names of instances that fitted their group's policy and no longer do.

    Args:
        before: with the old policy.
        after: with the new policy.
        instances: uuids.
    """
    return sorted(
        before.instances[uuid].name
        for uuid in instances
        if _fits(before, uuid) and not _fits(after, uuid)
    )


def _fits(snapshot: objects.Snapshot, uuid: str) -> bool:
    instance = snapshot.instances[uuid]
    node = snapshot.nodes[instance.primary_node]
    return not checks.problems_of(snapshot, instance, node.group)
