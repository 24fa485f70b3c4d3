"""Places from which this node takes images: the list of its administrator.

``/etc/ganeti/image-sources`` has one directory or URL prefix per line. Cluster rights
alone therefore neither read other files of a node nor send it to other servers.
"""

import os
import urllib.parse
from typing import Final

from ganeti.base import errors, pathutils
from ganeti.base.filesystem import beneath, files
from ganeti.base.net import urls

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
        raise _refusal(paths, f"URL {urls.shown(url)}")
    if not is_checked and not any(urllib.parse.urlsplit(e).netloc for e in entries):
        raise errors.ParseError(
            f"image: URL {urls.shown(url)}: wanted the OS parameter sha256 or sha512,"
            f" or its server in {paths.conf_dir}/{NAME}; without a checksum, images"
            " come from servers that the administrator of the node names there"
        )


def _split(url: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port
    except ValueError as err:
        raise errors.ParseError(f"URL {urls.shown(url)}: {err}") from err
    if parts.scheme not in SCHEMES or not parts.hostname:
        schemes = " or ".join(f"{scheme}://" for scheme in SCHEMES)
        raise errors.ParseError(f"URL {urls.shown(url)}: wanted {schemes} and a host")
    if "@" in parts.netloc or "\\" in url:
        raise errors.ParseError(
            "URL of the image: wanted no user name, password or backslash"
        )
    if any(part in ("..", ".") for part in _segments(parts.path)):
        raise errors.ParseError(
            f"URL {urls.shown(url)}: wanted a path without '.' and '..'"
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
    allowed = ", ".join(map(urls.shown, load(paths))) or "none"
    return errors.ParseError(
        f"image: {what}: not among the sources of this node, which are {allowed}; its"
        f" administrator writes them to {paths.conf_dir}/{NAME}"
    )
