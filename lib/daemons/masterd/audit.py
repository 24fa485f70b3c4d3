"""The audit log: every change of the cluster, who asked for it, and how it ended.

One thread writes. A full disk stops no job: lines wait in memory, and those beyond a
limit are counted in a later line. A line has no secrets; see `without_secrets`. What
jobs and calls say is passed on as it is: only the writing thread builds lines.
"""

import collections
import contextlib
import contextvars
import datetime as dt
import errno
import functools
import logging
import os
import pwd
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants.misc import REDACTED
from ganeti.base.filesystem import files
from ganeti.base.log import SYSLOG_SOCKET
from ganeti.base.net import netutils
from ganeti.base.text import audit_chain, control_chars
from ganeti.decisions.jobs.records import Job
from ganeti.operations.unit_table import UNITS
from ganeti.protocols.luxi.server import Call

_log = logging.getLogger(__name__)

#: Methods that change something without a job.
CHANGES: Final = frozenset(
    {
        "ArchiveJob",
        "AutoArchiveJobs",
        "CancelIncident",
        "CancelJob",
        "ChangeJobPriority",
        "DeleteFilter",
        "FreezeAutomation",
        "NoteUserChange",
        "OpenConsole",
        "OpenSession",
        "RemoveIncident",
        "ReplaceFilter",
        "RevokeSessions",
        "SetDrainFlag",
        "SetWatcherPause",
        "ThawAutomation",
    }
)
#: Changes that wait to be written.
_MAX_WAITING: Final = 50_000
#: Bytes of their jobs and arguments; a single change may have more.
_MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
#: Changes that are written at once.
_BATCH: Final = 500
#: Seconds until a failed write is tried again, and that the end of the daemon waits.
_RETRY_S: Final = 5.0
#: Seconds for which a change waits for others that are written with it.
_GATHER_S: Final = 0.1
_STOP_S: Final = 3.0
#: Bytes of the end of the log that are read at the start.
_END: Final = 2 * audit_chain.MAX_LINE
#: Longest text of an argument in characters.
_MAX_TEXT: Final = 1000
_MAX_NAME: Final = 200
_MAX_DEPTH: Final = 12
_CLAIMS: Final = ("user", "address", "request")
#: Longest datagram for syslog in bytes; facility authpriv, severity info.
_MAX_SYSLOG: Final = 7000
_SYSLOG_PREFIX: Final = b"<86>ganeti-audit: "
#: Seconds that a listener has for a line.
_SYSLOG_S: Final = 0.2
#: Names of values that are or may be secret, unless they name a file.
_SECRET: Final = re.compile(
    r"pass(w|phrase|$)|pwd?$|secret|private|token|credential|(^|[._-]|api)key$"
    r"|x509_key",
    re.IGNORECASE,
)
#: A URL in a text, from the end of its scheme.
_URL: Final = re.compile(r"[a-zA-Z]:/+\S+")
_PLACE: Final = re.compile(r"_(file|path)$", re.IGNORECASE)

#: Opcodes that only read.
_READING: Final = frozenset(name for name, unit in UNITS.items() if unit.READS_ONLY)

Fields = dict[str, Any]


class _Id(msgspec.Struct):
    """The part of an opcode that decides whether its job is recorded."""

    OP_ID: str = ""


_id_decoder: Final = msgspec.json.Decoder(_Id)


class Caller(NamedTuple):
    """The client of a call.

    Attributes:
        pid: process of the client, as the kernel knows it.
        uid: its user.
        claims: what the client says about who asks.
        is_remote: the client is the remote API, which has authenticated its user.
    """

    pid: int
    uid: int
    claims: Mapping[str, str]
    is_remote: bool

    @classmethod
    def of(cls, call: Call, *, is_remote: bool) -> "Caller":
        """Return the client of a call."""
        return cls(*call.connection.peer, call.origin or {}, is_remote)

    def fields(self) -> Fields:
        """Return the fields of a line; asks for the name of the user."""
        if self.is_remote:
            named = {name: self.claims.get(name, "")[:_MAX_NAME] for name in _CLAIMS}
            return {"via": "rapi", **named}
        user = _user_name(self.uid)
        who: Fields = {"via": "local", "uid": self.uid, "user": user, "pid": self.pid}
        if "sudo_user" in self.claims:
            who["claimed_sudo_user"] = self.claims["sudo_user"][:_MAX_NAME]
        return who


