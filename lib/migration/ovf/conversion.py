"""The two conversions: an export to a package, and a package to an export."""

import contextlib
import dataclasses
import hashlib
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import export
from ganeti.base.process import Runner
from ganeti.migration.ovf import envelope, images
from ganeti.model.objects import export_info
from ganeti.model.objects.export_info import ExportedDisk, ExportInfo

# The files of an OVF package: descriptor, manifest, disks, all in one OVA or apart.

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


_MIB: Final = 1 << 20


@dataclasses.dataclass(frozen=True)
class Overrides:
    """Values that replace those of the package; None where it has the value.

    ``disks`` are the least sizes in MiB by index; a disk that the package does not have
    is empty.
    """

    name: str | None = None
    os: str | None = None
    disk_template: str | None = None
    hypervisor: str | None = None
    tags: tuple[str, ...] | None = None
    nics: tuple[Mapping[str, str], ...] | None = None
    disks: Mapping[int, int] = dataclasses.field(default_factory=dict)
    hvparams: Mapping[str, str] | None = None
    backend: Mapping[str, str] | None = None
    osparams: Mapping[str, str] | None = None


# Import
def import_package(process: Runner, path: str, top: str, overrides: Overrides) -> str:
    """Convert a package to an export; return its directory below ``top``.

    Raises:
        OpExecError: the package cannot be converted; nothing is left behind.
    """
    os.makedirs(top, exist_ok=True)
    work = tempfile.mkdtemp(prefix=".ovf-", dir=top)
    with removed_on_failure(work):
        scratch = os.path.join(work, "package")
        os.mkdir(scratch)
        directory, machine = open_package(path, scratch)
        info = _wanted(machine, overrides)
        target = os.path.join(top, info.name)
        _refuse_present(target)
        disks = _import_disks(process, work, directory, machine, overrides)
        info = dataclasses.replace(info, disks=tuple(disks))
        text = export_info.format_info(info)
        _check(text, path)
        shutil.rmtree(scratch)
        with open(os.path.join(work, export.EXPORT_CONF_FILE), "x") as dst:
            os.chmod(dst.fileno(), 0o600)
            dst.write(text)
        os.rename(work, target)
    return target


def _refuse_present(path: str) -> None:
    if os.path.lexists(path):
        raise errors.OpExecError(
            f"{path}: exists already; remove it, or choose another --name or"
            " --output-dir"
        )


def _check(text: str, path: str) -> None:
    try:
        export_info.parse(text)
    except errors.ParseError as err:
        raise errors.OpExecError(f"{path}: {err}") from err


def _wanted(machine: envelope.Machine, overrides: Overrides) -> ExportInfo:
    """Return the description of the export, without its disks."""
    if machine.description is not None:
        try:
            info = export_info.parse(machine.description)
        except errors.ParseError as err:
            raise errors.OpExecError(f"section of Ganeti: {err}") from err
    else:
        info = ExportInfo(
            name=machine.name,
            os="",
            timestamp=0,
            source="",
            disk_template="plain",
            hypervisor="kvm",
            nics=tuple({"mac": nic.mac} if nic.mac else {} for nic in machine.nics),
            backend={
                "maxmem": str(machine.memory_mib),
                "minmem": str(machine.memory_mib),
                "vcpus": str(machine.vcpus),
            },
        )
    given = {
        field.name: value
        for field in dataclasses.fields(overrides)
        if field.name != "disks"
        and (value := getattr(overrides, field.name)) is not None
    }
    for key in ("backend", "osparams"):
        if key in given:
            given[key] = {**getattr(info, key), **given[key]}
    if not given.get("os", info.os):
        raise errors.OpExecError(
            f"instance {info.name}: the package names no operating system; give one"
            " with --os-type"
        )
    return dataclasses.replace(info, **given, timestamp=int(time.time()))


