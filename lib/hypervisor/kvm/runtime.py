"""What a guest was started with, kept for reboot, migration and device changes.

Stored as JSON ``[argv, [nic], hvparams, [[disk, link path, uri]]]``, with what is not
said here (NICs, disks, acceleration, user) added to the command at each start.
"""

from typing import Any, Self

import msgspec

from ganeti import errors
from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.kvm.files import Files
from ganeti.objects.filled import DiskX, NicX
from ganeti.pathutils import VIRTUAL_PREFIX
from ganeti.utils import files as file_utils

HvInfo = dict[str, Any]


class PluggedDisk(DiskX, frozen=True, kw_only=True):
    """A disk and where the guest finds it; None for devices without an address."""

    hvinfo: HvInfo | None = None


class PluggedNic(NicX, frozen=True, kw_only=True):
    """A NIC and where the guest finds it; None for devices without an address."""

    hvinfo: HvInfo | None = None


class Runtime(msgspec.Struct, frozen=True, array_like=True):
    """One guest's start."""

    argv: tuple[str, ...]
    nics: tuple[PluggedNic, ...]
    hvparams: dict[str, Any]
    disks: tuple[tuple[PluggedDisk, str, str | None], ...]

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def hvinfos(self) -> list[HvInfo]:
        """Return the places of all devices."""
        infos = [disk.hvinfo for disk, _, _ in self.disks]
        infos += [nic.hvinfo for nic in self.nics]
        return [info for info in infos if info is not None]

    def with_links(self, disks: "tuple[AttachedDisk, ...]") -> Self:
        """Return a copy with disks found where they are on this node.

        Raises:
            HypervisorError: the guest has a disk that is not among them.
        """
        links = {item.disk.uuid: (item.path, item.uri) for item in disks}
        rows = []
        for disk, _, _ in self.disks:
            if disk.uuid not in links:
                raise errors.HypervisorError(f"disk {disk.uuid}: not active here")
            rows.append((disk, *links[disk.uuid]))
        return self.replace(disks=tuple(rows))

    def find_disk(self, uuid: str) -> PluggedDisk | None:
        """Return a disk by uuid."""
        return next((row[0] for row in self.disks if row[0].uuid == uuid), None)

    def find_nic(self, uuid: str) -> PluggedNic | None:
        """Return a NIC by uuid."""
        return next((nic for nic in self.nics if nic.uuid == uuid), None)


def plugged_disk(disk: DiskX, hvinfo: HvInfo | None) -> PluggedDisk:
    """Return a disk with its place."""
    return PluggedDisk(
        **{f: getattr(disk, f) for f in DiskX.__struct_fields__}, hvinfo=hvinfo
    )


def plugged_nic(nic: NicX, hvinfo: HvInfo | None) -> PluggedNic:
    """Return a NIC with its place."""
    return PluggedNic(
        **{f: getattr(nic, f) for f in NicX.__struct_fields__}, hvinfo=hvinfo
    )


def save(files: Files, runtime: Runtime) -> None:
    """Write a guest's runtime file, for root alone."""
    file_utils.write_file(files.runtime, msgspec.json.encode(runtime), mode=0o600)


def load(files: Files) -> Runtime:
    """Return a guest's runtime.

    Raises:
        HypervisorError: there is none, or it cannot be understood.
    """
    try:
        with open(files.runtime, "rb") as src:
            return parse(files.name, src.read())
    except FileNotFoundError:
        raise errors.HypervisorError(
            f"instance {files.name}: no runtime file {files.runtime}"
        ) from None


def parse(name: str, text: str | bytes) -> Runtime:
    """Return the runtime that a text describes.

    Raises:
        HypervisorError: it cannot be understood.
    """
    try:
        return msgspec.json.decode(text, type=Runtime)
    except msgspec.DecodeError as err:
        raise errors.HypervisorError(f"instance {name}: runtime: {err}") from err


def export(files: Files, runtime: Runtime) -> str:
    """Return a runtime as text for another node.

    Between virtual nodes paths below this node's root become virtual ones.
    """
    text = msgspec.json.encode(runtime).decode()
    root = files.paths.root
    return text.replace(f"{root}/", f"{VIRTUAL_PREFIX}/") if root else text


def adopt(files: Files, text: str) -> Runtime:
    """Return the runtime that another node exported.

    Raises:
        HypervisorError: it cannot be understood.
    """
    root = files.paths.root
    if root:
        text = text.replace(f"{VIRTUAL_PREFIX}/", f"{root}/")
    return parse(files.name, text)
