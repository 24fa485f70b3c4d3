"""The client side of LUXI.

Every command imports this module, so it imports little itself; the codec is chosen when
the first answer arrives.
"""

import contextlib
import contextvars
import errno
import os
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, Protocol, Self

from ganeti.base import errors
from ganeti.base.constants import misc, versions
from ganeti.base.pathutils import Paths
from ganeti.protocols.luxi import framing

#: Connect, seconds.
_LUXI_DEF_CTMO: Final = 30

#: Number of retries of a request after a broken connection.
RETRIES: Final = 15
#: The n-th retry begins after n times this many seconds.
RETRY_STEP_S: Final = 5.0
#: Seconds between attempts to connect.
CONNECT_STEP_S: Final = 1.0
#: Seconds without a process of the daemon until a new client gives up: more than
#: systemd and ``daemon-util`` need from the end of a daemon to the next start.
ABSENT_S: Final = 10.0
#: Seconds until a client says for what it waits: for a listener, and for an answer.
NOTE_CONNECT_S: Final = 2.0
NOTE_ANSWER_S: Final = 5.0
_DAEMON: Final = "ganeti-masterd"
_CHUNK: Final = 1 << 18
#: Bytes of one part of an answer that is passed on at once.
_STREAM_CHUNK: Final = 1 << 16
#: The method whose answers are tables.
_QUERY: Final = "Query"
#: Answers of at least this size, in bytes, justify the import of the faster codec.
_LARGE: Final = 1 << 18
#: Methods that must not be repeated once sent, because they could be executed twice.
_NOT_REPEATABLE: Final = frozenset(
    {"SubmitJob", "SubmitManyJobs", "SubmitJobToDrainedQueue"}
)
#: Methods that wait as a rule; their callers say so themselves.
_WAITING: Final = frozenset({"WaitForEvents", "WaitForJobChange", "WaitForJobChanges"})
_RETRY_CONNECT: Final = frozenset(
    {errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN, errno.EWOULDBLOCK}
)
#: Who asks this process, for the audit log; empty in commands, where sudo names them.
ORIGIN: Final = contextvars.ContextVar[dict[str, str]]("origin", default={})  # noqa: B039


