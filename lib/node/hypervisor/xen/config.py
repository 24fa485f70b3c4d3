"""The configuration file of a guest, see xl.cfg(5), xl-disk-configuration(5); pure.

No value may become a setting, a further device or an option of a device: some settings
name programs that xl runs as root. So texts are quoted, and parts of devices, which xl
splits at commas, have a closed form.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.parameters import hvparams
from ganeti.base.net import netutils
from ganeti.base.text import hv_syntax
from ganeti.model.objects.filled import InstanceX, NicX
from ganeti.node.hypervisor.base import AttachedDisk, check_instance_name

HVM: Final = "xen-hvm"
#: Programs of earlier releases of Xen. Today, their places depend on the release, and
#: xl knows them; so the built-in values of these parameters leave the choice to xl.
XL_CHOOSES: Final = ("device_model", "kernel_path")
#: Xen's program that starts full virtualisation, as opposed to a guest's kernel.
_LOADER: Final = "hvmloader"
_PLACE: Final = re.compile(r"[A-Za-z0-9_.:/@+-]+")
_LINK: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)
_LETTERS: Final = 26
#: Templates whose disks are files of the node.
_IN_FILES: Final = frozenset({"file", "sharedfile", "gluster"})
_MOST_PASSWORD_CHARACTERS: Final = 8


def build(
    instance: InstanceX,
    disks: Sequence[AttachedDisk],
    *,
    script: str,
    vnc_password: str | None = None,
) -> str:
    """Return the text of the configuration file.

    Args:
        instance: the guest.
        disks: its disks, in order.
        script: network script of NICs without one of their own.
        vnc_password: of the display of a guest with full virtualisation.

    Raises:
        HypervisorError: a parameter cannot be put into practice.
    """
    hvp, bep = instance.hvparams, instance.beparams
    is_hvm = instance.hypervisor == HVM
    reboot = "destroy" if hvp.get("reboot_behavior") == "exit" else "restart"
    rows: list[tuple[str, Any]] = [
        ("name", check_instance_name(instance.name)),
        ("uuid", instance.uuid),
        ("type", "hvm" if is_hvm else "pv"),
        ("memory", int(bep["maxmem"])),
        ("maxmem", int(bep["maxmem"])),
        ("vcpus", int(bep["vcpus"])),
        *_processors(instance),
        *(_full(instance, vnc_password) if is_hvm else _paravirtual(hvp)),
        ("disk", [*_disks(instance, disks), *_cdrom(hvp)]),
        (
            "vif",
            [_vif(instance, n, nic, script) for n, nic in enumerate(instance.nics)],
        ),
        ("on_poweroff", "destroy"),
        ("on_reboot", reboot),
        ("on_crash", reboot),
    ]
    lines = [f"{key} = {_value(instance.name, key, value)}" for key, value in rows]
    return "".join(f"{line}\n" for line in [header(instance.name), *lines])


def header(name: str) -> str:
    """Return the first line of a file that this release has written."""
    return f"# Instance {name}: written at each start by ganeti-noded, do not edit."


def _value(name: str, key: str, value: Any) -> str:
    """Return a value as xl reads it: a number, a text or a list of texts."""
    if isinstance(value, list):
        return f"[ {', '.join(_value(name, key, item) for item in value)} ]"
    if isinstance(value, bool | int):
        return str(int(value))
    if not value.isprintable():
        raise errors.HypervisorError(
            f"instance {name}: wanted {key} of Xen's configuration in one line without"
            f" control characters, found {value!r}"
        )
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def _processors(instance: InstanceX) -> Iterator[tuple[str, Any]]:
    hvp, vcpus = instance.hvparams, int(instance.beparams["vcpus"])
    mask = hvp.get("cpu_mask") or hvparams.CPU_PINNING_ALL
    try:
        parts = hv_syntax.masks(instance.hypervisor, mask, vcpus)
    except errors.ParseError as err:
        raise errors.HypervisorError(f"instance {instance.name}: {err}") from err
    masks = [
        hvparams.CPU_PINNING_ALL if part is None else hv_syntax.format_processors(part)
        for part in parts
    ]
    yield "cpus", masks[0] if len(set(masks)) == 1 else masks
    yield "cpu_weight", int(hvp.get("cpu_weight") or 256)
    yield "cap", int(hvp.get("cpu_cap") or 0)
    for key in ("cpuid", "soundhw"):
        if hvp.get(key):
            yield key, str(hvp[key])


def _paravirtual(hvp: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if hvp.get("use_bootloader"):
        yield "bootloader", str(hvp.get("bootloader_path") or "pygrub")
        if hvp.get("bootloader_args"):
            yield "bootloader_args", str(hvp["bootloader_args"])
        # The loader adds these to what the guest's menu has.
        if hvp.get("kernel_args"):
            yield "extra", str(hvp["kernel_args"])
        return
    yield "kernel", str(hvp["kernel_path"])
    if hvp.get("initrd_path"):
        yield "ramdisk", str(hvp["initrd_path"])
    root = f"root={hvp['root_path']}" if hvp.get("root_path") else ""
    yield "cmdline", f"{root} {hvp.get('kernel_args') or ''}".strip()


def _full(instance: InstanceX, password: str | None) -> Iterator[tuple[str, Any]]:
    hvp = instance.hvparams
    kernel = str(hvp.get("kernel_path") or "")
    if kernel and not is_chosen_by_xl("kernel_path", kernel):
        is_loader = kernel.rpartition("/")[2] == _LOADER
        yield "firmware_override" if is_loader else "kernel", kernel
    emulator = str(hvp.get("device_model") or "")
    if emulator and not is_chosen_by_xl("device_model", emulator):
        yield "device_model_override", emulator
    yield "boot", str(hvp.get("boot_order") or "cd")
    yield "serial", "pty"
    yield "usb", 1
    yield "usbdevice", "tablet"
    for key, parameter in (
        *(("acpi", "acpi"), ("pae", "pae"), ("viridian", "viridian")),
        ("localtime", "use_localtime"),
    ):
        yield key, bool(hvp.get(parameter))
    if devices := hv_syntax.words(hvp.get("pci_pass")):
        yield "pci", devices
    yield from _vnc(instance, password)


def is_chosen_by_xl(parameter: str, value: Any) -> bool:
    """Return whether a path is the built-in one, in whose place xl has its own."""
    row = hvparams.HYPERVISOR[HVM].get(parameter)
    return parameter in XL_CHOOSES and row is not None and value == row.default


def _vnc(instance: InstanceX, password: str | None) -> Iterator[tuple[str, Any]]:
    bind = instance.hvparams.get("vnc_bind_address")
    yield "vnc", bool(bind)
    if not bind:
        return
    if instance.network_port is None:
        raise errors.HypervisorError(
            f"instance {instance.name}: a display needs a network port, but the"
            " instance has none"
        )
    yield "vnclisten", str(bind)
    # xl would take the first free display by default, see xl.cfg(5).
    yield "vncunused", 0
    yield "vncdisplay", instance.network_port - hvparams.VNC_BASE_PORT
    if password is not None:
        # The protocol of VNC uses no more of it.
        yield "vncpasswd", password[:_MOST_PASSWORD_CHARACTERS]


def _disks(instance: InstanceX, disks: Sequence[AttachedDisk]) -> Iterator[str]:
    hvp = instance.hvparams
    prefix = str(hvp.get("blockdev_prefix") or "sd")
    if not (prefix.isascii() and prefix.isalpha()):
        raise errors.HypervisorError(
            f"instance {instance.name}: parameter blockdev_prefix: wanted letters such"
            f" as xvd, found {prefix!r}"
        )
    for index, (disk, path, _uri) in enumerate(disks):
        if not path or not _PLACE.fullmatch(path):
            raise errors.HypervisorError(
                f"instance {instance.name}: disk {index}: Xen needs a device or a file"
                f" on the node, found {path!r}"
            )
        kind = "file" if disk.dev_type in _IN_FILES else "phy"
        access = "r" if disk.mode == "ro" else "w"
        place = f"{kind}:{path}"
        what = f"instance {instance.name}"
        yield _device(what, place, f"{prefix}{_letters(index)}", access)


def _letters(index: int) -> str:
    """Return the letters of a disk: a to z, then aa."""
    first, last = divmod(index, _LETTERS)
    return (_letters(first - 1) if first else "") + chr(ord("a") + last)


def _cdrom(hvp: dict[str, Any]) -> Iterator[str]:
    if path := hvp.get("cdrom_image_path"):
        # The target comes last: it may contain commas.
        yield f"format=raw,vdev=hdc,access=ro,devtype=cdrom,target={path}"


def _vif(instance: InstanceX, index: int, nic: NicX, script: str) -> str:
    hvp, mode = instance.hvparams, nic.nicparams.get("mode")
    link = str(nic.nicparams.get("link") or "")
    what = f"instance {instance.name}: NIC {index}"
    own = str(hvp.get("vif_script") or script)
    for text, wanted, form in (
        (nic.mac, "a MAC address", _MAC),
        (own, "a script whose path has no commas or spaces", _PLACE),
        (link or "-", "a link with letters, digits and . _ -", _LINK),
    ):
        if not form.fullmatch(text):
            raise errors.HypervisorError(f"{what}: wanted {wanted}, found {text!r}")
    options = [f"mac={nic.mac}", f"script={own}"]
    if mode in {"bridged", "openvswitch"}:
        options.append(f"bridge={link}")
    if nic.ip and netutils.is_address(nic.ip):
        options.append(f"ip={nic.ip}")
    if instance.hypervisor == HVM:
        options += _card(hvp)
    return _device(what, *options)


def _device(what: str, *parts: str) -> str:
    """Return a device; xl splits it at commas, and a comma cannot be quoted."""
    for part in parts:
        if "," in part:
            raise errors.HypervisorError(
                f"{what}: wanted a part of a device without commas, found {part!r:.200}"
            )
    return ",".join(parts)


def _card(hvp: dict[str, Any]) -> list[str]:
    """Return the kind of NIC of a guest with full virtualisation."""
    model = hvp.get("nic_type") or "rtl8139"
    if model == "paravirtual" or hvp.get("vif_type") == "vif":
        return ["type=vif"]
    return ["type=ioemu", f"model={model}"]
