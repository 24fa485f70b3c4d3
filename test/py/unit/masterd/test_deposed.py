"""A master that knows that it is deposed calls no nodes."""

import pytest

from fakes import clusters
from fakes.rpc import FakeRunner
from ganeti import errors
from ganeti.masterd.deposed import WatchedRunner
from ganeti.store import memory


def test_nodes_are_called_until_the_master_is_deposed():
    snapshot = clusters.snapshot(nodes=1)
    (uuid,) = snapshot.nodes
    inner = FakeRunner(lambda: snapshot, {"version": 1})
    db = memory.open_memory()
    runner = WatchedRunner(inner, lambda: None, db.require_leading)
    assert runner.call_one("version", uuid).payload == 1
    db.depose(errors.TermError("the lease is over"))
    with pytest.raises(errors.TermError, match="the lease is over"):
        runner.call_one("version", uuid)
    assert len(inner.calls) == 1
    db.close()
