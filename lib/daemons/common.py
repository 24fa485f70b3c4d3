"""Shared parts of the daemons' ``main``: options, start, readiness, signals, end.

`run` controls the life cycle of a daemon. With ``-f`` the daemon stays in the
foreground. Otherwise the command returns when the daemon serves, or with the error text
and exit code of a failed start. Code of a single daemon does not belong here.
"""

import argparse
import contextlib
import dataclasses
import logging
import os
import queue
import resource
import signal
import socket
import struct
import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, Protocol

from ganeti.base import daemon_users, errors, log
from ganeti.base.constants import daemons, exitcodes, versions
from ganeti.base.filesystem import pidfile
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths, from_environ
from ganeti.base.text import arguments
from ganeti.protocols import ssconf

_log = logging.getLogger(__name__)

#: Limit of open files and connections, unless the administrator allows fewer.
_MAX_FILES: Final = 65536
#: States of a daemon in its state file, after its pid; ``daemon-util`` reads them.
_STARTING: Final = "starting"
_SERVING: Final = "serving"
_STOPPING: Final = "stopping"
#: Bytes read from the pipe of wake-ups at once.
_WAKE_BYTES: Final = 512
#: Format of the child's report: exit code and length of the error text.
_REPORT: Final = struct.Struct("!iI")


class StartError(Exception):
    """Failed start of a daemon; has the exit code and the text for stderr."""

    def __init__(self, text: str, code: int = exitcodes.EXIT_FAILURE) -> None:
        super().__init__(text)
        self.code = code


class Service(Protocol):
    """The service of a daemon that is ready."""

    def stop(self) -> None:
        """Accept no new requests, finish the current ones, release all resources."""


