"""Files and processes of a node's KVM guests.

Layout below ``<run dir>/kvm-hypervisor``; specified in the hypervisor document,
section 2.1. This module does not connect to guests.
"""

import contextlib
import dataclasses
import fcntl
import glob
import hashlib
import os
import signal
from collections.abc import Iterator

from ganeti.base import errors, pathutils
from ganeti.base.filesystem import files as file_utils
from ganeti.base.filesystem import pidfile
from ganeti.node.hypervisor.base import NodeEffects, check_instance_name

#: Seconds that a killed emulator may take to disappear.
_KILL_WAIT_S = 5.0
_POLL_S = 0.05
#: From unix(7): sun_path has 108 bytes, one of them ends it.
_SOCKET_PATH_MAX = 107
#: Bytes of the name of a file, on all file systems of Linux.
_FILE_NAME_MAX = 255
#: Bytes of the log that an error shows.
_LOG_END = 1000
#: Hexadecimal digits of a digest that stands for a long name: 96 bits.
_DIGEST = 24


@dataclasses.dataclass(frozen=True)
class Files:
    """Paths of one guest's files on one node."""

    paths: pathutils.Paths
    name: str

    def __post_init__(self) -> None:
        """Refuse names that are not file names."""
        check_instance_name(self.name)

    @property
    def root(self) -> str:
        """Directory of all guests."""
        return root_dir(self.paths)

    @property
    def pid(self) -> str:
        """File with the process id, written by the emulator."""
        return f"{self.root}/pid/{self.name}"

    @property
    def uid(self) -> str:
        """File with the user id from the pool."""
        return f"{self.root}/uid/{self.name}"

    def control(self, kind: str) -> str:
        """Return a control socket: monitor, serial, qmp, kvmd, qga, ...

        A digest stands for a name with which the path would be too long. No name of an
        instance begins like it.

        Raises:
            HypervisorError: the path is too long for a socket with any name.
        """
        path = self.marker(kind)
        if len(os.fsencode(path)) > _SOCKET_PATH_MAX:
            digest = hashlib.sha256(self.name.encode()).hexdigest()[:_DIGEST]
            path = f"{self.root}/ctrl/+{digest}.{kind}"
        return self.checked(path)

    def checked(self, path: str) -> str:
        """Return the path of a socket.

        Raises:
            HypervisorError: it is too long.
        """
        # A parameter may be the beginning, with characters that no file can have.
        if len(path.encode(errors="surrogatepass")) > _SOCKET_PATH_MAX:
            raise errors.HypervisorError(
                f"instance {self.name}: socket path is longer than {_SOCKET_PATH_MAX}"
                f" bytes: {path}"
            )
        return path

    def marker(self, kind: str) -> str:
        """Return the path of a file beside the sockets that records a state.

        Raises:
            HypervisorError: no file can have such a name.
        """
        file_name = f"{self.name}.{kind}"
        if len(file_name) > _FILE_NAME_MAX:
            raise errors.HypervisorError(
                f"instance {self.name}: wanted a name of at most"
                f" {_FILE_NAME_MAX - len(kind) - 1} letters for KVM, found"
                f" {len(self.name)}; use gnt-instance rename"
            )
        return f"{self.root}/ctrl/{file_name}"

    @property
    def shutdown_marker(self) -> str:
        """File that exists when the guest shut itself down."""
        return self.marker("shutdown")

    @property
    def arrival_marker(self) -> str:
        """File that exists until a guest that comes here is taken over."""
        return self.marker("arrival")

    @property
    def sent_marker(self) -> str:
        """File that exists while a guest is stopped here to be sent."""
        return self.marker("sent")

    @property
    def progress_note(self) -> str:
        """Note about a guest that has arrived, see `progress`."""
        return self.marker("progress")

    @property
    def runtime(self) -> str:
        """File with the parameters of the guest's start."""
        return f"{self.root}/conf/{self.name}.runtime"

    @property
    def nics(self) -> str:
        """Directory with one file per NIC: the name of its tap."""
        return f"{self.root}/nic/{self.name}"

    @property
    def chroot(self) -> str:
        """Empty directory that is the emulator's root."""
        return f"{self.root}/chroot/{self.name}"

    @property
    def seed(self) -> str:
        """Image with the files that cloud-init reads in the guest."""
        return f"{self.root}/seed/{self.name}.iso"

    @property
    def spice_pem(self) -> str:
        """The cluster's key and certificate of SPICE displays."""
        return self.paths.data("spice.pem")

    @property
    def spice_ca_pem(self) -> str:
        """Certificate with which viewers check that of SPICE displays."""
        return self.paths.data("spice-ca.pem")

    @property
    def log(self) -> str:
        """Log file of the emulator."""
        return f"{self.paths.log_dir}/kvm/{self.name}.log"

    def make_directories(self) -> None:
        """Create the directories of all guests."""
        for name in ("pid", "uid", "ctrl", "conf", "nic", "chroot", "seed"):
            os.makedirs(f"{self.root}/{name}", mode=0o750, exist_ok=True)
        os.makedirs(os.path.dirname(self.log), mode=0o750, exist_ok=True)

    def alive_pid(self) -> int | None:
        """Return the emulator's process id, None if it does not run."""
        pid = self.written_pid()
        # After an end without a clean-up, the number may be that of another process.
        if pid is None or self.name not in guest_names(pid):
            return None
        return pid

    def written_pid(self) -> int | None:
        """Return the process id in the file, None if the file has none."""
        return pidfile.pid_in(self.pid)


