"""The standby of a master: when it runs, and what it clears away."""

import argparse
import os

import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.processes import FakeRunner
from ganeti import errors
from ganeti.clock import SystemClock
from ganeti.constants import exitcodes
from ganeti.objects import TABLES, Update
from ganeti.pathutils import Paths
from ganeti.quorum import Term
from ganeti.server import common, standby
from ganeti.store import choice, open_master
from ganeti.store.etcd import Servers, parse
from ganeti.utils import pidfile

SERVERS = parse("etcd://127.0.0.1:1")
OPTIONS = argparse.Namespace(no_user_checks=True)


class Site:
    """A node that was the master until now; its configuration still names it."""

    def __init__(self, folder):
        snapshot = clusters.snapshot(nodes=3)
        self.uuid = snapshot.cluster.master_node
        name = snapshot.nodes[self.uuid].name
        self.paths = Paths(root=str(folder / name), hostname=name)
        for path in (self.paths.data_dir, self.paths.run_dir):
            os.makedirs(path)
        db = open_master(
            self.paths.store_db, replicate=None, clock=SystemClock(), node="x"
        )
        db.commit(
            [
                Update(table, key, record)
                for table in TABLES
                for key, record in snapshot.table(table).items()
            ]
        )
        db.close()
        self.runner = FakeRunner(daemon_util=FakeRunner.DONE)
        self.standby = standby.Standby(self.paths, SERVERS, FakeClock(), self.runner)

    def running(self, daemon):
        return pidfile.PidFile(self.paths.pid_file(daemon))


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


class Looks:
    """A reader that sees one leader; an error if the servers do not answer."""

    def __init__(self, owner):
        self._owner = owner

    def look(self):
        if self._owner is None:
            raise errors.StorageError("no majority")
        return argparse.Namespace(leading=Term(7, self._owner) if self._owner else None)


@pytest.mark.parametrize("leader", ["another", "", None])
def test_the_remote_api_of_a_node_that_does_not_lead_is_stopped(site, leader):
    with site.running("ganeti-rapi"):
        site.standby._leave_role(Looks(leader))
    assert site.runner.lines == ["daemon-util stop ganeti-rapi"]


def test_a_master_and_one_that_is_about_to_start_keep_it(site):
    with site.running("ganeti-rapi"):
        site.standby._leave_role(Looks(site.uuid))
        with site.running("ganeti-masterd"):
            site.standby._leave_role(Looks("another"))
    assert site.runner.lines == []


def test_it_runs_where_the_store_is_in_etcd_alone(site):
    with pytest.raises(common.StartError) as refused:
        standby.check(OPTIONS, site.paths)
    assert refused.value.code == exitcodes.EXIT_NOTMASTER
    choice.write(site.paths, choice.prepare(SERVERS))
    assert standby.check(OPTIONS, site.paths) == Servers(("127.0.0.1:1",))
    with open(choice.path_of(site.paths), "w", encoding="utf-8") as stream:
        stream.write("{")
    with pytest.raises(common.StartError, match="store-engine: damaged") as refused:
        standby.check(OPTIONS, site.paths)
    assert refused.value.code == exitcodes.EXIT_FAILURE


def test_a_damaged_copy_is_set_aside(site):
    with open(site.paths.store_db, "r+b") as stream:
        stream.write(b"no database at all")
    mirror = standby.open_mirror(SERVERS, site.paths.store_db, SystemClock())
    assert mirror.position().revision == 0
    mirror.close()
    with open(f"{site.paths.store_db}.damaged", "rb") as stream:
        assert stream.read(2) == b"no"
