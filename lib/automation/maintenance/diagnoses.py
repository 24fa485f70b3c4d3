"""Reports of nodes: asked over HTTP, and checked before anything is done about them.

These are the diagnosis, and the load of the CPUs.

The key of the signature is on every node, so a signature alone does not name the node
that signed. The poll goes to the address of a node in the configuration, with a random
challenge; the answer must contain both the name of that node and the challenge. So a
recorded answer, or that of another node, is refused. A node that holds the key and also
controls the network path to another node could still speak for it.
"""

import contextlib
import hmac
import http.client
import socket
import threading
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base.constants import timeouts
from ganeti.base.constants.protocols import confd
from ganeti.decisions.repair.incidents import Action
from ganeti.protocols.confd import wire

PATH: Final = "/1/report/node/diagnose"
LOAD_PATH: Final = "/1/report/default/cpu-avg-load"
#: Of nodes whose guests are domains beside the system that the agent runs in.
XEN_LOAD_PATH: Final = "/1/report/default/xen-cpu-avg-load"
#: Bytes of an answer; the diagnosis itself has at most 16 KiB, and is quoted twice.
MAX_ANSWER: Final = 128 << 10
#: Depth of a diagnosis; the agent reads no deeper one, and the state is compared.
_MAX_DEPTH: Final = 32
#: Seconds for a whole answer: the command of the node may take 60.
_PATIENCE_S: Final = 75.0
_NANOSECONDS: Final = 1_000_000_000
#: Oldest collection that still counts, in seconds.
_MAX_AGE_S: Final = 900.0
#: Longest text of a problem, in characters.
_MAX_PROBLEM: Final = 500
#: More CPUs than any node has.
_MAX_LOAD: Final = 100_000
#: More domains than any node has.
_MAX_DOMAINS: Final = 10_000
#: Why a diagnosis does not count yet.
NOT_REPEATED: Final = "its command has not yet printed the same twice"


class RefusedError(Exception):
    """An answer that must not be used; the text says why."""


class Place(NamedTuple):
    """Where the agent of a node listens."""

    name: str
    address: str
    port: int


class _Signed(msgspec.Struct, forbid_unknown_fields=True):
    msg: str
    salt: str
    hmac: str


class _Report(msgspec.Struct):
    name: str
    timestamp: int
    node: str
    challenge: str
    data: dict[str, Any]
    problem: str = ""


class Diagnosis(NamedTuple):
    """The verified diagnosis of a node.

    Attributes:
        data: as the command of the node has printed it.
        timestamp: when the command ran: nanoseconds since 1970, by the node's clock.
        problem: why the command could not be used; then the data wants nothing.
    """

    data: dict[str, Any]
    timestamp: int
    problem: str = ""


_NOT_JSON: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


