"""Disks and NICs of a guest: their ids, bus addresses and emulator arguments.

All functions are pure. ``hvinfo`` is a device's bus address, assigned at start or at
hotplug and kept until the device is removed. Specified in the hypervisor document, 2.2
and 2.3.
"""

import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants.parameters.hvparams import QEMU_PCI_SLOTS
from ganeti.model.objects.filled import DiskX, NicX
from ganeti.node.hypervisor.kvm.devices import options
from ganeti.node.hypervisor.kvm.runtime import HvInfo, PluggedDisk, PluggedNic

# URIs of disks that the emulator itself accesses, as options of its block drivers.
#
# Pure functions. The forms are those of QEMU's invocation documentation, "Device URL
# Syntax", and of the block drivers rbd and gluster; the schema is that of
# ``BlockdevOptions``.

Options = dict[str, Any]

_NBD_PORT: Final = 10809
_GLUSTER_PORT: Final = 24007
_ISCSI_PORT: Final = 3260
#: Parts of ``rbd:pool/image:key=value``; a backslash protects the next character.
_RBD_PART: Final = re.compile(r"((?:[^:\\]|\\.)*)(?::|$)")
#: Name in the URI -> option of the driver.
_RBD_OPTIONS: Final = {"id": "user", "conf": "conf"}


def block_options(uri: str) -> Options:
    """Return the options of the block driver that a URI names.

    Raises:
        HypervisorError: the scheme is not supported, or a part is missing.
    """
    scheme = re.split(r"[:+]", uri, maxsplit=1)[0]
    make = _DRIVERS.get(scheme)
    if make is None:
        raise errors.HypervisorError(
            f"URI {uri!r}: wanted scheme {', '.join(sorted(_DRIVERS))}, found"
            f" {scheme!r}"
        )
    try:
        return make(uri)
    except (ValueError, KeyError, IndexError) as err:
        raise errors.HypervisorError(
            f"URI {uri!r}: the emulator cannot use it: {err}"
        ) from err


def _server(parts: urllib.parse.SplitResult, transport: str, port: int) -> Options:
    """Return a socket address: of a socket file, or of a host.

    Raises:
        ValueError: there is none.
    """
    if transport == "unix":
        return {"type": "unix", "path": _query(parts)["socket"]}
    if transport not in ("", "tcp"):
        raise ValueError(f"unknown transport {transport!r}")
    if not parts.hostname:
        raise ValueError("no host")
    return {"type": "inet", "host": parts.hostname, "port": str(parts.port or port)}


def _query(parts: urllib.parse.SplitResult) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(parts.query, strict_parsing=bool(parts.query)))


def _split(uri: str) -> tuple[urllib.parse.SplitResult, str, list[str]]:
    """Return the parts of a URI, its transport, and the parts of its path."""
    parts = urllib.parse.urlsplit(uri)
    transport = parts.scheme.partition("+")[2]
    path = urllib.parse.unquote(parts.path.removeprefix("/"))
    return parts, transport, path.split("/", 1)


def _nbd(uri: str) -> Options:
    parts, transport, path = _split(uri)
    options: Options = {
        "driver": "nbd",
        "server": _server(parts, transport, _NBD_PORT),
    }
    export = "/".join(path)
    return {**options, "export": export} if export else options


def _gluster(uri: str) -> Options:
    parts, transport, path = _split(uri)
    volume, file = path
    if not volume or not file:
        raise ValueError("wanted a volume and a file")
    server = _server(parts, transport, _GLUSTER_PORT)
    return {"driver": "gluster", "volume": volume, "path": file, "server": [server]}


def _iscsi(uri: str) -> Options:
    parts, _transport, path = _split(uri)
    target, lun = path
    server = _server(parts, "", _ISCSI_PORT)
    return {
        "driver": "iscsi",
        "transport": "tcp",
        "portal": f"{server['host']}:{server['port']}",
        "target": target,
        "lun": int(lun),
    }


def _rbd(uri: str) -> Options:
    name, *rest = [
        match[1] for match in _RBD_PART.finditer(uri.partition(":")[2]) if match[1]
    ]
    place, at, snapshot = name.partition("@")
    *pool, image = [_plain(part) for part in place.split("/")]
    if len(pool) not in (1, 2) or not image:
        raise ValueError("wanted pool/image")
    options: Options = {"driver": "rbd", "pool": pool[0], "image": image}
    if len(pool) > 1:
        options["namespace"] = pool[1]
    if at:
        options["snapshot"] = _plain(snapshot)
    for part in rest:
        key, _, value = part.partition("=")
        options[_RBD_OPTIONS[key]] = _plain(value)
    return options


