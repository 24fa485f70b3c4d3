"""URIs of disks that the emulator itself accesses, as options of its block drivers.

Pure functions. The forms are those of QEMU's invocation documentation, "Device URL
Syntax", and of the block drivers rbd and gluster; the schema is that of
``BlockdevOptions``.
"""

import re
import urllib.parse
from collections.abc import Callable
from typing import Any, Final

from ganeti.base import errors

Options = dict[str, Any]

_NBD_PORT: Final = 10809
_GLUSTER_PORT: Final = 24007
_ISCSI_PORT: Final = 3260
#: Parts of ``rbd:pool/image:key=value``; a backslash protects the next character.
_RBD_PART: Final = re.compile(r"((?:[^:\\]|\\.)*)(?::|$)")
#: Name in the URI -> option of the driver.
_RBD_OPTIONS: Final = {"id": "user", "conf": "conf"}


def block_options(uri: str) -> Options:
    """Return the options of the block driver that a URI names.

    Raises:
        HypervisorError: the scheme is not supported, or a part is missing.
    """
    scheme = re.split(r"[:+]", uri, maxsplit=1)[0]
    make = _DRIVERS.get(scheme)
    if make is None:
        raise errors.HypervisorError(
            f"URI {uri!r}: wanted scheme {', '.join(sorted(_DRIVERS))}, found"
            f" {scheme!r}"
        )
    try:
        return make(uri)
    except (ValueError, KeyError, IndexError) as err:
        raise errors.HypervisorError(
            f"URI {uri!r}: the emulator cannot use it: {err}"
        ) from err


def _server(parts: urllib.parse.SplitResult, transport: str, port: int) -> Options:
    """Return a socket address: of a socket file, or of a host.

    Raises:
        ValueError: there is none.
    """
    if transport == "unix":
        return {"type": "unix", "path": _query(parts)["socket"]}
    if transport not in ("", "tcp"):
        raise ValueError(f"unknown transport {transport!r}")
    if not parts.hostname:
        raise ValueError("no host")
    return {"type": "inet", "host": parts.hostname, "port": str(parts.port or port)}


def _query(parts: urllib.parse.SplitResult) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(parts.query, strict_parsing=bool(parts.query)))


def _split(uri: str) -> tuple[urllib.parse.SplitResult, str, list[str]]:
    """Return the parts of a URI, its transport, and the parts of its path."""
    parts = urllib.parse.urlsplit(uri)
    transport = parts.scheme.partition("+")[2]
    path = urllib.parse.unquote(parts.path.removeprefix("/"))
    return parts, transport, path.split("/", 1)


def _nbd(uri: str) -> Options:
    parts, transport, path = _split(uri)
    options: Options = {
        "driver": "nbd",
        "server": _server(parts, transport, _NBD_PORT),
    }
    export = "/".join(path)
    return {**options, "export": export} if export else options


def _gluster(uri: str) -> Options:
    parts, transport, path = _split(uri)
    volume, file = path
    if not volume or not file:
        raise ValueError("wanted a volume and a file")
    server = _server(parts, transport, _GLUSTER_PORT)
    return {"driver": "gluster", "volume": volume, "path": file, "server": [server]}


def _iscsi(uri: str) -> Options:
    parts, _transport, path = _split(uri)
    target, lun = path
    server = _server(parts, "", _ISCSI_PORT)
    return {
        "driver": "iscsi",
        "transport": "tcp",
        "portal": f"{server['host']}:{server['port']}",
        "target": target,
        "lun": int(lun),
    }


def _rbd(uri: str) -> Options:
    name, *rest = [
        match[1] for match in _RBD_PART.finditer(uri.partition(":")[2]) if match[1]
    ]
    place, at, snapshot = name.partition("@")
    *pool, image = [_plain(part) for part in place.split("/")]
    if len(pool) not in (1, 2) or not image:
        raise ValueError("wanted pool/image")
    options: Options = {"driver": "rbd", "pool": pool[0], "image": image}
    if len(pool) > 1:
        options["namespace"] = pool[1]
    if at:
        options["snapshot"] = _plain(snapshot)
    for part in rest:
        key, _, value = part.partition("=")
        options[_RBD_OPTIONS[key]] = _plain(value)
    return options


def _plain(text: str) -> str:
    """Return a text without the backslashes that protect characters."""
    return re.sub(r"\\(.)", r"\1", text)


def _http(uri: str) -> Options:
    return {"driver": urllib.parse.urlsplit(uri).scheme, "url": uri}


_DRIVERS: Final[dict[str, Callable[[str], Options]]] = {
    "gluster": _gluster,
    "http": _http,
    "https": _http,
    "iscsi": _iscsi,
    "nbd": _nbd,
    "rbd": _rbd,
}
