"""The store in etcd: the backend of `ganeti.store.engine` over its JSON gateway.

`address` says where the servers are, `gateway` sends requests, `messages` has their
form, `layout` the keys and values, `lease` keeps the leadership, `reader` reads, and
`backend` puts these together. `mirror` copies the store to a file, for all other
readers. The design is in ``doc/design/store-etcd.rst``.
"""

from ganeti.store.etcd.address import Servers, TlsFiles, parse
from ganeti.store.etcd.backend import EtcdBackend, open_etcd
from ganeti.store.etcd.gateway import Gateway
from ganeti.store.etcd.mirror import Mirror

__all__ = [
    "EtcdBackend",
    "Gateway",
    "Mirror",
    "Servers",
    "TlsFiles",
    "open_etcd",
    "parse",
]