def _plain(text: str) -> str:
    """Return a text without the backslashes that protect characters."""
    return re.sub(r"\\(.)", r"\1", text)


def _http(uri: str) -> Options:
    return {"driver": urllib.parse.urlsplit(uri).scheme, "url": uri}


_DRIVERS: Final[dict[str, Callable[[str], Options]]] = {
    "gluster": _gluster,
    "http": _http,
    "https": _http,
    "iscsi": _iscsi,
    "nbd": _nbd,
    "rbd": _rbd,
}


PCI_BUS: Final = "pci.0"
SCSI_BUS: Final = "scsi.0"
#: Slot of the cloud-init seed, the last: guests name disks in the order of slots.
_SEED_SLOT: Final = QEMU_PCI_SLOTS - 1
#: Targets on one SCSI bus, and those of CD drives; every controller has the latter.
_SCSI_IDS: Final = 16
CDROM_SCSI_IDS: Final = (6, 5)
#: Disks on the two IDE buses of the machine type pc, and on those SATA ports of q35
#: that CD drives leave free.
_IDE_DISKS: Final = 4
#: Machine types with PCI Express and SATA instead of PCI and IDE.
_Q35: Final = ("q35", "pc-q35-")
_PARAVIRTUAL: Final = "paravirtual"
#: Disk types that are devices of the SCSI bus, with their driver.
_SCSI_DRIVERS: Final = {
    "scsi": "scsi-hd",
    "scsi-hd": "scsi-hd",
    "scsi-cd": "scsi-cd",
    "scsi-block": "scsi-block",
    "scsi-generic": "scsi-generic",
}
#: NIC types that are not PCI devices.
_ISA_NICS: Final = frozenset({"ne2k_isa"})
#: Disk types whose controller is part of the machine type; they have no address.
_DRIVE_INTERFACES: Final = frozenset({"sd", "mtd", "pflash"})
#: Cache mode: write cache seen by the guest, bypass of the host's cache, no flushes.
_CACHE: Final = {
    "none": (True, True, False),
    "writeback": (True, False, False),
    "default": (True, False, False),
    "writethrough": (False, False, False),
}
#: Storage that other nodes also write: the host's cache could be stale.
_SHARED_TYPES: Final = frozenset(
    {"blockdev", "diskless", "ext", "gluster", "sharedfile"}
)


def device_id(kind: str, uuid: str) -> str:
    """Return a device's id: kind and uuid without its last two groups."""
    return f"{kind}-{'-'.join(uuid.split('-')[:3])}"


def needs_scsi(disk_types: Iterable[str]) -> bool:
    """Return whether one of these disk types needs a SCSI controller."""
    return any(kind in _SCSI_DRIVERS for kind in disk_types)


def is_q35(machine: str) -> bool:
    """Return whether a machine type, with options or without, is q35."""
    return machine.startswith(_Q35)


def q35_bridge() -> list[str]:
    """Return the arguments of the bus on which the devices of q35 are.

    Devices on the root bus of PCI Express cannot be added to a running guest. This bus
    has the name and the slots of the machine type pc, except the first slot, which is
    the bridge's own.
    """
    return ["-device", options.join("pcie-pci-bridge", id=PCI_BUS)]


def cdrom_ide(number: int, *, q35: bool) -> HvInfo:
    """Return the place of a CD drive that is no SCSI or virtio device."""
    if q35:
        return {"bus": f"ide.{_IDE_DISKS + number}", "unit": 0}
    return {"bus": "ide.1", "unit": number}


