"""The store in etcd: the backend of `ganeti.store.engine` over its JSON gateway.

`address` says where the servers are, `gateway` sends requests, `messages` has their
form, `layout` the keys and values, `lease` keeps the leadership, `candidacy` waits for
it, `reader` reads, `writer` writes, and `backend` puts these together. `mirror` copies
the store to a file, for all other readers; `moving` moves it to etcd and back. The
design is in ``doc/design/store-etcd.rst``.
"""

from ganeti.store.etcd.address import Servers, TlsFiles, parse
from ganeti.store.etcd.backend import Claim, EtcdBackend, open_etcd
from ganeti.store.etcd.gateway import Gateway
from ganeti.store.etcd.lease import Candidacy
from ganeti.store.etcd.mirror import Mirror, to_etcd, to_file
from ganeti.store.etcd.servers import Member, check, members

__all__ = [
    "Candidacy",
    "Claim",
    "EtcdBackend",
    "Gateway",
    "Member",
    "Mirror",
    "Servers",
    "TlsFiles",
    "check",
    "members",
    "open_etcd",
    "parse",
    "to_etcd",
    "to_file",
]