def root_dir(paths: pathutils.Paths) -> str:
    """Return the directory of all KVM guests of a node."""
    return f"{paths.run_dir}/kvm-hypervisor"


def has_lost_control(guest: Files) -> bool:
    """Return whether the control socket of an emulator has no file any more.

    An emulator that starts has none yet, and does not listen either.
    """
    path = guest.control("qmp")
    if os.path.exists(path):
        return False
    table = file_utils.text_of("/proc/net/unix", file_utils.MAX_PROC)
    return any(line.endswith(f" {path}") for line in table.splitlines())


def log_end(guest: Files) -> str:
    """Return the end of the emulator's log."""
    try:
        text = file_utils.read_end(guest.log, _LOG_END).decode(errors="replace").strip()
    except OSError:
        text = ""
    return text or f"no message, nothing in {guest.log}"


def command_line(pid: int) -> list[str]:
    """Return the arguments of a process, () if the process does not exist."""
    try:
        text = file_utils.text_of(f"/proc/{pid}/cmdline", file_utils.MAX_PROC)
        return text.rstrip("\0").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def guest_names(pid: int) -> list[str]:
    """Return the guest names on an emulator's command line."""
    return option_values(pid, "-name")


def option_values(pid: int, option: str) -> list[str]:
    """Return the values of an option on an emulator's command line."""
    args = command_line(pid)
    return [args[i + 1] for i, arg in enumerate(args[:-1]) if arg == option]


def known_names(paths: pathutils.Paths) -> list[str]:
    """Return the names of guests with a pid file or a shutdown marker, sorted."""
    names = set(_listed(f"{root_dir(paths)}/pid"))
    suffix = ".shutdown"
    markers = _listed(f"{root_dir(paths)}/ctrl")
    names |= {name[: -len(suffix)] for name in markers if name.endswith(suffix)}
    return sorted(names)


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def turn(guest: Files, *, waits: bool = True) -> Iterator[None]:
    """Let other changes of the guest wait until the end of the block.

    Raises:
        HypervisorError: the guest does not run; or another change is under way, which
            is not waited for.
    """
    try:
        fd = os.open(guest.pid, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise errors.HypervisorError(f"instance {guest.name}: not running") from None
    try:
        # The emulator's own lock of the file is of another kind.
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise errors.HypervisorError(f"instance {guest.name}: is changed") from err
        yield
    finally:
        os.close(fd)


def cpu_time_s(pid: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    try:
        fields = _fields(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    # utime and stime are fields 14 and 15 of proc(5); fields 1 and 2 end at the ")".
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wanted_time_s(pid: int) -> float:
    """Return the processor time that a process has used or waited for, in seconds.

    On a busy node a guest that spins uses less than a processor.
    """
    nanoseconds = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with contextlib.suppress(OSError, ValueError):
            used, waited, _slices = file_utils.text_of(
                path, file_utils.MAX_PROC
            ).split()
            nanoseconds += int(used) + int(waited)
    return nanoseconds / 1e9


def end_process(effects: NodeEffects, files: Files) -> None:
    """End an emulator with SIGTERM, if necessary with SIGKILL.

    Raises:
        HypervisorError: the process still exists.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        # Looked up each time: SIGKILL must not reach another process with this number.
        pid = files.alive_pid()
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if wait_gone(effects, pid, _KILL_WAIT_S):
            return
    raise errors.HypervisorError(
        f"instance {files.name}: process {files.written_pid()} cannot be ended"
    )


def wait_gone(effects: NodeEffects, pid: int, timeout_s: float) -> bool:
    """Wait until a process has ended completely; return false if it has not.

    An ending process loses its command line early, but its user must be free for other
    guests. At the timeout, a process that only waits to be reaped counts as ended.
    """
    end = effects.clock.monotonic() + timeout_s
    while state := _state(pid):
        if effects.clock.monotonic() >= end:
            return state in {"Z", "X"}
        effects.sleep(_POLL_S)
    return True


def _state(pid: int) -> str | None:
    """Return the state letter of a process, None if the process does not exist."""
    try:
        return _fields(pid)[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def _fields(pid: int) -> list[str]:
    """Return the fields of a process that follow its name."""
    text = file_utils.text_of(f"/proc/{pid}/stat", file_utils.MAX_PROC)
    return text.rpartition(")")[2].split()
