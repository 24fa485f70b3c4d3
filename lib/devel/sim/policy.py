"""Other policies of automation, for the copy of a cluster in a simulation. Pure.

A policy is settings ``KEY=VALUE``. Settings of repairs replace the permissions in the
tags of the cluster, or of a group or an instance that the key names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.commands.cli.values import split_commas
from ganeti.decisions.repair import duties, limits
from ganeti.decisions.repair.tags import PREFIX, RepairKind
from ganeti.devel.sim.description import (
    ETCD,
    FILE,
    ClusterDescription,
    GroupDescription,
    InstanceDescription,
)
from ganeti.devel.sim.events import duration

NODE_DEATH: Final = "node-death"
FREEZE: Final = "freeze"
REPAIR: Final = "repair"
DIAGNOSE: Final = "diagnose"
STORE: Final = "store"
DIAGNOSE_INTERVAL: Final = "diagnose-interval"
#: Duties of the maintenance daemon, named as the options of ``gnt-cluster modify`` ->
#: name in requests.
_DUTIES: Final[Mapping[str, str]] = {
    "maintenance-interval": "maint_round_delay",
    "auto-balance-cluster": "maint_balance",
    "auto-balance-threshold": "maint_balance_threshold",
    "auto-balance-load": "maint_balance_load",
    "auto-balance-disk-moves": "maint_balance_disk_moves",
    "maintenance-repairs": "maint_repairs",
}
_INTERVAL: Final = "maintenance-interval"
_THRESHOLD: Final = "auto-balance-threshold"
_NONE: Final = "none"
_SUSPEND: Final = "suspend"
_REPAIRS: Final = (_NONE, *(kind.word for kind in RepairKind), _SUSPEND)
_PERMISSIONS: Final = frozenset(PREFIX + word for word in _REPAIRS)
_GROUP: Final = f"{REPAIR}:group:"
_INSTANCE: Final = f"{REPAIR}:instance:"
#: Forms of keys with the forms of their values, for messages and the manual page.
KEYS: Final[Mapping[str, str]] = {
    NODE_DEATH: "yes|no",
    limits.MOVED_SHARE: "PERCENT|none",
    limits.QUIET_TIME: "TIME|none",
    limits.FENCED_PER_HOUR: "COUNT|none",
    FREEZE: "REASON|no",
    REPAIR: "|".join(_REPAIRS),
    f"{_GROUP}NAME": "|".join(_REPAIRS),
    f"{_INSTANCE}NAME": "|".join(_REPAIRS),
    DIAGNOSE: "yes|no",
    DIAGNOSE_INTERVAL: "TIME",
    STORE: "file|etcd",
    **dict.fromkeys(_DUTIES, "yes|no"),
    _INTERVAL: "TIME",
    _THRESHOLD: "SCORE",
}
_PLAIN: Final = frozenset(key for key in KEYS if ":" not in key)


class Setting(NamedTuple):
    """A setting, and where it was given, for messages."""

    key: str
    value: str
    origin: str


class Difference(msgspec.Struct, frozen=True):
    """A setting of the copy that differs from the cluster."""

    key: str
    before: str
    after: str


def parse(text: str, origin: str = "--policy") -> list[Setting]:
    """Return the settings in ``KEY=VALUE,...``.

    Raises:
        OpPrereqError: one is malformed.
    """
    return [_setting(part, origin) for part in split_commas(text)]


def parse_file(text: str, path: str) -> list[Setting]:
    """Return the settings in a file: one in a line, ``#`` begins a comment.

    Raises:
        OpPrereqError: a line is malformed.
    """
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [
        _setting(line, f"{path}, line {number}")
        for number, line in enumerate(lines, 1)
        if line
    ]


def _setting(text: str, origin: str) -> Setting:
    key, equals, value = (part.strip() for part in text.partition("="))
    is_scoped = key.startswith((_GROUP, _INSTANCE)) and not key.endswith(":")
    if not equals or not (key in _PLAIN or is_scoped):
        wanted = ", ".join(f"{key}={form}" for key, form in KEYS.items())
        raise _refuse(origin, f"wanted one of {wanted}, found {text!r}")
    if not value:
        form = KEYS.get(key, KEYS[REPAIR])
        raise _refuse(origin, f"{key}: wanted {form}, found no value")
    return Setting(key, value, origin)


def _refuse(origin: str, text: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(f"{origin}: {text}", ecodes.ECODE_INVAL)


def apply(
    description: ClusterDescription,
    settings: Sequence[Setting],
    names: Mapping[str, Mapping[str, str]],
) -> ClusterDescription:
    """Return a description with other settings.

    Args:
        description: of the cluster.
        settings: to apply.
        names: kind -> name, first part or UUID of an object -> its name.

    Raises:
        OpPrereqError: a value is wrong, an object is unknown, or settings contradict
            each other.
    """
    known: dict[str, Setting] = {}
    for given in settings:
        setting = given._replace(key=_named(given.key, names))
        before = known.setdefault(setting.key, setting)
        if before.value != setting.value:
            raise _refuse(
                setting.origin,
                f"{setting.key} is {setting.value} here and {before.value} in"
                f" {before.origin}; wanted one value",
            )
    _check(known)
    for setting in known.values():
        if setting.key.startswith(_GROUP):
            description = _in_group(description, setting)
        elif setting.key.startswith(_INSTANCE):
            description = _in_instance(description, setting)
        else:
            description = msgspec.structs.replace(
                description, **_APPLIED[setting.key](description, setting)
            )
    return description


def _named(key: str, names: Mapping[str, Mapping[str, str]]) -> str:
    """Return a key with the whole name of its object."""
    for head, kind in ((_GROUP, "group"), (_INSTANCE, "instance")):
        if key.startswith(head):
            name = key.removeprefix(head)
            return head + names.get(kind, {}).get(name, name)
    return key


def _check(known: Mapping[str, Setting]) -> None:
    """Refuse settings of which one takes the effect of the other.

    Raises:
        OpPrereqError: there are such.
    """
    freeze, death = known.get(FREEZE), known.get(NODE_DEATH)
    if freeze and death and freeze.value != "no" and death.value == "yes":
        raise _refuse(
            death.origin,
            f"{NODE_DEATH}=yes contradicts {FREEZE}={freeze.value}: during a freeze"
            f" nothing is done; wanted one of them",
        )
    diagnose, interval = known.get(DIAGNOSE), known.get(DIAGNOSE_INTERVAL)
    if diagnose and interval and diagnose.value == "no":
        raise _refuse(
            interval.origin,
            f"{DIAGNOSE_INTERVAL} contradicts {DIAGNOSE}=no; wanted one of them",
        )


# Values
def _wrong(setting: Setting, wanted: str) -> errors.OpPrereqError:
    return _refuse(
        setting.origin, f"{setting.key}: wanted {wanted}, found {setting.value!r}"
    )


def _flag(setting: Setting) -> bool:
    if setting.value not in ("yes", "no"):
        raise _wrong(setting, "yes or no")
    return setting.value == "yes"


def _time(setting: Setting) -> float:
    try:
        return duration(setting.value)
    except errors.OpPrereqError as err:
        raise _wrong(setting, "a time such as 30s or 10m, at most 30d") from err


def _number(setting: Setting) -> float:
    if setting.key == limits.QUIET_TIME:
        return _time(setting)
    text = setting.value.removesuffix("%")
    is_count = setting.key == limits.FENCED_PER_HOUR
    if not (text.isdecimal() or (not is_count and _is_number(text))):
        raise _wrong(setting, "a number such as 2" if is_count else "percent or none")
    return float(text)


def _is_number(text: str) -> bool:
    whole, point, part = text.partition(".")
    return bool(point) and whole.isdecimal() and part.isdecimal()


def _limit(description: ClusterDescription, setting: Setting) -> Mapping[str, Any]:
    others = {k: v for k, v in description.limits.items() if k != setting.key}
    if setting.value == _NONE:
        return {"limits": others}
    value = _number(setting)
    if problem := limits.problem(setting.key, value):
        raise _refuse(setting.origin, problem)
    return {"limits": {**others, setting.key: value}}


def _freeze(_description: ClusterDescription, setting: Setting) -> Mapping[str, Any]:
    return {"freeze": "" if setting.value == "no" else setting.value}


def _interval(_description: ClusterDescription, setting: Setting) -> Mapping[str, Any]:
    seconds = _time(setting)
    if seconds < 1:
        raise _wrong(setting, "at least 1s")
    return {"diagnose_s": seconds}


def _duty(description: ClusterDescription, setting: Setting) -> Mapping[str, Any]:
    value: bool | int | float
    if setting.key == _INTERVAL:
        value = _whole_seconds(setting)
    elif setting.key == _THRESHOLD:
        if not (setting.value.isdecimal() or _is_number(setting.value)):
            raise _wrong(setting, "a score such as 0.1")
        value = float(setting.value)
    else:
        value = _flag(setting)
    given = {_DUTIES[setting.key]: value}
    if problem := duties.problem(given):
        name = _DUTIES[setting.key]
        raise _refuse(setting.origin, problem.replace(name, setting.key, 1))
    return {"maintenance": duties.changed(description.maintenance, given)}


def _whole_seconds(setting: Setting) -> int:
    seconds = _time(setting)
    if seconds != int(seconds):
        raise _wrong(setting, "whole seconds")
    return int(seconds)


def _store(setting: Setting) -> str:
    if setting.value not in (FILE, ETCD):
        raise _wrong(setting, f"{FILE} or {ETCD}")
    return setting.value


def _permitted(tags: Iterable[str], setting: Setting) -> tuple[str, ...]:
    """Return tags with another permission to repair."""
    if setting.value not in _REPAIRS:
        raise _wrong(setting, f"one of {', '.join(_REPAIRS)}")
    left = [tag for tag in tags if not _permits(tag)]
    new = [] if setting.value == _NONE else [PREFIX + setting.value]
    return tuple(sorted({*left, *new}))


def _permits(tag: str) -> bool:
    return tag in _PERMISSIONS or tag.startswith(f"{PREFIX}{_SUSPEND}:")


_APPLIED: Final[
    Mapping[str, Callable[[ClusterDescription, Setting], Mapping[str, Any]]]
] = {
    NODE_DEATH: lambda _description, setting: {"node_death": _flag(setting)},
    limits.MOVED_SHARE: _limit,
    limits.QUIET_TIME: _limit,
    limits.FENCED_PER_HOUR: _limit,
    FREEZE: _freeze,
    REPAIR: lambda description, setting: {
        "tags": _permitted(description.tags, setting)
    },
    DIAGNOSE: lambda _description, setting: {"diagnose": _flag(setting)},
    DIAGNOSE_INTERVAL: _interval,
    STORE: lambda _description, setting: {"store": _store(setting)},
    **dict.fromkeys(_DUTIES, _duty),
}


def _in_group(description: ClusterDescription, setting: Setting) -> ClusterDescription:
    name = setting.key.removeprefix(_GROUP)
    groups = {group.name: group for group in description.groups}
    for node in description.nodes:
        # A description has only those groups that have settings.
        groups.setdefault(node.group, GroupDescription(name=node.group))
    if name not in groups:
        raise _unknown(setting, name, "group with nodes", groups)
    tags = _permitted(groups[name].tags, setting)
    groups[name] = msgspec.structs.replace(groups[name], tags=tags)
    return msgspec.structs.replace(description, groups=tuple(groups.values()))


def _in_instance(
    description: ClusterDescription, setting: Setting
) -> ClusterDescription:
    name = setting.key.removeprefix(_INSTANCE)
    instances: dict[str, InstanceDescription] = {
        item.name: item for item in description.instances
    }
    if name not in instances:
        raise _unknown(setting, name, "instance", instances)
    tags = _permitted(instances[name].tags, setting)
    instances[name] = msgspec.structs.replace(instances[name], tags=tags)
    return msgspec.structs.replace(description, instances=tuple(instances.values()))


def _unknown(
    setting: Setting, name: str, kind: str, known: Iterable[str]
) -> errors.OpPrereqError:
    names = sorted(known)
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    text = (
        f"{setting.origin}: {name} is no {kind} of the cluster; wanted one of {shown}"
    )
    return errors.OpPrereqError(text, ecodes.ECODE_NOENT)


#: Names that a message lists.
_SHOWN: Final = 10


# Differences
def differences(
    before: ClusterDescription, after: ClusterDescription
) -> list[Difference]:
    """Return the settings that differ, for people."""
    old, new = dict(_shown(before)), dict(_shown(after))
    return [
        Difference(key, old.get(key, _NONE), new.get(key, _NONE))
        for key in dict.fromkeys((*old, *new))
        if old.get(key, _NONE) != new.get(key, _NONE)
    ]


def _shown(description: ClusterDescription) -> Iterable[tuple[str, str]]:
    yield NODE_DEATH, _word(description.node_death)
    for name in limits.NAMES:
        if name in description.limits:
            yield name, f"{description.limits[name]:g}"
    yield FREEZE, description.freeze or "no"
    yield REPAIR, _repairs(description.tags)
    yield from (
        (_GROUP + each.name, _repairs(each.tags)) for each in description.groups
    )
    yield from (
        (_INSTANCE + each.name, _repairs(each.tags)) for each in description.instances
    )
    yield DIAGNOSE, _word(description.diagnose)
    yield DIAGNOSE_INTERVAL, f"{description.diagnose_s:g}"
    yield STORE, description.store
    set_duties = duties.shown(description.maintenance)
    for key, name in _DUTIES.items():
        value = set_duties[name]
        yield key, _word(value) if isinstance(value, bool) else f"{value:g}"


def _word(is_set: bool) -> str:
    return "yes" if is_set else "no"


def _repairs(tags: Iterable[str]) -> str:
    words = sorted(tag.removeprefix(PREFIX) for tag in tags if _permits(tag))
    return ", ".join(words) or _NONE
