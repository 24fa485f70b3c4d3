"""A processor over fakes: the whole engine without threads, nodes or files.

Its locks are the real ones, with a memory of what was asked.
"""

import os

from fakes.clocks import FakeClock
from fakes.clusters import snapshot
from fakes.jobs import FakeCallbacks
from fakes.rpc import FakeRunner
from fakes.store import FakeStore
from ganeti.base import errors, pathutils
from ganeti.master import config, locking, query
from ganeti.master.locking import Level
from ganeti.model import opcodes
from ganeti.operations import mcpu
from ganeti.operations.unit_table import UNITS

TABLES = {Level.INSTANCE: "instances", Level.NODEGROUP: "nodegroups"}


class RecordingLocks(locking.LockManager):
    """Remembers every request and every removal, in order."""

    def __init__(self, clock, snapshot):
        members = {
            Level.INSTANCE: list(snapshot.names("instances")),
            Level.NODEGROUP: list(snapshot.nodegroups),
            Level.NODE: list(snapshot.nodes),
            Level.NETWORK: list(snapshot.networks),
        }
        super().__init__(clock, members)
        self.requests = []
        self.removed = []

    def acquire(self, request, timeout_s=None):
        self.requests.append(request)
        return super().acquire(request, timeout_s)

    def remove(self, level, names):
        self.removed.append((level, tuple(names)))
        return super().remove(level, names)

    def modes(self):
        """Return level -> (names or None for all, shared), without the big lock."""
        return {
            row.level: (None if row.names is None else frozenset(row.names), row.shared)
            for row in self.requests
            if row.level is not Level.CLUSTER
        }

    def big_lock_is_exclusive(self):
        """Return how the big lock was taken."""
        return not self.requests[0].shared

    def is_idle(self):
        """Return whether this thread holds nothing."""
        return not any(self.is_owned(level) for level in Level)


def creation(**changes):
    """Return OP_INSTANCE_CREATE of web1.example.com in wire form, with changes."""
    op = {
        "OP_ID": "OP_INSTANCE_CREATE",
        "instance_name": "web1.example.com",
        "mode": "create",
        "disk_template": "file",
        "disks": [{"size": 1024}],
        "nics": [],
        "os_type": "tiny",
        "pnode": "node1.example.com",
        "hypervisor": "kvm",
        "hvparams": {"kernel_path": "", "vnc_bind_address": ""},
    }
    return op | changes


class Engine:
    """Executes opcodes on a small cluster."""

    def __init__(
        self,
        start=None,
        script=None,
        units=UNITS,
        root="/nonexistent/n1",
        entropy=os.urandom,
    ):
        self.clock = FakeClock()
        self.store = FakeStore(start or snapshot())
        self.config = config.Config(self.store, self.clock, entropy=entropy)
        self.rpc = FakeRunner(self.config.snapshot, script)
        self.hosts = {}
        self.dead = set()
        self.asked_addresses = []
        self.root = root
        self.units = units
        self.callbacks = FakeCallbacks()
        self.locks = RecordingLocks(self.clock, self.snapshot)

    @property
    def snapshot(self):
        return self.config.snapshot()

    def address_answers(self, address):
        self.asked_addresses.append(address)
        return address not in self.dead

    def lookup_host(self, name):
        if name not in self.hosts:
            raise errors.ResolverError(name, "unknown")
        return self.hosts[name]

    def run(self, op, *, callbacks=None, timeout_s=10.0, priority=0):
        """Execute an opcode or its wire form; return the result."""
        self.callbacks = callbacks or FakeCallbacks()
        if isinstance(op, dict):
            op = opcodes.decode(op)
        self.locks.requests.clear()
        self.locks.removed.clear()
        self.rpc.calls.clear()
        return mcpu.Processor(self.deps(), self.units).execute(
            op, self.callbacks, timeout_s=timeout_s, priority=priority
        )

    def deps(self):
        """Return the dependencies of a processor."""
        return mcpu.EngineDeps(
            config=self.config,
            rpc=self.rpc,
            clock=self.clock,
            paths=pathutils.Paths(root=self.root, hostname="n1"),
            locks=self.locks,
            lookup_host=self.lookup_host,
            query_sources=lambda: query.Sources(
                self.snapshot,
                self.rpc,
                cluster_facts=lambda: query.ClusterFacts(
                    False, None, ("64bits", "x"), "v"
                ),
            ),
            rpc_at=lambda targets: self.rpc,
            tcp_ping=lambda address, port, source: address not in self.dead,
            address_answers=self.address_answers,
        )