def _import_disks(
    process: Runner,
    work: str,
    directory: str,
    machine: envelope.Machine,
    overrides: Overrides,
) -> list[ExportedDisk]:
    count = max(len(machine.disks), *(index + 1 for index in overrides.disks), 0)
    disks = []
    for index in range(count):
        raw = os.path.join(work, export_info.dump_name(index))
        content = 0
        if index < len(machine.disks):
            content = _import_disk(process, directory, machine.disks[index], raw)
        least = overrides.disks.get(index, 0) * _MIB
        if not content and not least:
            raise errors.OpExecError(f"disk {index}: give its size with --disk")
        if least and least < content:
            raise errors.OpExecError(
                f"disk {index}: wanted {least // _MIB} MiB, found"
                f" {-(-content // _MIB)} MiB in the package; a disk cannot shrink"
            )
        size = -(-max(content, least) // _MIB)
        images.resize(raw, size * _MIB)
        os.chmod(raw, 0o600)
        disks.append(ExportedDisk(os.path.basename(raw), size, dump_bytes=size * _MIB))
    return disks


def _import_disk(
    process: Runner, directory: str, disk: envelope.PackagedDisk, raw: str
) -> int:
    """Write a disk of the package as a raw image; return the bytes of its content."""
    if disk.file is None:
        images.resize(raw, disk.capacity_bytes)
        return disk.capacity_bytes
    source = file_of(directory, disk)
    packed = None
    if disk.is_compressed:
        packed, source = source, f"{raw}.image"
        images.unpack(packed, source, disk.capacity_bytes * 2 + 16 * _MIB)
    content = images.read(process, source, raw, most=disk.capacity_bytes)
    if packed is not None:
        os.remove(source)
    return max(content, disk.capacity_bytes)


# Export
@dataclasses.dataclass(frozen=True)
class Form:
    """The form of a package: see the options of the command."""

    images: str
    is_compressed: bool = False
    is_external: bool = False
    is_ova: bool = False


def export_package(
    process: Runner, path: str, top: str, form: Form, name: str | None
) -> list[str]:
    """Convert an export to a package; return the paths of its files.

    Args:
        process: runs qemu-img.
        path: the directory of an export, or its ``config.ini``.
        top: directory for the files.
        form: of the package.
        name: of the machine and of the files; by default that of the instance.

    Raises:
        OpExecError: the export cannot be converted; nothing is left behind.
    """
    directory, info = _read_export(path)
    os.makedirs(top, exist_ok=True)
    work = tempfile.mkdtemp(prefix=".ovf-", dir=top)
    with removed_on_failure(work):
        if name is not None:
            info = dataclasses.replace(info, name=name)
            _check(export_info.format_info(info), path)
        machine = _machine(process, directory, info, work, form)
        files = [os.path.join(work, disk.file or "") for disk in machine.disks]
        descriptor = os.path.join(work, f"{info.name}.ovf")
        with open(descriptor, "x", encoding="utf-8") as dst:
            dst.write(envelope.text_of(machine, form.images))
        made = [descriptor, write_manifest(descriptor, files), *files]
        if form.is_ova:
            archive = os.path.join(work, f"{info.name}.ova")
            pack(archive, made)
            made = [archive]
        targets = [os.path.join(top, os.path.basename(file)) for file in made]
        for target in targets:
            _refuse_present(target)
        for file, target in zip(made, targets, strict=True):
            # It has what the guest wrote.
            os.chmod(file, 0o600)
            os.rename(file, target)
    shutil.rmtree(work)
    return targets


def _read_export(path: str) -> tuple[str, ExportInfo]:
    if os.path.isdir(path):
        path = os.path.join(path, export.EXPORT_CONF_FILE)
    if not os.path.isfile(path):
        raise errors.OpExecError(
            f"{path}: wanted the {export.EXPORT_CONF_FILE} of an export, found none"
        )
    with open(path, "rb") as src:
        raw = src.read(export_info.MAX_LENGTH * 4 + 1)
    try:
        return os.path.dirname(os.path.abspath(path)), export_info.parse(raw.decode())
    except (errors.ParseError, UnicodeDecodeError) as err:
        raise errors.OpExecError(f"{path}: {err}") from err


def _machine(
    process: Runner, directory: str, info: ExportInfo, work: str, form: Form
) -> envelope.Machine:
    disks = [
        _export_disk(process, directory, disk, f"{work}/{info.name}-disk{index}", form)
        for index, disk in enumerate(info.disks)
    ]
    # That of earlier releases sets both limits.
    memory = "memory" if "memory" in info.backend else "maxmem"
    # A package is given to others: what is private stays here.
    public = dataclasses.replace(info, osparams_private={})
    return envelope.Machine(
        name=info.name,
        vcpus=_number(info.backend, "vcpus", 1),
        memory_mib=_number(info.backend, memory, 128),
        nics=tuple(
            envelope.Nic(nic.get("mac"), nic.get("network") or nic.get("link"))
            for nic in info.nics
        ),
        disks=tuple(disks),
        description=None if form.is_external else export_info.format_info(public),
    )


def _number(values: Mapping[str, Any], name: str, default: int) -> int:
    text = str(values.get(name, ""))
    return int(text) if text.isdecimal() else default


def _export_disk(
    process: Runner, directory: str, disk: ExportedDisk, stem: str, form: Form
) -> envelope.PackagedDisk:
    whole = envelope.PackagedDisk(disk.dump, 0, file_bytes=disk.dump_bytes or 0)
    raw = file_of(directory, whole)
    capacity = images.check_raw(raw)
    target = f"{stem}.{form.images}"
    images.write(process, raw, target, form.images)
    if form.is_compressed:
        images.compress(target)
    return envelope.PackagedDisk(
        os.path.basename(target),
        capacity,
        form.is_compressed,
        os.stat(target).st_size,
    )


def nics_of(
    given: Sequence[tuple[str, Any]] | None, *, none: bool
) -> tuple[Mapping[str, str], ...] | None:
    """Return the NICs of ``--net`` options, None without any.

    Raises:
        OpPrereqError: an index is missing, or occurs twice.
    """
    if none:
        return ()
    if not given:
        return None
    by_index = indexed(given, "--net")
    return tuple(by_index.get(index, {}) for index in range(max(by_index) + 1))


def indexed(given: Sequence[tuple[str, Any]], what: str) -> dict[int, dict[str, str]]:
    """Return the values of options ``INDEX:KEY=VALUE,...`` by index.

    Raises:
        OpPrereqError: no index, one above 15, or one twice.
    """
    out: dict[int, dict[str, str]] = {}
    for text, values in given:
        if not (text.isdecimal() and len(text) <= 2 and int(text) <= 15):
            raise errors.OpPrereqError(f"{what}: wanted an index, found {text!r}")
        if int(text) in out:
            raise errors.OpPrereqError(f"{what}: index {text} occurs twice")
        out[int(text)] = {key: str(value) for key, value in (values or {}).items()}
    return out
