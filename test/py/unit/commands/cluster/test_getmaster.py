"""getmaster prints the master from the files of this node, without any daemon."""

import json

import pytest

from fakes import commands
from ganeti.base.pathutils import Paths


@pytest.fixture
def environ(tmp_path):
    root = tmp_path / "n2.tst"
    paths = Paths(root=str(root), hostname="n2.tst")
    place = root / "var/lib/ganeti"
    assert str(place) == paths.data_dir
    place.mkdir(parents=True)
    (place / "ssconf_master_node").write_text("n1.tst\n")
    return {"GANETI_ROOTDIR": str(root), "GANETI_HOSTNAME": "n2.tst"}


def test_the_name_of_the_master_is_the_whole_output(environ):
    done = commands.run("gnt-cluster getmaster", environ=environ)
    assert (done.code, done.out, done.err) == (0, "n1.tst\n", "")


def test_programs_get_an_object(environ):
    done = commands.run("gnt-cluster getmaster --json", environ=environ)
    assert done.code == 0
    assert json.loads(done.out) == {"master_node": "n1.tst"}


def test_outside_of_a_cluster_there_is_no_master(tmp_path):
    root = str(tmp_path / "n2.tst")
    environ = {"GANETI_ROOTDIR": root, "GANETI_HOSTNAME": "n2.tst"}
    done = commands.run("gnt-cluster getmaster", environ=environ)
    assert (done.code, done.out) == (1, "")
    assert "cluster not initialized" in done.err
    assert "ssconf file for master_node" in done.err
