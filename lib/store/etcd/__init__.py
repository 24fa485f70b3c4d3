"""The store in etcd: the backend of `ganeti.store.engine` over its JSON gateway.

`address` says where the servers are, `gateway` sends requests, `messages` has their
form, `layout` the keys and values, `lease` keeps the leadership, and `backend` puts
these together. The design is in ``doc/design/store-etcd.rst``.
"""

from ganeti.store.etcd.address import Servers, TlsFiles, parse
from ganeti.store.etcd.backend import EtcdBackend, open_etcd
from ganeti.store.etcd.gateway import Gateway

__all__ = [
    "EtcdBackend",
    "Gateway",
    "Servers",
    "TlsFiles",
    "open_etcd",
    "parse",
]
