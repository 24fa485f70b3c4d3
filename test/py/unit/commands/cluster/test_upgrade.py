"""gnt-cluster upgrade: the checks before its steps, and the end of each outcome."""

import os
import pathlib

import pytest

from fakes import commands
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.process import SystemRunner
from ganeti.bootstrap.upgrade import access, preparation, steps
from ganeti.bootstrap.upgrade import journal as record
from ganeti.commands.cluster import upgrade

OLD, NEW = "3.1.1", "3.1.2"
JOURNAL = record.Journal(old=OLD, new=NEW, store=4)
PLAN = preparation.Plan(JOURNAL, ["drain the queue", "stop all daemons"])


class Site:
    """A cluster whose preparation and steps are only noted."""

    def __init__(self, paths):
        self.paths, self.done = paths, []
        self.outcome = steps.Outcome.DONE
        self.intent = None

    def nodes_of(self, paths, runner, _layout):
        assert isinstance(runner, SystemRunner)
        return [f"nodes of {paths.hostname}"]

    def resolve(self, _layout, wanted):
        self.done.append(("resolve", wanted))
        return NEW

    def prepare(self, paths, _layout, new, nodes, feedback):
        feedback("a node is offline")
        self.done.append(("prepare", paths.hostname, new, nodes))
        return PLAN

    def resume(self, paths, nodes):
        self.done.append(("resume", paths.hostname, nodes))
        return PLAN

    def upgrade(self, paths, effects, journal, nodes, feedback):
        runner, clock, _master = effects
        assert isinstance(runner, SystemRunner)
        assert isinstance(clock, SystemClock)
        self.done.append(("upgrade", paths.hostname, journal, nodes))
        self._feedback = feedback
        return self

    def run(self, release):
        assert release == upgrade.versions.RELEASE_VERSION
        for name in ("upgrade.lock", "ganeti-watcher.lock"):
            with pytest.raises(errors.LockError):
                self.lock(name)
        self._feedback("stopping")
        return self.outcome

    def lock(self, name):
        with files.locked(f"{self.paths.lock_dir}/{name}", timeout_s=0):
            pass


@pytest.fixture
def environ(tmp_path):
    return {
        "GANETI_ROOTDIR": str(tmp_path / "n1.tst"),
        "GANETI_HOSTNAME": "n1.tst",
    }


@pytest.fixture
def site(environ, monkeypatch):
    paths = Paths(root=environ["GANETI_ROOTDIR"], hostname="n1.tst")
    for place in (paths.data_dir, paths.lock_dir):
        os.makedirs(place)
    pathlib.Path(paths.data("ssconf_master_node")).write_text("n1.tst\n")
    made = Site(paths)
    monkeypatch.setattr(access, "nodes_of", made.nodes_of)
    monkeypatch.setattr(preparation, "resolve", made.resolve)
    monkeypatch.setattr(preparation, "prepare", made.prepare)
    monkeypatch.setattr(preparation, "resume", made.resume)
    monkeypatch.setattr(record, "read_intent", lambda _paths: made.intent)
    monkeypatch.setattr(steps, "Upgrade", made.upgrade)
    # The command refuses virtual nodes, and this is one.
    monkeypatch.setattr(Paths, "is_virtual", property(lambda _self: False))
    return made


@pytest.fixture
def run(environ, site):
    def run(words):
        return commands.run(f"gnt-cluster upgrade {words}", environ=environ)

    return run


@pytest.mark.parametrize("words", ["", "--to 3.1.2 --resume"])
def test_either_a_version_or_a_continuation_is_wanted(run, site, words):
    done = run(words)
    assert done.code == 1
    assert "wanted exactly one of --to VERSION and --resume" in done.err
    assert site.done == []


def test_without_an_upgrade_there_is_nothing_to_continue(run, site):
    done = run("--resume")
    assert (done.code, done.out, done.err, site.done) == (0, "", "", [])


def test_an_upgrade_begins_with_its_checks(run, site):
    done = run("--to 3.1")
    assert (done.code, done.err) == (0, "")
    expected = "a node is offline\nstopping\nAll nodes run version 3.1.2.\n"
    assert done.out == expected
    nodes = ["nodes of n1.tst"]
    assert site.done == [
        ("resolve", "3.1"),
        ("prepare", "n1.tst", NEW, nodes),
        ("upgrade", "n1.tst", JOURNAL, nodes),
    ]
    site.lock("upgrade.lock")
    site.lock("ganeti-watcher.lock")


def test_an_upgrade_is_continued(run, site):
    site.intent = (OLD, NEW)
    assert run("--resume").code == 0
    assert [step[0] for step in site.done] == ["resume", "upgrade"]


def test_nodes_that_were_left_out_are_a_failure(run, site):
    site.outcome = steps.Outcome.PARTLY
    done = run("--to 3.1.2")
    assert done.code == 1
    assert "All nodes run" not in done.out


def test_the_new_release_continues_with_its_own_program(run, site, monkeypatch):
    became = []

    def become(program, words):
        became.append((program, words))
        raise SystemExit(7)

    monkeypatch.setattr(upgrade.os, "execv", become)
    site.outcome = steps.Outcome.HANDED_OVER
    with pytest.raises(SystemExit):
        run("--to 3.1.2")
    program = upgrade.releases.Layout.of_build().program(NEW, "sbin/gnt-cluster")
    assert became == [(program, [program, "upgrade", "--resume"])]


def test_a_plan_lists_the_steps_and_takes_none(run, site):
    done = run("--to 3.1.2 --plan")
    assert done.code == 0
    assert done.out.splitlines()[1:] == [
        "Steps of this command",
        "  1. drain the queue",
        "  2. stop all daemons",
    ]
    assert [step[0] for step in site.done] == ["resolve", "prepare"]


def test_one_upgrade_runs_at_a_time(run, site):
    with files.locked(f"{site.paths.lock_dir}/upgrade.lock", timeout_s=0):
        done = run("--to 3.1.2")
    assert done.code == 1
    assert "another gnt-cluster upgrade runs on this node" in done.err
    assert site.done == []


def test_only_the_master_upgrades(run, site):
    pathlib.Path(site.paths.data("ssconf_master_node")).write_text("n2.tst\n")
    done = run("--to 3.1.2")
    assert done.code == 1
    assert "please connect to 'n2.tst'" in done.err
    assert site.done == []


def test_virtual_nodes_have_no_releases(run, site, monkeypatch):
    monkeypatch.setattr(Paths, "is_virtual", property(lambda _self: True))
    done = run("--to 3.1.2")
    assert done.code == 1
    assert "virtual nodes use the programs of this machine" in done.err
    assert site.done == []
