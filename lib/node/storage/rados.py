"""Disks that are images of RADOS block devices: template ``rbd``.

The logical id is ``("rbd", image)``, the pool is a parameter. The program ``rbd`` of
Ceph does the work. With ``access=userspace`` the emulator opens the image itself; a
device of the kernel is then only made where the node can, for scripts that need a path.
"""

import json
import logging
import os
import re
import stat
from collections.abc import Iterator
from typing import Any, Final

from ganeti.base import errors, pathutils
from ganeti.base.process import SAFE_PATH, Runner, RunResult
from ganeti.model.objects.filled import DiskX
from ganeti.node.storage.base import Device, DeviceStatus, LocalStatus

_log = logging.getLogger(__name__)

#: Names of pools and images as Ceph and the emulator's URIs take them without quoting.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_DEVICE: Final = re.compile(r"/dev/rbd[0-9]{1,6}")
_ENVIRONMENT: Final = {"PATH": SAFE_PATH, "LC_ALL": "C"}
#: Limits in seconds, below those of the node calls: a cluster of Ceph without a quorum
#: makes its programs wait without end. Removal takes time per object of the image.
_TIMEOUT_S: Final = 100.0
_REMOVE_TIMEOUT_S: Final = 700.0
_MAX_OUTPUT: Final = 4 << 20
#: Exit code of ``rbd`` when the image does not exist.
_NO_ENTRY: Final = 2


