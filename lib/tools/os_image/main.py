"""``os-image SCRIPT``: one script of the OS definition ``image``.

The parameters come in the environment, as :doc:`os-interface` specifies. Standard error
goes to the log of the script.

The script ``helper`` makes the boot disk of a helper machine from an image of the
cluster. The image is set for the cluster, by whoever is root there, and this node must
list its place like those of other images. A URL may end in ``#sha256=DIGEST``; without
TLS it must.
"""

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ganeti.base import errors, pathutils
from ganeti.base.constants.protocols import os as os_constants
from ganeti.base.filesystem import files, qcow2
from ganeti.base.net import netutils
from ganeti.tools import common
from ganeti.tools.os_image import images, sources
from ganeti.tools.os_image.sources import CHECKSUMS, Settings

NAME: Final = "os-image"
_CHUNK: Final = 4 * 1024 * 1024
#: Bytes that an image may be longer than the disk: its tables.
_TABLES: Final = 64 * 1024 * 1024
_MIB: Final = 1024 * 1024

Environ = Mapping[str, str]


def main(argv: list[str] | None = None) -> int:
    """Run one script; return its exit code."""
    parser = common.parser(NAME, "Installs disk images; a helper of the node daemon.")
    parser.add_argument("script", choices=tuple(_SCRIPTS))
    parser.add_argument("checks", nargs="*", help="of verify: parameters")
    options = parser.parse_args(argv)
    common.start_log(NAME, options)
    return common.run(NAME, lambda: _SCRIPTS[options.script](options, os.environ))


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _verify(options: argparse.Namespace, environ: Environ) -> None:
    """Check the parameters, and whether this node takes images from there."""
    if options.checks != [os_constants.OS_VALIDATE_PARAMETERS]:
        raise errors.ParseError(f"unknown checks: {' '.join(options.checks)}")
    wanted = Settings.from_environ(environ)
    paths = pathutils.from_environ(environ)
    if wanted.url:
        sources.check_url(paths, wanted.url, is_checked=bool(wanted.checksums))
    else:
        os.close(sources.open_file(paths, wanted.file))
    if shutil.which("qemu-img", path=os.environ.get("PATH")) is None:
        raise errors.OpExecError("qemu-img: not found; install qemu-utils on this node")


def _create(_options: argparse.Namespace, environ: Environ) -> None:
    """Write the image to the first disk; the others stay as they are."""
    wanted = Settings.from_environ(environ)
    target = environ.get("DISK_0_PATH") or environ.get("DISK_0_URI")
    if not target:
        raise errors.OpExecError("an image needs a disk, the instance has none")
    disk_bytes = int(environ["DISK_0_SIZE"]) * _MIB
    fd = _opened(pathutils.from_environ(environ), wanted, disk_bytes + _TABLES)
    try:
        images.check(fd, wanted, disk_bytes)
        _note(f"writing {wanted.source} to {target}")
        images.copy(fd, wanted, target, _note)
    finally:
        os.close(fd)
    if os.path.exists(target):
        _sync(target)


def _opened(paths: pathutils.Paths, wanted: Settings, max_bytes: int) -> int:
    if wanted.url:
        sources.check_url(paths, wanted.url, is_checked=bool(wanted.checksums))
        return sources.fetch(wanted, max_bytes, _note, redirects=bool(wanted.checksums))
    fd = sources.open_file(paths, wanted.file)
    try:
        _check_content(fd, wanted, max_bytes)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_content(fd: int, wanted: Settings, max_bytes: int) -> None:
    size = os.fstat(fd).st_size
    if size > max_bytes:
        raise errors.OpExecError(
            f"image {wanted.file}: wanted at most {max_bytes} bytes, found {size}"
        )
    hasher, offset = wanted.hasher(), 0
    while data := os.pread(fd, _CHUNK, offset):
        hasher.update(data)
        offset += len(data)
    hasher.check()


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _export(_options: argparse.Namespace, environ: Environ) -> None:
    """Write a disk to standard output."""
    with open(environ["EXPORT_DEVICE"], "rb") as disk:
        shutil.copyfileobj(disk, sys.stdout.buffer, _CHUNK)
    sys.stdout.buffer.flush()


def _import(_options: argparse.Namespace, environ: Environ) -> None:
    """Write standard input to a disk."""
    with open(environ["IMPORT_DEVICE"], "r+b", buffering=0) as disk:
        shutil.copyfileobj(sys.stdin.buffer, disk, _CHUNK)
        os.fsync(disk.fileno())


