"""Checks of parameters and of the node, before guests start."""

import glob
import os
import re
import shutil
import stat
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors, process
from ganeti.base.filesystem import files
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.xen import config, listing, xl

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
#: Settings of Xen's service that stops and starts guests with the machine, and its
#: links where it is enabled. It restores what it has saved, also with RESTORE=false.
_SERVICE: Final = "etc/default/xendomains"
_SERVICE_LINKS: Final = (
    "etc/rc[2-5].d/S[0-9][0-9]xendomains",
    "etc/systemd/system/*.wants/xendomains.service",
)
_SAVE: Final = re.compile(r"^[ \t]*XENDOMAINS_SAVE=[\"']?([^\"'#\s]*)", re.MULTILINE)
_LONGEST_SETTINGS: Final = 1 << 16


def problem(
    effects: NodeEffects, hypervisor: str, kind_file: str = _TYPE, root: str = "/"
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
    if hypervisor == config.HVM and (lack := full_virtualisation_problem(values)):
        return lack
    return _restoring_problem(root)


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


def _restoring_problem(root: str) -> str | None:
    """Return the reason why guests could run here and on another node, or None."""
    if not any(glob.glob(pattern, root_dir=root) for pattern in _SERVICE_LINKS):
        return None
    text = _content(os.path.join(root, _SERVICE), _LONGEST_SETTINGS)
    *_others, directory = ["", *_SAVE.findall(text)]
    if not directory:
        return None
    return (
        "the service xendomains saves guests when this node shuts down, and restores"
        " them at its next start, though they may run on another node by then: write"
        f" XENDOMAINS_SAVE= into /{_SERVICE} (wanted no directory there, found"
        f" {directory[:80]!r})"
    )


def _content(path: str, size: int = 80) -> str:
    try:
        return files.text_of(path, size).strip()
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
