"""A whole master daemon in this process: real store, queue, engine and sockets."""

import contextlib
import os
import threading

from fakes import clusters
from fakes.rpc import FakeRunner
from fakes.store import updates
from ganeti import store
from ganeti.base import clock, errors, pathutils
from ganeti.daemons import masterd
from ganeti.protocols.luxi import Client


def fill(opened, snapshot):
    """Commit all records of a snapshot."""
    opened.commit(updates(snapshot))


class Master:
    """A service with fake nodes; ``start`` again after ``stop`` is a restart."""

    def __init__(self, root, snapshot=None, script=None):
        self.paths = pathutils.Paths(root=str(root), hostname="node1.example.com")
        paths = self.paths
        for path in (paths.data_dir, paths.socket_dir, paths.log_dir):
            os.makedirs(path, exist_ok=True)
        self.script = {"write_ssconf_files": None, **(script or {})}
        self.deposed = threading.Event()
        self._first = snapshot or clusters.snapshot(nodes=3, instances=2)
        self.service = self.rpc = self.store = None

    def start(self):
        time = clock.SystemClock()
        self.store = store.open_master(self.paths.store_db, replicate=None, clock=time)
        if not self.store.snapshot().nodes:
            fill(self.store, self._first)
        self.rpc = FakeRunner(self.store.snapshot, self.script)
        self.service = masterd.build(
            masterd.MasterDeps(
                store=self.store,
                rpc=self.rpc,
                clock=time,
                paths=self.paths,
                lookup_host=self._no_host,
                tcp_ping=lambda *_args: False,
                address_answers=lambda _address: False,
                rpc_at=lambda _targets: self.rpc,
                on_deposed=self.deposed.set,
            )
        )
        self.service.start()
        return self

    def stop(self):
        self.service.stop()

    @classmethod
    @contextlib.contextmanager
    def connected(cls, root):
        """A client of a new service, which stops at the end."""
        made = cls(root)
        made.start()
        with made.client() as actual:
            yield actual
        made.stop()

    @contextlib.contextmanager
    def client(self, path=None):
        with Client(path or self.paths.query_socket, retries=0, timeout_s=60) as actual:
            yield actual

    @staticmethod
    def _no_host(name):
        raise errors.ResolverError(name, 1, "no such host")
