"""The files of an OVF package: descriptor, manifest, disks, all in one OVA or apart."""

import contextlib
import hashlib
import os
import re
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from typing import Final

from ganeti.base import errors
from ganeti.migration.ovf import envelope

_MANIFEST: Final = re.compile(r"(SHA1|SHA256)\((.+)\)= ?([0-9a-fA-F]+)")
_MEMBER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 _.+-]{0,199}")
_MAX_MEMBERS: Final = 64
_CHUNK: Final = 1 << 20
#: Longest file in the format that the standard names.
_USTAR_BYTES: Final = (1 << 33) - 1


def open_package(path: str, scratch: str) -> tuple[str, envelope.Machine]:
    """Return the directory of a package's files, and its machine.

    Args:
        path: a descriptor, or an OVA, which is unpacked.
        scratch: an empty directory for that.

    Raises:
        OpExecError: the package is damaged or not complete; names file and problem.
    """
    if not os.path.isfile(path):
        raise errors.OpExecError(f"{path}: wanted a file, found none")
    descriptor = path
    if _is_archive(path):
        _unpack(path, scratch)
        descriptors = sorted(n for n in os.listdir(scratch) if n.endswith(".ovf"))
        if len(descriptors) != 1:
            raise errors.OpExecError(
                f"{path}: wanted one descriptor NAME.ovf, found {len(descriptors)}"
            )
        descriptor = os.path.join(scratch, descriptors[0])
    _verify(descriptor)
    with open(descriptor, "rb") as src:
        raw = src.read(envelope.MAX_LENGTH + 1)
    try:
        machine = envelope.parse(raw.decode())
    except (errors.ParseError, UnicodeDecodeError) as err:
        raise errors.OpExecError(f"{descriptor}: {err}") from err
    return os.path.dirname(os.path.abspath(descriptor)), machine


def file_of(directory: str, disk: envelope.PackagedDisk) -> str:
    """Return the path of a disk's file.

    Raises:
        OpExecError: it is missing, no file, or has another length.
    """
    path = os.path.join(directory, disk.file or "")
    if os.path.islink(path) or not os.path.isfile(path):
        raise errors.OpExecError(
            f"{path}: wanted the file of a disk, found none; the package is not"
            " complete"
        )
    size = os.stat(path).st_size
    if disk.file_bytes not in (0, size):
        raise errors.OpExecError(
            f"{path}: wanted {disk.file_bytes} bytes, found {size}; the package is not"
            " complete"
        )
    return path


def _is_archive(path: str) -> bool:
    """Return whether a file is an archive.

    An OVA is not compressed, so that what is read is no longer than the file.
    """
    try:
        with tarfile.open(path, "r:"):
            return True
    except (tarfile.TarError, EOFError, ValueError):
        return False


def _unpack(path: str, directory: str) -> None:
    try:
        with tarfile.open(path, "r:") as archive:
            for number, member in enumerate(archive):
                _check_member(path, member, number)
                archive.extract(member, directory, set_attrs=False, filter="data")
    except (tarfile.TarError, EOFError, ValueError) as err:
        raise errors.OpExecError(f"{path}: wanted a whole OVA, found {err}") from err


def _check_member(path: str, member: tarfile.TarInfo, number: int) -> None:
    if number >= _MAX_MEMBERS:
        raise errors.OpExecError(f"{path}: wanted at most {_MAX_MEMBERS} files")
    # The holes of a sparse member have any length.
    is_file = member.isreg() and not member.issparse()
    if not is_file or not _MEMBER.fullmatch(member.name):
        raise errors.OpExecError(
            f"{path}: wanted files without directories, found {member.name[:200]!r}"
        )


def _manifest_of(descriptor: str) -> str:
    return f"{descriptor.removesuffix('.ovf')}.mf"


def _verify(descriptor: str) -> None:
    """Compare the files with the sums in the manifest, if there is one."""
    path = _manifest_of(descriptor)
    if not os.path.isfile(path):
        return
    with open(path, encoding="ascii", errors="replace") as src:
        lines = src.read(1 << 20).splitlines()
    for line in filter(None, map(str.strip, lines)):
        match = _MANIFEST.fullmatch(line)
        if match is None or not _MEMBER.fullmatch(match[2]):
            raise errors.OpExecError(
                f"{path}: wanted lines 'SHA256(FILE)= SUM', found {line[:200]!r}"
            )
        file = os.path.join(os.path.dirname(descriptor), match[2])
        if not os.path.isfile(file):
            raise errors.OpExecError(
                f"{file}: in the manifest, but missing; the package is not complete"
            )
        present = _sum(file, match[1].lower())
        if present != match[3].lower():
            raise errors.OpExecError(
                f"{file}: wanted {match[1]} {match[3].lower()}, found {present}; the"
                " file was changed or is not complete"
            )


def _sum(path: str, name: str) -> str:
    with open(path, "rb") as src:
        return hashlib.file_digest(src, name).hexdigest()


def write_manifest(descriptor: str, files: Sequence[str]) -> str:
    """Write the manifest of a descriptor and its files; return its path."""
    path = _manifest_of(descriptor)
    with open(path, "w", encoding="ascii") as dst:
        dst.writelines(
            f"SHA256({os.path.basename(file)})= {_sum(file, 'sha256')}\n"
            for file in (descriptor, *files)
        )
    return path


def pack(target: str, files: Sequence[str]) -> None:
    """Write an OVA of files, the descriptor first."""
    longest = max(os.stat(file).st_size for file in files)
    form = tarfile.USTAR_FORMAT if longest <= _USTAR_BYTES else tarfile.GNU_FORMAT
    with tarfile.open(target, "w", format=form) as archive:
        for file in files:
            member = archive.gettarinfo(file, os.path.basename(file))
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o644
            with open(file, "rb") as src:
                archive.addfile(member, src)


@contextlib.contextmanager
def removed_on_failure(directory: str) -> Iterator[None]:
    """Remove a directory with all files if the work in it fails."""
    try:
        yield
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
