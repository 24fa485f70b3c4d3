"""Download of an image into a file without a name, which no crash leaves behind."""

import os
import ssl
from collections.abc import Callable
from typing import Final

import pycurl

from ganeti.base import errors
from ganeti.tools.os_image.settings import Settings

#: Place of large temporary files.
_DIRECTORY: Final = "/var/tmp"  # noqa: S108
#: Longest download, and speed below which it is given up, in bytes per second.
_MAX_S: Final = 6 * 3600
_SLOW_BYTES: Final = 4096
_SLOW_S: Final = 60
_CONNECT_S: Final = 30
_REDIRECTS: Final = 5
#: Space that stays free in the directory.
_RESERVE: Final = 256 * 1024 * 1024
#: Steps of the progress, in percent.
_STEP: Final = 10
#: Protocols of the first and of further requests.
_PROTOCOLS: Final = {
    "https": pycurl.PROTO_HTTPS,
    "http": pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
}


class _Sink:
    """Takes the data of a download up to a limit."""

    def __init__(self, fd: int, limit: int, wanted: Settings) -> None:
        self._fd = fd
        self._limit = limit
        self._hasher = wanted.hasher()
        self.size = 0
        self.problem = ""

    def write(self, data: bytes) -> int:
        """Store data; anything but its length ends the download."""
        self.size += len(data)
        if self.size > self._limit:
            self.problem = f"wanted at most {self._limit} bytes, found more"
            return -1
        self._hasher.update(data)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as err:
            self.problem = f"{_DIRECTORY}: {err.strerror}"
            return -1
        return len(data)

    def check(self) -> None:
        """Refuse other content."""
        self._hasher.check()


def fetch(
    wanted: Settings,
    max_bytes: int,
    note: Callable[[str], None],
    *,
    redirects: bool = True,
) -> int:
    """Download an image and check it; return the file descriptor.

    Args:
        wanted: URL and checksums.
        max_bytes: largest image.
        note: gets lines about the progress.
        redirects: whether another server may send it.

    Raises:
        OpExecError: the download failed, was too large, too slow, or is another image.
    """
    status = os.statvfs(_DIRECTORY)
    limit = min(max_bytes, status.f_bavail * status.f_frsize - _RESERVE)
    if limit <= 0:
        raise errors.OpExecError(
            f"image {wanted.source}: wanted more than {_RESERVE >> 20} MiB of free"
            f" space in {_DIRECTORY} on this node"
        )
    fd = os.open(_DIRECTORY, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        sink = _Sink(fd, limit, wanted)
        _transfer(wanted, sink, note, redirects=redirects)
        sink.check()
    except BaseException:
        os.close(fd)
        raise
    checked = ", checksum is right" if wanted.checksums else ""
    note(f"downloaded {sink.size} bytes{checked}")
    return fd


def _transfer(
    wanted: Settings, sink: _Sink, note: Callable[[str], None], *, redirects: bool
) -> None:
    curl = pycurl.Curl()
    shown = _Percent(note)
    scheme = wanted.url.partition(":")[0]
    for option, value in (
        (pycurl.URL, wanted.url),
        (pycurl.NOSIGNAL, 1),
        (pycurl.PROTOCOLS, _PROTOCOLS[scheme]),
        (pycurl.REDIR_PROTOCOLS, _PROTOCOLS[scheme]),
        (pycurl.FOLLOWLOCATION, redirects),
        (pycurl.MAXREDIRS, _REDIRECTS),
        (pycurl.PROXY, ""),
        (pycurl.FAILONERROR, 1),
        (pycurl.CONNECTTIMEOUT, _CONNECT_S),
        (pycurl.TIMEOUT, _MAX_S),
        (pycurl.LOW_SPEED_LIMIT, _SLOW_BYTES),
        (pycurl.LOW_SPEED_TIME, _SLOW_S),
        (pycurl.WRITEFUNCTION, sink.write),
        (pycurl.NOPROGRESS, 0),
        (pycurl.XFERINFOFUNCTION, shown.update),
    ):
        curl.setopt(option, value)
    if authorities := ssl.get_default_verify_paths().cafile:
        curl.setopt(pycurl.CAINFO, authorities)
    try:
        curl.perform()
        if 300 <= curl.getinfo(pycurl.RESPONSE_CODE) < 400:
            raise errors.OpExecError(
                f"image {wanted.source}: wanted the image, found a redirect to another"
                " place, which needs the OS parameter sha256 or sha512"
            )
    except pycurl.error as err:
        text = sink.problem or str(err.args[1] if len(err.args) > 1 else err)
        raise errors.OpExecError(f"image {wanted.source}: {text}") from err
    finally:
        curl.close()


class _Percent:
    """Notes each further tenth of a download."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._next = _STEP

    def update(self, total: int, done: int, _to_send: int, _sent: int) -> int:
        """Take the numbers of bytes; zero continues the download."""
        if total and 100 * done >= self._next * total:
            percent = 100 * done // total
            self._note(f"downloaded {percent} % of {total} bytes")
            self._next = percent - percent % _STEP + _STEP
        return 0