class DeviceSlots:
    """Allocator of bus addresses for devices.

    Args:
        taken: addresses of the present devices.
        reserved: PCI slots for the emulator's own devices.
        q35: whether the machine type is q35.
    """

    def __init__(
        self, taken: Iterable[HvInfo], reserved: int, *, q35: bool = False
    ) -> None:
        self._q35 = q35
        # The first slot of the bridge of q35 is its own.
        self._slots = set(range(max(reserved, 1) if q35 else reserved))
        self._targets = set(CDROM_SCSI_IDS)
        self._ide = 0
        for info in taken:
            if "addr" in info:
                self._slots.add(int(info["addr"], 16))
            if "scsi-id" in info:
                self._targets.add(info["scsi-id"])
            if "unit" in info:
                self._ide += 1

    def for_disk(self, disk: DiskX, disk_type: str) -> HvInfo | None:
        """Return a free address for a disk, None for types without an address."""
        if disk_type in _DRIVE_INTERFACES:
            return None
        info: HvInfo = {"id": device_id("disk", disk.uuid)}
        if disk_type in _SCSI_DRIVERS:
            target = _free(self._targets, _SCSI_IDS, "SCSI target")
            return {"driver": _SCSI_DRIVERS[disk_type], **info, **_scsi(target)}
        if disk_type == "ide":
            place = _ide(self._ide, q35=self._q35)
            self._ide += 1
            return {"driver": "ide-hd", **info, **place}
        return {"driver": "virtio-blk-pci", **info, **self._pci()}

    def for_nic(self, nic: NicX, nic_type: str) -> HvInfo:
        """Return a free address for a NIC."""
        driver = "virtio-net-pci" if nic_type == _PARAVIRTUAL else nic_type
        info: HvInfo = {"driver": driver, "id": device_id("nic", nic.uuid)}
        return info if nic_type in _ISA_NICS else info | self._pci()

    def _pci(self) -> HvInfo:
        return _pci(_free(self._slots, QEMU_PCI_SLOTS, "PCI slot"))


def _pci(slot: int) -> HvInfo:
    return {"bus": PCI_BUS, "addr": hex(slot)}


def _scsi(target: int) -> HvInfo:
    return {"bus": SCSI_BUS, "channel": 0, "scsi-id": target, "lun": 0}


def _ide(number: int, *, q35: bool) -> HvInfo:
    bus, unit = (number, 0) if q35 else divmod(number, 2)
    return {"bus": f"ide.{bus}", "unit": unit}


def seed_places(*, has_seed: bool) -> list[HvInfo]:
    """Return the bus address of the cloud-init seed, if there is one."""
    return [_pci(_SEED_SLOT)] if has_seed else []


def disk_places(uuid: str, disk_type: str, *, q35: bool = False) -> list[HvInfo | None]:
    """Return all bus addresses that a disk of a type can have."""
    if disk_type in _DRIVE_INTERFACES:
        return [None]
    if disk_type in _SCSI_DRIVERS:
        driver = _SCSI_DRIVERS[disk_type]
        targets = (n for n in range(_SCSI_IDS) if n not in CDROM_SCSI_IDS)
        places = [_scsi(target) for target in targets]
    elif disk_type == "ide":
        driver, places = (
            "ide-hd",
            [_ide(number, q35=q35) for number in range(_IDE_DISKS)],
        )
    else:
        driver, places = "virtio-blk-pci", _all_pci()
    return [{"driver": driver, "id": device_id("disk", uuid), **p} for p in places]


def nic_places(uuid: str, nic_type: str) -> list[HvInfo | None]:
    """Return all bus addresses that a NIC of a type can have."""
    driver = "virtio-net-pci" if nic_type == _PARAVIRTUAL else nic_type
    info: HvInfo = {"driver": driver, "id": device_id("nic", uuid)}
    return [info] if nic_type in _ISA_NICS else [info | p for p in _all_pci()]


def _all_pci() -> list[HvInfo]:
    return [_pci(slot) for slot in range(QEMU_PCI_SLOTS)]


def _free(taken: set[int], count: int, what: str) -> int:
    for number in range(count):
        if number not in taken:
            taken.add(number)
            return number
    raise errors.HotplugError(f"no free {what}: all {count} are taken")


def blockdev(
    disk: PluggedDisk,
    path: str,
    hvparams: Mapping[str, Any],
    *,
    is_block: bool,
    uri: str | None = None,
) -> dict[str, Any]:
    """Return the block node of a disk, as ``blockdev-add`` takes it.

    With a URI the emulator itself accesses the data, and the path plays no part.
    """
    _, direct, no_flush = _cache(disk, hvparams)
    cache = {"direct": direct, "no-flush": no_flush}
    if uri:
        file = block_options(uri)
    else:
        file = {
            "driver": "host_device" if is_block else "file",
            "filename": path,
            "aio": hvparams.get("disk_aio") or "threads",
        }
    return {
        "driver": "raw",
        "node-name": device_id("disk", disk.uuid),
        "read-only": disk.mode == "ro",
        "discard": hvparams.get("disk_discard") or "ignore",
        "cache": cache,
        "file": {**file, "cache": cache},
    }


def _cache(disk: DiskX, hvparams: Mapping[str, Any]) -> tuple[bool, bool, bool]:
    # A shared file system keeps files consistent between nodes; only raw shared devices
    # need this mode, but the documented mode is the same for all shared types.
    if disk.dev_type in _SHARED_TYPES:
        return _CACHE["none"]
    return _CACHE[hvparams.get("disk_cache") or "default"]