class Timer(Protocol):
    """The time functions of a client; the module ``time`` implements them."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


def daemon_of_node(paths: Paths) -> int | None:
    """Return the process id of a node's master daemon.

    Returns:
        0 if the daemon does not run, None if this node is not the master.
    """
    from ganeti.base.filesystem import pidfile

    pid = pidfile.live_pid(paths.pid_file(_DAEMON), _DAEMON)
    if pid is not None:
        return pid
    try:
        with open(paths.data("ssconf_master_node"), encoding="utf-8") as stream:
            master = stream.read().strip()
    except FileNotFoundError:
        return None
    except OSError:
        return 0
    own_names = {"", paths.hostname}
    return 0 if {master, master.split(".")[0]} & own_names else None


class Client:
    """One connection to the master daemon; not for use by two threads at once.

    The first call connects; a call after a broken connection connects again. While no
    process listens, a call tries again until the limit of the constructor; it ends
    earlier, after `ABSENT_S`, if all that time no process of the daemon exists and the
    client was not connected before; and at once if this node is not the master.

    Attributes:
        path: the socket.
        on_wait: called about once per second of a long wait with a text that names
            what is waited for.
    """

    def __init__(
        self,
        path: str,
        *,
        connect_timeout_s: float = _LUXI_DEF_CTMO,
        timeout_s: float = misc.LUXI_DEF_RWTO,
        retries: int = RETRIES,
        find_daemon: Callable[[], int | None] | None = None,
        on_warning: Callable[[str], None] = lambda _text: None,
        timer: Timer = time,
    ) -> None:
        """Prepare a connection.

        Args:
            path: socket of the master daemon.
            connect_timeout_s: how long to try to connect while no process listens.
            timeout_s: longest silence during the wait for an answer.
            retries: number of retries of a request after a broken connection.
            find_daemon: called while no process listens; see `daemon_of_node`. Without
                it the daemon is assumed to be starting.
            on_warning: called with the warning that an answer carries.
            timer: the time functions.
        """
        self._on_warning = on_warning
        self.path = path
        self._connect_timeout_s = connect_timeout_s
        self._timeout_s = timeout_s
        self._retries = retries
        self._find_daemon = find_daemon
        self._timer = timer
        self.on_wait: Callable[[str], None] = lambda _text: None
        self._was_connected = False
        self._socket: socket.socket | None = None

    def hurry(self, *, connect_s: float, answer_s: float) -> None:
        """Wait no longer than this for a listener and for answers, and try once."""
        self._connect_timeout_s, self._timeout_s = connect_s, answer_s
        self._retries = 0

    @classmethod
    def of_node(cls, paths: Paths, *, override: str = "", **options: Any) -> Self:
        """Return a client of the master daemon on this node.

        Args:
            paths: of the node.
            override: another socket: ``master``, ``query`` or a path.
            options: further arguments of the class.
        """

        def find_daemon() -> int | None:
            # The process behind another socket is not known.
            return daemon_of_node(paths) if override in named else 0

        named = {
            "": paths.query_socket,
            "query": paths.query_socket,
            "master": paths.master_socket,
        }
        path = named.get(override, override)
        return cls(path, find_daemon=find_daemon, **options)

    def call(
        self,
        method: str,
        args: Sequence[Any] = (),
        *,
        timeout_s: float | None = None,
    ) -> Any:
        """Call a method and return its result.

        Args:
            method: documented name.
            args: JSON values or records, in documented order.
            timeout_s: longest silence, the client's by default.

        Raises:
            GenericError: the daemon's error, also as a subclass.
            RequestError: the daemon did not understand the request.
            NoMasterError: no process listens on the socket.
            LuxiPermissionError: the caller has no access to the socket.
            LuxiTimeoutError: no answer in time.
            ConnectionClosedError: the connection broke, also in all retries.
        """
        request = _request(method, args)
        limit = self._timeout_s if timeout_s is None else timeout_s
        for attempt in range(1, self._retries + 2):
            sent = False
            try:
                with self._ended_by_errors(method, limit):
                    sock = self.connect()
                    sock.settimeout(limit)
                    sock.sendall(request)
                    sent = True
                    incoming = _Incoming(sock, method, limit, self.on_wait)
                    data = incoming.whole(bytearray())
                    return _result(data, self._on_warning, is_table=method == _QUERY)
            except errors.ConnectionClosedError:
                unsafe = sent and method in _NOT_REPEATABLE
                if unsafe or attempt > self._retries:
                    raise
                self._timer.sleep(RETRY_STEP_S * attempt)
        raise errors.ProgrammerError("unreachable")

    def stream(
        self, method: str, args: Sequence[Any] = (), *, timeout_s: float | None = None
    ) -> Generator[bytes, None, None]:
        """Call a method, and yield the JSON text of its result in parts.

        The call is made for the first part, and not repeated. The text is not examined.
        No other call may be made before the last part; a stream that is closed early
        closes the connection.

        Args:
            method: see `call`.
            args: see `call`.
            timeout_s: see `call`.

        Raises:
            GenericError: see `call`; before the first part, unless the connection
                breaks later.
        """
        limit = self._timeout_s if timeout_s is None else timeout_s
        is_complete = False
        try:
            with self._ended_by_errors(method, limit):
                sock = self.connect()
                sock.settimeout(limit)
                sock.sendall(_request(method, args))
                incoming = _Incoming(sock, method, limit, self.on_wait)
                yield from incoming.parts(self._on_warning)
                is_complete = True
        except errors.ProtocolError:
            raise
        except errors.GenericError:
            # An error of the daemon is a complete answer.
            is_complete = True
            raise
        finally:
            if not is_complete:
                self.close()

    @contextlib.contextmanager
    def _ended_by_errors(self, method: str, limit_s: float) -> Iterator[None]:
        """Close a connection that is of no more use, and raise what happened to it."""
        try:
            yield
        except TimeoutError as err:
            self.close()
            raise errors.LuxiTimeoutError(
                f"{method}: no answer within {limit_s:g} seconds{self._hung()}"
            ) from err
        except (OSError, errors.ConnectionClosedError) as err:
            self.close()
            raise errors.ConnectionClosedError(
                f"{method}: connection to {self.path} broke: {err}"
            ) from err
        except errors.RequestError:
            # The daemon closes the connection after a malformed request.
            self.close()
            raise
        except errors.ProtocolError as err:
            if type(err) is not errors.ProtocolError:
                raise
            # The next bytes of this connection are undefined.
            self.close()
            raise errors.ProtocolError(f"{method} at {self.path}: {err}") from err

    def is_stale(self) -> bool:
        """Return whether the daemon has closed the connection, between two calls."""
        if self._socket is None:
            return False
        try:
            self._socket.settimeout(0)
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        # Data that nobody asked for is no better than the end of the connection.
        return True

    def interrupt(self) -> None:
        """Make a call that another thread waits for fail as if the connection broke."""
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _hung(self) -> str:
        """Return which process gave no answer, if it is known."""
        pid = self._find_daemon() if self._find_daemon is not None else None
        if not pid:
            return ""
        return f": {_DAEMON} (process {pid}) runs, but seems to hang; see its log"

    def close(self) -> None:
        """Close the connection; the next call connects again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def connect(self) -> socket.socket:
        """Connect, unless connected, and return the socket.

        Raises:
            NoMasterError: no process listens on the socket.
            LuxiPermissionError: the caller has no access to the socket.
        """
        if self._socket is not None:
            return self._socket
        wait = _Wait(self._timer.monotonic(), self._connect_timeout_s)
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.settimeout(self._connect_timeout_s)
                with framing.reachable(self.path) as path:
                    sock.connect(path)
            except OSError as err:
                sock.close()
                self._judge(err, wait)
                self._timer.sleep(CONNECT_STEP_S)
                continue
            self._socket = sock
            self._was_connected = True
            return sock

    def _judge(self, err: OSError, wait: "_Wait") -> None:
        """Raise unless another attempt to connect makes sense."""
        if err.errno in {errno.EPERM, errno.EACCES}:
            raise errors.LuxiPermissionError(self.path) from err
        retries = isinstance(err, TimeoutError) or err.errno in _RETRY_CONNECT
        # A daemon that ended because another node took over leaves its sockets behind.
        is_absent = err.errno in {errno.ENOENT, errno.ECONNREFUSED}
        find = self._find_daemon
        pid = find() if is_absent and find is not None else -1
        now = self._timer.monotonic()
        if pid != 0:
            wait.seen = now
        is_gone = not self._was_connected and now - wait.seen >= ABSENT_S
        if not retries or pid is None or is_gone or now >= wait.start + wait.limit_s:
            raise errors.NoMasterError(self.path) from err
        if now - wait.start >= NOTE_CONNECT_S:
            self.on_wait(_note(pid, self.path, now - wait.start))


