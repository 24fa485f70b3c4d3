"""Wire forms of shared arguments: packed texts, files, per-node values."""

import base64
import binascii
import grp
import os
import pwd
import stat
import zlib
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths

_RPC_ENCODING_NONE: Final = 0
_RPC_ENCODING_ZLIB_BASE64: Final = 1

#: Header with the term of the caller's master: ``<number>:<owner's uuid>``.
TERM_HEADER: Final = "X-Ganeti-Term"
#: Header with an id of a call that may be aborted: 16 hexadecimal digits.
CALL_HEADER: Final = "X-Ganeti-Call"
#: HTTP status of a call under an old term.
STATUS_DEPOSED: Final = 409
#: HTTP status of a call that was not executed because too many others are running.
STATUS_BUSY: Final = 503
#: Shorter texts, in bytes, are not compressed.
_COMPRESS_FROM: Final = 512
#: Values that can hold others.
_HOLDERS: Final = (dict, list, tuple)
_LEVEL: Final = 3
#: Size limit of an unpacked text, in bytes.
MAX_UNPACKED: Final = 64 * 1024 * 1024


class PerNode(dict[str, Any]):
    """A value that differs by node: node uuid -> value.

    The runner replaces it by the called node's value, or null.
    """


def resolve(value: Any, node_uuid: str) -> Any:
    """Return an argument in the form for one node."""
    if isinstance(value, PerNode):
        return value.get(node_uuid)
    if isinstance(value, dict):
        return {
            key: resolve(item, node_uuid) if isinstance(item, _HOLDERS) else item
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            resolve(item, node_uuid) if isinstance(item, _HOLDERS) else item
            for item in value
        ]
    return value


def differs_by_node(value: Any) -> bool:
    """Return whether a value holds a `PerNode`."""
    if isinstance(value, PerNode):
        return True
    items = value.values() if isinstance(value, dict) else value
    return isinstance(value, _HOLDERS) and any(
        differs_by_node(item) for item in items if isinstance(item, _HOLDERS)
    )


def pack(data: bytes | str) -> list[Any]:
    """Return ``[encoding, text]``: plain text if short, else zlib and base64.

    Data that is not UTF-8 text is never sent plain.
    """
    raw = data.encode() if isinstance(data, str) else data
    if len(raw) < _COMPRESS_FROM:
        try:
            return [_RPC_ENCODING_NONE, raw.decode()]
        except UnicodeDecodeError:
            pass
    text = base64.b64encode(zlib.compress(raw, _LEVEL)).decode()
    return [_RPC_ENCODING_ZLIB_BASE64, text]


def unpack(packed: Any) -> bytes:
    """Return the text that was packed with `pack`.

    Raises:
        ParseError: the form is wrong, or the text larger than `MAX_UNPACKED`.
    """
    if not (isinstance(packed, (list, tuple)) and len(packed) == 2):
        raise errors.ParseError("packed text: wanted [encoding, text]")
    encoding, text = packed
    if not isinstance(text, str):
        raise errors.ParseError("packed text: wanted a string")
    if encoding == _RPC_ENCODING_NONE:
        return text.encode()
    if encoding != _RPC_ENCODING_ZLIB_BASE64:
        raise errors.ParseError(f"packed text: unknown encoding {encoding!r}")
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(text, validate=True), MAX_UNPACKED)
    except (binascii.Error, zlib.error) as err:
        raise errors.ParseError(f"packed text: {err}") from err
    # Either the limit has ended the inflation, or the end of the text is missing.
    if inflater.unconsumed_tail or not inflater.eof:
        raise errors.ParseError("packed text: incomplete or too large")
    return data


def upload(path: str, paths: Paths) -> list[Any]:
    """Return the arguments of ``upload_file_single`` for a file of this node.

    Raises:
        OSError: it cannot be read.
    """
    info = os.stat(path)
    return [
        paths.virtualize(path),
        pack(files.read_file(path)),
        stat.S_IMODE(info.st_mode),
        _name(pwd.getpwuid, info.st_uid),
        _name(grp.getgrgid, info.st_gid),
        info.st_atime,
        info.st_mtime,
    ]


def _name(find: Any, number: int) -> str:
    try:
        return str(find(number)[0])
    except KeyError as err:
        raise errors.OpExecError(f"no user or group has the id {number}") from err


def error_text(error: BaseException) -> str:
    """Return the text for the caller about a failed procedure."""
    return ", ".join(str(item) for item in error.args) or type(error).__name__