def io_threads(hvparams: Mapping[str, Any]) -> list[str]:
    """Return the names of the threads of a guest's disks, none if they can have none.

    They exist without disks, too, for disks that are added later.
    """
    kind = hvparams.get("disk_type") or _PARAVIRTUAL
    is_virtio_scsi = hvparams.get("scsi_controller_type") == "virtio-scsi-pci"
    if kind != _PARAVIRTUAL and not (needs_scsi([kind]) and is_virtio_scsi):
        return []
    return [f"io{number}" for number in range(int(hvparams.get("io_threads") or 0))]


def disk_device(
    disk: PluggedDisk, hvparams: Mapping[str, Any], *, bootindex: int | None = None
) -> dict[str, Any]:
    """Return the device of a disk, as ``device_add`` takes it."""
    if disk.hvinfo is None:
        raise errors.HotplugError(f"disk {disk.uuid}: has no bus address")
    device = {**disk.hvinfo, "drive": device_id("disk", disk.uuid)}
    if device["driver"] in {"virtio-blk-pci", "scsi-hd", "ide-hd"}:
        device["write-cache"] = "on" if _cache(disk, hvparams)[0] else "off"
    threads = io_threads(hvparams)
    if threads and device["driver"] == "virtio-blk-pci":
        # A slot gives a disk its thread, so no other state is needed.
        device["iothread"] = threads[int(device["addr"], 16) % len(threads)]
    if bootindex is not None:
        device["bootindex"] = bootindex
    return device


def disk_args(
    disk: PluggedDisk,
    path: str,
    hvparams: Mapping[str, Any],
    *,
    is_block: bool,
    uri: str | None = None,
    bootindex: int | None = None,
) -> list[str]:
    """Return the arguments of one disk."""
    kind = hvparams.get("disk_type") or _PARAVIRTUAL
    if disk.hvinfo is None:
        readonly = "on" if disk.mode == "ro" else None
        drive = options.join(
            if_=kind, format="raw", file=uri or path, readonly=readonly
        )
        return ["-drive", drive]
    node = blockdev(disk, path, hvparams, is_block=is_block, uri=uri)
    device = disk_device(disk, hvparams, bootindex=bootindex)
    return ["-blockdev", _json(node), "-device", options.device(device)]


def nic_bootindex(hvparams: Mapping[str, Any], index: int) -> int | None:
    """Return the place of a NIC in the boot order at a start, None for no place.

    Places are unique, since the emulator refuses two devices with one place. The guest
    tries its NICs in their order.
    """
    boots = "network" in str(hvparams.get("boot_order", "")).split(",")
    return index + 1 if boots and not hvparams.get("kernel_path") else None


def nic_device(
    nic: PluggedNic, *, queues: int = 1, bootindex: int | None = None
) -> dict[str, Any]:
    """Return the device of a NIC, as ``device_add`` takes it."""
    if nic.hvinfo is None:
        raise errors.HotplugError(f"NIC {nic.uuid}: has no bus address")
    device = {
        **nic.hvinfo,
        "netdev": device_id("nic", nic.uuid),
        "mac": nic.mac,
    }
    if queues > 1:
        # One interrupt vector for each direction of a queue, one for changes, one
        # for the control queue.
        device |= {"mq": "on", "vectors": 2 * queues + 2}
    if bootindex is not None:
        device["bootindex"] = bootindex
    return device


def nic_args(
    nic: PluggedNic,
    *,
    tap_fds: Sequence[int],
    vhost_fds: Sequence[int] = (),
    bootindex: int | None = None,
) -> list[str]:
    """Return the arguments of one NIC whose tap and vhost devices are open.

    Without a tap the NIC is in the emulator's user network.
    """
    identifier = device_id("nic", nic.uuid)
    if not tap_fds:
        device = nic_device(nic, bootindex=bootindex)
        netdev = options.join(type="user", id=identifier)
        return ["-netdev", netdev, "-device", options.device(device)]
    fds = _fds("fd", tap_fds)
    if vhost_fds:
        fds |= {"vhost": "on", **_fds("vhostfd", vhost_fds)}
    netdev = options.join(type="tap", id=identifier, **fds)
    device = nic_device(nic, queues=len(tap_fds), bootindex=bootindex)
    return ["-netdev", netdev, "-device", options.device(device)]


def _fds(key: str, fds: Sequence[int]) -> dict[str, Any]:
    if len(fds) == 1:
        return {key: fds[0]}
    return {f"{key}s": ":".join(map(str, fds))}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
