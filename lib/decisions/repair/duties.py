"""Duties of the maintenance daemon besides incidents: settings of the cluster. Pure.

All of them are off until somebody switches them on. The record of the cluster has the
settings that differ from the defaults, under the names that Ganeti used.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

#: Seconds between two passes: fewest, most; and by default.
MIN_DELAY_S: Final = 1
MAX_DELAY_S: Final = 7 * 86400
DEFAULT_DELAY_S: Final = 300
#: Largest threshold; scores of clusters in good order are below 1.
MAX_THRESHOLD: Final = 1000.0
DEFAULT_THRESHOLD: Final = 0.1
#: At a score of so many thresholds every gain counts.
ANY_GAIN_FACTOR: Final = 10.0


class Duties(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The settings.

    Attributes:
        round_delay: least seconds between two passes over repairs and balance.
        balance: balance the node groups.
        balance_threshold: least gain in score of a move.
        balance_load: consider the present load of CPUs.
        balance_disk_moves: allow moves that copy disks.
        repairs: repair instances by their tags, instead of the watcher.
    """

    round_delay: int = DEFAULT_DELAY_S
    balance: bool = False
    balance_threshold: float = DEFAULT_THRESHOLD
    balance_load: bool = False
    balance_disk_moves: bool = False
    repairs: bool = False


#: Name of each setting in requests and in the information about the cluster -> its name
#: in the record.
SETTINGS: Final[Mapping[str, str]] = {
    "maint_round_delay": "roundDelay",
    "maint_balance": "balance",
    "maint_balance_threshold": "balanceThreshold",
    "maint_balance_load": "balanceLoad",
    "maint_balance_disk_moves": "balanceDiskMoves",
    "maint_repairs": "repairs",
}
_DEFAULTS: Final[Mapping[str, Any]] = msgspec.to_builtins(Duties())


def shown(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings by their names in requests, from those of the record."""
    return {name: stored.get(key, _DEFAULTS[key]) for name, key in SETTINGS.items()}


def read(info: Mapping[str, Any]) -> Duties:
    """Return the settings in the information about a cluster.

    A master daemon of an earlier release has none, so nothing is done.

    Raises:
        ValidationError: one is of another type.
    """
    known = {key: info[name] for name, key in SETTINGS.items() if name in info}
    return msgspec.convert(known, Duties)


def changed(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the record after a change, without defaults.

    Args:
        stored: settings of the record.
        given: new settings by their names in requests.
    """
    new = {**stored, **{SETTINGS[name]: value for name, value in given.items()}}
    return {key: value for key, value in new.items() if value != _DEFAULTS.get(key)}


def stored_problem(stored: Mapping[str, Any]) -> str:
    """Return why settings, by their names in the record, are not possible, or ""."""
    names = {key: name for name, key in SETTINGS.items()}
    if unknown := sorted(stored.keys() - names.keys()):
        return f"maintenance: wanted one of {', '.join(names)}, found {unknown[0]!r}"
    try:
        msgspec.convert(dict(stored), Duties)
    except msgspec.ValidationError as err:
        return f"maintenance: {err}"
    return problem({names[key]: value for key, value in stored.items()})


def problem(given: Mapping[str, Any]) -> str:
    """Return why settings, by their names in requests, cannot be set, or ""."""
    delay = given.get("maint_round_delay", DEFAULT_DELAY_S)
    if not MIN_DELAY_S <= delay <= MAX_DELAY_S:
        return (
            f"maint_round_delay: wanted {MIN_DELAY_S} to {MAX_DELAY_S} seconds, found"
            f" {delay}"
        )
    threshold = given.get("maint_balance_threshold", DEFAULT_THRESHOLD)
    # This comparison refuses what is not a number, too.
    if not 0 <= threshold <= MAX_THRESHOLD:
        return (
            f"maint_balance_threshold: wanted a gain of 0 to {MAX_THRESHOLD:g}, found"
            f" {threshold:g}"
        )
    return ""
