"""Boot disks of helper machines, made from an image of the cluster.

The image is set for the cluster, by whoever is root there, and this node must list its
place like those of other images. A URL may end in ``#sha256=DIGEST``; without TLS it
must.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Final

from ganeti.base import errors, pathutils
from ganeti.base.filesystem import files, qcow2
from ganeti.base.net import urls
from ganeti.tools.os_image import download, images, sources
from ganeti.tools.os_image.settings import CHECKSUMS, Settings

_MIB: Final = 1024 * 1024
#: Space that stays free in the directory of the disks, for the store of the cluster.
_RESERVE: Final = 512 * _MIB
#: Largest image.
_MAX_BYTES: Final = 1 << 40


def make(
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
    wanted = parsed(source)
    fd = _opened(paths, wanted, note)
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


def parsed(source: str) -> Settings:
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
            f"image {urls.shown(url)}: wanted a checksum such as"
            f" #sha256=DIGEST at the end, found #{checksum[:100]}"
        )
    if not (checksum or url.startswith("https://")):
        raise errors.ParseError(
            f"image {urls.shown(url)}: wanted an absolute path, https://"
            " or a URL that ends in #sha256=DIGEST"
        )
    return Settings(url, "", {name: digest.lower()} if checksum else {}, "raw")


def _opened(
    paths: pathutils.Paths, wanted: Settings, note: Callable[[str], None]
) -> int:
    if not wanted.url:
        return sources.open_file(paths, wanted.file)
    # The cluster has chosen the image, not who uses it.
    sources.check_url(paths, wanted.url, is_checked=True)
    return download.fetch(wanted, _MAX_BYTES, note)


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


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
