"""The emulator's command line: a pure function of instance, parameters and facts.

`build` returns the permanent arguments. `complete` adds those that depend on one start:
NICs, disks, acceleration, sandbox, user, chroot, incoming migration. Specified in the
hypervisor document, section 2.3.
"""

import dataclasses
import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.parameters import cloud_init
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor.kvm.devices import (
    disks_and_nics,
    display,
    firmware,
    options,
    shares,
    tpm,
)
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.runtime import Runtime

_DAEMONIZE: Final = "-daemonize"
_SANDBOX: Final = "-sandbox"
#: Present in each command line of this implementation, absent in those of others.
NO_DEFAULTS: Final = "-nodefaults"
#: Options of an administrator with which the emulator runs programs.
_RUNS_PROGRAMS: Final = re.compile(
    r"(^|,)(helper|script|downscript|smb)=(?!no(,|$))|^bridge(,|$)|^exec:"
)
#: Drive and device of the cloud-init seed.
SEED: Final = "seed"
_SEED_DEVICE: Final = options.join(
    "virtio-blk-pci", drive=SEED, serial=cloud_init.LABEL
)
_USB_POINTERS: Final = ("mouse", "tablet")
#: Devices of the sound cards, by parameter value.
_SOUND: Final = {
    "hda": ("intel-hda", "hda-duplex,audiodev=snd0"),
    "ac97": ("AC97,audiodev=snd0",),
    "es1370": ("ES1370,audiodev=snd0",),
    "sb16": ("sb16,audiodev=snd0",),
    **{card: (f"{card},audiodev=snd0",) for card in ("adlib", "cs4231a", "gus")},
}


@dataclasses.dataclass(frozen=True)
class EmulatorFacts:
    """Facts of the node that the instance record does not have.

    Attributes:
        machine: default machine type, used when the parameters name none.
        addresses: first address of each interface that display parameters name.
        has_defaults: whether the guest has the emulator's default devices and a USB
            controller. Another Ganeti starts guests so; a target must have them too.
    """

    machine: str
    addresses: Mapping[str, str] = dataclasses.field(default_factory=dict)
    has_defaults: bool = False

    def is_q35(self, hvp: Mapping[str, Any]) -> bool:
        """Return whether a guest with these parameters has the machine type q35."""
        return disks_and_nics.is_q35(hvp.get("machine_version") or self.machine)


@dataclasses.dataclass(frozen=True)
class Extras:
    """Arguments that one start adds to the permanent command.

    Attributes:
        accel: acceleration, ``kvm`` or ``tcg``.
        nics: arguments of each NIC.
        block_paths: those disk paths that are block devices.
        disk_fds: open files of those that are files, by path.
        user: name of the user to run as, None for the daemon's user.
        chroot: root directory of the emulator, None for the machine's.
        incoming: address on which to receive a migration, None for none.
        sandbox: value of ``-sandbox``, None for no system call filter. The filter
            refuses the system calls of ``-daemonize``, so another program must detach
            the emulator.
        tpm_fd: socket of the guest's TPM, None without one.
        share_ends: tags and sockets of the directories that it shares.
    """

    accel: str
    nics: Sequence[Sequence[str]] = ()
    block_paths: frozenset[str] = frozenset()
    disk_fds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    user: str | None = None
    chroot: str | None = None
    incoming: str | None = None
    sandbox: str | None = None
    tpm_fd: int | None = None
    share_ends: Sequence[shares.End] = ()


