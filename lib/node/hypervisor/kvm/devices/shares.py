"""Directories of the node in a guest, by virtio-fs: a ``virtiofsd`` for each.

The process and the emulator are connected before both start, over a socket whose path
is removed at once, so nobody else can reach it. The process ends with the emulator,
also after a kill, and with a node daemon that was killed in the middle of a start. It
runs in a session of its own, so it survives the node daemon. It has a root directory
and namespaces of its own, as the program does by default.

Only directories from a list of the node's administrator can be shared, and none below
them: a guest can make links in its directory. The emulator shares the guest's memory
with these processes, so such a guest cannot migrate.
"""

import contextlib
import os
import signal
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors, pathutils
from ganeti.base.filesystem import files as file_utils
from ganeti.base.process import SAFE_PATH
from ganeti.base.text import hv_syntax
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm import files
from ganeti.node.hypervisor.kvm.devices import options
from ganeti.node.hypervisor.kvm.files import Files

#: Name of the list in the configuration directory.
LIST: Final = "shared-directories"
#: Device of the emulator.
DEVICE: Final = "vhost-user-fs-pci"
_MAX_LIST: Final = 64 * 1024
#: Variable in the environment of each process: control path of its guest.
_MARK: Final = "GANETI_SHARES_OF"
_MEMORY: Final = "shared-ram"
#: Request of vhost-user without an effect: its number, version 1, no content.
_GET_FEATURES: Final = struct.pack("=III", 1, 1, 0)
#: Its answer: such a header, and a number.
_ANSWER_BYTES: Final = 20
_START_TIMEOUT_S: Final = 30.0
_END_WAIT_S: Final = 5.0

#: Tag in the guest, and the emulator's end of the connection.
End = tuple[str, int]


def wanted(hvp: Mapping[str, Any]) -> dict[str, str]:
    """Return the directories of a guest, by the tags with which it mounts them.

    Raises:
        HypervisorError: the parameter has another form.
    """
    try:
        return hv_syntax.parse_shares(hvp.get("shared_directories") or "")
    except errors.ParseError as err:
        raise errors.HypervisorError(f"hypervisor kvm: {err}") from err


def allowed(paths: pathutils.Paths) -> tuple[str, ...]:
    """Return the directories that this node may share.

    Raises:
        HypervisorError: the list has something else; names the line.
    """
    path = f"{paths.conf_dir}/{LIST}"
    try:
        text = file_utils.read_file(path, max_size=_MAX_LIST).decode()
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as err:
        raise errors.HypervisorError(f"{path}: {err}") from err
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        if not hv_syntax.is_shareable(entry):
            raise errors.HypervisorError(
                f"{path}, line {number}: wanted {hv_syntax.SHAREABLE}, found"
                f" {entry!r:.100}"
            )
        entries.append(entry)
    return tuple(entries)


def check(paths: pathutils.Paths, hvp: Mapping[str, Any]) -> None:
    """Refuse directories that this node does not have, or may not share.

    Raises:
        HypervisorError: names the directory and the list.
    """
    directories = wanted(hvp)
    known = allowed(paths) if directories else ()
    for path in directories.values():
        if path not in known:
            raise errors.HypervisorError(
                f"hypervisor kvm: parameter shared_directories: {path} is not among the"
                f" directories that this node shares, which are"
                f" {', '.join(known) or 'none'}; its administrator writes them to"
                f" {paths.conf_dir}/{LIST}"
            )
        above = next((other for other in known if path.startswith(f"{other}/")), None)
        if above is not None:
            raise errors.HypervisorError(
                f"hypervisor kvm: parameter shared_directories: {path} is below"
                f" {above}, where a guest can put a link in its place; this node's"
                f" administrator removes one of them from {paths.conf_dir}/{LIST}"
            )
        if not os.path.isdir(paths.at(path)):
            raise errors.HypervisorError(
                "hypervisor kvm: parameter shared_directories: wanted a directory on"
                f" this node, found none at {path}"
            )


def memory(hvp: Mapping[str, Any], size_mib: int) -> list[str]:
    """Return the arguments of memory that other processes can use, none without shares.

    The machine type names it, see `machine_option`.
    """
    if not wanted(hvp):
        return []
    path = hvp.get("mem_path")
    memory = options.join(
        f"memory-backend-{'file' if path else 'memfd'}",
        id=_MEMORY,
        size=f"{size_mib}M",
        share="on",
        mem_path=path or None,
        prealloc="on" if path else None,
    )
    return ["-object", memory]


def machine_option(hvp: Mapping[str, Any]) -> list[str]:
    """Return the part with which a machine type has that memory."""
    return [options.join(memory_backend=_MEMORY)] if wanted(hvp) else []