@functools.lru_cache(maxsize=64)
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


_caller: Final = contextvars.ContextVar[Caller | None]("caller", default=None)


@contextlib.contextmanager
def asked_by(caller: Caller) -> Iterator[None]:
    """Have what this thread submits recorded with a client."""
    reset = _caller.set(caller)
    try:
        yield
    finally:
        _caller.reset(reset)


def asking() -> str:
    """Return the user for whom this thread answers a call; empty without one."""
    caller = _caller.get()
    if caller is None:
        return ""
    fields = caller.fields()
    return str(fields["user"] or fields.get("uid", ""))


class Log:
    """The audit log of this master; thread-safe, and nothing here waits for the disk.

    An observer of the job queue, see `ganeti.master.jqueue.core.Observer`.
    """

    def __init__(
        self,
        path: str,
        head_path: str,
        clock: Clock,
        *,
        syslog: Callable[[bytes], None] | None = None,
    ) -> None:
        """Prepare; files are used when there is something to write.

        Args:
            path: of the log; it is opened for each write, so it may be rotated.
            head_path: file of the number and digest of the last line.
            clock: time of the lines.
            syslog: sends a line to syslog.
        """
        self._path = path
        self._head_path = head_path
        self._clock = clock
        own = Syslog()
        self._syslog = syslog or own.send
        self._close_syslog = own.close
        self._lock = threading.Lock()
        self._waiting: collections.deque[tuple[int, Callable[[], Fields]]]
        self._waiting = collections.deque()
        self._waiting_bytes = 0
        self._lost = 0
        self._wake = threading.Event()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        #: Number and digest of the last line; None until the files were read.
        self._head: tuple[int, str] | None = None
        #: Lines that are made, but not written yet.
        self._lines: list[bytes] = []
        self._has_failed = False

    # Changes that are recorded
    def started(self, master: str, term: str) -> None:
        """Record that this node is master now."""
        self._add(lambda: {"event": "start", "master": master, "term": term})

    def submitted(self, jobs: Sequence[Job]) -> Callable[[], None]:
        """Return a function that records that jobs are accepted."""
        caller = _caller.get()
        changing = [job for job in jobs if _changes(job)]

        def note() -> None:
            for job in changing:
                build = functools.partial(_submission, job, caller)
                self._add(build, _job_bytes(job))

        return note

    def ended(self, job: Job) -> None:
        """Record the end of a job."""
        if _changes(job):
            self._add(lambda: _end(job), _job_bytes(job))

    def called(self, caller: Caller, call: Call, outcome: Any) -> None:
        """Record a call of one of `CHANGES`.

        Args:
            caller: the client.
            call: the request.
            outcome: its result, or the error.
        """
        is_error = isinstance(outcome, BaseException)
        if call.method == "AutoArchiveJobs" and not is_error and not outcome[0]:
            return  # the watcher asks for it all the time
        method, args = call.method, call.args
        self._add(
            lambda: {
                "event": "call",
                "who": caller.fields(),
                "method": method,
                "args": without_secrets(args),
                "result": _result(outcome),
            },
            len(msgspec.json.encode(args)),
        )

    def _add(self, build: Callable[[], Fields], size: int = 0) -> None:
        """Let a line be made, of values that take this many bytes."""
        when = self._clock.time()
        with self._lock:
            is_large = self._waiting_bytes + size > _MAX_WAITING_BYTES
            if self._waiting and (is_large or len(self._waiting) >= _MAX_WAITING):
                self._lost += 1
                return
            self._waiting.append((size, lambda: {"time": _time(when), **build()}))
            self._waiting_bytes += size
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="audit", daemon=True
                )
                self._thread.start()
        self._wake.set()

    # The thread
    def stop(self) -> None:
        """Write what waits, for at most some seconds."""
        self._end.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)
        self._close_syslog()
        if left := len(self._waiting) + len(self._lines):
            _log.error("%s: %d changes were not recorded", self._path, left)

    def _run(self) -> None:
        while True:
            self._wake.clear()
            is_done = self._write_some()
            if self._end.is_set() and (not is_done or not self._waiting):
                return
            if not is_done:
                self._clock.wait(self._end, _RETRY_S)
            elif not self._waiting:
                self._clock.wait(self._wake, None)
                # Each write waits for the disk, as commits do: make them few.
                self._clock.wait(self._end, _GATHER_S)

    def _write_some(self) -> bool:
        """Write the next lines; return false if that has failed."""
        try:
            if self._head is None:
                self._head = self._read_head()
            if not self._lines:
                self._make_lines(self._head)
            if self._lines:
                self._append()
        except Exception as err:  # noqa: BLE001 - jobs go on whatever happens
            if not self._has_failed:
                _log.error("%s: changes are not recorded now: %s", self._path, err)
            self._has_failed = True
            return False
        if self._has_failed:
            _log.warning("%s: changes are recorded again", self._path)
        self._has_failed = False
        return True

    def _make_lines(self, head: tuple[int, str]) -> None:
        with self._lock:
            count = min(_BATCH, len(self._waiting))
            taken = [self._waiting.popleft() for _ in range(count)]
            self._waiting_bytes -= sum(size for size, _build in taken)
            lost, self._lost = self._lost, 0
        number, previous = head
        for _size, build in taken:
            try:
                fields = build()
            except Exception as err:  # noqa: BLE001 - of one line alone
                _log.exception("a change cannot be described")
                fields = {"event": "error", "result": type(err).__name__}
            if lost:
                fields["lost"], lost = lost, 0
            number += 1
            line = _line(number, fields, previous)
            previous = audit_chain.digest(line)
            self._lines.append(line)
            with contextlib.suppress(OSError):
                self._syslog(line)

    def _append(self) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o600)
        try:
            os.fchmod(fd, 0o600)
            size = os.fstat(fd).st_size
            data = b"".join(line + b"\n" for line in self._lines)
            if size and os.pread(fd, 1, size - 1) != b"\n":
                data = b"\n" + data  # after a line that somebody has edited
            try:
                _write(fd, data)
            except OSError:
                os.ftruncate(fd, size)
                raise
        finally:
            os.close(fd)
        number, _previous = self._head or (0, "")
        self._head = (number + len(self._lines), audit_chain.digest(self._lines[-1]))
        self._lines = []
        head = msgspec.json.encode(self._head)
        files.write_file(self._head_path, head, sync_name=False)

    def _recorded(self) -> tuple[int, str] | None:
        with contextlib.suppress(FileNotFoundError, ValueError):
            data = files.read_file(self._head_path, max_size=audit_chain.MAX_HEAD)
            return audit_chain.head_of(data)
        return None

    def _read_head(self) -> tuple[int, str]:
        """Return where the chain continues: at the end that was recorded.

        The log counts if it has more lines: a crash came before they were recorded.
        """
        recorded = self._recorded() or (0, audit_chain.NOTHING)
        try:
            end = files.read_end(self._path, _END)
        except FileNotFoundError:
            return recorded
        torn = len(end) - end.rfind(b"\n") - 1
        if torn:
            # A power failure came during a write, which was not recorded as done.
            _log.warning("%s: %d bytes of an unfinished line go", self._path, torn)
            os.truncate(self._path, os.stat(self._path).st_size - torn)
            end = end[:-torn]
        for line in reversed(end.split(b"\n")):
            record = audit_chain.parse(line)
            if record is not None:
                is_later = record["n"] > recorded[0]
                return (record["n"], audit_chain.digest(line)) if is_later else recorded
        return recorded


