"""A cluster whose master daemons are killed while they change mirrored disks."""

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.engine import Engine
from fakes.jobs import FakeCallbacks
from fakes.mirror_nodes import MirrorNodes
from fakes.rpc import FakeRunner
from ganeti.daemons.masterd.duties import leftover_disks
from ganeti.master import config

N1 = clusters.node_uuid(1)
NAME = "inst1.example.com"


class Killed(BaseException):
    """The master daemon is gone."""


class MirrorSite:
    """A cluster of three nodes and an instance with some disks; masters come and go."""

    #: Of the requests that `run` gets.
    OP_ID = ""

    def __init__(self, disks, *, is_active=True, **changes):
        self.is_active = is_active
        records = [
            *disks,
            clusters.instance(
                1,
                disks=[disk.uuid for disk in disks],
                disks_active=is_active,
                **changes.get("instance", {}),
            ),
            *changes.get("also", ()),
        ]
        self.nodes = MirrorNodes()
        for disk in disks:
            self.nodes.add(disk, primary=N1 if is_active else None)
        self.snapshot = clusters.snapshot(
            extra=records, volume_group_name="xenvg", **changes.get("cluster", {})
        )
        self.documents = {}
        self.resumption = None
        self.steps = 0
        self.jobs = 0

    def run(self, request, *, cut=None, resumption=None):
        """Run or resume a request; return whether the master was killed."""
        engine = Engine(self.snapshot, self.nodes.script())
        engine.store.documents.update(self.documents)
        self.engine, self.steps, self.cut = engine, 0, cut
        self.jobs += resumption is None
        engine.clock.now += 100 * self.jobs
        callbacks = FakeCallbacks(f"{self.jobs}/0", resumption)
        self._count(engine.rpc, "_ask")
        self._count(engine.store, "_take")
        self._count(callbacks, "save_resumption")
        op = {"OP_ID": self.OP_ID, "instance_name": NAME} | request
        try:
            engine.run(op, callbacks=callbacks)
        except Killed:
            return True
        finally:
            self.snapshot = engine.snapshot
            self.documents = dict(engine.store.documents)
            self.resumption = callbacks.resumption
            self.log = callbacks.text()
        return False

    def _count(self, owner, name):
        inner = getattr(owner, name)

        def counted(*args):
            self._check()
            answer = inner(*args)
            self.steps += 1
            self._check()
            return answer

        setattr(owner, name, counted)

    def _check(self):
        if self.cut is not None and self.steps >= self.cut:
            raise Killed

    def master(self):
        """Return the engine of a new master with what is in the store."""
        engine = Engine(self.snapshot)
        engine.store.documents.update(self.documents)
        return engine

    def sweep(self, engine=None):
        """Have a master remove what jobs have left; return whether all is gone.

        Without an engine it is a new master.
        """
        engine = engine or self.master()
        runner = FakeRunner(engine.config.snapshot, self.nodes.script())
        sweeper = leftover_disks.LeftoverDisks(
            engine.config.disk_notes,
            engine.config.snapshot,
            runner,
            FakeClock(),
            has_ended=lambda _job: True,
        )
        is_clean = sweeper.sweep()
        self.documents = dict(engine.store.documents)
        return is_clean

    def require_right(self):
        self.nodes.require_right(self.snapshot, is_active=self.is_active)
        assert config.verify(self.snapshot) == []
        (instance,) = self.snapshot.instances.values()
        assert instance.disks_active == self.is_active


def mirrored_disks():
    """Return two mirrors on the first and the second node."""
    return [_numbered(clusters.drbd_disk(f"d{n}", 1, 2), n) for n in (0, 1)]


def _numbered(disk, number):
    """Return a mirror with minors and a port of its own."""
    first, second, port, *_minors, secret = disk.logical_id
    return disk.replace(
        logical_id=(first, second, port + number, number, number, f"{secret}{number}"),
        iv_name=f"disk/{number}",
    )