def build(instance: InstanceX, files: Files, emulator: EmulatorFacts) -> list[str]:
    """Return the part of the command that the runtime file keeps."""
    hvp = instance.hvparams
    parts = (
        [hvp["kvm_path"]],
        ["-name", instance.name],
        _machine_size(instance),
        ["-pidfile", files.pid],
        disks_and_nics.q35_bridge() if emulator.is_q35(hvp) else [],
        _io_threads(hvp),
        _scsi_controller(instance),
        ["-device", "virtio-balloon,id=balloon"],
        [_DAEMONIZE, "-D", files.log, "-no-user-config"],
        ["-usb"] if emulator.has_defaults else [NO_DEFAULTS],
        _end_of_guest(hvp),
        ["-machine", _machine(hvp, emulator)],
        shares.memory(hvp, instance.beparams["maxmem"]),
        firmware.arguments(hvp, files),
        _boot(hvp),
        _media(hvp, q35=emulator.is_q35(hvp)),
        _kernel(hvp),
        _memory_path(hvp),
        ["-monitor", _socket(files, "monitor")],
        _serial(hvp, files),
        _usb(hvp, has_controller=emulator.has_defaults),
        display.arguments(instance, files, emulator.addresses),
        _sound(hvp),
        ["-rtc", "base=localtime"] if hvp.get("use_localtime") else [],
        ["-cpu", ",".join(options.parsed(hvp["cpu_type"]))]
        if hvp.get("cpu_type")
        else [],
        _guest_agent(hvp, files),
        _rng(hvp),
        _seed(instance, files),
        ["-uuid", instance.uuid],
        # A socket serves one client at a time: looks at the state use the second one.
        ["-qmp", _socket(files, "qmp"), "-qmp", _socket(files, "kvmd")],
        _extra(hvp),
    )
    return [arg for part in parts for arg in part]


def _machine_size(instance: InstanceX) -> list[str]:
    hvp = instance.hvparams
    topology = {
        word: hvp.get(f"cpu_{word}") or None for word in ("cores", "threads", "sockets")
    }
    smp = options.join(instance.beparams["vcpus"], **topology)
    return ["-m", str(instance.beparams["maxmem"]), "-smp", smp]


def _cdrom_type(hvp: Mapping[str, Any]) -> str:
    return hvp.get("cdrom_disk_type") or hvp.get("disk_type") or "paravirtual"


def _scsi_controller(instance: InstanceX) -> list[str]:
    hvp = instance.hvparams
    kinds = [hvp.get("disk_type") or "paravirtual"]
    if hvp.get("cdrom_image_path") or hvp.get("cdrom2_image_path"):
        kinds.append(_cdrom_type(hvp))
    if not disks_and_nics.needs_scsi(kinds):
        return []
    threads = disks_and_nics.io_threads(hvp)
    has_thread = threads and disks_and_nics.needs_scsi(kinds[:1])
    thread = threads[0] if has_thread else None
    controller = hvp["scsi_controller_type"]
    return ["-device", options.join(controller, id="scsi", iothread=thread)]


def _io_threads(hvp: Mapping[str, Any]) -> list[str]:
    names = disks_and_nics.io_threads(hvp)
    return [
        word
        for name in names
        for word in ("-object", options.join("iothread", id=name))
    ]


def _end_of_guest(hvp: Mapping[str, Any]) -> list[str]:
    """Return the effect of a guest's own shutdown and reboot on the emulator.

    With ``user_shutdown`` the emulator continues after a shutdown, so that the next
    query of the guest's state detects the shutdown by the user; see `driver`.
    """
    args = []
    if hvp.get("user_shutdown"):
        args += ["-action", "shutdown=pause"]
    if hvp.get("reboot_behavior") == "exit":
        args.append("-no-reboot")
    return args


def _machine(hvp: Mapping[str, Any], emulator: EmulatorFacts) -> str:
    parts = options.parsed(hvp.get("machine_version") or emulator.machine)
    if not hvp.get("acpi", True):
        parts.append("acpi=off")
    return ",".join([*parts, *shares.machine_option(hvp)])


def _boot(hvp: Mapping[str, Any]) -> list[str]:
    order = {"network": "n", "floppy": "a"}.get(hvp.get("boot_order", "disk"))
    return (
        ["-boot", options.join(order=order)]
        if order and not hvp.get("kernel_path")
        else []
    )


def _media(hvp: Mapping[str, Any], *, q35: bool) -> list[str]:
    args = []
    if floppy := hvp.get("floppy_image_path"):
        args += ["-drive", options.join(if_="floppy", format="raw", file=floppy)]
    boot = hvp.get("boot_order") == "cdrom" and not hvp.get("kernel_path")
    for number, key in enumerate(("cdrom_image_path", "cdrom2_image_path")):
        if path := hvp.get(key):
            place = disks_and_nics.cdrom_ide(number, q35=q35)
            is_first = boot and number == 0
            args += _cdrom(number, path, _cdrom_type(hvp), place, boot=is_first)
    return args


