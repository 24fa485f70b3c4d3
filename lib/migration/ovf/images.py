"""The content of disks: images converted by qemu-img, compressed by gzip.

An image can come from anybody. Formats can refer to other files, which qemu-img would
read with the rights of its caller: images that do are refused.
"""

import gzip
import json
import os
import shutil
import zlib
from collections.abc import Iterator
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.filesystem import qcow2
from ganeti.base.process import Runner

#: Name of the format for qemu-img by our name.
_FORMATS: Final = {"raw": "raw", "cow": "qcow2", "vmdk": "vmdk"}
_READABLE: Final = ("raw", "qcow2", "vmdk", "vdi", "vpc", "vhdx")
_OPTIONS: Final = {"vmdk": ("-o", "subformat=streamOptimized")}
_INFO_TIMEOUT_S: Final = 60.0
_MAX_INFO: Final = 1 << 20
_SECTOR: Final = 512
_CHUNK: Final = 1 << 20
#: Bytes by which formats round the size of a disk up.
_ROUNDING: Final = 1 << 20


def check_raw(path: str) -> int:
    """Return the bytes of a raw image.

    Raises:
        OpExecError: it is no image of a disk.
    """
    size = os.stat(path).st_size
    if not size or size % _SECTOR:
        raise errors.OpExecError(
            f"{path}: wanted an image of a disk, of whole sectors, found {size} bytes;"
            " exports of an OS whose script writes an archive cannot be converted"
        )
    return size


def write(process: Runner, raw: str, target: str, form: str) -> None:
    """Write an image in a format: raw, cow or vmdk.

    Raises:
        OpExecError: qemu-img failed.
    """
    kind = _FORMATS[form]
    options = _OPTIONS.get(kind, ())
    _convert(process, ("-f", "raw", "-O", kind, *options), raw, target)


def read(process: Runner, source: str, raw: str, *, most: int) -> int:
    """Write the content of an image of any known format as a raw image.

    Args:
        process: runs qemu-img.
        source: the image.
        raw: path of the new image.
        most: bytes of the disk by the description of its machine.

    Returns:
        the bytes of the content.

    Raises:
        OpExecError: it refers to other files, is too large, damaged, or of another
            format.
    """
    _check_header(source)
    info = _info(process, source)
    kind = info.get("format")
    if kind not in _READABLE:
        raise errors.OpExecError(
            f"{source}: wanted an image in format {', '.join(_READABLE)}, found {kind}"
        )
    if others := sorted(set(_others(info, source))):
        raise errors.OpExecError(
            f"{source}: the image refers to other files, which is not accepted:"
            f" {', '.join(others)[:400]}"
        )
    size = int(info["virtual-size"])
    if size > most + _ROUNDING:
        raise errors.OpExecError(
            f"{source}: wanted an image of at most {most} bytes, the capacity in the"
            f" descriptor, found {size}"
        )
    _convert(process, ("-f", kind, "-O", "raw"), source, raw)
    return size


def _check_header(source: str) -> None:
    """Refuse an image of qcow2 that refers to other files, before qemu-img sees it."""
    with open(source, "rb") as src:
        header = qcow2.read_header(src.read(qcow2.SIZE).ljust(qcow2.SIZE, b"\0"))
    if header is not None and (header.has_backing or header.has_external_data):
        raise errors.OpExecError(
            f"{source}: the image refers to other files, which is not accepted"
        )


def _others(info: dict[str, Any], source: str) -> Iterator[str]:
    """Yield the files other than itself that an image refers to."""
    for key in ("backing-filename", "full-backing-filename"):
        if info.get(key):
            yield str(info[key])
    details = info.get("format-specific", {}).get("data", {})
    if details.get("data-file"):
        yield str(details["data-file"])
    for extent in details.get("extents", ()):
        if extent.get("filename") != source:
            yield str(extent.get("filename"))


def _info(process: Runner, path: str) -> dict[str, Any]:
    result = process.run_bounded(
        ["qemu-img", "info", "--output=json", path],
        timeout_s=_INFO_TIMEOUT_S,
        max_output=_MAX_INFO,
    )
    if result.failed:
        raise _failure(path, result.reason, result.output)
    info: dict[str, Any] = json.loads(result.stdout)
    return info


def _convert(
    process: Runner, options: tuple[str, ...], source: str, target: str
) -> None:
    result = process.run(["qemu-img", "convert", *options, source, target])
    if result.failed:
        raise _failure(source, result.reason, result.output)


def _failure(path: str, reason: str, output: str) -> errors.OpExecError:
    text = " / ".join(output.split("\n")).strip(" /")[:400]
    return errors.OpExecError(f"{path}: qemu-img {reason}: {text}")


def compress(path: str) -> None:
    """Compress a file in its place."""
    packed = f"{path}.part"
    with open(path, "rb") as src, gzip.open(packed, "wb", compresslevel=6) as dst:
        shutil.copyfileobj(src, dst, _CHUNK)
    os.replace(packed, path)


def unpack(source: str, target: str, most: int) -> None:
    """Write the content of a compressed file.

    Raises:
        OpExecError: it is damaged, or longer than the given bytes.
    """
    written = 0
    try:
        with gzip.open(source, "rb") as src, open(target, "wb") as dst:
            while chunk := src.read(_CHUNK):
                written += len(chunk)
                if written > most:
                    raise errors.OpExecError(
                        f"{source}: wanted at most {most} bytes when unpacked, found"
                        " more"
                    )
                dst.write(chunk)
    except (gzip.BadGzipFile, EOFError, zlib.error) as err:
        raise errors.OpExecError(f"{source}: wanted a gzip file, found {err}") from err


def resize(raw: str, size: int) -> None:
    """Make a raw image longer; the new part reads as zeros."""
    with open(raw, "ab") as dst:
        dst.truncate(size)
