"""Interface of disk drivers on a node.

A device is one node's access to the disk of a record. The master decides which disk is
on which node. A driver refuses unsupported operations with BlockDeviceError.
"""

import abc
import contextlib
import dataclasses
import enum
import fcntl
import os
from collections.abc import Iterator
from typing import Any, Final

from ganeti.base import errors, pathutils
from ganeti.base.constants import disks
from ganeti.base.process import Runner
from ganeti.model.objects.filled import DiskX

MIB: Final = 1024 * 1024
#: Bytes written or copied at once.
CHUNK: Final = 4 * MIB


class LocalStatus(enum.IntEnum):
    """State of the local copy; larger is worse."""

    OK = disks.LDS_OK
    SYNC = disks.LDS_SYNCING
    UNKNOWN = disks.LDS_UNKNOWN
    FAULTY = disks.LDS_FAULTY


@dataclasses.dataclass(frozen=True)
class MirrorStatus:
    """The state of a mirror in the terms of the kernel, for a comparison of both nodes.

    Attributes:
        connection: to the other node.
        role: of this node.
        disk: state of the data of this node.
        peer_disk: the same of the other node, as far as this node knows.
        generations: identifiers of the data, present first; only while the nodes are
            not connected, since their reading takes a program.
    """

    connection: str
    role: str
    disk: str
    peer_disk: str
    generations: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class DeviceStatus:
    """Status of a device; the wire form of block device status.

    ``mirror`` is not in Ganeti; only mirrors that are active have it.
    """

    dev_path: str
    major: int | None = None
    minor: int | None = None
    sync_percent: float | None = None
    estimated_time: float | None = None
    is_degraded: bool = False
    ldisk_status: LocalStatus = LocalStatus.OK
    mirror: MirrorStatus | None = None