class Control:
    """Event queue of a daemon, with which a service can end it.

    The kernel may deliver a signal to any thread, for example a second one that follows
    closely, and Python runs its handler in the main thread once that wakes. So whoever
    waits here reads a pipe, which `signal.set_wakeup_fd` writes to in any thread.
    """

    def __init__(self) -> None:
        # put() of SimpleQueue is reentrant, so signal handlers may call it.
        self._events: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self._wake, self.wakeup_fd = os.pipe()
        os.set_blocking(self.wakeup_fd, False)

    def ask_stop(self, code: int = exitcodes.EXIT_SUCCESS) -> None:
        """Make the daemon stop and exit with this code."""
        self._put("stop", code)

    def ask_end(self, code: int) -> None:
        """Make the daemon exit with this code at once, whatever it is doing."""
        self._put("end", code)

    def ask_reopen(self) -> None:
        """Make the daemon reopen its log file."""
        self._put("reopen", 0)

    def take_signal(self, number: int) -> None:
        """Make the daemon stop because of a signal."""
        self._put("signal", number)

    def next_event(self) -> tuple[str, int]:
        """Wait for an event: its name, and an exit code or the number of a signal.

        Names: ``stop``, ``end``, ``signal``, ``reopen``.
        """
        while True:
            with contextlib.suppress(queue.Empty):
                return self._events.get_nowait()
            os.read(self._wake, _WAKE_BYTES)

    def _put(self, event: str, code: int) -> None:
        self._events.put((event, code))
        # A full pipe wakes the reader as well.
        with contextlib.suppress(BlockingIOError):
            os.write(self.wakeup_fd, b"\0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Daemon:
    """Description of a daemon for `run`.

    Attributes:
        name: name in the table of daemons.
        check: runs before anything is changed; raises StartError.
        start: opens the effect interfaces and starts to serve; all sockets are bound
            when it returns. Raises StartError or a GenericError.
        console: log to /dev/console when the log file cannot be written.
        prepare: runs before the daemon changes to its own user; no thread exists yet.
    """

    name: str
    check: Callable[[], None]
    start: Callable[[Control], Service]
    console: bool = False
    prepare: Callable[[], None] = lambda: None


def parser(name: str, *, network: bool = False) -> argparse.ArgumentParser:
    """Return a parser of the options that all daemons have.

    Args:
        name: name of the daemon.
        network: include address, port and TLS options.
    """
    result = argparse.ArgumentParser(prog=name, formatter_class=arguments.Formatter)
    add = result.add_argument
    add("-f", "--foreground", action="store_true", help="stay attached")
    add("-d", "--debug", action="store_true", help="log at debug level")
    add("--no-user-checks", action="store_true", help="run as any user")
    if daemon_users.name_of(name):
        add(
            "--allow-root",
            action="store_true",
            help="run as root if the daemon's own user cannot be had",
        )
    add("--syslog", choices=("no", "yes", "only"), default="no", help="log to syslog")
    version = f"{name} (ganeti) {versions.RELEASE_VERSION}"
    add("-V", "--version", action="version", version=version)
    add("words", nargs="*", help=argparse.SUPPRESS)
    if network:
        _add_network_options(result, daemons.DAEMONS[name].port)
    return result


def _add_network_options(result: argparse.ArgumentParser, port: int | None) -> None:
    add = result.add_argument
    add("-p", "--port", type=int, default=port, help=f"port, default {port}")
    add("-b", "--bind", metavar="ADDRESS", help="address to bind to")
    add("-i", "--interface", help="bind to the address of this device")
    add("--no-ssl", action="store_true", help="plain HTTP")
    add("-K", "--ssl-key", metavar="FILE", help="file with the TLS key")
    add("-C", "--ssl-cert", metavar="FILE", help="file with the TLS certificate")
    add("--max-clients", type=int, default=20, help="connections served at once")


def own_paths(name: str) -> Paths:
    """Return the paths of this node; end the program if the environment is wrong."""
    try:
        return from_environ(os.environ)
    except errors.OpPrereqError as err:
        sys.exit(f"{name}: {err.args[0]}")


def parse(
    argument_parser: argparse.ArgumentParser, argv: Sequence[str]
) -> argparse.Namespace:
    """Parse the arguments of a daemon, which has options only.

    Raises:
        SystemExit: 2 for an unknown option; 1 for a positional argument, or for options
            that exclude each other.
    """
    options = argument_parser.parse_args(argv)
    if options.words:
        sys.stderr.write(argument_parser.format_usage())
        raise SystemExit(exitcodes.EXIT_FAILURE)
    if getattr(options, "interface", None) and options.bind:
        sys.stderr.write(f"{argument_parser.prog}: -b and -i exclude each other\n")
        raise SystemExit(exitcodes.EXIT_FAILURE)
    return options


def run(daemon: Daemon, options: argparse.Namespace, paths: Paths) -> int:
    """Run a daemon until its end and return its exit code.

    Effects:
        Forks twice unless in the foreground; writes the pid file and the log.
    """
    if options.foreground:
        report = _report_in_foreground(daemon)
        code = _check(daemon, options, report)
        return code or _live(daemon, options, paths, report)
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    first = os.fork()
    if first == 0:
        _live_detached(daemon, options, paths, writer)
    os.close(writer)
    os.waitpid(first, 0)
    return _await_report(daemon.name, reader)


def _report_in_foreground(daemon: Daemon) -> Callable[[int, str], None]:
    def report(code: int, text: str) -> None:
        if code == exitcodes.EXIT_SUCCESS:
            _notify("READY=1")
        elif text and not logging.getLogger().handlers:
            # Later failures are logged, and the terminal shows the log.
            sys.stderr.write(f"{daemon.name}: {text}\n")

    return report


def _check(
    daemon: Daemon, options: argparse.Namespace, report: Callable[[int, str], None]
) -> int:
    """Check and return the exit code, 0 if the daemon may start.

    The check runs after the forks: descriptors that it opens and closes must not remain
    in another process. The standard streams are still those of the caller, who sees the
    warnings of a long check.
    """
    try:
        daemon.check()
    except StartError as err:
        # "Not master" is normal on most nodes and therefore not reported.
        is_silent = err.code == exitcodes.EXIT_NOTMASTER and not options.debug
        report(err.code, "" if is_silent else str(err))
        return err.code
    except Exception as err:  # noqa: BLE001 - whatever it is, the caller waits
        report(exitcodes.EXIT_FAILURE, f"{type(err).__name__}: {err}")
        return exitcodes.EXIT_FAILURE
    return exitcodes.EXIT_SUCCESS


def _live_detached(
    daemon: Daemon, options: argparse.Namespace, paths: Paths, writer: int
) -> NoReturn:
    """Become a daemon, run, and exit without the parent's clean-up."""
    code = exitcodes.EXIT_FAILURE
    try:
        os.setsid()
        if os.fork():
            os._exit(exitcodes.EXIT_SUCCESS)
        os.chdir("/")
        os.closerange(3, writer)
        os.closerange(writer + 1, 1024)
        reported: list[int] = []

        def report(code: int, text: str) -> None:
            if not reported:
                reported.append(code)
                data = text.encode()
                os.write(writer, _REPORT.pack(code, len(data)) + data)
                os.close(writer)

        code = _check(daemon, options, report)
        if code == exitcodes.EXIT_SUCCESS:
            _detach_streams()
            code = _live(daemon, options, paths, report)
    finally:
        logging.shutdown()
        os._exit(code)


def _detach_streams() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def _await_report(name: str, reader: int) -> int:
    """Wait until the daemon is ready or ended; return the exit code of the command."""
    with os.fdopen(reader, "rb") as stream:
        data = stream.read()
    if len(data) < _REPORT.size:
        sys.stderr.write(f"{name}: ended before it was ready, see its log\n")
        return exitcodes.EXIT_FAILURE
    code, length = _REPORT.unpack_from(data)
    text = data[_REPORT.size :][:length].decode(errors="replace")
    if text:
        sys.stderr.write(f"{name}: {text}\n")
    return int(code)


def _live(
    daemon: Daemon,
    options: argparse.Namespace,
    paths: Paths,
    report: Callable[[int, str], None],
) -> int:
    """Start, report, serve until asked to stop; return the exit code."""
    try:
        handler = _set_up_log(daemon, options, paths)
    except OSError as err:
        report(exitcodes.EXIT_FAILURE, f"cannot log: {err}")
        return exitcodes.EXIT_FAILURE
    threading.excepthook = _log_thread_end
    control = Control()
    try:
        os.makedirs(paths.run_dir, mode=0o755, exist_ok=True)
        os.umask(0o077)
        state = _State(paths.state_file(daemon.name))
        pid_file = pidfile.PidFile(
            paths.pid_file(daemon.name), lambda: state.enter(_STARTING)
        )
    except (errors.PidFileLockError, OSError) as err:
        return _fail(err, report)
    with pid_file:
        try:
            _raise_file_limit()
            _watch_signals(control)
            daemon.prepare()
            _become_own_user(daemon, options, paths)
            service = daemon.start(control)
            state.enter(_SERVING)
        except Exception as err:  # noqa: BLE001 - whatever it is, the caller waits
            return _fail(err, report)
        _log.info("ready, version %s", versions.RELEASE_VERSION)
        report(exitcodes.EXIT_SUCCESS, "")
        code = _serve(control, handler)
        _notify("STOPPING=1")
        with contextlib.suppress(OSError):
            state.enter(_STOPPING)
        threading.Thread(
            target=_end_on_request, args=(control,), name="end", daemon=True
        ).start()
        service.stop()
        _log.info("stopped")
    return code


def _log_thread_end(end: threading.ExceptHookArgs) -> None:
    """Log why a thread ended: nobody reads the standard error of a daemon."""
    name = "a thread" if end.thread is None else f"thread {end.thread.name}"
    value = end.exc_value or end.exc_type()
    _log.critical("%s ended: %s", name, type(value).__name__, exc_info=value)


class _State:
    """The state file of this daemon, which is open from the start.

    A daemon with a user of its own could not open it later. Its line is written in
    place, as ``daemon-util`` does; a reader takes the first line alone.
    """

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)

    def enter(self, state: str) -> None:
        """Write a state."""
        line = f"{os.getpid()} {state}\n".encode()
        os.pwrite(self._fd, line, 0)
        os.ftruncate(self._fd, len(line))


