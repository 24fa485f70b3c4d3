"""Wanted images: the OS parameters that name them, their places, and the download.

``/etc/ganeti/image-sources``, the list of the node's administrator, has one directory
or URL prefix per line. Cluster rights alone therefore neither read other files of a
node nor send it to other servers. An image is downloaded into a file without a name,
which no crash leaves behind.
"""

import dataclasses
import hashlib
import hmac
import os
import re
import ssl
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import pycurl

from ganeti.base import errors, pathutils
from ganeti.base.filesystem import beneath, files
from ganeti.base.net import netutils

#: Name of the list in the configuration directory.
NAME: Final = "image-sources"
#: Sources of a node without a list: a directory, and any server with a certificate.
DEFAULT: Final = ("/srv/ganeti/images", "https://")
SCHEMES: Final = ("https", "http")
_MAX_LIST: Final = 64 * 1024
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


def load(paths: pathutils.Paths) -> tuple[str, ...]:
    """Return the allowed directories and URL prefixes of this node.

    Raises:
        ParseError: a line is neither; names it.
    """
    path = f"{paths.conf_dir}/{NAME}"
    try:
        text = files.read_file(path, max_size=_MAX_LIST).decode()
    except FileNotFoundError:
        return DEFAULT
    except UnicodeDecodeError:
        raise errors.ParseError(f"{path}: wanted UTF-8") from None
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        if not entry.startswith(("/", *(f"{scheme}://" for scheme in SCHEMES))):
            raise errors.ParseError(
                f"{path}, line {number}: wanted a directory or the beginning of a URL,"
                f" found {entry!r:.100}"
            )
        entries.append(entry)
    return tuple(entries)


def check_url(paths: pathutils.Paths, url: str, *, is_checked: bool) -> None:
    """Refuse a URL that the list does not allow.

    Args:
        paths: of this node.
        url: of an image.
        is_checked: whether only content that the requester knows is taken. Otherwise
            the list must name the server: anybody may read what an instance gets, and
            some servers answer nodes alone.

    Raises:
        ParseError: names the URL and the list.
    """
    parts = _split(url)
    entries = [e for e in load(paths) if "://" in e and _is_within(parts, e)]
    if not entries:
        raise _refusal(paths, f"URL {netutils.shown_url(url)}")
    if not is_checked and not any(urllib.parse.urlsplit(e).netloc for e in entries):
        raise errors.ParseError(
            f"image: URL {netutils.shown_url(url)}: wanted the OS parameter sha256"
            f" or sha512, or its server in {paths.conf_dir}/{NAME}; without a checksum,"
            " images come from servers that the administrator of the node names there"
        )


def _split(url: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port
    except ValueError as err:
        raise errors.ParseError(f"URL {netutils.shown_url(url)}: {err}") from err
    if parts.scheme not in SCHEMES or not parts.hostname:
        schemes = " or ".join(f"{scheme}://" for scheme in SCHEMES)
        raise errors.ParseError(
            f"URL {netutils.shown_url(url)}: wanted {schemes} and a host"
        )
    if "@" in parts.netloc or "\\" in url:
        raise errors.ParseError(
            "URL of the image: wanted no user name, password or backslash"
        )
    if any(part in ("..", ".") for part in _segments(parts.path)):
        raise errors.ParseError(
            f"URL {netutils.shown_url(url)}: wanted a path without '.' and '..'"
        )
    return parts


def _segments(path: str) -> list[str]:
    return [part for part in urllib.parse.unquote(path).split("/") if part]


def _is_within(parts: urllib.parse.SplitResult, entry: str) -> bool:
    allowed = urllib.parse.urlsplit(entry)
    if parts.scheme != allowed.scheme:
        return False
    if not allowed.netloc:
        return True
    if _server(parts) != _server(allowed):
        return False
    wanted = _segments(allowed.path)
    return _segments(parts.path)[: len(wanted)] == wanted


def _server(parts: urllib.parse.SplitResult) -> tuple[str | None, int | None]:
    return parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)


def open_file(paths: pathutils.Paths, path: str) -> int:
    """Open an image file below an allowed directory; return the file descriptor.

    Symbolic links may lead to other allowed directories only.

    Raises:
        ParseError: the file is elsewhere, or not a regular file.
    """
    local = path if path.startswith(f"{paths.root}/") else paths.at(path)
    real = os.path.realpath(local)
    for entry in load(paths):
        root = os.path.realpath(paths.at(entry)) if "://" not in entry else ""
        inside = real.removeprefix(f"{root.rstrip('/')}/")
        if root and inside != real:
            break
    else:
        raise _refusal(paths, f"file {path}")
    try:
        # Whoever writes to the directory may have put links there since.
        return beneath.Place(root, inside).open(os.O_RDONLY)
    except (OSError, errors.FileStoragePathError) as err:
        why = err.strerror if isinstance(err, OSError) else err
        raise errors.ParseError(
            f"image {path}: cannot be read on this node: {why}"
        ) from err