class _Incoming:
    """An answer on its way, to one call.

    It owns the wait for the next bytes; the socket belongs to the `Client`, which
    closes it after an error.
    """

    def __init__(
        self,
        sock: socket.socket,
        method: str,
        limit_s: float,
        on_wait: Callable[[str], None],
    ) -> None:
        """Prepare to receive.

        Args:
            sock: the request was sent there.
            method: of the call.
            limit_s: longest silence.
            on_wait: as of the `Client`.
        """
        self._sock = sock
        self._method = method
        self._limit_s = limit_s
        self._on_wait = on_wait
        self._is_noted = method not in _WAITING and limit_s > NOTE_ANSWER_S

    def whole(self, received: bytearray) -> bytearray:
        """Return a whole answer, given its first bytes, without its last one."""
        # Answers can be large, so avoid copies.
        chunk = memoryview(bytearray(_CHUNK))
        while True:
            count = self._receive(chunk)
            start = len(received)
            received += chunk[:count]
            end = received.find(framing.END, start)
            if end < 0:
                continue
            if end + len(framing.END) != len(received):
                raise errors.ProtocolError("the daemon sent more than one answer")
            del received[end:]
            return received

    def parts(self, on_warning: Callable[[str], None]) -> Iterator[bytes]:
        """Yield the text of a result as it arrives."""
        start, end = framing.RESULT_FOLLOWS, framing.RESULT_ENDS
        chunk = memoryview(bytearray(_STREAM_CHUNK))
        received = b""
        while len(received) < len(start) and not received.endswith(framing.END):
            received += chunk[: self._receive(chunk)]
        if not received.startswith(start):
            whole = bytearray(received)
            if not received.endswith(framing.END):
                whole = self.whole(whole)
            _result(whole.removesuffix(framing.END), on_warning)
            raise errors.ProtocolError("wanted the answer to begin with its success")
        received = received[len(start) :]
        while True:
            place = received.find(framing.END)
            if place >= 0:
                break
            # The last byte may belong to the end of the answer.
            if len(received) > 1:
                yield received[:-1]
            received = received[-1:] + chunk[: self._receive(chunk)]
        if place != len(received) - 1 or not received.endswith(end):
            raise errors.ProtocolError("the end of the answer is malformed")
        if len(received) > len(end):
            yield received[: -len(end)]

    def _receive(self, chunk: memoryview) -> int:
        """Return the number of bytes received into a buffer, at least one."""
        count = self._wait(chunk) if self._is_noted else self._sock.recv_into(chunk)
        if not count:
            raise errors.ConnectionClosedError("closed by the daemon")
        return count

    def _wait(self, chunk: memoryview) -> int:
        """Receive into a buffer; note a long silence."""
        waited = 0.0
        step = NOTE_ANSWER_S
        while True:
            self._sock.settimeout(step)
            try:
                return self._sock.recv_into(chunk)
            except TimeoutError:
                waited += step
                if waited >= self._limit_s:
                    raise
            text = f"waiting for {_DAEMON} to answer {self._method}, {waited:.0f} s"
            self._on_wait(text)
            step = min(CONNECT_STEP_S, self._limit_s - waited)


