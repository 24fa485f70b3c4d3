"""Disks that are files of a Gluster volume: template ``gluster``.

The logical id is ``(driver, path)``, relative to the volume; host, port and volume are
parameters. The volume is mounted below the cluster's directory on first use, and stays
mounted. With ``access=userspace`` the emulator opens the file itself, but creation and
scripts need the mount, too.
"""

import os
import re
import shutil
from typing import Any, ClassVar, Final

from ganeti.base import errors, pathutils
from ganeti.base.constants import disks
from ganeti.base.filesystem import beneath
from ganeti.base.net import netutils
from ganeti.base.process import SAFE_PATH, Runner
from ganeti.model.objects.filled import DiskX
from ganeti.node.storage import allowed
from ganeti.node.storage.files import FileDisk
from ganeti.protocols import ssconf

_VOLUME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_PATH: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_LAST_PORT: Final = 65535
_ENVIRONMENT: Final = {"PATH": SAFE_PATH, "LC_ALL": "C"}
#: Seconds until a server that does not answer counts as unreachable.
_MOUNT_S: Final = 120.0
_MAX_OUTPUT: Final = 1 << 16


def check_usable(paths: pathutils.Paths, directory: str) -> str | None:
    """Return the reason why volumes cannot be mounted below a directory, or None."""
    if not directory:
        return "no directory for Gluster volumes is set"
    try:
        local = allowed.local_path(paths, directory)
    except errors.FileStoragePathError as err:
        return str(err)
    if allowed.forbidden(paths, local):
        return f"{directory}: volumes are not mounted in system directories"
    if os.path.lexists(local) and not os.path.isdir(local):
        return f"{directory}: wanted a directory, found something else"
    if shutil.which("mount.glusterfs", path=SAFE_PATH) is None:
        return "mount.glusterfs is missing; it is in the package glusterfs-client"
    return None


def mount_points(paths: pathutils.Paths, directory: str) -> list[str]:
    """Return the mount points of volumes below a directory, sorted."""
    local = allowed.local_path(paths, directory)
    try:
        names = sorted(os.listdir(local))
    except OSError:
        return []
    points = [f"{local}/{name}" for name in names if "@" in name]
    return [point for point in points if os.path.ismount(point)]


class GlusterDisk(FileDisk):
    """A disk in a file of a Gluster volume, where creation makes its directory."""

    _made_mode: ClassVar[int | None] = 0o750

    def __init__(self, paths: pathutils.Paths, disk: DiskX, process: Runner) -> None:
        super().__init__(paths, disk, process)
        given = disk.params or {}
        self._host = str(given.get("host", ""))
        self._port = given.get("port")
        self._volume = str(given.get("volume", ""))
        is_host = _HOST.fullmatch(self._host) or netutils.is_address(self._host)
        is_port = type(self._port) is int and 0 < self._port <= _LAST_PORT
        if not (is_host and is_port and _VOLUME.fullmatch(self._volume)):
            raise errors.BlockDeviceError(
                f"disk {disk.uuid}: wanted host, port and volume of Gluster, found"
                f" {self._host!r}, {self._port!r} and {self._volume!r}"
            )

    @property
    def label(self) -> str:
        """Server, volume and file."""
        return f"{self._host}:{self._volume}/{self._configured(self.disk.logical_id)}"

    def _configured(self, logical_id: tuple[Any, ...]) -> str:
        """Return the path within the volume."""
        driver, path = (*logical_id, None, None)[:2]
        is_path = isinstance(path, str) and _PATH.fullmatch(path) is not None
        if driver not in disks.FILE_DRIVER or not is_path:
            raise errors.BlockDeviceError(
                f"disk {self.disk.uuid}: wanted a file driver and a path in a volume,"
                f" found {list(logical_id)!r}"
            )
        return str(path)

    def _allowed(self, logical_id: tuple[Any, ...]) -> beneath.Place:
        """Return the place of a file below the mounted volume.

        Raises:
            StorageError: the volume cannot be mounted.
        """
        inside = self._configured(logical_id)
        return beneath.Place(self._mounted(), inside)

    def uri(self, hypervisor: str) -> str | None:
        """Return the URI for KVM if the disk is accessed so, else None."""
        if (self.disk.params or {}).get("access") != "userspace":
            return None
        if hypervisor != "kvm":
            raise self.error(f"hypervisor {hypervisor} cannot use access=userspace")
        host = f"[{self._host}]" if ":" in self._host else self._host
        file = self._configured(self.disk.logical_id)
        return f"gluster://{host}:{self._port}/{self._volume}/{file}"

    def _mounted(self) -> str:
        """Return the mount point of the volume; mount it if it is not mounted.

        Raises:
            StorageError: the cluster has no directory, or mounting failed.
        """
        base = ssconf.SimpleStore(self._paths).gluster_storage_dir()
        if not base:
            raise errors.StorageError(
                "the cluster has no directory for Gluster volumes; an administrator can"
                " set one with gnt-cluster modify --gluster-storage-dir"
            )
        top = allowed.local_path(self._paths, base)
        if allowed.forbidden(self._paths, top):
            raise errors.StorageError(
                f"{base}: volumes are not mounted in system directories"
            )
        point = f"{top}/{self._volume}@{self._host}.{self._port}"
        if os.path.ismount(point):
            return point
        self._mount(point)
        return point

    def _mount(self, point: str) -> None:
        try:
            os.makedirs(point, mode=0o700, exist_ok=True)
        except FileExistsError as err:
            # The mount point of a client that has ended is there, but nothing of it can
            # be read, so it is not taken for a directory.
            raise errors.StorageError(
                f"{point}: wanted a directory or a mounted volume; if the volume's"
                " Gluster client has ended, stop the instances that use it, then run"
                f" umount -l {point} on this node"
            ) from err
        except OSError as err:
            raise errors.StorageError(
                f"{point}: cannot be made: {err.strerror}"
            ) from err
        source = f"{self._host}:/{self._volume}"
        argv = ["mount", "-t", "glusterfs", "-o", f"server-port={self._port}"]
        try:
            result = self._process.run_bounded(
                [*argv, source, point],
                env=_ENVIRONMENT,
                timeout_s=_MOUNT_S,
                max_output=_MAX_OUTPUT,
            )
        except errors.CommandError as err:
            raise errors.StorageError(f"Gluster volume {source}: {err}") from err
        # Another disk's thread may have mounted it first; then this one is refused.
        if not os.path.ismount(point):
            text = " / ".join(result.output.split("\n"))[-500:].strip(" /")
            raise errors.StorageError(
                f"Gluster volume {source}, port {self._port}: cannot be mounted: mount"
                f" {result.reason}: {text or 'no output'}; it needs the package"
                " glusterfs-client"
            )