def _rename(_options: argparse.Namespace, _environ: Environ) -> None:
    """Do nothing: the guest learns its new name from its cloud-init seed."""


def _helper(_options: argparse.Namespace, environ: Environ) -> None:
    """Make the boot disk of a helper machine."""
    paths = pathutils.from_environ(environ)
    make_disk(paths, environ["HELPER_IMAGE"], environ["HELPER_DISK"], _note)


#: Space that stays free in the directory of the disks, for the store of the cluster.
_RESERVE: Final = 512 * _MIB
#: Largest image.
_MAX_BYTES: Final = 1 << 40


def make_disk(
    paths: pathutils.Paths, source: str, target: str, note: Callable[[str], None]
) -> None:
    """Write an image as a raw disk into a new file.

    Args:
        paths: of this node.
        source: absolute path or URL.
        target: path of the file, whose directory exists.
        note: gets lines about the progress.

    Raises:
        ParseError: the source has another form, or is none of this node's.
        OpExecError: the image is damaged, too large or not self-contained.
    """
    wanted = parsed_source(source)
    fd = _opened_source(paths, wanted, note)
    try:
        is_qcow2 = os.pread(fd, len(qcow2.MAGIC), 0) == qcow2.MAGIC
        form = "qcow2" if is_qcow2 else "raw"
        wanted = Settings(wanted.url, wanted.file, wanted.checksums, form)
        size = images.check(fd, wanted, _MAX_BYTES)
        _require_space(size, wanted.source, os.path.dirname(target))
        part = f"{target}.new"
        with _removed(part):
            files.make_sparse(part, -(-size // _MIB) * _MIB)
            images.copy(fd, wanted, part, note)
            _sync(part)
            os.rename(part, target)
    finally:
        os.close(fd)


def parsed_source(source: str) -> Settings:
    """Return the place of an image, and its checksum if the URL has one.

    Raises:
        ParseError: it is neither a path nor a URL, or the URL needs a checksum.
    """
    if source.startswith("/"):
        return Settings("", source, {}, "raw")
    url, _, checksum = source.partition("#")
    name, _, digest = checksum.partition("=")
    if checksum and (name not in CHECKSUMS or len(digest) != CHECKSUMS[name]):
        raise errors.ParseError(
            f"image {netutils.shown_url(url)}: wanted a checksum such as"
            f" #sha256=DIGEST at the end, found #{checksum[:100]}"
        )
    if not (checksum or url.startswith("https://")):
        raise errors.ParseError(
            f"image {netutils.shown_url(url)}: wanted an absolute path, https://"
            " or a URL that ends in #sha256=DIGEST"
        )
    return Settings(url, "", {name: digest.lower()} if checksum else {}, "raw")


def _opened_source(
    paths: pathutils.Paths, wanted: Settings, note: Callable[[str], None]
) -> int:
    if not wanted.url:
        return sources.open_file(paths, wanted.file)
    # The cluster has chosen the image, not who uses it.
    sources.check_url(paths, wanted.url, is_checked=True)
    return sources.fetch(wanted, _MAX_BYTES, note)


def _require_space(size: int, source: str, directory: str) -> None:
    status = os.statvfs(directory)
    free = status.f_bavail * status.f_frsize - _RESERVE
    if size > free:
        raise errors.OpExecError(
            f"image {source}: wanted {size >> 20} MiB besides {_RESERVE >> 20} MiB that"
            f" stay free in {directory} on this node, found {max(free, 0) >> 20} MiB"
        )


@contextlib.contextmanager
def _removed(path: str) -> Iterator[None]:
    """Remove a file of an earlier run, and what the block leaves of its own."""
    files.remove_file(path)
    try:
        yield
    finally:
        files.remove_file(path)


_SCRIPTS: Final[dict[str, Callable[[argparse.Namespace, Environ], None]]] = {
    os_constants.OS_SCRIPT_CREATE: _create,
    os_constants.OS_SCRIPT_EXPORT: _export,
    os_constants.OS_SCRIPT_IMPORT: _import,
    os_constants.OS_SCRIPT_RENAME: _rename,
    os_constants.OS_SCRIPT_VERIFY: _verify,
    "helper": _helper,
}


if __name__ == "__main__":
    sys.exit(main())