class _Wait:
    """One wait for a listener.

    Attributes:
        start: time of the first attempt, as of the timer.
        limit_s: longest wait.
        seen: time when the daemon was last seen to run, or could not be looked for.
    """

    def __init__(self, start: float, limit_s: float) -> None:
        self.start = start
        self.limit_s = limit_s
        self.seen = start


def _note(pid: int, path: str, waited_s: float) -> str:
    """Return what a client waits for; pid 0: no process, negative: not known."""
    if not pid:
        what = f"{_DAEMON}, which does not run on this node"
    elif pid > 0:
        what = f"{_DAEMON} (process {pid}), which does not listen"
    else:
        what = f"a daemon at {path}"
    return f"waiting for {what}, {waited_s:.0f} s"


def _request(method: str, args: Sequence[Any]) -> bytes:
    request: dict[str, Any] = {
        framing.KEY_METHOD: method,
        framing.KEY_ARGS: list(args),
        framing.KEY_VERSION: versions.LUXI_VERSION,
    }
    sudo_user = os.environ.get("SUDO_USER")
    origin = ORIGIN.get() or ({"sudo_user": sudo_user} if sudo_user else None)
    if origin:
        request[framing.KEY_ORIGIN] = origin
    return _encode(request)


def _encode(request: dict[str, Any]) -> bytes:
    if "msgspec" in sys.modules:
        import msgspec

        return msgspec.json.encode(request) + b"\n" + framing.END
    import json

    return json.dumps(request).encode() + b"\n" + framing.END


def _decode(data: bytearray) -> Any:
    if len(data) >= _LARGE or "msgspec" in sys.modules:
        import msgspec

        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            return msgspec.json.decode(data)
    import json

    try:
        return json.loads(data)
    except ValueError as err:
        raise errors.ProtocolError(f"the answer is not JSON: {err}") from err
    except RecursionError as err:
        raise errors.ProtocolError("the answer is nested too deeply") from err


def _decode_table(data: bytearray) -> Any:
    from ganeti.protocols.luxi import tables

    answer = tables.decode(data)
    return _decode(data) if answer is None else answer


def _result(
    data: bytearray, on_warning: Callable[[str], None], *, is_table: bool = False
) -> Any:
    """Return the result that an answer carries, or raise its error."""
    is_large = is_table and len(data) >= _LARGE
    return result_of(_decode_table(data) if is_large else _decode(data), on_warning)


def result_of(answer: Any, on_warning: Callable[[str], None]) -> Any:
    """Return the result in a decoded answer, or raise its error.

    Raises:
        GenericError: the daemon's error, also as a subclass.
        ProtocolError: the value is no answer, or one to a request that was not
            understood.
    """
    if not isinstance(answer, dict) or framing.KEY_SUCCESS not in answer:
        raise errors.ProtocolError(f"wanted an answer, found {str(answer)[:200]!r}")
    version = answer.get(framing.KEY_VERSION)
    if version not in {None, versions.LUXI_VERSION}:
        raise errors.LuxiError(
            f"the daemon speaks version {version}, wanted {versions.LUXI_VERSION}"
        )
    warning = answer.get(framing.KEY_WARNING)
    if isinstance(warning, str) and warning:
        on_warning(warning)
    result = answer.get(framing.KEY_RESULT)
    if answer[framing.KEY_SUCCESS]:
        return result
    known = errors.decode(result)
    raise known if known is not None else errors.RequestError(result)
