"""Procedures that move the content of disks between nodes: import and export.

Each transfer is a process of the program ``import-export`` with a directory for its
status, its pid and the certificate of the other side. The processes outlive the node
daemon.
"""

import contextlib
import dataclasses
import fcntl
import json
import logging
import os
import re
import secrets
import shlex
import shutil
import signal
import time
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec

from ganeti.base import errors
from ganeti.base.constants import disks
from ganeti.base.constants.protocols import export
from ganeti.base.filesystem import files, pidfile
from ganeti.base.pathutils import HOSTNAME_ENV, ROOTDIR_ENV
from ganeti.base.process import SAFE_PATH
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node import storage
from ganeti.node.calls import os_scripts
from ganeti.node.calls.crypto import transfer_certificate
from ganeti.node.calls.disks import exports
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.storage.base import MIB
from ganeti.node.storage.external import ExternalDisk

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"(import|export)-[A-Za-z0-9._-]+")
_COMPONENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_REQUEST_KEY: Final = re.compile(r"[A-Za-z0-9._-]{0,100}")
_STATUS: Final = "status"
#: Most bytes of it; it has the last lines of a script.
_MAX_STATUS: Final = 1024 * 1024
#: Errors of reading something else.
_NO_STATUS: Final = (ValueError, TypeError, AttributeError, KeyError, RecursionError)
_PID: Final = "pid"
_PEER: Final = "ca"
#: Name of the key that the transfer uses, as `x509_cert_create` returned it.
_KEY: Final = "key"
#: The caller's key of the request that started the transfer.
_REQUEST: Final = "request"
#: End of the name of a directory whose program is not to begin any more.
_VOID: Final = ".void"
#: Seconds that a transfer may take to go into the background, or to end.
_START_S: Final = 30.0
_END_S: Final = 10.0
_POLL_S: Final = 0.05


class TransferOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a transfer: the wire form of import and export options.

    ``key_name`` is the name that ``x509_cert_create`` returned, ``ca_pem`` the
    certificate of the other side; ``connect_timeout`` is in seconds. A second start
    with the same ``key_name`` and ``request_key`` starts nothing and returns the first
    one's transfer, so a caller whose connection broke can repeat it.
    """

    key_name: str
    ca_pem: str
    compress: str = export.IEC_NONE
    magic: str | None = None
    ipv6: bool = False
    connect_timeout: int = 60
    connect_retries: int = 0
    request_key: str = ""


@dataclasses.dataclass(frozen=True)
class _End:
    """Local end of a transfer, source or target.

    Attributes:
        arguments: of the program.
        environment: of the program.
        fds: open files that it inherits: disks.
    """

    arguments: tuple[str, ...]
    environment: dict[str, str] = dataclasses.field(default_factory=dict, repr=False)
    fds: tuple[int, ...] = ()


@procedure("import_start")
def import_start(
    node: LocalNode,
    opts: TransferOptions,
    instance: InstanceX,
    component: str,
    dest: tuple[str, list[Any]],
) -> str:
    """Start listening for the content of a disk; return the transfer's name."""
    with contextlib.ExitStack() as stack:
        end = _end(node, instance, export.IEM_IMPORT, dest, stack)
        return _start(node, export.IEM_IMPORT, opts, component, end)


@procedure("export_start")
def export_start(
    node: LocalNode,
    opts: TransferOptions,
    host: str,
    port: int,
    instance: InstanceX,
    component: str,
    source: tuple[str, list[Any]],
) -> str:
    """Start sending the content of a disk; return the transfer's name."""
    _attach(node, source)
    where = ("--host", host, "--port", str(port))
    with contextlib.ExitStack() as stack:
        end = _end(node, instance, export.IEM_EXPORT, source, stack)
        end = dataclasses.replace(end, arguments=(*end.arguments, *where))
        return _start(node, export.IEM_EXPORT, opts, component, end)


