"""Device layout of a migrating guest, as its source node describes it.

The target builds the command line from the master's record. The memory of the guest
fits only the devices that it was started with, and the record may have changed since
then. So the source's runtime is read for this layout alone: sizes, machine type, models
and bus addresses of devices. Each value is checked, and nothing else is used: no path,
no user, no option text.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants.parameters import cloud_init
from ganeti.base.constants.parameters import hvparams as hv_constants
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor.base import AttachedDisk
from ganeti.node.hypervisor.kvm import argv, runtime
from ganeti.node.hypervisor.kvm.devices import disks_and_nics

#: Largest runtime of another node, in bytes: 32 devices need less than a tenth of it.
_MAX_TEXT: Final = 1024 * 1024
_MAX_VCPUS: Final = 1024
#: Parameters whose value at the guest's start counts, not the record's.
_MODELS: Final = (
    "acpi",
    "cdrom_disk_type",
    "cpu_cores",
    "cpu_sockets",
    "cpu_threads",
    "cpu_type",
    "disk_type",
    "firmware",
    "nic_type",
    "scsi_controller_type",
    "serial_console",
    "spice_use_vdagent",
    "tpm",
    "usb_mouse",
    "use_guest_agent",
    "vga",
    "virtio_net_queues",
    "vnet_hdr",
)
#: Form of those of them whose values are not listed.
_WORD: Final = re.compile(r"[A-Za-z0-9_.,+=:-]{0,256}", re.ASCII)
_MAX_NUMBER: Final = 1024
#: Parameters with a path or an address that create a device while they are set.
_PRESENT: Final = (
    "cdrom2_image_path",
    "cdrom_image_path",
    "floppy_image_path",
    "shared_directories",
    "spice_bind",
    "vnc_bind_address",
)
#: Parameters whose text becomes options.
_EQUAL: Final = ("kvm_extra", "soundhw", "usb_devices")

#: State of a guest that does not run because an administrator wants this.
PAUSED: Final = "paused"
#: Files of a seed that has nothing for the guest.
_EMPTY_SEED: Final = {cloud_init.META_DATA: ""}


class _Device(msgspec.Struct, frozen=True):
    """A device of the source: uuid and bus address."""

    uuid: str
    hvinfo: dict[str, str | int] | None = None


class _Source(msgspec.Struct, frozen=True, array_like=True):
    """The runtime of the source, as far as it is read."""

    argv: tuple[str, ...]
    nics: tuple[_Device, ...]
    hvparams: dict[str, Any]
    disks: tuple[tuple[_Device, str, str | None], ...]
    state: str = ""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The checked layout of a guest.

    Attributes:
        machine: machine type.
        memory: size at start, in MiB.
        vcpus: virtual processors.
        hvparams: the record's parameters with those of the guest's start that its
            devices depend on.
        disks: uuid and bus address of each disk, in order.
        nics: the same of each NIC.
        has_defaults: whether it has the emulator's default devices.
        has_seed: whether it has a cloud-init seed.
        is_paused: whether it is paused at its source, and stays so.
    """

    machine: str
    memory: int
    vcpus: int
    hvparams: dict[str, Any]
    disks: tuple[tuple[str, runtime.HvInfo | None], ...]
    nics: tuple[tuple[str, runtime.HvInfo], ...]
    has_defaults: bool = False
    has_seed: bool = False
    is_paused: bool = False

    def instance(self, record: InstanceX) -> InstanceX:
        """Return the record as the guest was started.

        The seed has the present files, as after a restart. If the instance has none any
        more, the guest keeps an empty seed, since its devices stay.
        """
        beparams = record.beparams | {"maxmem": self.memory, "vcpus": self.vcpus}
        hvparams = self.hvparams | {"machine_version": self.machine}
        files = (record.cloud_init or _EMPTY_SEED) if self.has_seed else {}
        return record.replace(beparams=beparams, hvparams=hvparams, cloud_init=files)

    def plugged_disks(
        self, disks: Sequence[AttachedDisk]
    ) -> tuple[tuple[runtime.PluggedDisk, str, str | None], ...]:
        """Return the guest's disks with the links of this node.

        Raises:
            HypervisorError: a disk of the guest is not among the given disks.
        """
        links = {item.disk.uuid: item for item in disks}
        rows = []
        for uuid, place in self.disks:
            if uuid not in links:
                raise errors.HypervisorError(f"disk {uuid}: not active on this node")
            disk, path, uri = links[uuid]
            rows.append((runtime.plugged_disk(disk, place), path, uri))
        return tuple(rows)

    def plugged_nics(self, record: InstanceX) -> tuple[runtime.PluggedNic, ...]:
        """Return the guest's NICs as the record describes them.

        Raises:
            HypervisorError: the record lacks a NIC of the guest.
        """
        known = {nic.uuid: nic for nic in record.nics}
        rows = []
        for uuid, place in self.nics:
            if uuid not in known:
                raise _stale(record.name, f"its NIC {uuid} is not recorded any more")
            rows.append(runtime.plugged_nic(known[uuid], place))
        return tuple(rows)


