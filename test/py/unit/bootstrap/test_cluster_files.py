"""Files that make a node a part of its cluster."""

import pathlib

import pytest

from ganeti.base.pathutils import Paths
from ganeti.bootstrap import cluster_files
from ganeti.bootstrap.init import initialise

CLUSTERS = ("server.pem", "hmac.key", "store.db", "store.db-wal", "ssconf_node_list")
CLUSTERS += ("store.db.damaged-wal",)
OWN = ("rapi_users", "server.pem.orig", "notes")


@pytest.fixture
def paths(tmp_path):
    # A name in which a pattern could see more than a name.
    actual = Paths(root=str(tmp_path / "n[1]"), hostname="n[1]")
    top = pathlib.Path(actual.data_dir)
    top.mkdir(parents=True)
    for name in (*CLUSTERS, *OWN):
        (top / name).write_text(name)
    return actual


def names(listed):
    return {pathlib.Path(path).name for path in listed}


def test_files_of_the_cluster_differ_from_the_administrators_own(paths):
    assert names(cluster_files.of_node(paths)) == set(CLUSTERS)


def test_a_node_that_leaves_keeps_what_is_its_own(paths):
    initialise.remove_cluster_files(paths)
    assert names(pathlib.Path(paths.data_dir).iterdir()) == set(OWN)
    assert cluster_files.of_node(paths) == []
