"""Block devices of this node: their counters, DRBD 8 devices, logical volumes. Pure.

The texts are ``/proc/diskstats``, ``/proc/drbd`` of DRBD 8.3 and 8.4, see drbd.conf(5)
and the users' guide of DRBD, and the JSON report of lvs(8).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ganeti.model import serializer
from ganeti.node.collectors.metrics import Family
from ganeti.node.collectors.reports import Code, Status, merged, with_status

#: Members in the order of the kernel's fields; newer kernels have more fields, see
#: Documentation/admin-guide/iostats.rst of the kernel.
_COUNTERS: Final = (
    *("readsNum", "mergedReads", "secRead", "timeRead", "writes", "mergedWrites"),
    *("secWritten", "timeWrite", "ios", "timeIO", "wIOmillis"),
)


def parse_counters(text: str) -> list[dict[str, Any]]:
    """Return the counters of each device.

    Raises:
        ValueError: a line has another form.
    """
    rows = []
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if len(words) < len(_COUNTERS) + 3:  # major, minor, name
            raise ValueError(f"line of {len(words)} words: {line[:80]!r}")
        counters = [int(word) for word in words[3 : len(_COUNTERS) + 3]]
        device = {"major": int(words[0]), "minor": int(words[1]), "name": words[2]}
        rows.append(device | dict(zip(_COUNTERS, counters, strict=True)))
    return rows


_SECTOR_BYTES: Final = 512
_MILLISECONDS: Final = 1000
#: Member of a disk's counters -> name, text, factor.
_DISK_COUNTERS: Final[dict[str, tuple[str, str, float]]] = {
    "readsNum": ("reads", "completed reads", 1),
    "writes": ("writes", "completed writes", 1),
    "secRead": ("read_bytes", "bytes read", _SECTOR_BYTES),
    "secWritten": ("written_bytes", "bytes written", _SECTOR_BYTES),
    "timeIO": ("io_seconds", "time with requests in progress", 1 / _MILLISECONDS),
}


def metrics_of_counters(data: list[Mapping[str, Any]]) -> Iterator[Family]:
    """Return the metrics of the counters of each device."""
    for member, (name, text, factor) in _DISK_COUNTERS.items():
        yield Family(
            f"ganeti_disk_{name}",
            f"block devices: {text}",
            [((row["name"],), row[member] * factor) for row in data],
            ("device",),
            is_counter=True,
        )


_VERSION: Final = re.compile(r"version: (\S+) \(api:([^/]+)/proto:([^)]+)\)")
_DEVICE: Final = re.compile(r"\s*(\d+): cs:(\S+)(.*)")
_ROLES: Final = re.compile(r"ro:([^/\s]+)/(\S+) ds:([^/\s]+)/(\S+)(?: (.))?(?: (\S+))?")
_PERFORMANCE: Final = re.compile(r"\b([a-z]{2,3}):(\S+)")
_PROGRESS: Final = re.compile(r"sync'ed:\s*([\d.]+)%\s*\((\d+)/(\d+)\)\s*([KM])?")
_FINISH: Final = re.compile(
    r"finish: (\d+):(\d\d):(\d\d) speed: ([\d,]+) \([\d,]+\)"
    r"(?: want: ([\d,]+))? (\w/sec|K/sec)"
)
#: Abbreviations of the kernel and our members, in the order of the answer.
_INDICATORS: Final = {
    "ns": "networkSend",
    "nr": "networkReceive",
    "dw": "diskWrite",
    "dr": "diskRead",
    "al": "activityLog",
    "bm": "bitMap",
    "lo": "localCount",
    "pe": "pending",
    "ua": "unacknowledged",
    "ap": "applicationPending",
    "ep": "epochs",
    "wo": "writeOrder",
    "oos": "outOfSync",
}
_UNITS: Final = {"K": "KiloByte", "M": "MegaByte", None: "KiloByte"}
_BAD: Final = frozenset({"StandAlone", "Disconnecting", "TearDown"})
_TEMPORARY: Final = frozenset(
    {
        *("Unconnected", "Timeout", "BrokenPipe", "NetworkFailure", "ProtocolError"),
        *("WFConnection", "WFReportParams"),
    }
)


def parse_drbd(text: str, instances: Mapping[int, str]) -> dict[str, Any]:
    """Return version, devices and status.

    Args:
        text: of /proc/drbd.
        instances: name of the instance of each minor.

    Raises:
        ValueError: the text has no version.
    """
    version = _VERSION.search(text)
    if version is None:
        raise ValueError("no version of DRBD")
    devices: list[dict[str, Any]] = []
    for line in text.splitlines():
        started = _DEVICE.fullmatch(line)
        if started:
            devices.append(_device(started, instances))
        elif devices:
            _add_details(devices[-1], line)
    status = merged(_status(device) for device in devices)
    names = ("version", "api", "proto")
    data = {
        "versionInfo": dict(zip(names, version.groups(), strict=True)),
        "deviceInfos": devices,
    }
    return with_status(data, status)


def _device(line: re.Match[str], instances: Mapping[int, str]) -> dict[str, Any]:
    minor, state = int(line[1]), line[2]
    device: dict[str, Any] = {"minor": minor, "connectionState": state}
    roles = _ROLES.search(line[3])
    if roles is None:
        return device
    return device | {
        "localRole": roles[1],
        "remoteRole": roles[2],
        "localState": roles[3],
        "remoteState": roles[4],
        # The kernel prints a space for the protocol of a device without a connection.
        "replicationProtocol": (roles[5] or "").strip(),
        "ioFlags": roles[6] or "",
        "perfIndicators": {},
        "instance": instances.get(minor),
    }


def _add_details(device: dict[str, Any], line: str) -> None:
    progress, finish = _PROGRESS.search(line), _FINISH.search(line)
    if progress:
        device["syncStatus"] = {
            "percentage": float(progress[1]),
            "progress": f"{progress[2]}/{progress[3]}",
            "progressUnit": _UNITS[progress[4]],
            "timeToFinish": None,
            "speed": None,
            "speedUnit": "KiloByte/Second",
            "want": None,
        }
    elif finish and "syncStatus" in device:
        device["syncStatus"] |= {
            "timeToFinish": f"{int(finish[1]):02}:{finish[2]}:{finish[3]}",
            "speed": _number(finish[4]),
            "want": _number(finish[5]) if finish[5] else None,
        }
    elif "perfIndicators" in device and not device["perfIndicators"]:
        written = dict(_PERFORMANCE.findall(line))
        device["perfIndicators"] = {
            member: value if name == "wo" else int(value)
            for name, member in _INDICATORS.items()
            if (value := written.get(name)) is not None
            and (name == "wo" or value.isdigit())
        }


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _status(device: Mapping[str, Any]) -> Status:
    state = device["connectionState"]
    if state in _BAD:
        code = Code.BAD
    elif state in _TEMPORARY:
        code = Code.TEMPORARY
    else:
        return Status()
    return Status(code, f"{device['minor']}: the connection is in state {state}")


_DRBD_GAUGES: Final = {
    "outOfSync": ("ganeti_drbd_out_of_sync_bytes", 1024),
    "pending": ("ganeti_drbd_pending_requests", 1),
}
#: Labels of the state of a DRBD device after its minor and instance, and their members.
_DRBD_STATES: Final = {
    "connection": "connectionState",
    "role": "localRole",
    "disk": "localState",
    "peer_disk": "remoteState",
}


def metrics_of_drbd(data: Mapping[str, Any]) -> Iterator[Family]:
    """Return the metrics of DRBD devices."""
    labels = ("minor", "instance")
    devices = [
        ((str(device["minor"]), device.get("instance") or ""), device)
        for device in data["deviceInfos"]
    ]
    yield Family(
        "ganeti_drbd_state",
        "state of DRBD devices; the value is always 1",
        [
            ((*key, *(device.get(name) or "" for name in _DRBD_STATES.values())), 1)
            for key, device in devices
        ],
        (*labels, *_DRBD_STATES),
    )
    for member, (name, factor) in _DRBD_GAUGES.items():
        values = (
            (key, device.get("perfIndicators", {}).get(member))
            for key, device in devices
        )
        samples = [(key, value * factor) for key, value in values if value is not None]
        yield Family(name, "of DRBD devices", samples, labels)
    yield Family(
        "ganeti_drbd_synced_ratio",
        "part of a running synchronization that is done",
        [
            (key, device["syncStatus"]["percentage"] / 100)
            for key, device in devices
            if "syncStatus" in device
        ],
        labels,
    )


#: Field of lvs -> member of the answer, and its type.
_LVS_FIELDS: Final[dict[str, tuple[str, type]]] = {
    "lv_uuid": ("uuid", str),
    "lv_name": ("name", str),
    "lv_attr": ("attr", str),
    "lv_major": ("major", int),
    "lv_minor": ("minor", int),
    "lv_kernel_major": ("kernel_major", int),
    "lv_kernel_minor": ("kernel_minor", int),
    "lv_size": ("size", int),
    "seg_count": ("seg_count", int),
    "lv_tags": ("tags", list),
    "lv_modules": ("modules", list),
    "vg_uuid": ("vg_uuid", str),
    "vg_name": ("vg_name", str),
    "segtype": ("segtype", str),
    "seg_start": ("seg_start", int),
    "seg_start_pe": ("seg_start_pe", int),
    "seg_size": ("seg_size", int),
    "seg_tags": ("seg_tags", list),
    "seg_pe_ranges": ("seg_pe_ranges", str),
    "devices": ("devices", str),
}
#: The command whose output `parse` reads; sizes are in bytes.
LVS: Final = (
    *("lvs", "--reportformat", "json", "--units", "b", "--nosuffix", "--segments"),
    *("-o", ",".join(_LVS_FIELDS)),
)


def parse_volumes(
    text: str, instances: Mapping[tuple[str, str], str]
) -> list[dict[str, Any]]:
    """Return one row per segment.

    Args:
        text: output of `COMMAND`.
        instances: name of the instance by volume group and volume.

    Raises:
        ParseError: the text is not JSON.
        ValueError: it has another form.
    """
    try:
        reports = serializer.load(text)["report"]
        rows = [row for part in reports for row in part.get("lv", part.get("seg", []))]
        return [
            {
                member: _value(row[field], kind)
                for field, (member, kind) in _LVS_FIELDS.items()
            }
            | {"instance": instances.get((row["vg_name"], row["lv_name"]))}
            for row in rows
        ]
    except (KeyError, TypeError, AttributeError) as err:
        raise ValueError(f"no report of lvs: {err!r}") from err


def _value(text: str, kind: type) -> Any:
    if kind is int:
        # Ranges without a value, such as the start in a thin volume, are empty.
        return int(text) if text else None
    if kind is list:
        return [part for part in text.split(",") if part]
    return text


def metrics_of_volumes(data: list[Mapping[str, Any]]) -> Iterator[Family]:
    """Return the metrics of logical volumes; one of several segments counts once."""
    sizes = {
        (row["vg_name"], row["name"], row["instance"] or ""): row["size"] or 0
        for row in data
    }
    yield Family(
        "ganeti_volume_size_bytes",
        "size of logical volumes",
        sizes.items(),
        ("vg", "volume", "instance"),
    )


def volumes_of(name: str, disks: Iterable[Any]) -> dict[tuple[str, str], str]:
    """Map the volumes of an instance's disks, and of their parts, to its name.

    Args:
        name: of the instance.
        disks: disks in the form of the configuration.
    """
    volumes = {}
    for disk in disks:
        if not isinstance(disk, Mapping):
            continue
        address = disk.get("logical_id")
        if disk.get("dev_type") == "plain" and isinstance(address, list):
            group, volume = (*map(str, address[:2]), "", "")[:2]
            volumes[group, volume] = name
        volumes |= volumes_of(name, disk.get("children") or ())
    return volumes
