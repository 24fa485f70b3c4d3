"""``import-export``: copy one disk's content from or to another node.

``export`` reads a file, a device or a script's output, compresses it and sends it;
``import`` does the reverse. The node daemon starts one process per disk and side and
reads its status file; SIGTERM ends the process.
"""

import argparse
import collections
import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any, Final, NoReturn

from ganeti.base import errors
from ganeti.base.constants.protocols import export
from ganeti.base.filesystem import pidfile
from ganeti.tools import channel as channels
from ganeti.tools import common
from ganeti.tools.channel import Channel, ChannelError, End

# Status file of an ``import-export`` program.
#
# The node daemon reads it. It is a JSON object, and every update replaces the file.

MIB: Final = 1024 * 1024
#: Seconds between two updates during the transfer.
INTERVAL_S: Final = 0.5
#: Seconds over which the throughput is averaged.
_WINDOW_S: Final = 30.0
#: Most lines of output that are kept.
_LINES: Final = 20


class TransferStatus:
    """The state of one transfer; thread-safe."""

    def __init__(self, path: str, expected_mib: int | None) -> None:
        self._path = path
        self._expected = expected_mib
        self._lock = threading.Lock()
        self._lines: collections.deque[str] = collections.deque(maxlen=_LINES)
        self._samples: collections.deque[tuple[float, int]] = collections.deque()
        self._bytes = 0
        self._written_at = 0.0
        self._fields: dict[str, Any] = {
            "listen_port": None,
            "connected": False,
            "exit_status": None,
            "error_message": None,
        }

    def update(self, **fields: Any) -> None:
        """Change fields and write the file."""
        with self._lock:
            self._fields |= fields
            self._write()

    def note(self, line: str) -> None:
        """Keep a line of output."""
        with self._lock:
            self._lines.append(line)

    def count(self, size: int) -> None:
        """Add to the transferred bytes; write the file every `INTERVAL_S` seconds."""
        with self._lock:
            self._bytes += size
            if time.monotonic() - self._written_at >= INTERVAL_S:
                self._write()

    def _progress(self, now: float) -> dict[str, Any]:
        self._samples.append((now, self._bytes))
        while len(self._samples) > 2 and now - self._samples[0][0] > _WINDOW_S:
            self._samples.popleft()
        since, before = self._samples[0]
        rate = (self._bytes - before) / MIB / (now - since) if now > since else None
        done = self._bytes / MIB
        percent = eta = None
        if self._expected:
            percent = min(100.0, 100.0 * done / self._expected)
            if rate:
                eta = max(0.0, self._expected - done) / rate
        return {
            "progress_mbytes": done,
            "progress_throughput": rate,
            "progress_percent": percent,
            "progress_eta": eta,
        }

    def _write(self) -> None:
        now = time.monotonic()
        self._written_at = now
        data = {
            **self._fields,
            **self._progress(now),
            "recent_output": list(self._lines),
            "mtime": time.time(),
        }
        temporary = f"{self._path}.new"
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(data, stream)
        os.replace(temporary, self._path)


NAME: Final = "import-export"
_CHUNK: Final = 1 << 20
_TOOL: Final = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]*")
#: Most bytes of a line of output; longer ones count as several.
_MAX_LINE: Final = 8192
_SHELL: Final = ("/bin/sh", "-c")
_RETRY_S: Final = 1.0


