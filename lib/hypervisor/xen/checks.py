"""Checks of parameters and of the node, before guests start."""

import os
import shutil
import stat
from collections.abc import Mapping
from typing import Any, Final

from ganeti import errors, process
from ganeti.hypervisor.base import NodeEffects
from ganeti.hypervisor.xen import config, listing, xl

_TYPE: Final = "/sys/hypervisor/type"
#: Parameters that name a file of the node.
_FILES: Final = (
    "kernel_path",
    "initrd_path",
    "cdrom_image_path",
    "device_model",
    "vif_script",
    "vnc_password_file",
)
_LOADER: Final = "bootloader_path"


def problem(
    effects: NodeEffects, hypervisor: str, kind_file: str = _TYPE
) -> str | None:
    """Return the reason why guests cannot run on this node, or None.

    Raises:
        HypervisorError: xl fails.
    """
    if shutil.which(xl.PROGRAM, path=process.SAFE_PATH) is None:
        return "program xl of Xen is not installed (packages xen-utils, xen-hypervisor)"
    kind = _content(kind_file)
    if kind != "xen":
        return (
            "the kernel of this node does not run under Xen: choose the entry with Xen"
            f" at its next start (wanted xen in {kind_file}, found"
            f" {kind or 'no such file'})"
        )
    values = listing.info(xl.check(effects, "Xen", "info"))
    listing.node_info(values, listing.domains(xl.check(effects, "Xen", "list")))
    return full_virtualisation_problem(values) if hypervisor == config.HVM else None


def full_virtualisation_problem(values: Mapping[str, str]) -> str | None:
    """Return the reason why guests of xen-hvm cannot run on this node, or None.

    Args:
        values: see `listing.info`.
    """
    capabilities = values.get("virt_caps", "")
    if "hvm" in capabilities.split():
        return None
    return (
        "Xen finds no hardware virtualisation, which xen-hvm needs: switch it on in"
        " the firmware (wanted hvm among virt_caps of xl info, found"
        f" {capabilities[:80]!r})"
    )


def _content(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as src:
            return src.read(80).strip()
    except OSError:
        return ""


def check_files(hypervisor: str, hvp: Mapping[str, Any]) -> None:
    """Refuse files that this node does not have.

    Raises:
        HypervisorError: names parameter and path.
    """
    wanted = list(_FILES)
    if hypervisor != config.HVM and hvp.get("use_bootloader"):
        # The loader finds kernel and initrd in the guest.
        wanted = [key for key in wanted if key not in {"kernel_path", "initrd_path"}]
        wanted.append(_LOADER)
    if hypervisor == config.HVM:
        wanted = [
            key for key in wanted if not config.is_chosen_by_xl(key, hvp.get(key))
        ]
    if not hvp.get("vnc_bind_address"):
        wanted.remove("vnc_password_file")
    for key in wanted:
        if (path := hvp.get(key)) and not _is_file(path):
            raise errors.HypervisorError(
                f"hypervisor {hypervisor}: parameter {key}: wanted a file on this node,"
                f" found none at {path}"
            )


def _is_file(path: str) -> bool:
    try:
        return path.startswith("/") and stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