def _cdrom(
    number: int, path: str, kind: str, ide: Mapping[str, Any], *, boot: bool
) -> list[str]:
    name = f"cdrom{number}"
    drive = options.join(
        if_="none", id=name, media="cdrom", format="raw", readonly="on", file=path
    )
    boots = {"bootindex": 1} if boot else {}
    if disks_and_nics.needs_scsi([kind]):
        target = disks_and_nics.CDROM_SCSI_IDS[number]
        device: dict[str, Any] = {
            "driver": "scsi-cd",
            "bus": disks_and_nics.SCSI_BUS,
            "scsi-id": target,
        }
    elif kind == "paravirtual":
        device = {"driver": "virtio-blk-pci"}
    else:
        device = {"driver": "ide-cd", **ide}
    device |= {"drive": name} | boots
    return ["-drive", drive, "-device", options.device(device)]


def _kernel(hvp: Mapping[str, Any]) -> list[str]:
    if not hvp.get("kernel_path"):
        return []
    args = ["-kernel", hvp["kernel_path"]]
    if hvp.get("initrd_path"):
        args += ["-initrd", hvp["initrd_path"]]
    kernel_args = [f"root={hvp['root_path']}"] if hvp.get("root_path") else []
    kernel_args += [hvp["kernel_args"]] if hvp.get("kernel_args") else []
    if hvp.get("serial_console"):
        kernel_args.append(f"console=ttyS0,{hvp['serial_speed']}")
    return [*args, "-append", " ".join(kernel_args)]


def _memory_path(hvp: Mapping[str, Any]) -> list[str]:
    path = hvp.get("mem_path")
    if not path or shares.wanted(hvp):
        return []
    return ["-mem-path", path, "-mem-prealloc"]


def _socket(files: Files, kind: str) -> str:
    return options.join(f"unix:{files.control(kind)}", server="on", wait="off")


def _serial(hvp: Mapping[str, Any], files: Files) -> list[str]:
    if not hvp.get("serial_console"):
        return ["-serial", "none"]
    return ["-serial", _socket(files, "serial")]


def _usb(hvp: Mapping[str, Any], *, has_controller: bool) -> list[str]:
    names = []
    pointer = hvp.get("usb_mouse")
    if pointer not in _USB_POINTERS and hvp.get("vnc_bind_address"):
        pointer = "tablet"  # a relative pointer does not work over VNC
    if pointer:
        names.append(options.value(f"usb-{pointer}"))
    listed = (hvp.get("usb_devices") or "").split(",")
    names += [_usb_device(item.strip()) for item in listed if item.strip()]
    args = ["-usb"] if names and not has_controller else []
    for name in names:
        args += ["-device", name]
    return args


def _usb_device(name: str) -> str:
    kind, _, rest = name.partition(":")
    if kind == "host":
        vendor, _, product = rest.partition(":")
        ids = {"vendorid": f"0x{vendor}", "productid": f"0x{product}"}
        return options.join("usb-host", **ids)
    return f"usb-{kind}" if kind in {*_USB_POINTERS, "kbd"} else options.value(name)


def _sound(hvp: Mapping[str, Any]) -> list[str]:
    cards = [word.strip() for word in (hvp.get("soundhw") or "").split(",")]
    args = []
    for card in filter(None, cards):
        if card not in _SOUND:
            raise errors.HypervisorError(
                f"hypervisor kvm: parameter soundhw: wanted cards of"
                f" {', '.join(sorted(_SOUND))}, found {card!r:.100}"
            )
        for device in _SOUND[card]:
            args += ["-device", device]
    return ["-audiodev", "none,id=snd0", *args] if args else []


def _guest_agent(hvp: Mapping[str, Any], files: Files) -> list[str]:
    if not hvp.get("use_guest_agent"):
        return []
    path = files.control("qga")
    return [
        "-chardev",
        options.join("socket", path=path, server="on", wait="off", id="qga0"),
        *("-device", "virtio-serial-pci,id=qga0"),
        *("-device", "virtserialport,chardev=qga0,name=org.qemu.guest_agent.0"),
    ]


