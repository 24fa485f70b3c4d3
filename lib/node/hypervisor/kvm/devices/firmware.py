"""UEFI firmware of a guest: its code, which nodes have, and its own variable store.

The store is a file that the guest changes, see `kept`.
"""

import os
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.filesystem import files as file_utils
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor.kvm import kept
from ganeti.node.hypervisor.kvm.devices import options
from ganeti.node.hypervisor.kvm.files import Files

UEFI: Final = "uefi"
#: Largest template, in bytes. OVMF has 84 or 528 KiB.
_MAX_TEMPLATE: Final = 4 * 1024 * 1024


def store(guest: Files) -> kept.Kept:
    """Return the variable store of a guest."""
    own = kept.own_directory(guest)
    return kept.Kept(guest, "UEFI variables", f"{own}/efi-vars.fd", f"{own}/origin")


def arguments(hvp: Mapping[str, Any], guest: Files) -> list[str]:
    """Return the emulator's arguments."""
    if hvp.get("firmware") != UEFI:
        return []
    code, kept_variables = (
        options.join(
            if_="pflash", unit=unit, format="raw", readonly=readonly, file=file
        )
        for unit, readonly, file in (
            (0, "on", _code(hvp)),
            (1, None, store(guest).path),
        )
    )
    return ["-drive", code, "-drive", kept_variables]


def _code(hvp: Mapping[str, Any]) -> str:
    return str(hvp["uefi_code_path"])


def prepare(guest: Files, instance: InstanceX, hvp: Mapping[str, Any]) -> None:
    """Make the variable store ready for a start.

    Raises:
        HypervisorError: the template or the copy cannot be used.
    """
    if hvp.get("firmware") != UEFI:
        return
    os.makedirs(kept.own_directory(guest), mode=0o700, exist_ok=True)
    store(guest).prepare(
        instance.uuid,
        instance.firmware_state,
        lambda: _template(guest.name, str(hvp["uefi_vars_path"])),
    )


def _template(name: str, path: str) -> bytes:
    try:
        return file_utils.read_file(path, max_size=_MAX_TEMPLATE)
    except OSError as err:
        raise errors.HypervisorError(
            f"instance {name}: UEFI variables {path}: {err.strerror}; the package ovmf"
            " has them"
        ) from err