def arguments(ends: Sequence[End]) -> list[str]:
    """Return the emulator's arguments for its ends of the connections."""
    args = []
    for number, (tag, fd) in enumerate(ends):
        args += [
            *("-chardev", options.join("socket", id=f"share{number}", fd=fd)),
            "-device",
            options.join(DEVICE, chardev=f"share{number}", tag=tag),
        ]
    return args


@contextlib.contextmanager
def started(
    effects: NodeEffects, guest: Files, hvp: Mapping[str, Any]
) -> Iterator[list[End]]:
    """Start the processes of a guest; yield the emulator's ends, which close then.

    Raises:
        HypervisorError: a directory is refused, or a process cannot be started.
    """
    directories = wanted(hvp)
    check(guest.paths, hvp)
    with contextlib.ExitStack() as stack:
        ends = []
        if directories:
            end(effects, guest)
        for tag, path in directories.items():
            place = guest.paths.at(path)
            own = _connected(effects, guest, str(hvp["virtiofsd_path"]), place)
            ends.append((tag, stack.enter_context(own).fileno()))
            _wait_for_answer(guest, place, own)
        yield ends


def _connected(
    effects: NodeEffects, guest: Files, binary: str, directory: str
) -> socket.socket:
    """Start the process of one directory; return a connection that it will accept."""
    path = guest.control("share")
    own = socket.socket(socket.AF_UNIX)
    with contextlib.ExitStack() as stack, socket.socket(socket.AF_UNIX) as listener:
        stack.callback(own.close)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener.bind(path)
        try:
            listener.listen(1)
            # Before the process starts: it finds this connection waiting, and the path
            # is gone.
            own.connect(path)
        finally:
            os.unlink(path)
        _run(effects, guest, binary, directory, listener.fileno())
        stack.pop_all()
    return own


def _run(
    effects: NodeEffects, guest: Files, binary: str, directory: str, fd: int
) -> None:
    command = [
        *("setsid", "--fork", "prlimit", "--core=0"),
        *(binary, f"--fd={fd}", "-o", source_argument(directory)),
    ]
    try:
        result = effects.process.run(
            command,
            env={"PATH": SAFE_PATH, "LC_ALL": "C", _MARK: _mark(guest)},
            timeout_s=_START_TIMEOUT_S,
            output_file=guest.log,
            pass_fds=[fd],
        )
    except errors.CommandError as err:
        raise errors.HypervisorError(
            f"instance {guest.name}: directory {directory}: {err}"
        ) from err
    if result.failed:
        raise errors.HypervisorError(
            f"instance {guest.name}: directory {directory} cannot be shared:"
            f" {result.reason}: {files.log_end(guest)}"
        )


def _wait_for_answer(guest: Files, directory: str, own: socket.socket) -> None:
    """Wait until the process answers, so that its failure is reported as its own."""
    answer = b""
    with contextlib.suppress(OSError):
        own.sendall(_GET_FEATURES)
        own.settimeout(_START_TIMEOUT_S)
        # It comes in several parts, and the emulator must not find the rest.
        while len(answer) < _ANSWER_BYTES:
            data = own.recv(_ANSWER_BYTES - len(answer))
            if not data:
                break
            answer += data
        own.settimeout(None)
    if len(answer) < _ANSWER_BYTES:
        raise errors.HypervisorError(
            f"instance {guest.name}: directory {directory} cannot be shared:"
            f" {files.log_end(guest)}"
        )


def _mark(guest: Files) -> str:
    return f"{guest.root}/{guest.name}"


def end(effects: NodeEffects, guest: Files) -> None:
    """End the processes of a guest that does not run, if there still are some.

    They end with the emulator by themselves, in a moment.

    Raises:
        HypervisorError: some still exist.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        pids = processes(guest)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if all(files.wait_gone(effects, pid, _END_WAIT_S) for pid in pids):
            return
    raise errors.HypervisorError(
        f"instance {guest.name}: the processes of its shared directories cannot be"
        f" ended: {', '.join(map(str, processes(guest)))}"
    )


def source_argument(directory: str) -> str:
    """Return the argument by which the process of a directory is known."""
    return options.unquoted(source=directory)


def processes(guest: Files) -> list[int]:
    """Return the processes of a guest's shared directories."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [pid for pid in pids if is_of(guest, pid)]


def is_of(guest: Files, pid: int) -> bool:
    """Return whether a process serves a shared directory of a guest."""
    return f"{_MARK}={_mark(guest)}" in _environment(pid)


def _environment(pid: int) -> list[str]:
    try:
        text = file_utils.text_of(f"/proc/{pid}/environ", file_utils.MAX_PROC)
        return text.split("\0")
    except OSError:
        return []
