"""Cluster settings that are checked independently of each other.

All functions are pure: they take a request and the cluster record, and return the
fields to change.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors, pathutils
from ganeti.base.constants import ecodes, misc
from ganeti.base.constants.protocols import mond
from ganeti.base.net import ip
from ganeti.base.text import patterns
from ganeti.decisions.repair import duties, limits
from ganeti.master.iallocator import defaults
from ganeti.model import objects, opcodes
from ganeti.protocols.uidpool import check_overlaps

#: Taken unchanged: their types check everything.
_AS_GIVEN: Final = (
    "candidate_pool_size",
    "max_running_jobs",
    "max_tracked_jobs",
    "maintain_node_health",
    "node_death",
    "prealloc_wipe_disks",
    "rapi_require_authentication",
    "modify_etc_hosts",
    "enabled_user_shutdown",
    "use_external_mip_script",
    "default_iallocator_params",
)
_OCTET: Final = re.compile(r"^[0-9a-f]{2}$")
_TOOL: Final = re.compile(r"^[-_a-zA-Z0-9]+$")
#: A tool name that means "no compression" and cannot be switched off.
_NO_TOOL: Final = "none"
#: Of the kernel, in bytes.
_MAX_FILE_NAME: Final = 255


def refuse(text: str, ecode: str = ecodes.ECODE_INVAL) -> errors.OpPrereqError:
    """Return the error for a setting."""
    return errors.OpPrereqError(text, ecode)


def changes(
    op: opcodes.ClusterSetParams, cluster: objects.Cluster, paths: pathutils.Paths
) -> dict[str, Any]:
    """Return the fields of the cluster record to change.

    Raises:
        OpPrereqError: contains the setting, wanted and found.
    """
    out = {
        name: value for name in _AS_GIVEN if (value := getattr(op, name)) is not None
    }
    if op.mac_prefix is not None:
        out["mac_prefix"] = mac_prefix(op.mac_prefix)
    if op.master_netdev is not None:
        if not ip.is_interface(op.master_netdev):
            raise refuse(
                "master_netdev: wanted the name of an interface, found"
                f" {op.master_netdev!r:.100}"
            )
        out["master_netdev"] = op.master_netdev
    if op.master_netmask is not None:
        # Address family numbers of the C library: 2 is IPv4.
        longest = 32 if cluster.primary_ip_family == 2 else 128
        if not 1 <= op.master_netmask <= longest:
            raise refuse(
                f"master_netmask: wanted 1 to {longest}, found {op.master_netmask}"
            )
        out["master_netmask"] = op.master_netmask
    if op.diagnose_data_collector_filename is not None:
        out["diagnose_data_collector_filename"] = _diagnose_command(
            op.diagnose_data_collector_filename
        )
    out.update(_duties(op, cluster))
    out.update(_images(op))
    out.update(_collectors(op, cluster))
    out.update(_lists(op, cluster))
    if op.default_iallocator is not None:
        out["default_iallocator"] = defaults.checked(
            op.default_iallocator, paths.iallocator_search_path
        )
    if op.instance_communication_network is not None:
        out["instance_communication_network"] = _no_network(
            op.instance_communication_network
        )
    return out


def mac_prefix(text: str) -> str:
    """Return a MAC prefix of three octets in lower case.

    Raises:
        OpPrereqError: it is malformed, or a prefix of group addresses.
    """
    octets = text.lower().split(":")
    if len(octets) != 3 or not all(map(_OCTET.fullmatch, octets)):
        raise refuse(f"mac_prefix: wanted three octets such as aa:00:00, found {text}")
    if int(octets[0], 16) & 1:
        raise refuse(f"mac_prefix: {text} is a prefix of group addresses")
    return ":".join(octets)


def _images(op: opcodes.ClusterSetParams) -> dict[str, Any]:
    out = {}
    for name in ("install_image", "zeroing_image"):
        value = getattr(op, name)
        if value is None:
            continue
        is_url = "://" in value
        if value and not is_url and not os.path.isabs(value):
            raise refuse(f"{name}: wanted an absolute path or a URL, found {value!r}")
        out[name] = value
    return out


def _collectors(
    op: opcodes.ClusterSetParams, cluster: objects.Cluster
) -> dict[str, Any]:
    active = op.enabled_data_collectors or {}
    interval = op.data_collector_interval or {}
    # Clients of Ganeti 3 send empty dictionaries with every other change.
    if not active and not interval:
        return {}
    known = {
        *mond.DATA_COLLECTOR_NAMES,
        *mond.FURTHER_COLLECTOR_NAMES,
        *cluster.data_collectors,
    }
    if unknown := sorted((set(active) | set(interval)) - known):
        raise refuse(
            f"data collectors {', '.join(unknown)}: unknown; known are"
            f" {', '.join(sorted(known))}"
        )
    for name, micros in interval.items():
        if micros <= 0:
            raise refuse(
                f"data collector {name}: wanted an interval above 0, found {micros}"
            )
    default = {
        "active": True,
        "interval": mond.MOND_TIME_INTERVAL * 1_000_000,
    }
    return {
        "data_collectors": {
            name: {
                **default,
                **cluster.data_collectors.get(name, {}),
                **({"active": active[name]} if name in active else {}),
                **({"interval": interval[name]} if name in interval else {}),
            }
            for name in sorted(
                {*mond.DATA_COLLECTOR_NAMES, *cluster.data_collectors}
                | {*active, *interval}
            )
        }
    }


def _duties(op: opcodes.ClusterSetParams, cluster: objects.Cluster) -> dict[str, Any]:
    """Return the changed settings of the maintenance daemon."""
    given = {
        name: value
        for name in duties.SETTINGS
        if (value := getattr(op, name)) is not None
    }
    if not given:
        return {}
    if text := duties.problem(given):
        raise refuse(text)
    return {"maintenance": duties.changed(cluster.maintenance, given)}


def _diagnose_command(name: str) -> str:
    """Return the name of a diagnose command; each node decides whether it allows it."""
    is_path = "/" in name or "\0" in name or name in (".", "..")
    if is_path or len(name) > _MAX_FILE_NAME or name != name.strip():
        raise refuse(
            "diagnose_data_collector_filename: wanted the name of a file in"
            f" /etc/ganeti/node-diagnose-commands, without directory; found {name!r}"
        )
    return name


def _no_network(name: str) -> str:
    if name:
        raise refuse(
            f"instance_communication_network {name}: instance communication is not"
            " offered by this release"
        )
    return name


def _limits(
    cluster: objects.Cluster, given: Mapping[str, float | None]
) -> dict[str, float]:
    """Return the limits of automatons after a change; None removes one."""
    changed: dict[str, float | None] = {**cluster.automation_limits, **given}
    for name, value in given.items():
        if text := limits.problem(name, value or 0.0):
            raise refuse(text)
    return {name: value for name, value in changed.items() if value is not None}


# Lists
def _lists(op: opcodes.ClusterSetParams, cluster: objects.Cluster) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if op.uid_pool is not None or op.add_uids or op.remove_uids:
        out["uid_pool"] = uid_pool(
            cluster.uid_pool if op.uid_pool is None else op.uid_pool,
            add=op.add_uids or (),
            remove=op.remove_uids or (),
        )
        check_overlaps(out["uid_pool"], cluster.uid_pool)
    if op.reserved_lvs is not None:
        for text in op.reserved_lvs:
            _check_expression(text)
        out["reserved_lvs"] = tuple(op.reserved_lvs)
    for name in ("commit_policy", "confd_detect_replays", "confd_hmac"):
        if (value := getattr(op, name)) is not None:
            out[name] = value
    if op.automation_limits is not None:
        out["automation_limits"] = _limits(cluster, op.automation_limits)
    if op.compression_tools is not None:
        wrong = [name for name in op.compression_tools if not _TOOL.fullmatch(name)]
        if wrong or _NO_TOOL in op.compression_tools:
            raise refuse(
                "compression_tools: wanted names of letters, digits, - and _ other"
                f" than {_NO_TOOL}, found {', '.join(op.compression_tools)}"
            )
        out["compression_tools"] = tuple(dict.fromkeys(op.compression_tools))
    for name, edits in (
        ("hidden_os", op.hidden_os),
        ("blacklisted_os", op.blacklisted_os),
    ):
        if edits is not None:
            out[name] = _edited(name, getattr(cluster, name), edits)
    return out


def uid_pool(
    pool: Iterable[Sequence[int]],
    *,
    add: Iterable[Sequence[int]],
    remove: Iterable[Sequence[int]],
) -> tuple[tuple[int, int], ...]:
    """Return a pool of uid ranges after changes, sorted; ranges are not merged.

    Raises:
        OpPrereqError: a range is malformed, or a range to remove is not an entry of the
            pool.
    """
    ranges = {_uid_range(item) for item in pool}
    ranges |= {_uid_range(item) for item in add}
    for item in remove:
        if _uid_range(item) not in ranges:
            raise refuse(f"uid pool: range {item[0]}-{item[1]} is not in the pool")
        ranges.discard(_uid_range(item))
    return tuple(sorted(ranges))


def _uid_range(item: Sequence[int]) -> tuple[int, int]:
    low, high = item
    lowest, highest = misc.UIDPOOL_UID_MIN, misc.UIDPOOL_UID_MAX
    if low > high:
        raise refuse(
            f"uid pool: wanted a range LOW-HIGH, found {low}-{high}, which is reversed"
        )
    if not lowest <= low <= high <= highest:
        raise refuse(
            f"uid pool: wanted a range within {lowest}-{highest}, found {low}-{high}"
        )
    return low, high


def _check_expression(text: str) -> None:
    try:
        patterns.compile_(text)
    except errors.ParseError as err:
        raise refuse(f"reserved_lvs: {err}") from err


def _edited(
    what: str, names: Sequence[str], edits: Iterable[tuple[str, str]]
) -> tuple[str, ...]:
    out = list(names)
    for action, name in edits:
        if action not in ("add", "remove"):
            raise refuse(f"{what}: wanted add or remove, found {action}")
        if action == "add" and name not in out:
            out.append(name)
        elif action == "remove" and name in out:
            out.remove(name)
    return tuple(out)
