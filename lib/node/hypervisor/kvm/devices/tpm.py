"""TPM 2.0 of a guest: a process of ``swtpm`` for each guest, and the TPM's state.

The process and the emulator get the two ends of a socket pair, so there is no socket
that others could reach, and the process ends with the emulator, also after a kill. It
waits for an emulator that never came, because the node daemon was killed in the middle
of a start; the next node daemon ends it. It runs in a session of its own, so it
survives the node daemon. It has the user of the emulator, or the one that the package
of ``swtpm`` makes for this. The state is a file in a directory of that user while the
guest runs, see `kept`: a pool gives the user to another guest afterwards.
"""

import contextlib
import logging
import os
import pwd
import select
import shutil
import signal
import socket
import stat
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.filesystem import files as file_utils
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor.base import MIB, NodeEffects
from ganeti.node.hypervisor.kvm import files
from ganeti.node.hypervisor.kvm.devices import firmware, options
from ganeti.node.hypervisor.kvm.files import Files

_log = logging.getLogger(__name__)
#: User of the process, unless the emulator has one.
USER: Final = "tss"
#: Device of the emulator.
DEVICE: Final = "tpm-crb"
#: Name that swtpm gives to the permanent state of a TPM 2.0.
_STATE: Final = "tpm2-00.permall"
#: Limits of the process: size of files, memory, open files.
_LIMITS: Final = (
    *("--core=0", "--nofile=64"),
    *(f"--fsize={4 * MIB}", f"--as={512 * MIB}"),
)
#: Command of the control channel: report the capabilities.
_GET_CAPABILITY: Final = struct.pack(">I", 1)
_START_TIMEOUT_S: Final = 30.0
_END_WAIT_S: Final = 5.0


def state(guest: Files) -> firmware.Kept:
    """Return the file with the state of a guest's TPM."""
    path = f"{_state_directory(guest)}/{_STATE}"
    return firmware.Kept(
        guest, "data of its TPM", path, f"{firmware.own_directory(guest)}/tpm-origin"
    )


def _state_directory(guest: Files) -> str:
    return f"{firmware.own_directory(guest)}/tpm"


def arguments(fd: int | None) -> list[str]:
    """Return the emulator's arguments for its end of the socket pair."""
    if fd is None:
        return []
    return [
        *("-chardev", options.join("socket", id="tpm0", fd=fd)),
        *("-tpmdev", "emulator,id=tpm0,chardev=tpm0"),
        *("-device", options.join(DEVICE, tpmdev="tpm0")),
    ]


def check_user(name: str) -> None:
    """Refuse a node without the user of the process.

    Raises:
        HypervisorError: names the user and who makes it.
    """
    try:
        pwd.getpwnam(name)
    except KeyError:
        raise errors.HypervisorError(
            f"hypervisor kvm: parameter tpm: wanted the user {name} on this node, found"
            " none; the package swtpm-tools makes it"
        ) from None


@contextlib.contextmanager
def started(
    effects: NodeEffects,
    guest: Files,
    instance: InstanceX,
    hvp: Mapping[str, Any],
    user: str | None,
) -> Iterator[int | None]:
    """Start the TPM of a guest; yield the emulator's end of the socket pair, or None.

    Args:
        effects: effect interfaces of this node.
        guest: the guest's files.
        instance: the instance's record, with the copy of the state.
        hvp: parameters of the guest.
        user: the emulator's user, None for the daemon's own.

    Raises:
        HypervisorError: the process cannot be started, or the copy cannot be used.
    """
    if not hvp.get("tpm"):
        yield None
        return
    if user is None and os.geteuid() == 0:
        check_user(USER)
        user = USER
    end(effects, guest)
    _prepare(guest, instance, user)
    own, others = socket.socketpair()
    with own:
        with others:
            _run(effects, guest, str(hvp["swtpm_path"]), others.fileno(), user)
        _wait_for_answer(guest, own)
        yield own.fileno()


