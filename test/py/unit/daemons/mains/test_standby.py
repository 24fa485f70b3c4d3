"""The standby of a master: when it runs, and what it clears away."""

import argparse
import os

import pytest

from fakes import clusters
from fakes import store as fake_store
from fakes.clocks import FakeClock
from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.constants import exitcodes
from ganeti.base.filesystem import pidfile
from ganeti.base.pathutils import Paths
from ganeti.daemons import common
from ganeti.daemons.mains import standby
from ganeti.decisions.quorum import Term
from ganeti.model.objects import Update
from ganeti.protocols.rpc import Result
from ganeti.store import choice, open_master
from ganeti.store.etcd import Servers, parse

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
        fake_store.write(self.paths, snapshot)
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


@pytest.fixture
def removed(site, monkeypatch):
    """This machine has the address of the cluster; return the removals."""
    removals, answers = [], [Result("node_deactivate_master_ip", "n1")]

    def drop(paths, own, parameters, *, is_external):
        removals.append((paths, own, parameters["ip"], is_external))
        return answers[0]

    monkeypatch.setattr(standby.netutils, "owns_address", lambda _address: True)
    monkeypatch.setattr(standby.address_removal, "drop", drop)
    return removals


def test_the_address_of_a_node_that_does_not_lead_is_removed(site, removed):
    site.standby._leave_role(Looks("another"))
    assert removed == [(site.paths, "192.0.2.1", "192.0.2.100", False)]
    assert site.runner.lines == []


def test_a_node_that_leads_keeps_the_address(site, removed):
    site.standby._leave_role(Looks(site.uuid))
    with site.running("ganeti-masterd"):
        site.standby._leave_role(Looks("another"))
    assert removed == []


@pytest.fixture
def attempts(monkeypatch):
    """Return a list: what taking over does, an error to raise; and its calls."""
    made = argparse.Namespace(error=None, nodes=[])

    def take_over(_paths, _runner, _clock, servers, own):
        assert servers == SERVERS
        made.nodes.append(own.name)
        if made.error is not None:
            raise made.error

    monkeypatch.setattr(standby.new_master, "take_over", take_over)
    return made


@pytest.mark.parametrize(
    ("error", "wait_s"),
    [
        (None, 1.0),
        (errors.TermError("node2 was faster"), 1.0),
        (errors.StorageError("no majority"), 1.0),
        # Other candidates come first.
        (errors.OpExecError("the master daemon does not start"), 10.0),
        (KeyError("bug"), 10.0),
    ],
)
def test_a_candidate_takes_over_and_tries_again(site, attempts, error, wait_s):
    attempts.error = error
    assert site.standby._try() == wait_s
    assert attempts.nodes == [site.paths.hostname]


def change(site, **changes):
    db = open_master(site.paths.store_db, replicate=None, clock=SystemClock(), node="x")
    own = db.snapshot().nodes[site.uuid]
    db.commit([Update("nodes", site.uuid, own.replace(**changes))])
    db.close()


def test_a_node_that_is_no_candidate_does_not_take_over(site, attempts):
    change(site, master_candidate=False)
    assert site.standby._try() == 10.0
    change(site, master_candidate=True, name="renamed.example.com")
    assert site.standby._try() == 10.0
    os.unlink(site.paths.store_db)
    assert site.standby._try() == 10.0
    assert attempts.nodes == []


class Control:
    """Counts requests to stop; ends the standby after some pauses."""

    def __init__(self):
        self.stops = 0

    def ask_stop(self):
        self.stops += 1


def tidy(site, pauses):
    class Clock(FakeClock):
        def wait(self, event, timeout_s):
            assert timeout_s == 2.0
            pauses.append(timeout_s)
            if len(pauses) == 3:
                event.set()
            return event.is_set()

    control = Control()
    made = standby.Standby(site.paths, SERVERS, Clock(), site.runner)
    made._control = control
    made._tidy()
    return control.stops


def test_the_daemon_ends_where_the_store_is_elsewhere(site):
    choice.write(site.paths, choice.prepare(SERVERS))
    pauses = []
    assert tidy(site, pauses) == 0
    assert len(pauses) == 3
    choice.write_file_engine(site.paths)
    pauses = []
    assert tidy(site, pauses) == 1
    assert len(pauses) == 1


def test_a_damaged_record_of_the_engine_is_looked_at_again(site, caplog):
    with open(choice.path_of(site.paths), "w", encoding="utf-8") as stream:
        stream.write("{")
    pauses = []
    assert tidy(site, pauses) == 0
    assert len(pauses) == 3
    assert "store-engine: damaged" in caplog.text