class Device(abc.ABC):
    """One disk on this node."""

    def __init__(self, paths: pathutils.Paths, disk: DiskX, process: Runner) -> None:
        self._paths = paths
        self._process = process
        self.disk = disk

    @property
    @abc.abstractmethod
    def path(self) -> str:
        """Path to read and write the content on this node."""

    @contextlib.contextmanager
    def opened(self, flags: int) -> Iterator[int]:
        """Hold a descriptor of the content, for ``os.O_RDONLY`` or ``os.O_RDWR``.

        Raises:
            BlockDeviceError: it cannot be opened.
            FileStoragePathError: others have replaced the file.
        """
        with self._translated("opening"):
            fd = self.open_content(flags)
        try:
            yield fd
        finally:
            os.close(fd)

    def open_content(self, flags: int) -> int:
        """Return a descriptor that the caller closes; see `opened`."""
        return os.open(self.path, flags | os.O_CLOEXEC)

    @property
    def label(self) -> str:
        """The name of the disk in messages, in addition to its position."""
        return self.path

    def uri(self, hypervisor: str) -> str | None:
        """Return the URI for a hypervisor's direct access; None: by path."""
        del hypervisor
        return None

    @abc.abstractmethod
    def exists(self) -> bool:
        """Return whether the disk exists."""

    @abc.abstractmethod
    def create(
        self, size_mib: int, *, exclusive: bool = False, is_primary: bool = True
    ) -> None:
        """Create the disk, as large as its record or up to one unit of storage larger.

        ``exclusive``: no other disk may use the physical storage below it.
        ``is_primary``: this node's content is the valid one, others get it. Types
        without these notions ignore them.

        Raises:
            BlockDeviceError: the disk exists or cannot be created; nothing is left.
        """

    def create_labelled(
        self,
        size_mib: int,
        info: str,
        *,
        exclusive: bool = False,
        is_primary: bool = True,
    ) -> None:
        """Create the disk and store an information text with it; see `create`."""
        self.create(size_mib, exclusive=exclusive, is_primary=is_primary)
        try:
            self.set_info(info)
        except errors.GenericError:
            with contextlib.suppress(errors.GenericError):
                self.undo_create()
            raise

    def undo_create(self) -> None:
        """Destroy what this object's `create` has made, and nothing else."""
        self.remove()

    @abc.abstractmethod
    def remove(self) -> None:
        """Destroy the disk and its content; a missing disk is not an error."""

    @abc.abstractmethod
    def grow(
        self,
        amount_mib: int,
        *,
        dryrun: bool,
        backingstore: bool,
        exclusive: bool = False,
    ) -> None:
        """Grow the disk; ``dryrun`` only checks.

        ``backingstore`` selects the storage instead of the logical layer above it,
        ``exclusive`` keeps to the physical storage that the disk has.
        """

    @abc.abstractmethod
    def rename(self, new_id: tuple[Any, ...]) -> None:
        """Change the disk's logical id."""

    @abc.abstractmethod
    def size_bytes(self) -> int:
        """Return the disk's size.

        Raises:
            BlockDeviceError: the disk does not exist.
        """

    def assemble(self) -> None:
        """Activate the disk.

        Raises:
            BlockDeviceError: the disk does not exist.
        """
        self.require()

    def open(self, *, exclusive: bool) -> None:
        """Allow writing on this node."""
        del exclusive
        self.require()

    @abc.abstractmethod
    def close(self) -> None:
        """Disallow writing on this node."""

    @abc.abstractmethod
    def shutdown(self) -> None:
        """Undo `assemble`."""

    @abc.abstractmethod
    def set_info(self, text: str) -> None:
        """Store an information text with the disk, where its type supports one."""

    def status(self) -> DeviceStatus:
        """Return the disk's status."""
        self.require()
        return DeviceStatus(self.path)

    def require(self) -> None:
        """Raise BlockDeviceError unless the disk exists."""
        if not self.exists():
            raise self.error("not found")

    def find(self) -> DeviceStatus | None:
        """Return the disk's status, None if it does not exist."""
        return self.status() if self.exists() else None

    def snapshot(self, name: str | None, size_mib: int | None) -> tuple[Any, ...]:
        """Create a snapshot and return its logical id."""
        del name, size_mib
        capable = ", ".join(disks.DTS_SNAPSHOT_CAPABLE)
        raise self.error(
            f"disks of type {self.disk.dev_type} have no snapshots, only {capable}"
        )

    def error(self, text: str) -> errors.BlockDeviceError:
        """Return an error that names this disk."""
        return errors.BlockDeviceError(
            f"disk {self.disk.iv_name or self.disk.uuid} ({self.label}): {text}"
        )

    def wipe(self, offset_mib: int, size_mib: int) -> None:
        """Overwrite a part with zeros.

        Waits until no other wipe of the disk is under way: a master daemon that was
        restarted repeats a call that may not have ended.

        Raises:
            BlockDeviceError: the part is not inside the device, or writing failed.
        """
        self._check_part("wipe", offset_mib, size_mib)
        zeros = bytes(CHUNK)
        with self._translated("wiping"), self.opened(os.O_RDWR) as out:
            fcntl.flock(out, fcntl.LOCK_EX)
            os.lseek(out, offset_mib * MIB, os.SEEK_SET)
            left = size_mib * MIB
            while left:
                left -= os.write(out, zeros[: min(left, CHUNK)])
            os.fsync(out)

    def _check_part(self, verb: str, offset_mib: int, size_mib: int) -> None:
        end = (offset_mib + size_mib) * MIB
        if offset_mib < 0 or size_mib < 0 or end > self.size_bytes():
            raise self.error(
                f"cannot {verb} {size_mib} MiB at {offset_mib} MiB: the size is"
                f" {self.size_bytes() // MIB} MiB"
            )

    def copy_part(self, source: "Device | str", offset_mib: int, size_mib: int) -> None:
        """Copy a part of a disk, or of a device, to the same offset of this one.

        Raises:
            BlockDeviceError: reading or writing failed, or the part is not inside.
        """
        self._check_part("copy", offset_mib, size_mib)
        with (
            self._translated(f"copying {_name(source)}"),
            _opened_source(source) as src,
            self.opened(os.O_RDWR) as out,
        ):
            os.lseek(src, offset_mib * MIB, os.SEEK_SET)
            os.lseek(out, offset_mib * MIB, os.SEEK_SET)
            _copy(src, out, size_mib * MIB)
            os.fsync(out)

    def fill_from(self, source: "Device | str", limit_bytes: int) -> int:
        """Copy a disk, or an image by its path, to the beginning; return the bytes.

        Raises:
            BlockDeviceError: reading or writing failed, or the content does not fit.
        """
        name = _name(source)
        with (
            self._translated(f"copying {name}"),
            _opened_source(source) as src,
        ):
            # A block device has no size in its status, only an end.
            size = os.lseek(src, 0, os.SEEK_END)
            if size > self.size_bytes():
                raise self.error(
                    f"{name} has {size} bytes, the disk {self.size_bytes()}"
                )
            os.lseek(src, 0, os.SEEK_SET)
            with self.opened(os.O_RDWR) as out:
                copied = _copy(src, out, min(size, limit_bytes))
                os.fsync(out)
        return copied

    @contextlib.contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        """Turn an OSError into a BlockDeviceError."""
        try:
            yield
        except OSError as err:
            raise self.error(f"{doing}: {err.strerror}") from err


def _name(source: Device | str) -> str:
    return source if isinstance(source, str) else source.path


@contextlib.contextmanager
def _opened_source(source: Device | str) -> Iterator[int]:
    if isinstance(source, Device):
        with source.opened(os.O_RDONLY) as fd:
            yield fd
        return
    with open(source, "rb", buffering=0) as stream:
        yield stream.fileno()


def _copy(src: int, out: int, size: int) -> int:
    done = 0
    while done < size:
        data = os.read(src, min(CHUNK, size - done))
        if not data:
            break
        view = memoryview(data)
        while view:
            # A write may take only a part.
            view = view[os.write(out, view) :]
        done += len(data)
    return done