def read(
    record: InstanceX, text: str, *, machines: frozenset[str], memory_mib: int
) -> Layout:
    """Return the layout that a source describes.

    Args:
        record: the instance, as the master describes it.
        text: the runtime that the source exported.
        machines: machine types of the emulator on this node.
        memory_mib: memory of this node, which limits that of the guest.

    Raises:
        HypervisorError: the text is damaged, too large, or describes devices that this
            release does not create; or the record has lost devices of the guest.
    """
    name = record.name
    if len(text) > _MAX_TEXT:
        raise _wrong(name, f"{len(text)} characters")
    try:
        source = msgspec.json.decode(text, type=_Source)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise _wrong(name, str(err)) from err
    machine = _option(name, source.argv, "-machine").partition(",")[0]
    if machine not in machines:
        raise _wrong(name, f"machine type {machine!r}, unknown to this node's emulator")
    params = _parameters(name, record.hvparams, source.hvparams)
    return Layout(
        machine=machine,
        has_defaults=argv.NO_DEFAULTS not in source.argv,
        has_seed=argv.has_seed(source.argv),
        is_paused=source.state == PAUSED,
        memory=_number(name, "memory", _option(name, source.argv, "-m"), memory_mib),
        vcpus=_number(
            name,
            "processors",
            _option(name, source.argv, "-smp").partition(",")[0],
            _MAX_VCPUS,
        ),
        hvparams=params,
        disks=_places(
            name,
            [device for device, _, _ in source.disks],
            lambda uuid: disks_and_nics.disk_places(
                uuid, params["disk_type"], q35=disks_and_nics.is_q35(machine)
            ),
        ),
        nics=_places(
            name,
            source.nics,
            lambda uuid: disks_and_nics.nic_places(uuid, params["nic_type"]),
        ),
    )


def _option(name: str, argv: Sequence[str], option: str) -> str:
    """Return the value of an option that occurs once."""
    places = [index for index, word in enumerate(argv) if word == option]
    if len(places) != 1 or places[0] + 1 >= len(argv):
        raise _wrong(name, f"the option {option} {len(places)} times")
    return argv[places[0] + 1]


def _number(name: str, kind: str, text: str, limit: int) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text) or int(text) > limit:
        raise _wrong(name, f"{kind} {text!r}, of at most {limit}")
    return int(text)


def _parameters(
    name: str, recorded: Mapping[str, Any], claimed: Mapping[str, Any]
) -> dict[str, Any]:
    params = dict(recorded)
    # Guests of earlier releases have no other firmware, and no TPM.
    claimed = {"firmware": "bios", "tpm": False, **claimed}
    for key in _MODELS:
        if key in claimed:
            params[key] = _model(name, key, claimed[key])
    for key in (*_PRESENT, *_EQUAL):
        if not claimed.get(key):
            params[key] = ""
        elif not recorded.get(key) or (key in _EQUAL and claimed[key] != recorded[key]):
            raise _stale(name, f"the parameter {key} has changed since its start")
    return params


def _model(name: str, key: str, value: Any) -> Any:
    """Return a claimed parameter, if it is one that a record can have."""
    row = hv_constants.HYPERVISOR["kvm"][key]
    if row.type == "bool":
        is_good = isinstance(value, bool)
    elif row.type == "int":
        is_good = type(value) is int and 0 <= value <= _MAX_NUMBER
    elif isinstance(row.allowed, tuple):
        is_good = value in row.allowed or (value == "" and not row.required)
    else:
        is_good = isinstance(value, str) and _WORD.fullmatch(value) is not None
    if not is_good:
        raise _wrong(name, f"{key} = {value!r:.80}")
    return value


def _places(
    name: str, claims: Sequence[_Device], places: Any
) -> tuple[tuple[str, Any], ...]:
    """Return the claimed bus addresses, rebuilt; each is one that this node assigns."""
    rows: list[tuple[str, Any]] = []
    taken: set[str] = set()
    for claim in claims:
        legal = places(claim.uuid)
        if claim.hvinfo not in legal:
            raise _wrong(name, f"device {claim.uuid!r:.80} at {claim.hvinfo!r:.200}")
        place = legal[legal.index(claim.hvinfo)]
        # Without the id, which differs between two devices at one place.
        slot = repr({k: v for k, v in (place or {}).items() if k != "id"})
        has_slot = place is not None and "bus" in place
        if claim.uuid in dict(rows) or (has_slot and slot in taken):
            raise _wrong(name, f"two devices {claim.uuid!r:.80} or at {slot}")
        if has_slot:
            taken.add(slot)
        rows.append((claim.uuid, place))
    return tuple(rows)


def _wrong(name: str, what: str) -> errors.HypervisorError:
    return errors.HypervisorError(
        f"instance {name}: the source node describes a guest that it cannot have:"
        f" {what}"
    )


def _stale(name: str, what: str) -> errors.HypervisorError:
    return errors.HypervisorError(
        f"instance {name}: cannot receive the guest: {what}; stop and start the"
        " instance, or fail it over"
    )