class TransferError(ChannelError):
    """Failure of a transfer; the text has the reason."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the program's options."""
    parser = common.parser(NAME, "Copies the content of a disk between nodes.")
    parser.add_argument("status_file")
    parser.add_argument("mode", choices=(export.IEM_IMPORT, export.IEM_EXPORT))
    for name in ("--key", "--cert", "--ca"):
        parser.add_argument(name, required=True, metavar="FILE")
    parser.add_argument(
        "--bind", metavar="ADDRESS", help="address on which an import listens"
    )
    family = parser.add_mutually_exclusive_group()
    family.add_argument("--ipv4", action="store_true", help="the default")
    family.add_argument("--ipv6", action="store_true")
    parser.add_argument(
        "--host", metavar="ADDRESS", help="address to which an export connects"
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--connect-retries", type=int, default=0)
    parser.add_argument("--connect-timeout", type=int, default=60, metavar="SECONDS")
    parser.add_argument("--compress", default=export.IEC_GZIP, metavar="TOOL")
    parser.add_argument("--expected-size", type=int, metavar="MIB")
    parser.add_argument("--magic", help="text with which an import's data must begin")
    parser.add_argument(
        "--cmd-prefix", metavar="SHELL", help="command that writes an export's data"
    )
    parser.add_argument(
        "--cmd-suffix", metavar="SHELL", help="command that reads an import's data"
    )
    parser.add_argument("--file", help="file or device instead of a command")
    parser.add_argument(
        "--pid-file",
        metavar="FILE",
        help="run in the background and write the process id to FILE",
    )
    return parser


def check(options: argparse.Namespace) -> None:
    """Refuse inconsistent options.

    Raises:
        TransferError: names the options.
    """
    is_import = options.mode == export.IEM_IMPORT
    command = options.cmd_suffix if is_import else options.cmd_prefix
    if bool(command) == bool(options.file):
        raise TransferError("wanted either --file or a command")
    if not is_import and not (options.host and options.port):
        raise TransferError("an export needs --host and --port")
    if options.magic is not None and not re.fullmatch(
        export.IE_MAGIC_RE, options.magic
    ):
        raise TransferError(
            f"--magic: wanted letters, digits, dashes and dots, found {options.magic!r}"
        )
    if not _TOOL.fullmatch(options.compress):
        raise TransferError(
            f"--compress: wanted the name of a program, found {options.compress!r}"
        )
    if options.compress != export.IEC_NONE:
        tool = options.compress
        _require_program(export.IEC_COMMANDS.get(tool, (tool,))[0])


def _require_program(name: str) -> None:
    """Refuse a compression tool that this node does not have, before any copy begins.

    Raises:
        TransferError: says who can mend it.
    """
    if shutil.which(name) is None:
        raise TransferError(
            f"compression tool {name}: not found on this node; install it here, or"
            " choose a tool that all nodes have"
        )


def _connected(
    address: tuple[str, int], end: End, retries: int, timeout_s: float
) -> Channel:
    """Return a connection to the peer; try again if it does not answer.

    Raises:
        TransferError: it never answers.
        ChannelError: another peer.
    """
    while True:
        try:
            return channels.connect(address, end, timeout_s)
        except OSError as err:
            if not retries:
                raise TransferError(
                    f"cannot connect to {address[0]}:{address[1]}: {err}"
                ) from err
        retries -= 1
        time.sleep(_RETRY_S)


class Transfer:
    """One transfer: child processes, the connection, and threads between them."""

    def __init__(self, options: argparse.Namespace, status: TransferStatus) -> None:
        self._options = options
        self._status = status
        self._children: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []
        self._streams: list[IO[bytes]] = []
        self._failures: list[BaseException] = []
        self._magic = f"{options.magic}\n".encode() if options.magic else b""

    def run(self) -> None:
        """Copy all data.

        Raises:
            TransferError: the data was not copied completely.
        """
        options = self._options
        channel = self._connect(self._end())
        try:
            self._status.update(connected=True)
            if options.mode == export.IEM_IMPORT:
                self._import(channel)
            else:
                self._export(channel)
        finally:
            channel.close()
            self._clear_up()

    def _end(self) -> End:
        options = self._options
        is_server = options.mode == export.IEM_IMPORT
        try:
            return channels.pinned(
                options.key, options.cert, options.ca, is_server=is_server
            )
        except (errors.GenericError, OSError, ValueError) as err:
            raise TransferError(
                f"{options.cert}, {options.ca}: not usable: {err}"
            ) from err

    def _connect(self, end: End) -> Channel:
        options = self._options
        timeout_s = float(options.connect_timeout)
        if not end.is_server:
            return _connected(
                (options.host, options.port), end, options.connect_retries, timeout_s
            )
        address = options.bind or ("::" if options.ipv6 else "0.0.0.0")
        try:
            listener = channels.listen(address, options.port)
        except OSError as err:
            raise TransferError(
                f"cannot listen on {address} port {options.port}: {err}"
            ) from err
        with listener:
            self._status.update(listen_port=listener.getsockname()[1])
            return channels.accept(
                listener,
                end,
                timeout_s,
                absence="the other side did not connect",
                note=self._status.note,
            )

    # Export
    def _export(self, channel: Channel) -> None:
        source, producer = self._source()
        if self._options.compress == export.IEC_NONE:
            with source:
                for data in self._count_bytes(source, self._magic):
                    channel.send(data)
        else:
            packer = self._child(self._compressor(), stdin=subprocess.PIPE)
            feeder = self._thread(lambda: self._feed(source, _pipe(packer.stdin)))
            for data in _pieces(_pipe(packer.stdout)):
                channel.send(data)
            feeder.join()
            self._require(packer)
        if producer is not None:
            self._require(producer)
        self._raise_failure()
        channel.finish(wait=True)

    def _source(self) -> tuple[IO[bytes], "subprocess.Popen[bytes] | None"]:
        options = self._options
        if options.file:
            return self._open("rb"), None
        child = self._child((*_SHELL, options.cmd_prefix))
        return _pipe(child.stdout), child

    def _open(self, mode: str) -> IO[bytes]:
        stream: IO[bytes] = open(self._options.file, mode, buffering=0)  # noqa: SIM115
        self._streams.append(stream)
        return stream

    def _feed(self, source: IO[bytes], sink: IO[bytes]) -> None:
        with source, sink:
            for data in self._count_bytes(source, self._magic):
                _write_all(sink, data)

    def _count_bytes(self, source: IO[bytes], first: bytes) -> Iterator[bytes]:
        if first:
            yield first
        for data in _pieces(source):
            self._status.count(len(data))
            yield data

    # Import
    def _import(self, channel: Channel) -> None:
        sink, consumer = self._sink()
        received = iter(lambda: channel.receive(_CHUNK), b"")
        if self._options.compress == export.IEC_NONE:
            self._store(received, sink)
        else:
            unpacker = self._child((*self._compressor(), "-d"), stdin=subprocess.PIPE)
            out = _pipe(unpacker.stdout)
            writer = self._thread(lambda: self._unpack(out, sink))
            with _pipe(unpacker.stdin) as into:
                self._feed_received(received, into)
            writer.join()
            self._raise_failure()
            self._require(unpacker)
        if consumer is not None:
            self._require(consumer)
        self._raise_failure()
        channel.finish(wait=False)

    def _unpack(self, out: IO[bytes], sink: IO[bytes]) -> None:
        # The pipe is closed on failure too, so that the child gets an error.
        with out:
            self._store(_pieces(out), sink)

    def _feed_received(self, received: Iterator[bytes], into: IO[bytes]) -> None:
        try:
            for data in received:
                _write_all(into, data)
        except BrokenPipeError as err:
            self._raise_failure()
            raise TransferError("the decompression ended early") from err

    def _sink(self) -> tuple[IO[bytes], "subprocess.Popen[bytes] | None"]:
        options = self._options
        if options.file:
            return self._open("r+b"), None
        child = self._child((*_SHELL, options.cmd_suffix), stdin=subprocess.PIPE)
        return _pipe(child.stdin), child

    def _store(self, pieces: Iterator[bytes], sink: IO[bytes]) -> None:
        """Check the magic, then write all data and sync it to the disk.

        A file that is a disk keeps its size; one that stores an export is empty before.
        """
        limit = self._size_of_disk(sink)
        written = 0
        with sink:
            for data in self._without_magic(pieces):
                written += len(data)
                if limit and written > limit:
                    raise TransferError(f"there is more data than {limit} bytes")
                self._status.count(len(data))
                _write_all(sink, data)
            if self._options.file:
                os.fsync(sink.fileno())

    def _size_of_disk(self, sink: IO[bytes]) -> int:
        """Return the bytes of a disk that is a file, 0 for other targets."""
        if not self._options.file:
            return 0
        state = os.fstat(sink.fileno())
        return state.st_size if stat.S_ISREG(state.st_mode) else 0

    def _without_magic(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        head = b""
        while len(head) < len(self._magic):
            data = next(pieces, b"")
            if not data:
                break
            head += data
        if not head.startswith(self._magic):
            raise TransferError("the data does not begin with the text of --magic")
        if len(head) > len(self._magic):
            yield head[len(self._magic) :]
        yield from pieces

    # Children and threads
    def _compressor(self) -> tuple[str, ...]:
        tool = self._options.compress
        return (*export.IEC_COMMANDS.get(tool, (tool,)), "-c")

    def _child(
        self, argv: tuple[str, ...], *, stdin: int = subprocess.DEVNULL
    ) -> "subprocess.Popen[bytes]":
        is_last = argv[:2] == _SHELL and self._options.mode == export.IEM_IMPORT
        try:
            child = subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=subprocess.DEVNULL if is_last else subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as err:
            raise TransferError(f"{argv[0]}: cannot be run: {err.strerror}") from err
        self._children.append(child)
        pipes = (child.stdin, child.stdout, child.stderr)
        self._streams += [pipe for pipe in pipes if pipe is not None]
        self._thread(lambda: self._listen(_pipe(child.stderr)))
        return child

    def _listen(self, stream: IO[bytes]) -> None:
        with stream:
            # A script may write without ever ending its line.
            for line in iter(lambda: stream.readline(_MAX_LINE), b""):
                self._status.note(line.decode(errors="replace").rstrip())

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except (TransferError, OSError, ValueError) as err:
                self._failures.append(err)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _raise_failure(self) -> None:
        for err in self._failures:
            raise TransferError(str(err)) from err

    def _require(self, child: "subprocess.Popen[bytes]") -> None:
        code = child.wait()
        if code:
            how = (
                f"exited with code {code}"
                if code > 0
                else f"was killed by signal {-code}"
            )
            raise TransferError(f"{child.args[0]!s} {how}")  # type: ignore[index]

    def _clear_up(self) -> None:
        for child in self._children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        for thread in self._threads:
            thread.join()
        for stream in self._streams:
            with contextlib.suppress(OSError):
                stream.close()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise TransferError("internal error: a child process has no pipe")
    return stream


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: stream.read(_CHUNK), b"")


def _write_all(sink: IO[bytes], data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[sink.write(rest) :]


def move(options: argparse.Namespace, status: TransferStatus) -> int:
    """Run a transfer, write its result to the status file, return the exit code."""

    def terminate(_number: int, _frame: Any) -> NoReturn:
        raise TransferError("terminated by a signal")

    signal.signal(signal.SIGTERM, terminate)
    try:
        Transfer(options, status).run()
    except (ChannelError, OSError) as err:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        status.note(f"{NAME}: {err}")
        status.update(exit_status=1, error_message=str(err))
        return 1
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    status.update(exit_status=0)
    return 0


def _into_background() -> None:
    """Continue as a daemon without a terminal; the calling process exits."""
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)


def main() -> int:
    """Run the tool."""
    options = build_parser().parse_args()
    try:
        check(options)
    except TransferError as err:
        sys.stderr.write(f"{NAME}: {err}\n")
        return 1
    os.umask(0o077)
    status = TransferStatus(options.status_file, options.expected_size)
    status.update()
    if not options.pid_file:
        return move(options, status)
    _into_background()
    with pidfile.PidFile(options.pid_file):
        return move(options, status)
