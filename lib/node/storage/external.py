"""Disks of external storage: template ``ext``.

The logical id is ``(provider, volume)``. The scripts of the provider do the work; this
driver runs them with bounded time and output, and remembers below the run directory
what is attached on this node, so that no script runs to answer for the state of a disk.
Specified in os-and-extstorage, section 3, and ganeti-extstorage-interface(7).
"""

import functools
import logging
import os
import re
import stat
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ganeti.base import errors, pathutils
from ganeti.base.constants.protocols import os as constants
from ganeti.base.filesystem import files
from ganeti.base.process import SAFE_PATH, Runner, RunResult
from ganeti.model.objects.filled import DiskX
from ganeti.node.storage import providers
from ganeti.node.storage.base import Device, DeviceStatus, LocalStatus

_ES_ACTION_CREATE: Final = "create"
_ES_ACTION_REMOVE: Final = "remove"
_ES_ACTION_GROW: Final = "grow"
_ES_ACTION_ATTACH: Final = "attach"
_ES_ACTION_DETACH: Final = "detach"
_ES_ACTION_SETINFO: Final = "setinfo"
_ES_ACTION_VERIFY: Final = "verify"

_log = logging.getLogger(__name__)

#: Names of volumes; they are parts of the names of files, too.
_VOLUME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+_.-]{0,199}")
#: Parameters that are not the provider's.
_OWN_PARAMETERS: Final = frozenset({"access"})
#: A hypervisor, and the URI for it.
_URI: Final = re.compile(r"([a-z][a-z0-9-]*):([\x21-\x7e]+)")
_MAX_URIS: Final = 16
_MAX_TEXT: Final = 4096
#: Bytes that a script may print.
_MAX_OUTPUT: Final = 1 << 20
#: Lines, and characters, of a failed script's output that the error shows.
_TAIL_LINES: Final = 20
_TAIL_CHARS: Final = 2000
#: Time limits in seconds. The scripts of one node call together stay below the
#: master's limit of 900.
_TIMES_S: Final = {
    _ES_ACTION_ATTACH: 240.0,
    constants.ES_ACTION_CLOSE: 120.0,
    _ES_ACTION_CREATE: 500.0,
    _ES_ACTION_DETACH: 120.0,
    _ES_ACTION_GROW: 600.0,
    constants.ES_ACTION_OPEN: 120.0,
    _ES_ACTION_REMOVE: 500.0,
    _ES_ACTION_SETINFO: 120.0,
    constants.ES_ACTION_SNAPSHOT: 600.0,
    _ES_ACTION_VERIFY: 60.0,
}


class Attachment(msgspec.Struct, frozen=True):
    """An attached volume.

    Attributes:
        path: of its device, empty if there is only access by URI.
        uris: URI by hypervisor.
        is_open: whether the ``open`` script has run.
        is_opening: whether it has begun, and its success is not known.
    """

    path: str
    uris: dict[str, str] = {}
    is_open: bool = False
    is_opening: bool = False