def _prepare(guest: Files, instance: InstanceX, user: str | None) -> None:
    """Make the state ready for a start, in a directory of the user.

    The directory belongs to root while it is changed. An interrupted change is repeated
    by the next start.
    """
    path = _state_directory(guest)
    for name in (firmware.kept_directory(guest.paths), firmware.own_directory(guest)):
        os.makedirs(name, mode=0o700, exist_ok=True)
        os.chmod(name, 0o711)  # noqa: S103 - the user must get to its directory
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode=0o700)
    _take_back(path)
    for name in os.listdir(path):
        # The user of an earlier start may have left anything there.
        if name != _STATE:
            _remove(f"{path}/{name}")
    own = state(guest)
    own.prepare(instance.uuid, instance.tpm_state, lambda: None)
    if user is None:
        return
    entry = pwd.getpwnam(user)
    with contextlib.suppress(FileNotFoundError):
        _give(own.path, entry)
    os.chown(path, entry.pw_uid, entry.pw_gid)


def _take_back(path: str) -> None:
    os.chown(path, os.geteuid(), -1)
    os.chmod(path, 0o700)


def _remove(path: str) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        shutil.rmtree(path)
    else:
        file_utils.remove_file(path)


def _give(path: str, entry: pwd.struct_passwd) -> None:
    # A link in its place would give away the file to which it leads.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags), "rb") as src:
        os.fchown(src.fileno(), entry.pw_uid, entry.pw_gid)
        os.fchmod(src.fileno(), 0o600)


def _run(
    effects: NodeEffects, guest: Files, binary: str, fd: int, user: str | None
) -> None:
    command = [
        *("setsid", "--fork", "prlimit", *_LIMITS, "setpriv", "--no-new-privs"),
        *(binary, "socket", "--tpm2", "--terminate"),
        *("--ctrl", options.unquoted(type="unixio", clientfd=fd)),
        *("--tpmstate", state_argument(guest)),
        *(("--runas", user) if user else ()),
    ]
    try:
        result = effects.process.run(
            command,
            timeout_s=_START_TIMEOUT_S,
            output_file=guest.log,
            pass_fds=[fd],
        )
    except errors.CommandError as err:
        raise errors.HypervisorError(f"instance {guest.name}: its TPM: {err}") from err
    if result.failed:
        raise errors.HypervisorError(
            f"instance {guest.name}: its TPM cannot be started: {result.reason}:"
            f" {files.log_end(guest)}"
        )


def state_argument(guest: Files) -> str:
    """Return the argument by which the process of a guest is known."""
    return options.unquoted(dir=_state_directory(guest), mode="0600")


def _wait_for_answer(guest: Files, own: socket.socket) -> None:
    """Wait until the process answers, so that its failure is reported as its own."""
    answer = b""
    with contextlib.suppress(OSError):
        own.sendall(_GET_CAPABILITY)
        if select.select([own], [], [], _START_TIMEOUT_S)[0]:
            answer = own.recv(64)
    if not answer:
        raise errors.HypervisorError(
            f"instance {guest.name}: its TPM does not answer: {files.log_end(guest)}"
        )


def end(effects: NodeEffects, guest: Files) -> None:
    """End the process of a guest that does not run, and close the state to its user.

    It ends with the emulator by itself, in a moment. Its command line names the state
    of the guest, so no file has to.

    Raises:
        HypervisorError: the process still exists.
    """
    directory = _state_directory(guest)
    if not os.path.isdir(directory):
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        pids = processes(guest)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if all(files.wait_gone(effects, pid, _END_WAIT_S) for pid in pids):
            _take_back(directory)
            return
    raise errors.HypervisorError(
        f"instance {guest.name}: the process of its TPM cannot be ended:"
        f" {', '.join(map(str, processes(guest)))}"
    )


def end_abandoned(effects: NodeEffects) -> None:
    """End processes that wait for an emulator that never came, see `end`.

    Only for the start of the node daemon: later, a guest may be about to start.
    """
    try:
        names = os.listdir(firmware.kept_directory(effects.paths))
    except FileNotFoundError:
        return
    for name in names:
        try:
            guest = Files(effects.paths, name)
            if guest.alive_pid() is None:
                end(effects, guest)
        except errors.HypervisorError as err:
            _log.warning("cannot look for the process of a TPM: %s", err)


def processes(guest: Files) -> list[int]:
    """Return the processes with the state of a guest's TPM."""
    wanted = state_argument(guest)
    pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    return [pid for pid in pids if wanted in files.command_line(pid)]