@procedure("impexp_status")
def impexp_status(node: LocalNode, names: list[str]) -> list[dict[str, Any] | None]:
    """Return the status of transfers, null for those without a status yet."""
    return [_status(_directory(node, name)) for name in names]


@procedure("impexp_abort")
def impexp_abort(node: LocalNode, name: str) -> None:
    """Request the end of a transfer."""
    _signal(_directory(node, name), signal.SIGTERM)


@procedure("impexp_cleanup")
def impexp_cleanup(node: LocalNode, name: str) -> None:
    """End a transfer and remove its files; a missing transfer is not an error.

    Others with the same key are removed, too. The disks of an operation are copied one
    after another, so another one is the remains of a start that a master daemon did not
    record before it ended.
    """
    directory = _directory(node, name, needed=False)
    if not os.path.isdir(directory):
        return
    key = _key_of(directory)
    others = _listed(node)
    _end_and_remove(directory)
    for other in others:
        if key is not None and other != directory and _key_of(other) == key:
            _end_and_remove(other)


@procedure("x509_cert_remove")
def x509_cert_remove(node: LocalNode, name: str) -> None:
    """Remove the key and the certificate that ``x509_cert_create`` made.

    Transfers that use the key are ended and removed before, such as one that a master
    daemon started and did not record before it ended.

    Raises:
        X509CertError: no transfer certificate has this name.
    """
    with _locked_key(node, name) as (key, _certificate):
        for each in _listed(node):
            if _key_of(each) == name.encode():
                _end_and_remove(each)
        shutil.rmtree(os.path.dirname(key))


def _listed(node: LocalNode) -> list[str]:
    """Return the directories of all transfers."""
    try:
        return [f"{_top(node)}/{name}" for name in sorted(os.listdir(_top(node)))]
    except FileNotFoundError:
        return []


def _key_of(directory: str) -> bytes | None:
    """Return the name of a transfer's key, None if the transfer is gone."""
    return _content(directory, _KEY)


def _content(directory: str, name: str) -> bytes | None:
    """Return the content of a file of a transfer, None if it is gone."""
    try:
        return files.read_file(f"{directory}/{name}")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _end_and_remove(directory: str) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _signal(directory, number) or _ended(directory):
            break
    shutil.rmtree(directory)


# Starting
def _start(
    node: LocalNode, mode: str, opts: TransferOptions, component: str, end: _End
) -> str:
    if not _COMPONENT.fullmatch(component):
        raise errors.OpExecError(
            f"transfer: {component!r} is not a valid component name"
        )
    if not _REQUEST_KEY.fullmatch(opts.request_key):
        raise errors.OpExecError(
            f"transfer: {opts.request_key!r} is not a valid key of a request"
        )
    with _locked_key(node, opts.key_name) as pair:
        earlier = _started_before(node, mode, opts)
        if earlier:
            return earlier
        directory = _new_directory(node, f"{mode}-{component}", opts)
        argv = _command(node, mode, opts, directory, pair)
        result = node.process.run(
            [*argv, *end.arguments],
            env=_environment(node) | end.environment,
            timeout_s=_START_S,
            pass_fds=end.fds,
        )
        if result.failed:
            shutil.rmtree(directory)
            raise errors.OpExecError(
                f"{mode} of {component}: {result.reason}: {result.output.strip()}"
            )
    return os.path.basename(directory)


