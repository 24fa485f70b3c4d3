"""Reports of collectors, their status and signature, and the diagnosis of a node.

Pure: times and keys are arguments.

The diagnosis is what the administrator's command printed. A node without a command, or
with one that cannot be used, is reported as in order: a mistake in a script must not
empty a node. ``details`` says what is wrong.
"""

import dataclasses
import enum
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from ganeti.base.constants.protocols.mond import Kind
from ganeti.node.collectors.metrics import Family
from ganeti.protocols.confd import wire

#: Version text of built-in collectors.
_BUILTIN_DATA_COLLECTOR_VERSION: Final = "B"

_NANOSECONDS: Final = 1_000_000_000
_encode: Final = msgspec.json.Encoder().encode


class Code(enum.IntEnum):
    """Code of a status, as on the wire."""

    OK = 0
    #: Bad, and being repaired without anybody's help.
    TEMPORARY = 1
    UNKNOWN = 2
    BAD = 4


@dataclasses.dataclass(frozen=True)
class Status:
    """State of what a collector looks at."""

    code: Code = Code.OK
    message: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the form on the wire."""
        return {"code": int(self.code), "message": self.message}


def merged(statuses: Iterable[Status]) -> Status:
    """Return the worst code, with all messages in lines."""
    every = list(statuses)
    return Status(
        max((item.code for item in every), default=Code.OK),
        "\n".join(item.message for item in every if item.message),
    )


def with_status(data: Any, status: Status) -> dict[str, Any]:
    """Add a status to data; data that is no object becomes the member ``data``."""
    members = dict(data) if isinstance(data, Mapping) else {"data": data}
    return members | {"status": status.as_dict()}


def report(
    name: str, category: str | None, kind: Kind, data: Any, now: float
) -> dict[str, Any]:
    """Return a report as it is sent.

    Args:
        name: of the collector.
        category: None for the default one.
        kind: of the collector.
        data: what it has collected: JSON types.
        now: time of the collection, seconds since 1970.
    """
    return {
        "name": name,
        "version": _BUILTIN_DATA_COLLECTOR_VERSION,
        "format_version": 1,
        "timestamp": int(now * _NANOSECONDS),
        "category": category,
        "kind": int(kind),
        "data": data,
    }


def sealed(
    report_: Mapping[str, Any], key: bytes, now: float, *, purpose: bytes = b""
) -> dict[str, str]:
    """Sign a report as a message of confd is signed.

    Args:
        report_: the report.
        key: the whole content of the key file.
        now: time of this machine, seconds since 1970.
        purpose: signed before them, so that the text is nothing else than a report.

    Returns:
        ``msg``, the report as text; ``salt``, the time; ``hmac`` over both.
    """
    text = _encode(report_)
    salt = str(int(now))
    digest = wire.signer(wire.MAGIC_SHA1, key)(purpose + salt.encode() + text)
    return {"msg": text.decode(), "salt": salt, "hmac": digest}


#: Longest text of a problem, in characters.
_MAX_TEXT: Final = 500
#: Depth of an object that is still read; incidents are compared and stored.
_MAX_DEPTH: Final = 30


class NodeHealth(enum.StrEnum):
    """Need of a node, as on the wire, from harmless to severe."""

    OK = "Ok"
    LIVE_REPAIR = "live-repair"
    EVACUATE = "evacuate"
    EVACUATE_FAILOVER = "evacuate-failover"


def metrics_of_health(data: Mapping[str, Any]) -> Iterator[Family]:
    """Return the metrics of a diagnosis."""
    status = data.get("status")
    yield Family(
        "ganeti_node_health",
        "what the diagnose command of the node wants: 1 for the present state",
        [((state.value,), int(status == state.value)) for state in NodeHealth],
        ("state",),
    )


class NoDiagnosis(dict[str, Any]):
    """The report of a node whose command cannot be used."""

    @property
    def problem(self) -> str:
        """Why it cannot be used."""
        return str(self["details"])


def in_order(details: str | None = None) -> dict[str, Any]:
    """Return the diagnosis of a node that needs nothing.

    Args:
        details: why there is no other one.
    """
    data: dict[str, Any] = {"status": NodeHealth.OK.value}
    if details is None:
        return data
    return NoDiagnosis(data, details=details[:_MAX_TEXT])


def parse_diagnosis(output: str) -> dict[str, Any]:
    """Return the object that a diagnose command has printed."""
    try:
        data = json.loads(output, parse_constant=_refuse_constant)
        # Half of a surrogate pair and a number without bounds can be read, not sent.
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as err:
        return in_order(f"the output of the diagnose command is not JSON: {err}")
    if not isinstance(data, dict):
        return in_order("the output of the diagnose command is not a JSON object")
    if _depth(data) > _MAX_DEPTH:
        return in_order(f"the output is nested more than {_MAX_DEPTH} deep")
    return data


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _depth(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_depth, parts), default=0)
