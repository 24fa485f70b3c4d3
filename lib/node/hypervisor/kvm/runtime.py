"""Runtime of a guest: its start parameters, for reboot, migration and hotplug.

Stored as JSON ``[argv, [nic], hvparams, [[disk, link path, uri]]]``. Each start adds
the arguments that ``argv`` lacks: NICs, disks, acceleration, user.

Disks that are files are opened by this process, and the emulator gets descriptors:
other nodes write to shared storage, and could put a link in the place of a file while
an emulator is about to open it. The emulator's locks of images are of the kind that
belongs to the open file, so they count for the descriptor, too.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, Self

import msgspec

from ganeti.base import errors
from ganeti.base.constants import disks
from ganeti.base.filesystem import files as file_utils
from ganeti.base.pathutils import VIRTUAL_PREFIX
from ganeti.model.objects.filled import DiskX, NicX
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm.files import Files

HvInfo = dict[str, Any]


class PluggedDisk(DiskX, frozen=True, kw_only=True):
    """A disk and its bus address; None for devices without an address."""

    hvinfo: HvInfo | None = None


class PluggedNic(NicX, frozen=True, kw_only=True):
    """A NIC and its bus address; None for devices without an address."""

    hvinfo: HvInfo | None = None


class Runtime(msgspec.Struct, frozen=True, array_like=True):
    """Parameters of one guest's start."""

    argv: tuple[str, ...]
    nics: tuple[PluggedNic, ...]
    hvparams: dict[str, Any]
    disks: tuple[tuple[PluggedDisk, str, str | None], ...]

    def __post_init__(self) -> None:
        """Forget URIs that are paths: earlier releases stored a link there."""
        if any(uri and uri.startswith("/") for _, _, uri in self.disks):
            rows = tuple(
                (disk, path, None if uri and uri.startswith("/") else uri)
                for disk, path, uri in self.disks
            )
            msgspec.structs.force_setattr(self, "disks", rows)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def hvinfos(self) -> list[HvInfo]:
        """Return the bus addresses of all devices."""
        infos = [disk.hvinfo for disk, _, _ in self.disks]
        infos += [nic.hvinfo for nic in self.nics]
        return [info for info in infos if info is not None]

    def find_disk(self, uuid: str) -> PluggedDisk | None:
        """Return a disk by uuid."""
        return next((row[0] for row in self.disks if row[0].uuid == uuid), None)

    def find_nic(self, uuid: str) -> PluggedNic | None:
        """Return a NIC by uuid."""
        return next((nic for nic in self.nics if nic.uuid == uuid), None)


def plugged_disk(disk: DiskX, hvinfo: HvInfo | None) -> PluggedDisk:
    """Return a disk with its bus address."""
    return PluggedDisk(
        **{f: getattr(disk, f) for f in DiskX.__struct_fields__}, hvinfo=hvinfo
    )


def plugged_nic(nic: NicX, hvinfo: HvInfo | None) -> PluggedNic:
    """Return a NIC with its bus address."""
    return PluggedNic(
        **{f: getattr(nic, f) for f in NicX.__struct_fields__}, hvinfo=hvinfo
    )


def save(files: Files, runtime: Runtime) -> None:
    """Write a guest's runtime file, readable by root only."""
    file_utils.write_file(files.runtime, msgspec.json.encode(runtime), mode=0o600)


def load(files: Files) -> Runtime:
    """Return a guest's runtime.

    Raises:
        HypervisorError: the file is missing or damaged.
    """
    try:
        data = file_utils.read_file(files.runtime, follow=False)
    except FileNotFoundError:
        raise errors.HypervisorError(
            f"instance {files.name}: no runtime file {files.runtime}"
        ) from None
    return parse(files.name, data)


def parse(name: str, text: str | bytes) -> Runtime:
    """Return the runtime in a JSON text.

    Raises:
        HypervisorError: the text is damaged.
    """
    try:
        return msgspec.json.decode(text, type=Runtime)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise errors.HypervisorError(f"instance {name}: runtime: {err}") from err


def export(files: Files, runtime: Runtime, state: str = "") -> str:
    """Return a runtime as text for another node, which reads `layout` from it.

    On a virtual node, paths below the node's root become virtual paths. The status of
    the guest follows the runtime if it is given.
    """
    rows = msgspec.structs.astuple(runtime)
    text = msgspec.json.encode((*rows, state) if state else rows).decode()
    root = files.paths.root
    return text.replace(f"{root}/", f"{VIRTUAL_PREFIX}/") if root else text


@contextlib.contextmanager
def opened_disk(
    effects: NodeEffects, guest: Files, disk: PluggedDisk, path: str
) -> Iterator[int]:
    """Hold a descriptor of a disk's content.

    Raises:
        HotplugError: it cannot be opened.
    """
    flags = os.O_RDONLY if disk.mode == "ro" else os.O_RDWR
    try:
        fd = effects.open_disk(disk, path, flags)
    except (OSError, errors.GenericError) as err:
        raise errors.HotplugError(
            f"instance {guest.name}: disk {disk.uuid}: {path}:"
            f" {getattr(err, 'strerror', None) or err}"
        ) from err
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def opened_disks(
    effects: NodeEffects, guest: Files, plan: Runtime
) -> Iterator[Mapping[str, int]]:
    """Hold a descriptor of each disk that is a file: path -> descriptor.

    Raises:
        HotplugError: one cannot be opened.
    """
    with contextlib.ExitStack() as stack:
        yield {
            path: stack.enter_context(opened_disk(effects, guest, disk, path))
            for disk, path, uri in plan.disks
            if disk.dev_type in disks.DTS_FILEBASED and not uri
        }
