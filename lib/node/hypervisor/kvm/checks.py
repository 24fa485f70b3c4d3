"""Checks of KVM parameters that depend on other parameters, or on this node."""

import os
import stat
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.text import hv_syntax
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm import emulator
from ganeti.node.hypervisor.kvm.devices import disks_and_nics, firmware, shares, tpm

_VALID_SERIAL_SPEEDS: Final = (
    *(75, 110, 300, 600, 1200, 1800, 2400, 4800, 9600, 14400, 19200, 28800, 38400),
    *(57600, 115200, 230400, 345600, 460800),
)

#: Parameters that name a file on the node.
_FILES: Final = (
    "kvm_path",
    "kernel_path",
    "initrd_path",
    "floppy_image_path",
    "cdrom_image_path",
    "cdrom2_image_path",
    "vnc_password_file",
    "spice_password_file",
)
#: The same, if the firmware is UEFI.
_UEFI_FILES: Final = ("uefi_code_path", "uefi_vars_path")
_DIRECTORIES: Final = ("mem_path", "vnc_x509_path")
_URL_PREFIXES: Final = ("http://", "https://", "ftp://", "ftps://", "tftp://")
#: Parameters that need ``spice_bind``.
_SPICE_ONLY: Final = (
    "spice_ip_version",
    "spice_password_file",
    "spice_image_compression",
    "spice_jpeg_wan_compression",
    "spice_zlib_glz_wan_compression",
    "spice_streaming_video",
    "spice_use_tls",
)
#: First emulator version with io_uring.
_IO_URING_VERSION: Final = (5, 0)


def check_combinations(hvp: Mapping[str, Any]) -> None:
    """Refuse malformed parameters, and combinations that exclude each other.

    Raises:
        HypervisorError: names the parameters.
    """
    for is_wrong, text in (
        (
            hvp.get("vnc_bind_address") and hvp.get("spice_bind"),
            "vnc_bind_address and spice_bind exclude each other",
        ),
        (
            hvp.get("vnc_x509_verify") and not hvp.get("vnc_x509_path"),
            "vnc_x509_verify needs vnc_x509_path",
        ),
        (
            hvp.get("security_model") == "user" and not hvp.get("security_domain"),
            "security_model user needs security_domain",
        ),
        (
            hvp.get("security_model") != "user" and hvp.get("security_domain"),
            "security_domain needs security_model user",
        ),
        (
            hvp.get("boot_order") == "cdrom" and not hvp.get("cdrom_image_path"),
            "boot_order cdrom needs cdrom_image_path",
        ),
        (
            hvp.get("kernel_path") and not hvp.get("root_path"),
            "kernel_path needs root_path",
        ),
        (
            hvp.get("serial_console")
            and hvp.get("serial_speed") not in _VALID_SERIAL_SPEEDS,
            f"serial_speed {hvp.get('serial_speed')}: not a speed of a serial line",
        ),
        (
            hvp.get("disk_aio") == "native" and hvp.get("disk_cache") != "none",
            "disk_aio native needs disk_cache none",
        ),
        *(
            (hvp.get(key) and not hvp.get("spice_bind"), f"{key} needs spice_bind")
            for key in _SPICE_ONLY
        ),
    ):
        if is_wrong:
            raise errors.HypervisorError(f"hypervisor kvm: {text}")
    try:
        hv_syntax.check("kvm", hvp)
    except errors.ParseError as err:
        raise errors.HypervisorError(str(err)) from err


def check_files(hvp: Mapping[str, Any]) -> None:
    """Refuse files and directories that this node does not have.

    Raises:
        HypervisorError: names parameter and path.
    """
    for key in _FILES:
        path = hvp.get(key)
        if path and not path.startswith(_URL_PREFIXES):
            _require(key, path, stat.S_ISREG, "file")
    if hvp.get("firmware") == firmware.UEFI:
        for key in _UEFI_FILES:
            _require(key, hvp.get(key) or "", stat.S_ISREG, "file")
    if hvp.get("tpm"):
        _require("swtpm_path", hvp.get("swtpm_path") or "", stat.S_ISREG, "file")
        if os.geteuid() == 0 and hvp.get("security_model") in (None, "", "none"):
            tpm.check_user(tpm.USER)
    if hvp.get("shared_directories"):
        _require(
            "virtiofsd_path", hvp.get("virtiofsd_path") or "", stat.S_ISREG, "file"
        )
    for key in _DIRECTORIES:
        if path := hvp.get(key):
            _require(key, path, stat.S_ISDIR, "directory")


def _require(key: str, path: str, is_kind: Any, what: str) -> None:
    try:
        fits = is_kind(os.stat(path).st_mode)
    except OSError:
        fits = False
    if not (path.startswith("/") and fits):
        raise errors.HypervisorError(
            f"hypervisor kvm: parameter {key}: wanted a {what} on this node, found none"
            f" at {path}"
        )


def _check_q35(hvp: Mapping[str, Any]) -> None:
    if disks_and_nics.is_q35(hvp.get("machine_version") or "") and hvp.get(
        "floppy_image_path"
    ):
        raise errors.HypervisorError(
            "hypervisor kvm: floppy_image_path: machine_version"
            f" {hvp['machine_version']} has no floppy drive; use a CD image"
        )


def _check_vga(effects: NodeEffects, hvp: Mapping[str, Any]) -> None:
    name = hvp.get("vga") or ""
    known = emulator.vga_adapters(effects, hvp["kvm_path"]) if name else []
    if name and name not in known:
        raise errors.HypervisorError(
            f"hypervisor kvm: parameter vga: wanted one of {', '.join(known)}, which"
            f" {hvp['kvm_path']} has, found {name!r}"
        )


def check_emulator(effects: NodeEffects, hvp: Mapping[str, Any]) -> None:
    """Refuse parameters that this node's emulator does not support.

    Raises:
        HypervisorError: names parameter and version.
    """
    version = emulator.version(effects, hvp["kvm_path"])
    _check_q35(hvp)
    if hvp.get("disk_aio") == "io_uring" and version < _IO_URING_VERSION:
        raise errors.HypervisorError(
            "hypervisor kvm: disk_aio io_uring needs emulator 5.0, found"
            f" {'.'.join(map(str, version))}"
        )
    for key, device in (("tpm", tpm.DEVICE), ("shared_directories", shares.DEVICE)):
        if hvp.get(key) and not emulator.has_device(effects, hvp["kvm_path"], device):
            raise errors.HypervisorError(
                f"hypervisor kvm: parameter {key}: {hvp['kvm_path']} was built without"
                f" {device}"
            )
    if hvp.get("shared_directories"):
        shares.check(effects.paths, hvp)
    _check_vga(effects, hvp)
    machine = (hvp.get("machine_version") or "").split(",")[0]
    if machine and machine not in emulator.machines(effects, hvp["kvm_path"]):
        raise errors.HypervisorError(
            f"hypervisor kvm: machine_version {machine}: unknown to {hvp['kvm_path']}"
        )
