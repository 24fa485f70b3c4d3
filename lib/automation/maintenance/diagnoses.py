"""Reports of nodes: asked over HTTP, and checked before anything is done about them.

These are the diagnosis, and the load of the CPUs.

The key of the signature is on every node, so a signature alone does not name the node
that signed. The poll goes to the address of a node in the configuration, with a random
challenge; the answer must contain both the name of that node and the challenge. So a
recorded answer, or that of another node, is refused. A node that holds the key and also
controls the network path to another node could still speak for it.
"""

import contextlib
import dataclasses
import hmac
import http.client
import logging
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base.clock import Clock
from ganeti.base.constants import misc
from ganeti.base.constants.protocols import confd
from ganeti.decisions.repair.incidents import Action
from ganeti.protocols.confd import wire

_log = logging.getLogger(__name__)

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
        place.address, place.port, timeout=misc.RPC_CONNECT_TIMEOUT
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


#: Why a node has no diagnosis that was asked for some time ago.
LATE: Final = "its agent has not answered yet; its command may hang"
#: Seconds until a poll goes on without an answer: a node without power is noticed by
#: then, so what is late has at least accepted the connection.
PROMPT_S: Final = misc.RPC_CONNECT_TIMEOUT + 1.0
#: Nodes that are asked at once, without those that are late.
_AT_ONCE: Final = 32
#: Seconds for which an answer is of use: a command that hangs takes 60.
_KEPT_S: Final = 90.0

#: Returns the answer of a node to a challenge, for a path; see `fetch`.
Fetch = Callable[[Place, str, str], bytes]


@dataclasses.dataclass
class _Question:
    """A question to a node.

    Attributes:
        place: of its agent.
        began: monotonic time.
        ended: monotonic time of the answer; None without one.
        answer: the diagnosis, or why there is none.
    """

    place: Place
    began: float
    ended: float | None = None
    answer: Diagnosis | str = LATE


class Poller:
    """Asks agents. For use by one thread."""

    def __init__(
        self,
        key: Callable[[], bytes],
        clock: Clock,
        path: str = PATH,
        *,
        fetch: Fetch = fetch,
        prompt_s: float = PROMPT_S,
    ) -> None:
        """Prepare.

        Args:
            key: returns the content of the key file.
            clock: times of answers.
            path: of the report.
            fetch: asks a node.
            prompt_s: seconds until a poll goes on without an answer.
        """
        self._key = key
        self._clock = clock
        self._path = path
        self._fetch = fetch
        self._prompt_s = prompt_s
        self._has_ended = threading.Condition()
        #: UUID of a node -> the question that its agent has not answered in time.
        self._late: dict[str, _Question] = {}
        #: UUID of a node -> its last question with an answer.
        self._last: dict[str, _Question] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether the last poll went on without an answer."""
        return bool(self._late)

    def poll(
        self, places: Mapping[str, Place]
    ) -> tuple[dict[str, Diagnosis], dict[str, str]]:
        """Return diagnoses, and why other nodes have none, by the keys of the places.

        While the answer of a node is late, its answer before counts for some time.

        Raises:
            GenericError, OSError: the key cannot be read.
        """
        key = self._key()
        with self._has_ended:
            asked = self._sorted_out(places)
            for uuid, place in places.items():
                if uuid not in asked:
                    self._wait(asked, _AT_ONCE - 1)
                    asked[uuid] = self._ask(place, key)
            new = {u: each for u, each in asked.items() if u not in self._late}
            self._wait(new, 0)
            return self._results(asked)

    def _sorted_out(self, places: Mapping[str, Place]) -> dict[str, _Question]:
        """Return the questions that need not be asked again; forget others."""
        for known in (self._late, self._last):
            for uuid, question in list(known.items()):
                if places.get(uuid) != question.place:
                    del known[uuid]
        self._late = {
            uuid: question
            for uuid, question in self._late.items()
            if question.ended is None or self._is_of_use(question)
        }
        return dict(self._late)

    def _is_of_use(self, question: _Question) -> bool:
        """Return whether an answer came recently."""
        now = self._clock.monotonic()
        return question.ended is not None and now - question.ended < _KEPT_S

    def _fresh(self, asked: Mapping[str, _Question]) -> list[_Question]:
        """Return the questions without an answer that are not late."""
        now = self._clock.monotonic()
        return [
            each
            for each in asked.values()
            if each.ended is None and now - each.began < self._prompt_s
        ]

    def _wait(self, asked: Mapping[str, _Question], most: int) -> None:
        """Wait until at most some questions have no answer and are not late."""
        while len(fresh := self._fresh(asked)) > most:
            first = min(each.began for each in fresh)
            left_s = first + self._prompt_s - self._clock.monotonic()
            self._has_ended.wait(max(0.0, left_s))

    def _ask(self, place: Place, key: bytes) -> _Question:
        """Ask in a thread of its own: one that is late takes the place of no other."""
        question = _Question(place, self._clock.monotonic())

        def work() -> None:
            answer = self._answer(place, key)
            with self._has_ended:
                question.answer = answer
                question.ended = self._clock.monotonic()
                self._has_ended.notify()

        threading.Thread(target=work, name=f"poll {place.name}", daemon=True).start()
        return question

    def _answer(self, place: Place, key: bytes) -> Diagnosis | str:
        challenge = secrets.token_hex(16)
        try:
            answer = self._fetch(place, challenge, self._path)
            return check(
                *(answer, key, place.name, challenge, self._clock.time()),
                path=self._path,
            )
        except RefusedError as err:
            return str(err)
        except Exception as err:  # noqa: BLE001 - logged, and the node is asked again
            # Without an answer, the node would stay late and not be asked again.
            _log.exception("node %s: its answer cannot be read", place.name)
            return f"its answer cannot be read: {type(err).__name__}"

    def _results(
        self, asked: Mapping[str, _Question]
    ) -> tuple[dict[str, Diagnosis], dict[str, str]]:
        self._late = {u: each for u, each in asked.items() if each.ended is None}
        ended = {u: each for u, each in asked.items() if each.ended is not None}
        self._last |= ended
        good: dict[str, Diagnosis] = {}
        problems: dict[str, str] = {}
        for uuid, question in asked.items():
            used = question
            if uuid in self._late and uuid in self._last:
                before = self._last[uuid]
                used = before if self._is_of_use(before) else question
            if isinstance(used.answer, Diagnosis):
                good[uuid] = used.answer
            else:
                problems[uuid] = used.answer
        return good, problems
