"""Images: the check of their header, and the copy to a disk by qemu-img.

A qcow2 image can name other files, of which it is only the difference or the index.
Such an image would read files of the node, so it is refused: by its header, before
qemu-img opens it, and again by qemu-img's own description. The format is stated to
qemu-img, which never guesses it.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Final

from ganeti.base import errors
from ganeti.base.filesystem import qcow2
from ganeti.base.process import SAFE_PATH
from ganeti.tools.os_image.sources import Settings

SECTOR: Final = 512
#: Incompatible features that an image may have: its compression, extended tables.
_ALLOWED_FEATURES: Final = 1 << 3 | 1 << 4
#: Limits of qemu-img: address space in bytes, processor time in seconds, wall time.
_INFO_LIMITS: Final = ("--as=2147483648", "--cpu=30", "--core=0")
_INFO_S: Final = 60.0
_COPY_LIMITS: Final = ("--as=8589934592", "--cpu=21600", "--core=0")
_COPY_S: Final = 6 * 3600.0
_MAX_OUTPUT: Final = 64 * 1024
#: Steps of the progress, in percent.
_STEP: Final = 10.0
_ENV: Final = {"PATH": SAFE_PATH, "LC_ALL": "C"}


def check(fd: int, wanted: Settings, disk_bytes: int) -> int:
    """Refuse an image that is not self-contained, or larger than the disk.

    Returns:
        the bytes of the disk that the guest sees.

    Raises:
        OpExecError: names the image, the wanted and the found property.
    """
    if wanted.format == "qcow2":
        _require_fit(_check_header(fd, wanted.source), disk_bytes, wanted.source)
        size = _check_description(fd, wanted.source)
    else:
        size = os.fstat(fd).st_size
        if size == 0:
            raise _refusal(wanted.source, "is empty")
        if os.pread(fd, len(qcow2.MAGIC), 0) == qcow2.MAGIC:
            raise _refusal(
                wanted.source, "is a qcow2 image, but the OS parameter format is raw"
            )
    _require_fit(size, disk_bytes, wanted.source)
    return size


def _require_fit(size: int, disk_bytes: int, source: str) -> None:
    if size > disk_bytes:
        raise _refusal(
            source,
            f"needs a disk of {-(-size >> 20)} MiB, but disk 0 of the instance has"
            f" {disk_bytes >> 20} MiB",
        )


def _check_header(fd: int, source: str) -> int:
    header = qcow2.read_header(os.pread(fd, qcow2.SIZE, 0))
    if header is None:
        raise _refusal(
            source, "is not a qcow2 image; for others set the OS parameter format=raw"
        )
    version, features = header.version, header.features
    for is_wrong, what in (
        (version not in (2, 3), f"has qcow2 version {version}, wanted 2 or 3"),
        (header.has_backing, "names a backing file; wanted a complete image"),
        (header.is_encrypted, "is encrypted"),
        (header.has_external_data, "names an external data file"),
        (
            features & ~_ALLOWED_FEATURES,
            f"has the incompatible features {features:#x}, or was not closed properly",
        ),
    ):
        if is_wrong:
            raise _refusal(source, what)
    return header.size


def _check_description(fd: int, source: str) -> int:
    """Return the size that qemu-img sees, and refuse what it finds of other files."""
    answer = _described(fd, source)
    specific = answer.get("format-specific")
    more = specific.get("data") if isinstance(specific, dict) else None
    known = {**answer, **(more if isinstance(more, dict) else {})}
    for key in (
        *("backing-filename", "full-backing-filename", "backing-image"),
        *("data-file", "data-file-raw", "encrypt", "encrypted"),
    ):
        if known.get(key):
            raise _refusal(source, f"is not self-contained: it has {key}")
    size = answer.get("virtual-size")
    if answer.get("format") != "qcow2" or type(size) is not int or size <= 0:
        raise _refusal(source, "is not a qcow2 image with a size")
    return size


def _described(fd: int, source: str) -> dict[str, Any]:
    command = ("info", "--output=json", "-f", "qcow2", _path(fd))
    with _program(_INFO_LIMITS, command, fd, _INFO_S) as child:
        text = child.read(_MAX_OUTPUT + 1)
        if len(text) > _MAX_OUTPUT:
            raise _refusal(source, "has a description that is too long")
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise _refusal(source, "cannot be described by qemu-img") from err
    if not isinstance(answer, dict):
        raise _refusal(source, "cannot be described by qemu-img")
    return answer


def copy(fd: int, wanted: Settings, target: str, note: Callable[[str], None]) -> None:
    """Write an image to the beginning of a disk, as the guest shall see it.

    Args:
        fd: the image, checked.
        wanted: its format.
        target: path or URI of the disk, which exists and is large enough.
        note: gets lines about the progress.

    Raises:
        OpExecError: contains the last lines of qemu-img.
    """
    command = ("convert", "-n", "-p", "-f", wanted.format, "-O", "raw", _path(fd))
    shown = _STEP
    with _program(_COPY_LIMITS, (*command, target), fd, _COPY_S) as output:
        for text in _parts(output):
            percent = _percent(text)
            if percent is None:
                note(text)
            elif percent >= shown:
                note(f"wrote {percent:.0f} % of the image")
                shown = percent - percent % _STEP + _STEP


def _parts(output: IO[bytes]) -> Iterator[str]:
    """Yield the parts of an output that a carriage return or a newline ends."""
    rest = b""
    while data := os.read(output.fileno(), 4096):
        *parts, rest = (rest + data).replace(b"\n", b"\r").split(b"\r")
        rest = rest[-4096:]
        yield from (p.decode(errors="replace").strip() for p in parts if p.strip())


def _percent(text: str) -> float | None:
    try:
        return float(text.strip("() ").removesuffix("/100%"))
    except ValueError:
        return None


def _path(fd: int) -> str:
    return f"/dev/fd/{fd}"


@contextlib.contextmanager
def _program(
    limits: Sequence[str], command: Sequence[str], fd: int, timeout_s: float
) -> Iterator[IO[bytes]]:
    """Run qemu-img with limits, in this session: whoever ends the script ends it."""
    argv = ["prlimit", *limits, "--", "qemu-img", *command]
    try:
        child = subprocess.Popen(
            argv,
            env=_ENV,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pass_fds=(fd,),
        )
    except OSError as err:
        raise errors.OpExecError(f"qemu-img: cannot be run: {err}") from err
    late = threading.Event()

    def end() -> None:
        late.set()
        child.kill()

    timer = threading.Timer(timeout_s, end)
    timer.start()
    with child:
        try:
            if child.stdout is not None:
                yield child.stdout
        except BaseException:
            child.kill()
            raise
        finally:
            child.wait()
            timer.cancel()
    if late.is_set():
        raise errors.OpExecError(
            f"qemu-img {command[0]}: did not end in {timeout_s:g} s and was killed"
        )
    if child.returncode:
        reason = f"exited with code {child.returncode}"
        if child.returncode < 0:
            reason = f"was ended by signal {signal.Signals(-child.returncode).name}"
        raise errors.OpExecError(
            f"qemu-img {command[0]}: {reason}; its message is above"
        )


def _refusal(source: str, what: str) -> errors.OpExecError:
    return errors.OpExecError(f"image {source}: {what}")
