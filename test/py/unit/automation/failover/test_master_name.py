"""The file that names the master, while a node becomes it."""

import os

import pytest

from fakes import clusters
from ganeti.automation.failover import master_name
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.protocols import ssconf


@pytest.mark.parametrize(
    ("other", "left"), [(None, "node1.example.com"), ("node3", "node3")]
)
def test_a_failed_record_names_the_former_master_unless_another_node_is_it(
    tmp_path, other, left
):
    paths = Paths(root=str(tmp_path / "n2"), hostname="n2")
    os.makedirs(paths.data_dir)
    ssconf.write(paths, {master_name.KEY: "node1.example.com"})
    snapshot = clusters.snapshot(nodes=3)
    own = snapshot.nodes[clusters.node_uuid(2)]
    store = ssconf.SimpleStore(paths)
    with (
        pytest.raises(errors.TermError),
        master_name.recorded_here(paths, snapshot, own),
    ):
        assert store.master_node() == own.name
        if other:
            ssconf.write(paths, {master_name.KEY: other})
        raise errors.TermError("a higher term")
    assert store.master_node() == left
