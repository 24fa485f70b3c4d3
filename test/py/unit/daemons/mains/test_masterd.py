"""Start of the master daemon: it asks for a term in its own name alone."""

import argparse
import os

import pytest

from fakes import cluster
from fakes.clocks import FakeClock
from ganeti import store
from ganeti.base.pathutils import Paths
from ganeti.daemons.mains import masterd
from ganeti.daemons.masterd.startup import NotMaster
from ganeti.store.database import Database


def test_a_node_is_not_elected_in_the_name_of_the_recorded_master(tmp_path):
    made = Paths(root=str(tmp_path), hostname="node1.example.com")
    os.makedirs(made.data_dir)
    written = store.open_master(made.store_db, replicate=None, clock=FakeClock())
    written.commit(cluster.big(2, 1))
    snapshot = written.snapshot()
    written.close()
    master = snapshot.cluster.master_node
    (other,) = [node.name for uuid, node in snapshot.nodes.items() if uuid != master]
    paths = Paths(root=str(tmp_path), hostname=other)
    options = argparse.Namespace(no_voting=False, require_majority=False)
    # As after an update of the copy by a new master since the other checks.
    with pytest.raises(NotMaster, match="the configuration names"):
        masterd._elect(options, paths, FakeClock(), frozenset())
    db = Database(paths.store_db, create=False)
    assert db.position().term.owner == ""
    db.close()