def _refusal(paths: pathutils.Paths, what: str) -> errors.ParseError:
    allowed = ", ".join(map(netutils.shown_url, load(paths))) or "none"
    return errors.ParseError(
        f"image: {what}: not among the sources of this node, which are {allowed}; its"
        f" administrator writes them to {paths.conf_dir}/{NAME}"
    )


FORMATS: Final = ("qcow2", "raw")
#: Checksum parameter -> hexadecimal digits.
CHECKSUMS: Final = {"sha256": 64, "sha512": 128}
#: Parameters that may be checked; others are refused by the node.
_URL: Final = re.compile(r"[!-~]{1,2048}", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Wanted image.

    Attributes:
        url: where to download it, empty for a file of the node.
        file: path on the node, empty for a URL.
        checksums: algorithm -> hexadecimal digest; empty for helper machines, and
            possibly for ``os-image``.
        format: ``qcow2`` or ``raw``.
    """

    url: str
    file: str
    checksums: dict[str, str]
    format: str

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Return the settings in a script's environment.

        The parameter ``os-image`` stands for one of url and file. Its clients know no
        checksums, and their images are raw.

        Raises:
            ParseError: names the parameter, the wanted and the found value.
        """
        given = {
            name: environ.get(f"OSP_{name.upper()}", "")
            for name in ("url", "file", "format", *CHECKSUMS)
        }
        image = environ.get("OSP_OS_IMAGE", "")
        places = [place for place in (given["url"], given["file"], image) if place]
        if len(places) != 1:
            raise errors.ParseError(
                "OS image: wanted one of the OS parameters url and file, or os-image"
                f" alone, found {'more' if places else 'none'}"
            )
        if image:
            given["file" if image.startswith("/") else "url"] = image
        if given["url"] and not _URL.fullmatch(given["url"]):
            raise errors.ParseError(
                "OS parameter url: wanted at most 2048 printable ASCII characters"
                " without spaces"
            )
        if given["file"] and not given["file"].startswith("/"):
            raise errors.ParseError(
                f"OS parameter file: wanted an absolute path, found {given['file']!r}"
            )
        form = given["format"] or ("raw" if image else FORMATS[0])
        if form not in FORMATS:
            raise errors.ParseError(
                f"OS parameter format: wanted {' or '.join(FORMATS)}, found {form!r}"
            )
        checksums = _checksums(given)
        if not checksums and not image:
            raise errors.ParseError(
                "OS image: wanted the OS parameter sha256 or sha512: without the"
                " checksum of the publisher, anything could be installed"
            )
        return cls(given["url"], given["file"], checksums, form)

    @property
    def source(self) -> str:
        """URL without secrets, or path, for messages."""
        return netutils.shown_url(self.url) if self.url else self.file

    def hasher(self) -> "Hasher":
        """Return a new check of the content."""
        return Hasher(self)


def _checksums(given: Mapping[str, str]) -> dict[str, str]:
    checksums = {}
    for name, digits in CHECKSUMS.items():
        text = given[name].strip().lower()
        if not text:
            continue
        if not re.fullmatch(f"[0-9a-f]{{{digits}}}", text, re.ASCII):
            raise errors.ParseError(
                f"OS parameter {name}: wanted {digits} hexadecimal digits, found"
                f" {given[name]!r:.150}"
            )
        checksums[name] = text
    return checksums


class Hasher:
    """Compares content with the wanted checksums."""

    def __init__(self, wanted: Settings) -> None:
        self._wanted = wanted
        self._hashes: dict[str, Any] = {
            name: hashlib.new(name) for name in wanted.checksums
        }

    def update(self, data: bytes) -> None:
        """Add data."""
        for each in self._hashes.values():
            each.update(data)

    def check(self) -> None:
        """Refuse content with another checksum.

        Raises:
            OpExecError: contains both checksums.
        """
        for name, each in self._hashes.items():
            actual, wanted = each.hexdigest(), self._wanted.checksums[name]
            if not hmac.compare_digest(actual, wanted):
                raise errors.OpExecError(
                    f"image {self._wanted.source}: {name}: wanted {wanted}, found"
                    f" {actual}; the image was damaged or replaced"
                )


#: Place of large temporary files.
_DIRECTORY: Final = "/var/tmp"  # noqa: S108
#: Longest download, and speed below which it is given up, in bytes per second.
_MAX_S: Final = 6 * 3600
_SLOW_BYTES: Final = 4096
_SLOW_S: Final = 60
_CONNECT_S: Final = 30
_MOST_REDIRECTS: Final = 5
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
        (pycurl.MAXREDIRS, _MOST_REDIRECTS),
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