class _Scripts:
    """Runs the scripts of the provider of one volume.

    Args:
        paths: of this node.
        disk: the record; its logical id is checked.
        process: runs the scripts.
        error: returns an error that names the disk.
    """

    def __init__(
        self,
        paths: pathutils.Paths,
        disk: DiskX,
        process: Runner,
        error: Callable[[str], errors.BlockDeviceError],
    ) -> None:
        self._paths, self._disk, self._process = paths, disk, process
        self._error = error
        self._provider_name, self._volume = disk.logical_id

    @functools.cached_property
    def provider(self) -> providers.Provider:
        """The provider, if this node has it."""
        return providers.find(self._paths, self._provider_name)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the disk that are the provider's."""
        given = self._disk.params or {}
        return {name: given[name] for name in given if name not in _OWN_PARAMETERS}

    def _environment(self, values: dict[str, Any]) -> dict[str, str]:
        env = {
            "PATH": SAFE_PATH,
            "LC_ALL": "C",
            "VOL_NAME": self._volume,
            "VOL_UUID": self._disk.uuid,
        }
        if self._disk.name:
            env["VOL_CNAME"] = self._disk.name
        for name, value in self.parameters.items():
            env[f"EXTP_{name.upper().replace('-', '_')}"] = str(value)
        env |= {name: str(value) for name, value in values.items()}
        for name, value in env.items():
            if "\0" in value or "=" in name:
                raise self._error(f"parameter {name}: {value!r} cannot be passed on")
        return env

    def run(self, action: str, **values: Any) -> None:
        """Run a script and keep what it printed in a log file of its own."""
        result = self.execute(action, values)
        self._log(action, result)

    def execute(self, action: str, values: dict[str, Any]) -> RunResult:
        """Run a script.

        Raises:
            BlockDeviceError: it failed; the text has the end of its output.
        """
        script = self.provider.scripts[action]
        env = self._environment(values)
        try:
            result = self._process.run_bounded(
                [script],
                env=env,
                timeout_s=_TIMES_S[action],
                max_output=_MAX_OUTPUT,
            )
        except errors.CommandError as err:
            raise self._error(f"script {action}: {err}") from err
        if not result.failed:
            return result
        log = ""
        if action != _ES_ACTION_ATTACH:
            path = self._log(action, result)
            log = f"; see {path}" if path else ""
        raise self._error(
            f"script {action} of provider {self._provider_name} {result.reason}:"
            f" {_tail(result)}{log}"
        )

    def _log(self, action: str, result: RunResult) -> str | None:
        """Write the output of a script to a file; return its path.

        None if that is impossible, as on a full disk: what the script has done counts.
        """
        stamp = time.strftime("%Y-%m-%d_%H_%M_%S")
        name = f"{action}-{self._provider_name}-{self._volume}-{stamp}.log"
        path = f"{self._paths.log_dir}/extstorage/{name}"
        try:
            os.makedirs(os.path.dirname(path), mode=0o750, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
            with open(fd, "w", encoding="utf-8", errors="replace") as out:
                out.write(result.output)
        except OSError as err:
            _log.warning("%s: cannot be written: %s", path, err.strerror)
            return None
        return path


class ExternalDisk(Device):
    """A volume of an external storage provider."""

    def __init__(self, paths: pathutils.Paths, disk: DiskX, process: Runner) -> None:
        super().__init__(paths, disk, process)
        provider, volume = (*disk.logical_id, None, None)[:2]
        is_volume = isinstance(volume, str) and _VOLUME.fullmatch(volume) is not None
        if len(disk.logical_id) != 2 or not (providers.is_name(provider) and is_volume):
            raise errors.BlockDeviceError(
                f"disk {disk.uuid}: wanted a provider and a volume, found"
                f" {list(disk.logical_id)!r}"
            )
        self._provider_name, self._volume = provider, volume
        self._scripts = _Scripts(paths, disk, process, self.error)

    @property
    def label(self) -> str:
        """The volume and its provider."""
        return f"{self._provider_name}/{self._volume}"

    @property
    def path(self) -> str:
        """Path of the device; empty while it is not attached, or has only a URI."""
        attached = self.attachment()
        return attached.path if attached is not None else ""

    def uri(self, hypervisor: str) -> str | None:
        """Return the URI for direct access, None if the disk is accessed by its path.

        Raises:
            BlockDeviceError: not attached, or there is no access of the wanted kind.
        """
        attached = self._required()
        if (self.disk.params or {}).get("access") == "userspace":
            if hypervisor not in attached.uris:
                raise self.error(
                    f"provider {self._provider_name} printed no URI for {hypervisor},"
                    " which access=userspace needs"
                )
            return attached.uris[hypervisor]
        if not attached.path:
            raise self.error(
                f"provider {self._provider_name} printed no device path, which"
                " access=kernelspace needs"
            )
        return None

    # State on this node
    @property
    def _state_file(self) -> str:
        name = f"{self._provider_name}:{self._volume}"
        return f"{self._paths.run_dir}/extstorage/{name}"

    def attachment(self) -> Attachment | None:
        """Return how the volume is attached on this node, None if it is not."""
        try:
            data = files.read_file(self._state_file, follow=False)
            return msgspec.json.decode(data, type=Attachment)
        except FileNotFoundError:
            return None
        except (OSError, errors.GenericError, msgspec.DecodeError) as err:
            _log.warning("%s: cannot be used: %s", self._state_file, err)
            return None

    def _remember(self, attached: Attachment) -> None:
        with self._translated("remembering its path"):
            os.makedirs(os.path.dirname(self._state_file), mode=0o750, exist_ok=True)
            data = msgspec.json.encode(attached)
            files.write_file(self._state_file, data, mode=0o600)

    def _required(self) -> Attachment:
        attached = self.attachment()
        if attached is None:
            raise self.error("not attached on this node")
        return attached

    def exists(self) -> bool:
        """Return whether this node has the provider: only `assemble` shows more."""
        return bool(self._scripts.provider.scripts)

    def require(self) -> None:
        """Raise BlockDeviceError unless the volume is attached and present."""
        attached = self._required()
        if attached.path and _device_kind(attached.path) is None:
            raise self.error(f"its device {attached.path} has disappeared")

    def status(self) -> DeviceStatus:
        """Return the status; without a path while it is not attached."""
        attached = self.attachment()
        if attached is None:
            return DeviceStatus("", ldisk_status=LocalStatus.UNKNOWN)
        if not attached.path:
            return DeviceStatus("")
        kind = _device_kind(attached.path)
        if kind is None:
            return DeviceStatus(
                attached.path, is_degraded=True, ldisk_status=LocalStatus.FAULTY
            )
        return DeviceStatus(attached.path, *kind)

    def size_bytes(self) -> int:
        """Return the size of the device; it must be attached."""
        self.require()
        if not self.path:
            raise self.error("has no device on this node, only a URI")
        with self._translated("reading"), open(self.path, "rb") as src:
            return src.seek(0, os.SEEK_END)

    # Life
    def create(
        self, size_mib: int, *, exclusive: bool = False, is_primary: bool = True
    ) -> None:
        """Have the parameters verified and the volume created."""
        del exclusive, is_primary
        unknown = self._scripts.provider.unknown(self._scripts.parameters)
        if unknown:
            known = ", ".join(name for name, _text in self._scripts.provider.parameters)
            raise self.error(
                f"provider {self._provider_name} has no parameter"
                f" {', '.join(unknown)}, only {known or 'none'}"
            )
        self._scripts.run(_ES_ACTION_VERIFY)
        self._scripts.run(_ES_ACTION_CREATE, VOL_SIZE=size_mib)

    def remove(self) -> None:
        """Destroy the volume; the provider accepts that it does not exist."""
        if self.attachment() is not None:
            self.shutdown()
        self._scripts.run(_ES_ACTION_REMOVE)

    def assemble(self) -> None:
        """Attach the volume; repeated, it finds the device again."""
        before = self.attachment()
        result = self._scripts.execute(_ES_ACTION_ATTACH, {})
        attached = self._parse(result.stdout)
        if before is not None:
            # A repetition does not close the volume, so it stays known as open.
            attached = msgspec.structs.replace(
                before, path=attached.path, uris=attached.uris
            )
        self._remember(attached)

    def _parse(self, output: str) -> Attachment:
        """Return what ``attach`` printed.

        Raises:
            BlockDeviceError: neither a device nor a URI, or anything else.
        """
        first, *others = output.splitlines() or [""]
        path = first.strip()
        uris: dict[str, str] = {}
        if path and not (
            path.startswith("/")
            and os.path.normpath(path) == path
            and path.isprintable()
            and len(path) <= _MAX_TEXT
        ):
            raise self._garbage("an absolute device path", path)
        if path and _device_kind(path) is None:
            raise self._garbage("the path of a block device or of a file", path)
        for line in filter(None, (other.strip() for other in others)):
            match = _URI.fullmatch(line)
            if match is None or len(line) > _MAX_TEXT or len(uris) >= _MAX_URIS:
                raise self._garbage("hypervisor:URI after the first line", line)
            uris[match[1]] = match[2]
        if not path and not uris:
            raise self._garbage("a device path or a URI", "")
        return Attachment(path, uris)

    def _garbage(self, wanted: str, printed: str) -> errors.BlockDeviceError:
        return self.error(
            f"script attach of provider {self._provider_name}: wanted {wanted}, found"
            f" {printed[:200]!r}"
        )

    def open(self, *, exclusive: bool) -> None:
        """Allow writing on this node, alone or together with another one."""
        attached = self._required()
        if constants.ES_ACTION_OPEN not in self._scripts.provider.scripts:
            return
        # First: a volume that nobody knows to be open would never be closed.
        self._remember(msgspec.structs.replace(attached, is_opening=True))
        self._scripts.run(constants.ES_ACTION_OPEN, VOL_OPEN_EXCLUSIVE=exclusive)
        self._remember(Attachment(attached.path, attached.uris, is_open=True))

    def close(self) -> None:
        """Disallow writing on this node, if it was or may be allowed.

        After an ``open`` that has not succeeded, the success of the script does not
        matter: there may be nothing to close.
        """
        attached = self.attachment()
        if attached is None or not (attached.is_open or attached.is_opening):
            return
        if constants.ES_ACTION_CLOSE in self._scripts.provider.scripts:
            try:
                self._scripts.run(constants.ES_ACTION_CLOSE)
            except errors.BlockDeviceError as err:
                if attached.is_open:
                    raise
                _log.info("%s is not known to be open: %s", self.label, err)
        self._remember(Attachment(attached.path, attached.uris))

    def shutdown(self) -> None:
        """Close and detach the volume.

        One that this node does not know to be attached may be so by another release:
        then it does not matter whether the script succeeds.
        """
        if self.attachment() is None:
            try:
                self._scripts.run(_ES_ACTION_DETACH)
            except errors.BlockDeviceError as err:
                _log.info("%s is not known to be attached: %s", self.label, err)
            return
        self.close()
        self._scripts.run(_ES_ACTION_DETACH)
        # After the script: without the file, a repetition would not know that the
        # volume is attached.
        files.remove_file(self._state_file)

    def grow(
        self,
        amount_mib: int,
        *,
        dryrun: bool,
        backingstore: bool,
        exclusive: bool = False,
    ) -> None:
        """Grow the volume; no logical layer exists above it."""
        del exclusive
        if amount_mib < 0:
            raise self.error(f"cannot grow by {amount_mib} MiB")
        # No script answers whether a volume could grow; only the provider is looked
        # for.
        if dryrun or not backingstore:
            self.exists()
            return
        new_size = self.disk.size + amount_mib
        self._scripts.run(
            _ES_ACTION_GROW, VOL_SIZE=self.disk.size, VOL_NEW_SIZE=new_size
        )

    def rename(self, new_id: tuple[Any, ...]) -> None:
        """Accept the present name only: the interface has no script for it."""
        if tuple(new_id) != tuple(self.disk.logical_id):
            raise self.error("volumes of external storage cannot be renamed")

    def set_info(self, text: str) -> None:
        """Give the provider a text to keep with the volume."""
        self._scripts.run(_ES_ACTION_SETINFO, VOL_METADATA=text)

    def snapshot(self, name: str | None, size_mib: int | None) -> tuple[Any, ...]:
        """Have a snapshot created; return its logical id.

        Raises:
            BlockDeviceError: the provider has no such script, or it failed.
        """
        if constants.ES_ACTION_SNAPSHOT not in self._scripts.provider.scripts:
            raise self.error(
                f"provider {self._provider_name} {constants.ES_NO_SNAPSHOTS}"
            )
        snapshot = name or f"{self._volume}.snap"
        if _VOLUME.fullmatch(snapshot) is None:
            raise self.error(f"{snapshot!r} cannot be the name of a snapshot")
        self._scripts.run(
            constants.ES_ACTION_SNAPSHOT,
            VOL_SNAPSHOT_NAME=snapshot,
            VOL_SNAPSHOT_SIZE=size_mib or self.disk.size,
        )
        return self._provider_name, snapshot


def _tail(result: RunResult) -> str:
    """Return the last lines of a script's output as one line, bounded."""
    lines = [line.strip() for line in result.output.splitlines() if line.strip()]
    text = " / ".join(lines[-_TAIL_LINES:])[-_TAIL_CHARS:]
    return text or "it printed nothing"


def _device_kind(path: str) -> tuple[int, int] | tuple[None, None] | None:
    """Return the kernel's numbers of a block device, without numbers for a file.

    None if there is neither.
    """
    try:
        info = os.stat(path)
    except OSError:
        return None
    if stat.S_ISBLK(info.st_mode):
        return os.major(info.st_rdev), os.minor(info.st_rdev)
    return (None, None) if stat.S_ISREG(info.st_mode) else None