class RadosDisk(Device):
    """An image in a pool."""

    def __init__(self, paths: pathutils.Paths, disk: DiskX, process: Runner) -> None:
        super().__init__(paths, disk, process)
        pool = (disk.params or {}).get("pool", "rbd")
        image = disk.logical_id[-1] if len(disk.logical_id) == 2 else None
        for name in (pool, image):
            if not isinstance(name, str) or _NAME.fullmatch(name) is None:
                raise errors.BlockDeviceError(
                    f"disk {disk.uuid}: wanted a pool and an image, found {pool!r} and"
                    f" {list(disk.logical_id)!r}"
                )
        self._pool, self._image = pool, str(image)

    @property
    def label(self) -> str:
        """Pool and image."""
        return f"{self._pool}/{self._image}"

    @property
    def _is_direct(self) -> bool:
        return (self.disk.params or {}).get("access") == "userspace"

    @property
    def path(self) -> str:
        """Path of the device; empty while there is none."""
        return self._mapped() or ""

    def uri(self, hypervisor: str) -> str | None:
        """Return the URI for KVM if the disk is accessed so, else None."""
        if not self._is_direct:
            return None
        if hypervisor != "kvm":
            raise self.error(f"hypervisor {hypervisor} cannot use access=userspace")
        return f"rbd:{self._pool}/{self._image}"

    # The program
    def _run(self, *words: str, timeout_s: float = _TIMEOUT_S) -> RunResult:
        """Run ``rbd``.

        Raises:
            StorageError: Ceph is not installed.
        """
        try:
            return self._process.run_bounded(
                ["rbd", *words],
                env=_ENVIRONMENT,
                timeout_s=timeout_s,
                max_output=_MAX_OUTPUT,
            )
        except errors.CommandError as err:
            raise errors.StorageError(
                f"cannot use RADOS block devices: {err}; the program is in the package"
                " ceph-common"
            ) from err

    def _change(self, *words: str, timeout_s: float = _TIMEOUT_S) -> str:
        result = self._run(*words, timeout_s=timeout_s)
        if result.failed:
            raise self._failed(words[0], result)
        return result.stdout

    def _failed(self, verb: str, result: RunResult) -> errors.BlockDeviceError:
        lines = [line.strip() for line in result.output.splitlines() if line.strip()]
        text = " / ".join(lines[-8:])[-1000:] or "no output"
        return self.error(f"rbd {verb} {result.reason}: {text}")

    @property
    def _place(self) -> tuple[str, ...]:
        return "--pool", self._pool, "--image", self._image

    def _mapped(self) -> str | None:
        """Return the device of the image on this node, None if it has none."""
        output = self._change("showmapped", "--format", "json")
        try:
            rows = list(_mappings(json.loads(output)))
        except (ValueError, KeyError, TypeError, AttributeError) as err:
            raise self.error(f"rbd showmapped: no list in its output: {err!r}") from err
        wanted = self._pool, self._image
        devices = [device for *place, device in rows if tuple(place) == wanted]
        if len(devices) > 1:
            raise self.error(f"is mapped more than once: {', '.join(devices)}")
        return self._checked(devices[0]) if devices else None

    def _checked(self, path: str) -> str:
        if not _DEVICE.fullmatch(path):
            raise self.error(f"wanted a device such as /dev/rbd0, found {path[:80]!r}")
        return path

    # State
    def exists(self) -> bool:
        """Return whether the image exists."""
        result = self._run("info", "--format", "json", *self._place)
        if result.code == _NO_ENTRY:
            return False
        if result.failed:
            raise self._failed("info", result)
        return True

    def status(self) -> DeviceStatus:
        """Return the status; without a path while there is no device."""
        path = self._mapped()
        if path is None:
            if self._is_direct:
                self.require()
                return DeviceStatus("")
            return DeviceStatus("", ldisk_status=LocalStatus.UNKNOWN)
        try:
            info = os.stat(path)
        except OSError as err:
            raise self.error(f"{path}: {err.strerror}") from err
        if not stat.S_ISBLK(info.st_mode):
            raise self.error(f"wanted a block device, found something else at {path}")
        return DeviceStatus(path, os.major(info.st_rdev), os.minor(info.st_rdev))

    def size_bytes(self) -> int:
        """Return the size of the image."""
        output = self._change("info", "--format", "json", *self._place)
        try:
            return int(json.loads(output)["size"])
        except (ValueError, KeyError, TypeError) as err:
            raise self.error(f"rbd info: no size in its output: {err!r}") from err

    # Life
    def create(
        self, size_mib: int, *, exclusive: bool = False, is_primary: bool = True
    ) -> None:
        """Create the image.

        If ``rbd`` does not end in time, Ceph may have made the image nevertheless.

        Raises:
            BlockDeviceError: the image exists or cannot be created; if it may be left,
                the error says so.
        """
        del exclusive, is_primary
        # An image that was there before must not be removed after a failure.
        if self.exists():
            raise self.error("exists already")
        result = self._run("create", *self._place, "--size", str(size_mib))
        if not result.failed:
            return
        failure = self._failed("create", result)
        # It was ended at the time limit, and Ceph may complete the request later.
        if result.code is None:
            undone = self._run("rm", *self._place)
            if undone.failed and undone.code != _NO_ENTRY:
                failure = errors.BlockDeviceError(
                    f"{failure}; the image may be left: when Ceph answers again, remove"
                    f" it with rbd rm --pool {self._pool} --image {self._image}"
                )
        raise failure

    def remove(self) -> None:
        """Destroy the image; a missing one is not an error."""
        self.shutdown()
        result = self._run("rm", *self._place, timeout_s=_REMOVE_TIMEOUT_S)
        if result.failed and result.code != _NO_ENTRY:
            raise self._failed("rm", result)

    def assemble(self) -> None:
        """Make a device, unless there is one; with direct access it may be missing."""
        if self._mapped() is not None:
            return
        result = self._run("map", *self._place)
        if not result.failed:
            self._checked(result.stdout.strip())
            return
        if not self._is_direct:
            raise self._failed("map", result)
        self.require()
        _log.info("%s has no device: %s", self.label, result.output.strip()[-500:])

    def shutdown(self) -> None:
        """Remove the device."""
        path = self._mapped()
        if path is not None:
            self._change("unmap", path)

    def close(self) -> None:
        """Accept it: whoever has a device may write to it."""

    def grow(
        self,
        amount_mib: int,
        *,
        dryrun: bool,
        backingstore: bool,
        exclusive: bool = False,
    ) -> None:
        """Grow the image to the recorded size plus the amount; never shrink it."""
        del exclusive
        if amount_mib < 0:
            raise self.error(f"cannot grow by {amount_mib} MiB")
        wanted = self.disk.size + amount_mib
        size = self.size_bytes()
        if dryrun or not backingstore or size >= wanted << 20:
            return
        self._change("resize", *self._place, "--size", str(wanted))

    def rename(self, new_id: tuple[Any, ...]) -> None:
        """Rename the image within its pool."""
        new = new_id[-1] if len(new_id) == 2 else None
        if not isinstance(new, str) or _NAME.fullmatch(new) is None:
            raise self.error(
                f"wanted another name of the image, found {list(new_id)!r}"
            )
        if new == self._image:
            return
        self._change(
            *("rename", "--pool", self._pool, "--image", self._image),
            *("--dest-pool", self._pool, "--dest", new),
        )

    def set_info(self, text: str) -> None:
        """Accept it: the name of the image says enough."""


def _mappings(rows: Any) -> Iterator[tuple[str, str, str]]:
    """Yield pool, image and device of the output of ``showmapped``.

    It is a list of mappings, or in releases before 14 a mapping by number. Snapshots
    and images of other namespaces are left out.
    """
    for row in rows.values() if isinstance(rows, dict) else rows:
        if row.get("namespace") or row.get("snap", "-") not in ("", "-"):
            continue
        yield str(row["pool"]), str(row["name"]), str(row["device"])