def _write(fd: int, data: bytes) -> None:
    if os.write(fd, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(fd)


class Syslog:
    """The way to syslog, which the journal of systemd takes, too; for one thread."""

    def __init__(self) -> None:
        self._sock: socket.socket | None = None

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def send(self, line: bytes) -> None:
        """Send a line, over a new connection if the listener was restarted.

        Raises:
            OSError: nothing listens, or the listener is slow.
        """
        datagram = _SYSLOG_PREFIX + line[:_MAX_SYSLOG]
        if self._sock is not None:
            try:
                self._sock.send(datagram)
            except OSError as err:
                self.close()
                if isinstance(err, TimeoutError):
                    raise
            else:
                return
        os.stat(SYSLOG_SOCKET)  # much cheaper than an attempt, if there is no listener
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            sock.settimeout(_SYSLOG_S)
            sock.connect(SYSLOG_SOCKET)
            sock.send(datagram)
        except OSError:
            sock.close()
            raise
        self._sock = sock


def without_secrets(value: Any, depth: int = 0) -> Any:
    """Return arguments with secret values replaced and long ones shortened."""
    # The texts come first: they are nearly all that a job has.
    if isinstance(value, str):
        if ":/" in value:
            value = _URL.sub(lambda url: netutils.shown_url(url[0]), value)
        return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}..."
    if isinstance(value, dict | list | tuple) and depth > _MAX_DEPTH:
        return "..."
    if isinstance(value, dict):
        return {
            str(key)[:_MAX_TEXT]: REDACTED
            if item and _is_secret(str(key))
            else without_secrets(item, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(item, depth + 1) for item in value]
    return value


def _is_secret(name: str) -> bool:
    """Return whether a value of this name is or may be secret."""
    return _is_known_secret(name) if len(name) <= _MAX_NAME else _matches(name)


def _matches(name: str) -> bool:
    return bool(_SECRET.search(name)) and not _PLACE.search(name)


#: The names are those of parameters, the same in all jobs.
_is_known_secret: Final = functools.lru_cache(maxsize=1024)(_matches)


def _changes(job: Job) -> bool:
    ids = (_id_decoder.decode(op.input).OP_ID for op in job.ops)
    return any(op_id not in _READING for op_id in ids)


def _job_bytes(job: Job) -> int:
    return sum(len(op.input) + len(op.result) for op in job.ops)


def _submission(job: Job, caller: Caller | None) -> Fields:
    # Without a client: jobs that other jobs and the daemon itself submit.
    who = {"via": "masterd"} if caller is None else caller.fields()
    ops = [without_secrets(_given(op.input_value())) for op in job.ops]
    return {"event": "submit", "job": job.id, "who": who, "ops": ops}


def _given(op: Fields) -> Fields:
    return {name: value for name, value in op.items() if value is not None}


def _end(job: Job) -> Fields:
    failed = (op.result_value() for op in job.ops if op.status.value == "error")
    why = [_text(errors.decode(value) or value) for value in failed]
    ops = [op.summary() for op in job.ops]
    fields = {"event": "end", "job": job.id, "ops": ops, "result": job.status.value}
    return {**fields, "error": why[0]} if why else fields


def _result(outcome: Any) -> str:
    """Return the result of a call: its error, or why nothing was changed."""
    if isinstance(outcome, BaseException):
        return _text(outcome)
    if isinstance(outcome, (tuple, list)) and outcome and outcome[0] is False:
        return _text(outcome[-1])
    return "nothing changed" if outcome is False else "success"


def _text(err: Any) -> str:
    if isinstance(err, errors.GenericError) and err.args:
        err = err.args[0]
    return control_chars.escape(str(err))[:_MAX_TEXT]


def _time(when: float) -> str:
    moment = dt.datetime.fromtimestamp(when, dt.UTC)
    return moment.isoformat(timespec="milliseconds")


def _line(number: int, fields: Fields, previous: str) -> bytes:
    """Return a line, without arguments that are too long for it."""
    line = msgspec.json.encode({"n": number, **fields, "prev": previous})
    if len(line) <= audit_chain.MAX_LINE:
        return line
    short: Fields = {**fields, "omitted": len(line)}
    if isinstance(short.get("ops"), list):
        short["ops"] = [_op_name(op) for op in _first(short["ops"])]
    short.pop("args", None)
    return msgspec.json.encode({"n": number, **short, "prev": previous})


def _first(values: Iterable[Any]) -> list[Any]:
    return list(values)[:100]


def _op_name(op: Any) -> str:
    return str(op.get("OP_ID") if isinstance(op, dict) else op)[:200]
