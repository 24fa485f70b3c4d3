"""The addresses at which a process accepts TCP connections, as the kernel knows them.

A daemon can be bound to any address by its options, the defaults of the package, a unit
of systemd or by hand; only its sockets show where it is.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Final

from ganeti.base.filesystem import files
from ganeti.base.net import ip

#: The state LISTEN in the files below.
_LISTEN: Final = "0A"
_SOCKET: Final = re.compile(r"socket:\[([0-9]+)\]")
_WORD_BYTES: Final = 4
#: Bytes of a table of sockets, which has 150 for each connection.
_MAX_TABLE: Final = 256 * 1024 * 1024


def addresses(pid: int) -> list[tuple[str, int]]:
    """Return address and port of each listening socket of a process, sorted.

    The wildcard of each IP version is given as the loopback address. Empty if there is
    no such process, or it belongs to a user whom this one may not examine.
    """
    with contextlib.suppress(OSError):
        own = set(_sockets(pid))
        tables = (f"/proc/{pid}/net/{name}" for name in ("tcp", "tcp6"))
        rows = [row for path in tables if os.path.exists(path) for row in _rows(path)]
        return sorted(
            {(_address(host), port) for host, port, inode in rows if inode in own}
        )
    return []


def _sockets(pid: int) -> Iterator[str]:
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            match = _SOCKET.fullmatch(os.readlink(f"/proc/{pid}/fd/{name}"))
            if match:
                yield match[1]


def _rows(path: str) -> Iterator[tuple[str, int, str]]:
    """Yield address in hexadecimal, port and inode of the listening sockets."""
    for line in (
        files.read_file(path, max_size=_MAX_TABLE).decode("ascii").splitlines()[1:]
    ):
        words = line.split()
        if words[3] == _LISTEN:
            host, _, port = words[1].partition(":")
            yield host, int(port, 16), words[9]


def _address(text: str) -> str:
    """Return an address of the kernel's tables: 32-bit words in host byte order."""
    raw = bytes.fromhex(text)
    if sys.byteorder == "little":
        starts = range(0, len(raw), _WORD_BYTES)
        raw = b"".join(raw[start : start + _WORD_BYTES][::-1] for start in starts)
    address = ip.from_bytes(raw)
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"
    return str(address)