def _rng(hvp: Mapping[str, Any]) -> list[str]:
    if not hvp.get("virtio_rng"):
        return []
    # /dev/random blocks on older kernels, and with it the guest's requests.
    source = options.join("rng-random", id="rng0", filename="/dev/urandom")
    return ["-object", source, "-device", "virtio-rng-pci,rng=rng0"]


def _seed(instance: InstanceX, files: Files) -> list[str]:
    if not instance.cloud_init:
        return []
    drive = options.join(
        if_="none", id=SEED, format="raw", readonly="on", file=files.seed
    )
    (place,) = disks_and_nics.seed_places(has_seed=True)
    return ["-drive", drive, "-device", f"{_SEED_DEVICE},{options.join(**place)}"]


def _extra(hvp: Mapping[str, Any]) -> list[str]:
    try:
        return shlex.split(hvp.get("kvm_extra") or "")
    except ValueError as err:
        raise errors.HypervisorError(f"parameter kvm_extra: {err}") from err


def has_q35(arguments: Sequence[str]) -> bool:
    """Return whether a guest with these arguments has the machine type q35."""
    pairs = itertools.pairwise(arguments)
    return any(
        word == "-machine" and disks_and_nics.is_q35(value) for word, value in pairs
    )


def has_seed(arguments: Sequence[str]) -> bool:
    """Return whether a guest that was started with these arguments has a seed."""
    return any(word.startswith(_SEED_DEVICE) for word in arguments)


def sandbox(hvp: Mapping[str, Any], *, has_user: bool) -> str | None:
    """Return the system call filter of a guest as value of ``-sandbox``.

    The emulator needs no program of its own: taps and their scripts, hotplugged disks
    and processor affinity come from outside. So it may neither start programs nor
    change its privileges, with two exceptions: it changes to the given user itself,
    after which it has no privileges; and options in ``kvm_extra`` may name programs.

    Args:
        hvp: parameters of the guest.
        has_user: whether the emulator changes to another user.

    Returns:
        None if ``kvm_extra`` has a filter, which then counts.
    """
    extra = _extra(hvp)
    if _SANDBOX in extra:
        return None
    runs = any(_RUNS_PROGRAMS.search(word) for word in extra)
    privileges = "allow" if has_user else "children" if runs else "deny"
    spawn = "allow" if runs else "deny"
    return options.join(
        "on",
        obsolete="deny",
        elevateprivileges=privileges,
        spawn=spawn,
        resourcecontrol="deny",
    )


def complete(runtime: Runtime, extras: Extras) -> list[str]:
    """Return the complete command of one start."""
    argv = [*runtime.argv, "-accel", extras.accel]
    if extras.sandbox:
        # The filter ends an emulator that forks.
        argv = [arg for arg in argv if arg != _DAEMONIZE]
        argv += [_SANDBOX, extras.sandbox]
    if extras.user:
        argv += ["-runas", extras.user]
    if extras.chroot:
        argv += ["-chroot", extras.chroot]
    for args in extras.nics:
        argv += args
    if not extras.nics:
        # Without an option about networks, QEMU gives a guest with default devices a
        # NIC.
        argv += ["-net", "none"]
    argv += tpm.arguments(extras.tpm_fd)
    argv += shares.arguments(extras.share_ends)
    # It begins stopped: passwords and processors are set first, and a guest that
    # arrives waits for the master.
    argv.append("-S")
    if extras.incoming:
        argv += ["-incoming", extras.incoming]
    return argv + _disks(runtime, extras)


def _disks(runtime: Runtime, extras: Extras) -> list[str]:
    hvp = runtime.hvparams
    boot = hvp.get("boot_order", "disk") == "disk" and not hvp.get("kernel_path")
    args = []
    for index, (disk, path, uri) in enumerate(runtime.disks):
        inside = path
        if path in extras.disk_fds:
            number = index + 1
            name = disks_and_nics.device_id("disk", disk.uuid)
            fd = extras.disk_fds[path]
            # By this name the removal of the disk closes the file, see `hotplug`.
            args += ["-add-fd", options.join(set=number, fd=fd, opaque=name)]
            inside = f"/dev/fdset/{number}"
        args += disks_and_nics.disk_args(
            disk,
            inside,
            hvp,
            is_block=path in extras.block_paths,
            uri=uri,
            bootindex=1 if boot and index == 0 else None,
        )
    return args