def _become_own_user(daemon: Daemon, options: argparse.Namespace, paths: Paths) -> None:
    """Change to the user of this daemon, if root runs it on a real machine.

    Raises:
        StartError: it would go on as root, which nobody has allowed.
        OSError: the log cannot be given to the user, or the change is not permitted.
    """
    obstacle = daemon_users.obstacle(daemon.name, paths)
    if obstacle and not options.allow_root:
        raise StartError(
            f"cannot run as its own user: {obstacle}; with --allow-root it runs as root"
        )
    if obstacle:
        _log.warning("running as root, as --allow-root says: %s", obstacle)
        return
    user = daemon_users.identity(daemon.name, paths)
    if user is None:
        return
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler):
            os.chown(handler.baseFilename, user.uid, user.gid)
    daemon_users.assume(user, daemon_users.further_groups(daemon.name, user, paths))
    _log.info("running as user %s", user.name)


def _raise_file_limit() -> None:
    """Raise the limit of open files as far as permitted: clients may be many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _fail(err: Exception, report: Callable[[int, str], None]) -> int:
    """Log and report the reason of a failed start; return the exit code."""
    known = isinstance(err, StartError | errors.GenericError | OSError)
    text = str(err) if known else f"{type(err).__name__}: {err}"
    _log.error("cannot start: %s", text, exc_info=None if known else err)
    code = err.code if isinstance(err, StartError) else exitcodes.EXIT_FAILURE
    report(code, text)
    return code


def _set_up_log(
    daemon: Daemon, options: argparse.Namespace, paths: Paths
) -> log.Reopenable | None:
    base = daemons.DAEMONS[daemon.name].log_base
    os.makedirs(paths.log_dir, mode=0o750, exist_ok=True)
    return log.set_up(
        daemon.name,
        f"{paths.log_dir}/{base}.log" if base else None,
        debug=options.debug,
        terminal=options.foreground,
        syslog=options.syslog,
        console=daemon.console,
    )


def _watch_signals(control: Control) -> None:
    """Turn signals into events; a second request to stop ends the process."""

    def on_stop(number: int, _frame: types.FrameType | None) -> None:
        for again in (signal.SIGTERM, signal.SIGINT):
            signal.signal(again, _exit_now)
        # No logging here: the signal may have interrupted a log call.
        control.take_signal(number)

    def on_hangup(_number: int, _frame: types.FrameType | None) -> None:
        control.ask_reopen()

    signal.set_wakeup_fd(control.wakeup_fd, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, on_stop)
    signal.signal(signal.SIGINT, on_stop)
    signal.signal(signal.SIGHUP, on_hangup)


def _exit_now(_number: int, _frame: types.FrameType | None) -> None:
    os._exit(exitcodes.EXIT_FAILURE)


def _serve(control: Control, handler: log.Reopenable | None) -> int:
    while True:
        event, code = control.next_event()
        if event == "signal":
            _log.info("stopping on signal %d", code)
            return exitcodes.EXIT_SUCCESS
        if event == "stop":
            return code
        if event == "end":
            end_now(code)
        if handler is not None:
            try:
                handler.reopen()
            except OSError:
                _log.exception("cannot reopen the log file")


def _end_on_request(control: Control) -> None:
    """End a daemon that is stopping, if a part of it asks for its end at once."""
    while True:
        event, code = control.next_event()
        if event == "end":
            end_now(code)


def end_now(code: int) -> NoReturn:
    """Exit at once: no thread is waited for, and no file is tidied up."""
    _log.info("ending at once with exit code %d", code)
    _notify("STOPPING=1")
    logging.shutdown()
    os._exit(code)


def _notify(state: str) -> None:
    """Notify systemd if it requested that; see sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect(address)
            sock.sendall(state.encode())
    except OSError as err:
        _log.warning("cannot notify systemd: %s", err)


def wildcard_address(paths: Paths) -> str:
    """Return the address that stands for all addresses of this node."""
    family = int(ssconf.SimpleStore(paths).primary_ip_family())
    return "::" if family == socket.AF_INET6 else "0.0.0.0"


def bind_address(options: argparse.Namespace, paths: Paths) -> str:
    """Return the address to bind to: as given, of an interface, or the wildcard.

    Raises:
        GenericError: the interface has no address.
    """
    if options.bind:
        return str(options.bind)
    if options.interface:
        family = ssconf.SimpleStore(paths).primary_ip_family()
        return netutils.interface_address(options.interface, family)
    return wildcard_address(paths)


def check_user(options: argparse.Namespace, wanted_uid: int) -> None:
    """Refuse to run as a user other than the daemon's.

    Raises:
        StartError: the effective user is different and checks are on.
    """
    if not options.no_user_checks and os.geteuid() != wanted_uid:
        raise StartError(
            f"runs as user {os.geteuid()}, wanted {wanted_uid}; use --no-user-checks"
            " to run nevertheless"
        )
