"""UEFI firmware of a guest: its code, which nodes have, and its own variable store.

The store is a file of the node, which the guest changes while it runs. The master keeps
a copy in the record of the instance, taken whenever the guest stops or has moved, so
that another node can start the guest. A migration carries the store itself.

Which one counts at a start: a file that was begun with the copy of the record, or is
equal to it, is as new as the copy or newer. Any other file is from before the guest ran
elsewhere, and the copy replaces it. A test plays these histories.
"""

import base64
import binascii
import contextlib
import hashlib
import os
import shutil
import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ganeti import errors, pathutils
from ganeti.hypervisor.base import check_instance_name
from ganeti.hypervisor.kvm.files import Files
from ganeti.objects.filled import InstanceX
from ganeti.utils import files as file_utils

UEFI: Final = "uefi"
#: Largest variable store, and copy of one, in bytes. OVMF has 84 or 528 KiB.
_MAX_STORE: Final = 4 * 1024 * 1024
MAX_COPY: Final = 512 * 1024


class _Origin(msgspec.Struct, frozen=True):
    """The beginning of a store: its instance, and the digest of the copy."""

    uuid: str
    copy: str


def directory(paths: pathutils.Paths) -> str:
    """Return the directory with a directory of each guest that has a store here."""
    return paths.data("kvm")


def store_path(guest: Files) -> str:
    """Return the variable store of a guest."""
    return f"{_own_directory(guest)}/efi-vars.fd"


def _own_directory(guest: Files) -> str:
    return f"{directory(guest.paths)}/{check_instance_name(guest.name)}"


def _origin_path(guest: Files) -> str:
    return f"{_own_directory(guest)}/origin"


def arguments(hvp: Mapping[str, Any], guest: Files) -> list[str]:
    """Return the emulator's arguments."""
    if hvp.get("firmware") != UEFI:
        return []
    code, store = (p.replace(",", ",,") for p in (_code(hvp), store_path(guest)))
    return [
        *("-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={code}"),
        *("-drive", f"if=pflash,unit=1,format=raw,file={store}"),
    ]


def _code(hvp: Mapping[str, Any]) -> str:
    return str(hvp["uefi_code_path"])


def prepare(guest: Files, instance: InstanceX, hvp: Mapping[str, Any]) -> None:
    """Make the variable store ready for a start; see the module for the rule.

    Raises:
        HypervisorError: the template or the copy cannot be used.
    """
    if hvp.get("firmware") != UEFI:
        return
    copy = instance.firmware_state
    wanted = _Origin(instance.uuid, _digest(copy.encode()))
    present = _read(store_path(guest))
    known = _origin(guest)
    is_own = present is not None and known is not None and known.uuid == wanted.uuid
    if is_own and known == wanted:
        return
    content = _unpacked(guest.name, copy) if copy else None
    if is_own and content == present:
        _write_origin(guest, wanted)
        return
    if content is None:
        content = _template(guest.name, str(hvp["uefi_vars_path"]))
    os.makedirs(_own_directory(guest), mode=0o700, exist_ok=True)
    # Without an origin, a store whose writing was interrupted is replaced.
    file_utils.remove_file(_origin_path(guest))
    file_utils.write_file(store_path(guest), content, mode=0o600)
    _write_origin(guest, wanted)


def _write_origin(guest: Files, origin: _Origin) -> None:
    file_utils.write_file(_origin_path(guest), msgspec.json.encode(origin), mode=0o600)


def _origin(guest: Files) -> _Origin | None:
    data = _read(_origin_path(guest))
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(data or b"", type=_Origin)
    return None


def _read(path: str) -> bytes | None:
    try:
        return file_utils.read_file(path, max_size=_MAX_STORE)
    except (FileNotFoundError, errors.GenericError):
        return None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _template(name: str, path: str) -> bytes:
    try:
        return file_utils.read_file(path, max_size=_MAX_STORE)
    except OSError as err:
        raise errors.HypervisorError(
            f"instance {name}: UEFI variables {path}: {err.strerror}; the package ovmf"
            " has them"
        ) from err


def packed(guest: Files) -> str:
    """Return the copy of a variable store for the record, empty if there is none.

    Raises:
        HypervisorError: it is too large.
    """
    content = _read(store_path(guest))
    if content is None:
        return ""
    text = base64.b64encode(zlib.compress(content, 9)).decode()
    if len(text) > MAX_COPY:
        raise errors.HypervisorError(
            f"instance {guest.name}: UEFI variables: wanted at most {MAX_COPY} bytes,"
            f" found {len(text)}"
        )
    return text


def _unpacked(name: str, text: str) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(base64.b64decode(text), _MAX_STORE)
    except (zlib.error, binascii.Error, ValueError) as err:
        raise errors.HypervisorError(
            f"instance {name}: the recorded UEFI variables are damaged: {err}"
        ) from err
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise errors.HypervisorError(
            f"instance {name}: the recorded UEFI variables are damaged: too long"
        )
    return content


def remove(paths: pathutils.Paths, name: str) -> None:
    """Remove the store of an instance that does not exist any more."""
    path = f"{directory(paths)}/{check_instance_name(name)}"
    shutil.rmtree(path, ignore_errors=True)
