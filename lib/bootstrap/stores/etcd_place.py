"""The place of a store in etcd, while a cluster is created or its store is moved."""

import dataclasses

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.pathutils import Paths
from ganeti.store import choice
from ganeti.store.etcd import Gateway, Servers, parse, to_etcd
from ganeti.store.etcd.reader import Reader
from ganeti.store.etcd.removal import remove_store


@dataclasses.dataclass(frozen=True)
class Place:
    """Servers that answer, and the files to write on master candidates."""

    servers: Servers
    files: choice.Prepared

    def fill(self, paths: Paths, node: str) -> None:
        """Move the store in the file of this node there, and record that.

        Args:
            paths: of this node.
            node: uuid of this node.

        Raises:
            ConfigurationError: there is another store.
            StorageError: no majority of the servers answers, or the disk failed.
            TermError: somebody else writes there.
        """
        to_etcd(paths.store_db, self.servers, node)
        choice.write(paths, self.files)

    def remove(self) -> None:
        """Remove the store, since its cluster was not created."""
        remove_store(self.servers)


def find(text: str | None, *, is_new: bool = True) -> Place | None:
    """Return the place that an address names, None for no address.

    Args:
        text: address of a store in etcd.
        is_new: there must be no store.

    Raises:
        OpPrereqError: the address is wrong, a file cannot be read, no majority of the
            servers answers, or there is a store.
    """
    if text is None:
        return None
    try:
        servers = parse(text)
        place = Place(servers, choice.prepare(servers))
    except errors.ConfigurationError as err:
        raise errors.OpPrereqError(str(err), ecodes.ECODE_INVAL) from err
    gateway = Gateway(servers)
    try:
        reader = Reader(gateway)
        seen, moving = reader.look(), reader.moving()
    except errors.GenericError as err:
        raise errors.OpPrereqError(
            f"the store cannot be used: {err}", ecodes.ECODE_ENVIRON
        ) from err
    finally:
        gateway.close()
    if is_new and (seen.end_at or moving is not None):
        raise errors.OpPrereqError(
            f"{servers}: wanted no store, found revision {seen.mark.revision}; choose"
            " another prefix, or remove the old one with 'etcdctl del --prefix"
            f" {servers.prefix}/'",
            ecodes.ECODE_EXISTS,
        )
    return place
