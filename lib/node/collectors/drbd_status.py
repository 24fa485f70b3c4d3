"""Status of DRBD 8 devices from /proc/drbd. Pure.

The format is that of DRBD 8.3 and 8.4; see drbd.conf(5) and the users' guide of DRBD.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from ganeti.node.collectors.reports import Code, Status, merged, with_status

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


def parse(text: str, instances: Mapping[int, str]) -> dict[str, Any]:
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