def check(
    answer: bytes,
    key: bytes,
    name: str,
    challenge: str,
    now: float,
    *,
    path: str = PATH,
) -> Diagnosis:
    """Return the diagnosis, or another report, in an answer.

    Args:
        answer: as received.
        key: the whole content of the key file.
        name: of the node that was asked.
        challenge: that it was sent.
        now: seconds since 1970.
        path: of the report that was asked for.

    Raises:
        RefusedError: the answer is forged, old, or of another node.
    """
    try:
        signed = msgspec.json.decode(answer, type=_Signed)
        text = confd.PURPOSE_REPORT + (signed.salt + signed.msg).encode()
    except _NOT_JSON as err:
        raise RefusedError("it is not a signed report") from err
    wanted = wire.signer(wire.MAGIC_SHA1, key)(text)
    claimed = signed.hmac.lower()
    if not claimed.isascii() or not hmac.compare_digest(claimed, wanted):
        raise RefusedError("its signature is wrong")
    if not (signed.salt.isascii() and signed.salt.isdigit() and len(signed.salt) < 16):
        raise RefusedError("its salt is not a time")
    limit_s = confd.CONFD_MAX_CLOCK_SKEW
    if abs(int(now) - int(signed.salt)) > limit_s:
        # Always the same text, or each round would be a new entry of the journal.
        raise RefusedError(f"it was signed over {limit_s} seconds away from our time")
    try:
        report = msgspec.json.decode(signed.msg.encode(), type=_Report)
    except _NOT_JSON as err:
        raise RefusedError("it does not answer the challenge") from err
    if not hmac.compare_digest(report.challenge.encode(), challenge.encode()):
        raise RefusedError("it answers another challenge: it was recorded")
    if report.node != name:
        raise RefusedError(f"it is of node {report.node!r:.80}")
    if report.name != path.rpartition("/")[2]:
        raise RefusedError("it is another report")
    # In integers: a float has no room for every number that a node may send.
    if abs(int(now) - report.timestamp // _NANOSECONDS) > _MAX_AGE_S:
        raise RefusedError("it was collected too long ago")
    if _is_deeper(report.data, _MAX_DEPTH):
        raise RefusedError(f"it is nested more than {_MAX_DEPTH} deep")
    return Diagnosis(report.data, report.timestamp, report.problem[:_MAX_PROBLEM])


class Steady:
    """Leaves out diagnoses that another run of the command may not repeat.

    A command that prints something else each time would otherwise have a node emptied
    by its first output. A new process waits for two runs again.
    """

    def __init__(self) -> None:
        #: UUID of a node -> its last diagnosis, from the run that printed it first.
        self._first: dict[str, Diagnosis] = {}
        #: UUIDs of nodes where a later run has printed the same.
        self._repeated: set[str] = set()

    def sift(
        self, diagnoses: Mapping[str, Diagnosis], problems: Mapping[str, str]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the data to be used, and why others, and those of problems, are not.

        Args:
            diagnoses: of the nodes that answered, by UUID.
            problems: why other nodes have none.
        """
        known = diagnoses.keys() | problems.keys()
        self._first = {u: v for u, v in self._first.items() if u in known}
        self._repeated &= self._first.keys()
        usable: dict[str, Any] = {}
        unused = dict(problems)
        for uuid, diagnosis in diagnoses.items():
            self._compare(uuid, diagnosis)
            wants_nothing = diagnosis.data.get("status") == Action.OK.value
            if wants_nothing or uuid in self._repeated:
                usable[uuid] = diagnosis.data
            else:
                unused[uuid] = NOT_REPEATED
            if diagnosis.problem:
                unused[uuid] = diagnosis.problem
        return usable, unused

    def _compare(self, uuid: str, diagnosis: Diagnosis) -> None:
        first = self._first.get(uuid)
        if first is None or first.data != diagnosis.data:
            self._first[uuid] = diagnosis
            self._repeated.discard(uuid)
        elif first.timestamp != diagnosis.timestamp:
            self._repeated.add(uuid)


def _is_deeper(value: Any, limit: int) -> bool:
    """Return whether a value is nested deeper than a limit."""
    if not isinstance(value, dict | list):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return limit == 0 or any(_is_deeper(part, limit - 1) for part in parts)


def fetch(place: Place, challenge: str, path: str = PATH) -> bytes:
    """Return the answer of a node's agent.

    Raises:
        RefusedError: there is none, or it is too long.
    """
    connection = http.client.HTTPConnection(
        place.address, place.port, timeout=timeouts.RPC_CONNECT_TIMEOUT
    )
    watch: threading.Timer | None = None
    try:
        connection.connect()
        # A node without power answers nothing; only its command may take long.
        connection.sock.settimeout(_PATIENCE_S)
        watch = threading.Timer(_PATIENCE_S, _shut, [connection.sock])
        watch.start()
        connection.request("GET", f"{path}?challenge={challenge}")
        response = connection.getresponse()
        if response.chunked:
            # One with a negative size would be read without a limit.
            raise RefusedError("it comes in chunks, wanted an answer with its length")
        answer = response.read(MAX_ANSWER + 1)
    except (OSError, http.client.HTTPException) as err:
        raise RefusedError(f"there is no answer: {err!r:.200}") from err
    finally:
        if watch is not None:
            watch.cancel()
        connection.close()
    if response.status != http.client.OK:
        raise RefusedError(f"its agent answers with status {response.status}")
    if len(answer) > MAX_ANSWER:
        raise RefusedError(f"it is longer than {MAX_ANSWER} bytes")
    return answer


def _shut(sock: socket.socket) -> None:
    """End an answer that comes byte by byte; the limit of a socket is for each part."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def load_of(data: Mapping[str, Any]) -> float | None:
    """Return the load of all CPUs in a report; None if it has none that is possible."""
    return _number(data.get("cpu_total"))


def domain_loads_of(data: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the load of each domain in a report; None if one is not possible."""
    if len(data) > _MAX_DOMAINS:
        return None
    loads = {name: _number(value) for name, value in data.items()}
    known = {name: value for name, value in loads.items() if value is not None}
    return known if len(known) == len(loads) else None


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    # This comparison refuses what is not a number, too.
    return float(value) if 0 <= value <= _MAX_LOAD else None
