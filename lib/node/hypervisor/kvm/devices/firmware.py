"""UEFI firmware of a guest, and the files that it keeps between its starts.

Such a file is on the node of the guest: its UEFI variables, and the state of its TPM.
The master keeps a copy in the record of the instance, taken whenever the guest stops or
has moved, so that another node can start the guest. A migration carries the content.

Which one counts at a start: a file that was begun with the copy of the record, is equal
to it, or is the one that the copy was taken from, is as new as the copy or newer. Any
other file is from before the guest ran elsewhere, and the copy replaces it. A test
plays these histories.
"""

import base64
import binascii
import contextlib
import dataclasses
import hashlib
import os
import shutil
import stat
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ganeti.base import errors, pathutils
from ganeti.base.filesystem import files
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor.base import check_instance_name
from ganeti.node.hypervisor.kvm.devices import options
from ganeti.node.hypervisor.kvm.files import Files

#: Largest file, and copy of one, in bytes. OVMF has 84 or 528 KiB, a TPM 10 KiB.
_MAX_FILE: Final = 4 * 1024 * 1024
MAX_COPY: Final = 512 * 1024
#: Copies that are known to be of a file; each start leaves one of them.
_MOST_COPIES: Final = 16


class _Origin(msgspec.Struct, frozen=True):
    """The beginning of a file: its instance, the digest of the copy, and of later ones.

    Later copies are those that were taken from the file.
    """

    uuid: str
    copy: str
    later: tuple[str, ...] = ()


def kept_directory(paths: pathutils.Paths) -> str:
    """Return the directory with a directory of each guest that has such files here."""
    return paths.data("kvm")


def own_directory(guest: Files) -> str:
    """Return the directory of a guest's files."""
    return f"{kept_directory(guest.paths)}/{check_instance_name(guest.name)}"


def remove_kept(paths: pathutils.Paths, name: str) -> None:
    """Remove the files of an instance that does not exist any more."""
    path = f"{kept_directory(paths)}/{check_instance_name(name)}"
    shutil.rmtree(path, ignore_errors=True)


@dataclasses.dataclass(frozen=True)
class Kept:
    """One such file of a guest.

    Attributes:
        guest: the guest.
        what: name of the content, for messages.
        path: the file.
        origin: file with the beginning of it, in a directory that only root changes.
    """

    guest: Files
    what: str
    path: str
    origin: str

    def prepare(self, uuid: str, copy: str, first: Callable[[], bytes | None]) -> None:
        """Make the file ready for a start; see the module for the rule.

        Args:
            uuid: the instance; a file of an earlier one of its name does not count.
            copy: the copy in the record, empty if there is none.
            first: returns the content without a copy, None for no file.

        Raises:
            HypervisorError: the copy cannot be used.
        """
        wanted = _Origin(uuid, _digest(copy))
        present = self.read()
        known = self._known()
        is_own = present is not None and known is not None and known.uuid == uuid
        if is_own and known and wanted.copy in (known.copy, *known.later):
            return
        content = self._unpacked(copy) if copy else None
        if is_own and content == present:
            self._write_origin(wanted)
            return
        if content is None:
            content = first()
        # Without an origin, a file whose writing was interrupted is replaced.
        files.remove_file(self.origin)
        if content is None:
            files.remove_file(self.path)
        else:
            files.write_file(self.path, content, mode=0o600)
        self._write_origin(wanted)

    def packed(self) -> str:
        """Return a copy for the record, empty if there is no file.

        Raises:
            HypervisorError: it is too large.
        """
        content = self.read()
        if content is None:
            return ""
        text = base64.b64encode(zlib.compress(content, 9)).decode()
        if len(text) > MAX_COPY:
            raise errors.HypervisorError(
                f"instance {self.guest.name}: {self.what}: wanted at most {MAX_COPY}"
                f" bytes, found {len(text)}"
            )
        known = self._known()
        digest = _digest(text)
        if known is not None and digest not in (known.copy, *known.later):
            later = (*known.later, digest)[-_MOST_COPIES:]
            self._write_origin(msgspec.structs.replace(known, later=later))
        return text

    def read(self) -> bytes | None:
        """Return the content, None if there is no usable file.

        The directory may belong to the user of another program: a link, a pipe or a
        file of many names is none.
        """
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with open(os.open(self.path, flags), "rb") as src:
                info = os.fstat(src.fileno())
                if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
                    return None
                data = src.read(_MAX_FILE + 1)
        except OSError:
            return None
        return data if len(data) <= _MAX_FILE else None

    def _write_origin(self, origin: _Origin) -> None:
        files.write_file(self.origin, msgspec.json.encode(origin), mode=0o600)

    def _known(self) -> _Origin | None:
        with contextlib.suppress(
            msgspec.MsgspecError, UnicodeDecodeError, errors.GenericError, OSError
        ):
            data = files.read_file(self.origin, max_size=_MAX_FILE)
            return msgspec.json.decode(data, type=_Origin)
        return None

    def _unpacked(self, text: str) -> bytes:
        # In pieces with a limit, since a small copy may unpack to any length.
        unpacking = zlib.decompressobj()
        damaged = f"instance {self.guest.name}: the recorded {self.what} are damaged: "
        try:
            content = unpacking.decompress(base64.b64decode(text), _MAX_FILE)
        except (zlib.error, binascii.Error, ValueError) as err:
            raise errors.HypervisorError(f"{damaged}{err}") from err
        if unpacking.unconsumed_tail or not unpacking.eof:
            raise errors.HypervisorError(f"{damaged}too long")
        return content


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


UEFI: Final = "uefi"
#: Largest template, in bytes. OVMF has 84 or 528 KiB.
_MAX_TEMPLATE: Final = 4 * 1024 * 1024


def store(guest: Files) -> Kept:
    """Return the variable store of a guest."""
    own = own_directory(guest)
    return Kept(guest, "UEFI variables", f"{own}/efi-vars.fd", f"{own}/origin")


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
    os.makedirs(own_directory(guest), mode=0o700, exist_ok=True)
    store(guest).prepare(
        instance.uuid,
        instance.firmware_state,
        lambda: _template(guest.name, str(hvp["uefi_vars_path"])),
    )


def _template(name: str, path: str) -> bytes:
    try:
        return files.read_file(path, max_size=_MAX_TEMPLATE)
    except OSError as err:
        raise errors.HypervisorError(
            f"instance {name}: UEFI variables {path}: {err.strerror}; the package ovmf"
            " has them"
        ) from err
