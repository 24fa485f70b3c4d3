"""Removing a store from etcd: its cluster is destroyed, or was not created."""

from ganeti.base import errors
from ganeti.store.backend import OutcomeUnknownError
from ganeti.store.etcd import messages
from ganeti.store.etcd.address import Servers
from ganeti.store.etcd.gateway import Gateway
from ganeti.store.etcd.layout import Keys


def remove_store(servers: Servers) -> None:
    """Remove all keys of a store; this can be repeated.

    Raises:
        StorageError: no majority of the servers answers.
    """
    gateway = Gateway(servers)
    root = Keys(servers.prefix).root
    body = messages.transaction([], [messages.delete(root, messages.after(root))])
    try:
        gateway.transact(body)
    except OutcomeUnknownError as err:
        raise errors.StorageError(
            f"the store was perhaps not removed: {err}; 'etcdctl del --prefix"
            f" {servers.prefix}/' removes it"
        ) from err
    finally:
        gateway.close()
