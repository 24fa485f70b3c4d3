"""The engine that a cluster's store uses, as recorded on each master candidate.

Without the file ``store-engine`` in the state directory, or with the word ``file`` as
address in it, the store is the file of the node. Otherwise it is in etcd, at that
address. For servers with TLS,
the certificates of their authority and of this client are in two files beside it. All
three are among the files that master candidates share.
"""

import os
from typing import Final

import msgspec

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.store.etcd import address

ENGINE_FILE: Final = "store-engine"
AUTHORITY_FILE: Final = "etcd-ca.pem"
CLIENT_FILE: Final = "etcd-client.pem"
#: All of them, in the order in which they are written.
FILES: Final = (AUTHORITY_FILE, CLIENT_FILE, ENGINE_FILE)
#: The answer of `describe` for a store in the file of each node.
FILE_ENGINE: Final = "file"
_MODE: Final = 0o600
_MAX_BYTES: Final = 64 * 1024
_NO_TLS: Final = ""
_SERVER_TLS: Final = "server"
_CLIENT_TLS: Final = "client"


class _Recorded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file: the address, and who shows certificates."""

    address: str
    tls: str = _NO_TLS


class Prepared(msgspec.Struct, frozen=True):
    """Files to write, by name, for a store in etcd."""

    contents: dict[str, bytes]


def path_of(paths: Paths) -> str:
    """Return the path of the file with the engine."""
    return paths.data(ENGINE_FILE)


def is_etcd(paths: Paths) -> bool:
    """Return whether the store of this node is in etcd.

    Raises:
        ConfigurationError: that is not readable.
    """
    return os.path.exists(path_of(paths)) and read(paths) is not None


def read(paths: Paths) -> address.Servers | None:
    """Return where the store is in etcd; None if it is the file of the node.

    Raises:
        ConfigurationError: the file is damaged or cannot be read.
    """
    path = path_of(paths)
    try:
        data = files.read_file(path, max_size=_MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise errors.ConfigurationError(f"{path}: {err.strerror}") from err
    try:
        recorded = msgspec.json.decode(data, type=_Recorded)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise errors.ConfigurationError(f"{path}: damaged: {err}") from err
    if recorded.tls not in (_NO_TLS, _SERVER_TLS, _CLIENT_TLS):
        raise errors.ConfigurationError(f"{path}: unknown kind of TLS {recorded.tls!r}")
    if recorded.address == FILE_ENGINE:
        return None
    if recorded.tls == _NO_TLS:
        return address.parse(recorded.address)
    client = paths.data(CLIENT_FILE) if recorded.tls == _CLIENT_TLS else ""
    return address.parse(
        recorded.address, address.TlsFiles(paths.data(AUTHORITY_FILE), client)
    )


def describe(paths: Paths) -> str:
    """Return the engine for people: its address, or the word file."""
    servers = read(paths)
    return FILE_ENGINE if servers is None else str(servers)


def prepare(servers: address.Servers) -> Prepared:
    """Read the files for TLS that an administrator named.

    Raises:
        ConfigurationError: one cannot be read.
    """
    tls, contents = servers.tls, dict[str, bytes]()
    kind = _NO_TLS
    if tls is not None:
        kind = _CLIENT_TLS if tls.certificate else _SERVER_TLS
        contents[AUTHORITY_FILE] = _content(tls.authority)
        if tls.certificate:
            client = _content(tls.certificate)
            if tls.key and tls.key != tls.certificate:
                client = client.rstrip() + b"\n" + _content(tls.key)
            contents[CLIENT_FILE] = client
    recorded = _Recorded(str(servers), kind)
    # The engine is last: who reads it may use the others.
    contents[ENGINE_FILE] = msgspec.json.encode(recorded) + b"\n"
    return Prepared(contents)


def _content(path: str) -> bytes:
    try:
        return files.read_file(path, max_size=_MAX_BYTES)
    except OSError as err:
        raise errors.ConfigurationError(f"{path}: {err.strerror}") from err


def write(paths: Paths, prepared: Prepared) -> None:
    """Record a store in etcd on this node.

    Raises:
        OSError: the disk failed.
    """
    for name, content in prepared.contents.items():
        files.write_file(paths.data(name), content, mode=_MODE)


def write_file_engine(paths: Paths) -> None:
    """Record on this node that the store is the file of the node again.

    The record stays, so that other candidates get it and `gnt-cluster verify` compares
    it. Certificates stay, too: they are needed if the store is moved again.

    Raises:
        OSError: the disk failed.
    """
    recorded = msgspec.json.encode(_Recorded(FILE_ENGINE))
    files.write_file(path_of(paths), recorded + b"\n", mode=_MODE)


def require_file(paths: Paths, what: str) -> None:
    """Refuse an operation on the file of a node whose store is in etcd.

    Raises:
        StorageError: the store is in etcd.
    """
    if is_etcd(paths):
        raise errors.StorageError(
            f"{what}: the store of node {paths.hostname} is in etcd"
            f" ({path_of(paths)}), and its file follows that alone"
        )