@contextlib.contextmanager
def _locked_key(node: LocalNode, name: str) -> Iterator[tuple[str, str]]:
    """Hold the lock of a key; yield the paths of key and certificate.

    So a program is started, or the key removed, but not both at once.

    Raises:
        X509CertError: no transfer certificate has this name.
    """
    key, _certificate = transfer_certificate(node, name)
    try:
        fd = os.open(os.path.dirname(key), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as err:
        raise errors.X509CertError(f"transfer certificate {name!r}: not found") from err
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield transfer_certificate(node, name)
    finally:
        os.close(fd)


def _started_before(node: LocalNode, mode: str, opts: TransferOptions) -> str:
    """Return the transfer that an earlier call of this request started, else nothing.

    One whose program has not written its status yet is no transfer: the node daemon
    ended before it started the program, or right after that. Such a program ends at
    once, because its directory has another name.
    """
    if not opts.request_key:
        return ""
    wanted = (opts.key_name.encode(), opts.request_key.encode())
    for directory in _listed(node):
        name = os.path.basename(directory)
        if not name.startswith(f"{mode}-") or name.endswith(_VOID):
            continue
        if (_key_of(directory), _content(directory, _REQUEST)) != wanted:
            continue
        if os.path.exists(f"{directory}/{_STATUS}"):
            return name
        os.rename(directory, directory + _VOID)
        _end_and_remove(directory + _VOID)
    return ""


def _new_directory(node: LocalNode, start: str, opts: TransferOptions) -> str:
    """Make the directory of a transfer with what its program reads."""
    directory = f"{_top(node)}/{start}-{secrets.token_hex(6)}"
    os.makedirs(_top(node), mode=0o755, exist_ok=True)
    os.mkdir(directory, 0o700)
    files.write_file(f"{directory}/{_KEY}", opts.key_name, mode=0o400)
    files.write_file(f"{directory}/{_REQUEST}", opts.request_key, mode=0o400)
    files.write_file(f"{directory}/{_PEER}", opts.ca_pem, mode=0o400)
    return directory


def _command(
    node: LocalNode,
    mode: str,
    opts: TransferOptions,
    directory: str,
    pair: tuple[str, str],
) -> list[str]:
    """Return the program and its options, but not those of its end."""
    key, certificate = pair
    argv = [
        os.path.join(node.paths.tools_dir, "import-export"),
        f"{directory}/{_STATUS}",
        mode,
        f"--key={key}",
        f"--cert={certificate}",
        f"--ca={directory}/{_PEER}",
        f"--pid-file={directory}/{_PID}",
        f"--compress={opts.compress}",
        f"--connect-timeout={opts.connect_timeout}",
        f"--connect-retries={opts.connect_retries}",
        "--ipv6" if opts.ipv6 else "--ipv4",
    ]
    if opts.magic is not None:
        argv.append(f"--magic={opts.magic}")
    return argv


def _environment(node: LocalNode) -> dict[str, str]:
    env = {"PATH": SAFE_PATH, "LC_ALL": "C"}
    if node.paths.is_virtual:
        env |= {ROOTDIR_ENV: node.paths.root, HOSTNAME_ENV: node.paths.hostname}
    return env


def _end(
    node: LocalNode,
    instance: InstanceX,
    mode: str,
    where: tuple[str, list[Any]],
    stack: contextlib.ExitStack,
) -> _End:
    """Return the program arguments for the disk or script that the caller named.

    The stack closes what the program inherits.

    Raises:
        OpExecError: unknown kind of source or target, or wrong arguments for it.
    """
    kind, args = where
    if kind == export.IEIO_FILE and len(args) == 1:
        return _file_end(node, instance, mode, str(args[0]))
    if kind == export.IEIO_RAW_DISK and len(args) == 1:
        return _disk_end(node, mode, exports.disk_record(args[0], "transfer"), stack)
    if kind == export.IEIO_SCRIPT and len(args) == 2:
        disk, index = exports.disk_record(args[0], "transfer"), args[1]
        if not isinstance(index, int):
            raise errors.OpExecError(
                f"transfer: wanted the number of a disk, found {index!r}"
            )
        return _script_end(node, instance, mode, (disk, index), stack)
    raise errors.OpExecError(
        "transfer: wanted [file, [path]], [raw, [disk]] or [script, [disk, index]],"
        f" found {kind!r} with {len(args)} arguments"
    )


def _attach(node: LocalNode, source: tuple[str, list[Any]]) -> None:
    """Attach a snapshot of external storage; its removal detaches it."""
    kind, args = source
    if kind == export.IEIO_FILE or not args:
        return
    disk = exports.disk_record(args[0], "transfer")
    device = storage.device(node.paths, disk, node.process)
    if isinstance(device, ExternalDisk) and device.attachment() is None:
        device.assemble()


def _file_end(node: LocalNode, instance: InstanceX, mode: str, path: str) -> _End:
    if mode == export.IEM_IMPORT:
        return _End((f"--file={exports.new_dump(node, instance.name, path)}",))
    local = exports.dump_file(node, path)
    size_mib = -(-os.stat(local).st_size // MIB)
    return _End((f"--file={local}", f"--expected-size={size_mib}"))


def _disk_end(
    node: LocalNode, mode: str, disk: DiskX, stack: contextlib.ExitStack
) -> _End:
    device = storage.device(node.paths, disk, node.process)
    size_mib = -(-device.size_bytes() // MIB)
    expected = f"--expected-size={size_mib}"
    if mode == export.IEM_IMPORT:
        expected = f"--expected-size={disk.size or size_mib}"
    if disk.dev_type not in disks.DTS_FILEBASED:
        return _End((f"--file={device.path}", expected))
    fd = stack.enter_context(device.opened(os.O_RDWR))
    return _End((f"--file=/proc/self/fd/{fd}", expected), fds=(fd,))


def _script_end(
    node: LocalNode,
    instance: InstanceX,
    mode: str,
    disk: tuple[DiskX, int],
    stack: contextlib.ExitStack,
) -> _End:
    command = os_scripts.transfer_command(node, instance, mode, disk, stack)
    text = f"cd {shlex.quote(command.cwd)} && exec {shlex.join(command.argv)}"
    # The program, the parent of this shell, holds the files; the script does not
    # inherit them.
    for name, fd in command.fds.items():
        text = f"export {name}=/proc/$PPID/fd/{fd}; {text}"
    option = "--cmd-suffix" if mode == export.IEM_IMPORT else "--cmd-prefix"
    # Parameters of the OS may be secret: they are passed in the environment only.
    arguments = (f"{option}={text}", f"--expected-size={disk[0].size}")
    return _End(arguments, command.env, tuple(command.fds.values()))


# Supervision
def _top(node: LocalNode) -> str:
    return f"{node.paths.run_dir}/import-export"


def _directory(node: LocalNode, name: str, *, needed: bool = True) -> str:
    """Return a transfer's directory.

    Raises:
        OpExecError: no transfer has this name.
    """
    directory = f"{_top(node)}/{name}"
    if not _NAME.fullmatch(name) or (needed and not os.path.isdir(directory)):
        raise errors.OpExecError(f"transfer {name!r}: not found on this node")
    return directory


def _status(directory: str) -> dict[str, Any] | None:
    # Check before reading: a process that has ended has written its final status.
    is_running = pidfile.is_locked(f"{directory}/{_PID}")
    path = f"{directory}/{_STATUS}"
    try:
        status: Any = json.loads(files.read_file(path, max_size=_MAX_STATUS))
        begun_s = time.time() - float(status.get("mtime") or 0)
        has_ended = status["exit_status"] is not None
    except FileNotFoundError:
        return None
    except (*_NO_STATUS, OSError, errors.GenericError) as err:
        _log.warning("%s: %s", path, err)
        return _failed("the status of the transfer process is damaged")
    if not has_ended and not is_running and begun_s > _START_S:
        status |= _failed("the transfer process died")
    return cast("dict[str, Any]", status)


def _failed(reason: str) -> dict[str, Any]:
    return {"exit_status": 1, "error_message": reason}


def _signal(directory: str, number: signal.Signals) -> bool:
    """Send a signal to a transfer's process; return whether the process runs."""
    path = f"{directory}/{_PID}"
    pid = pidfile.read_pid(path)
    if pid is None or not pidfile.is_locked(path):
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _ended(directory: str) -> bool:
    deadline = time.monotonic() + _END_S
    while pidfile.is_locked(f"{directory}/{_PID}"):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True
