"""``os-image SCRIPT``: one script of the OS definition ``image``.

The parameters come in the environment, as :doc:`os-interface` specifies. Standard error
goes to the log of the script.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Final

from ganeti.base import errors, pathutils
from ganeti.base.constants.protocols import os as os_constants
from ganeti.tools import common
from ganeti.tools.os_image import download, helper, images, sources
from ganeti.tools.os_image.settings import Settings

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
        return download.fetch(
            wanted, max_bytes, _note, redirects=bool(wanted.checksums)
        )
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
    fd = os.open(path, os.O_RDWR)
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
    helper.make(paths, environ["HELPER_IMAGE"], environ["HELPER_DISK"], _note)


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
