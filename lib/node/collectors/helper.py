"""Tasks of the agent that need root: a fixed list, in a process of its own.

`start` forks the process before the daemon changes to its own user, while it has one
thread; `fork` serves other processes that keep the rights of root, too. A request is
the name of a task and at most one text, sent with one end of a socket pair; a child of
the helper does the task and writes one answer there. So a task that hangs delays no
other. Whoever takes the daemon over can have these tasks done, and nothing else.
"""

import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any, Final, NoReturn

from ganeti.base import errors
from ganeti.base.filesystem import files, pidfile, trusted_files
from ganeti.base.pathutils import Paths
from ganeti.base.process import SystemRunner
from ganeti.node.collectors import block_devices, xen

_FD: Final = 3


def fork(live: Callable[[socket.socket], None]) -> socket.socket:
    """Fork a process that has one end of a socket pair and no other file of the daemon.

    Args:
        live: the work of the process, which ends when the function returns or raises;
            it should return when the daemon has closed its end.

    Returns:
        the daemon's end.
    """
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        try:
            os.dup2(theirs.fileno(), _FD)
            os.closerange(_FD + 1, os.sysconf("SC_OPEN_MAX"))
            # The old objects' descriptors may be closed now; they must not be closed
            # twice.
            mine.detach()
            theirs.detach()
            live(socket.socket(fileno=_FD))
        finally:
            os._exit(0)
    theirs.close()
    return mine


#: Directory of the configuration directory with the diagnose commands of this node.
DIAGNOSE_COMMANDS: Final = "node-diagnose-commands"
#: Seconds that a task may take, and a diagnose command, and bytes that each may print.
_TASK_S: Final = 40.0
DIAGNOSE_S: Final = 60.0
_MAX_OUTPUT: Final = 8 << 20
#: The diagnosis of a fault becomes a part of the configuration.
MAX_DIAGNOSIS: Final = 16 << 10
_MAX_REQUEST: Final = 4096
#: Seconds until the answer of a task that ended its commands in time.
_GRACE_S: Final = 10.0
_MAX_KEY: Final = 4096


class Helper:
    """The daemon's side. For use by many threads."""

    def __init__(self, sock: socket.socket, on_end: Callable[[], None]) -> None:
        """Take the socket of `start`.

        Args:
            sock: to the process.
            on_end: called when the process has ended, which it never should.
        """
        self._sock = sock
        self._on_end = on_end
        self._lock = threading.Lock()

    def ask(self, task: str, text: str = "") -> Any:
        """Have a task done, and return its answer.

        Raises:
            OpExecError: it failed, took too long, or the helper has ended.
        """
        mine, theirs = socket.socketpair()
        with mine:
            try:
                with theirs, self._lock:
                    request = json.dumps([task, text]).encode()
                    socket.send_fds(self._sock, [request], [theirs.fileno()])
            except OSError as err:
                self._on_end()
                raise errors.OpExecError("the helper process has ended") from err
            mine.settimeout(max(_TASK_S, DIAGNOSE_S) + _GRACE_S)
            try:
                with mine.makefile("rb") as stream:
                    ok, value = json.loads(stream.read())
            except (OSError, ValueError) as err:
                raise errors.OpExecError(f"{task}: no answer of the helper") from err
        if not ok:
            raise errors.OpExecError(str(value))
        return value

    def close(self) -> None:
        """Let the process end."""
        self._sock.close()


def start(paths: Paths) -> socket.socket:
    """Fork the helper, and return the daemon's end of its socket.

    Call it while the process has one thread.
    """
    return fork(lambda own: _live(paths, own))


def _live(paths: Paths, own: socket.socket) -> None:
    """Do tasks until the daemon has closed its end."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Children are not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, fds, _flags, _address = socket.recv_fds(own, _MAX_REQUEST, 1)
        if not data:
            return
        if os.fork() == 0:
            own.close()
            _do_task(paths, data, fds[0])
        for fd in fds:
            os.close(fd)


def _do_task(paths: Paths, data: bytes, fd: int) -> NoReturn:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            name, text = json.loads(data)
            answer = [True, _TASKS[name](paths, text)]
        except (errors.GenericError, OSError, ValueError, KeyError) as err:
            answer = [False, str(err)]
        with open(fd, "wb") as stream, contextlib.suppress(OSError):
            stream.write(json.dumps(answer).encode())
    finally:
        os._exit(0)


# Tasks
def run_task(paths: Paths, name: str, text: str = "") -> Any:
    """Do a task in this process, as ``mon-collector`` does.

    Raises:
        GenericError, OSError, ValueError: it failed.
    """
    return _TASKS[name](paths, text)


def _key(paths: Paths, _text: str) -> str:
    """Return the key of confd."""
    return files.read_file(paths.hmac_key, max_size=_MAX_KEY).decode("latin-1")


def _output(argv: tuple[str, ...]) -> str:
    result = SystemRunner().run_bounded(argv, timeout_s=_TASK_S, max_output=_MAX_OUTPUT)
    if result.failed:
        raise errors.OpExecError(f"{argv[0]} {result.reason}: {result.stderr[:500]}")
    return result.stdout


def _guests(paths: Paths, _text: str) -> dict[str, int]:
    """Return the resident memory of each KVM guest's process, in pages, by name."""
    directory = f"{paths.run_dir}/kvm-hypervisor/pid"
    sizes = {}
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(directory)):
            # A guest may end at any time.
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid = pidfile.pid_in(f"{directory}/{name}")
                arguments = files.text_of(f"/proc/{pid}/cmdline", files.MAX_PROC).split(
                    "\0"
                )
                if arguments[arguments.index("-name") + 1] == name:
                    sizes[name] = int(
                        files.text_of(f"/proc/{pid}/statm", files.MAX_PROC).split()[1]
                    )
    return sizes


def _is_diagnose_name(name: str) -> bool:
    return "/" not in name and "\0" not in name and name not in (".", "..")


def _diagnose(paths: Paths, name: str) -> str:
    """Run a diagnose command of this node and return what it printed.

    Raises:
        OpExecError: it is not allowed here, failed, or exceeded a limit.
    """
    directory = f"{paths.conf_dir}/{DIAGNOSE_COMMANDS}"
    try:
        program = trusted_files.find_command(
            directory, name, is_name=_is_diagnose_name, is_virtual=paths.is_virtual
        )
    except (errors.GenericError, OSError) as err:
        raise errors.OpExecError(
            f"diagnose command {name!r} is not allowed on this node: {err}"
        ) from err
    result = SystemRunner().run_bounded(
        [program], timeout_s=DIAGNOSE_S, max_output=MAX_DIAGNOSIS
    )
    if result.failed:
        raise errors.OpExecError(f"diagnose command {name} {result.reason}")
    return result.stdout


_TASKS: Final[dict[str, Callable[[Paths, str], Any]]] = {
    "key": _key,
    "volumes": lambda _paths, _text: _output(block_devices.LVS),
    "domains": lambda _paths, _text: _output(xen.LIST),
    "uptimes": lambda _paths, _text: _output(xen.UPTIME),
    "guests": _guests,
    "diagnose": _diagnose,
}
