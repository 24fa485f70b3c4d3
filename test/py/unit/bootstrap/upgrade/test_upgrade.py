"""Upgrades of simulated nodes: each step, each kill between two, each way to fail."""

import glob
import json
import os
import pathlib
import shutil
import sqlite3
import tarfile

import pytest

from fakes.clocks import FakeClock
from fakes.processes import FakeRunner
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.filesystem import releases
from ganeti.base.pathutils import Paths
from ganeti.base.process import RunResult
from ganeti.bootstrap.upgrade import access, preparation
from ganeti.bootstrap.upgrade import journal as record
from ganeti.bootstrap.upgrade import node as node_module
from ganeti.bootstrap.upgrade.steps import Outcome, Upgrade
from ganeti.protocols import ssconf
from ganeti.store import schema

OLD, NEW = "3.1.1", "3.1.2"
#: Version of the store by release.
STORES = {OLD: 3, NEW: 4}
MASTER, SECOND, THIRD = "node1.example.com", "node2.example.com", "node3.example.com"


class CutError(BaseException):
    """The end of the program, as by a kill."""


class FakeNode:
    """A node: its release in use, the release of its daemons, the form of its store."""

    def __init__(self, site, name):
        self.site, self.name = site, name
        self.in_use, self.running, self.store = OLD, OLD, STORES[OLD]
        self.installed = {OLD, NEW}
        self.broken = set()

    def run(self, version, step, store=0):
        self.site.call(self.name, step)
        if version not in self.installed:
            raise errors.OpPrereqError(f"node {self.name}: no {version}", "environment")
        if step in self.broken:
            raise errors.SshError(f"{self.name}: no route")
        if step == "stop":
            self.running = None
        elif step == "use":
            assert self.running is None, "switched below daemons"
            self.in_use = version
        elif step == "convert":
            assert self.running is None
            assert STORES[version] == max(STORES.values()), "this release cannot do it"
            self.store = store
        elif step == "start":
            self.in_use = version
            assert self.store <= STORES[version], "a store from the future"
            self.running = version
        self.site.called(self.name, step)
        return node_module.Report(
            release=version, in_use=self.in_use, store=STORES[version]
        )


class FakeMaster:
    """The master daemon: it answers only while it runs, in the release of the client."""

    def __init__(self, site):
        self.site = site

    def _ask(self, what):
        self.site.call("master daemon", what)
        running = self.site.nodes[0].running
        if running is None:
            raise errors.NoMasterError("/socket")
        assert running == self.site.release, "another release than the client's"

    def set_drain(self, is_drained):
        self._ask("drain")
        self.site.is_drained = is_drained
        self.site.called("master daemon", "drain")

    def set_pause(self, until):
        self._ask("pause")
        self.site.paused_until = until
        self.site.called("master daemon", "pause")

    def open_jobs(self):
        self._ask("jobs")
        assert self.site.is_drained
        return self.site.job_lists.pop(0) if self.site.job_lists else []

    def redistribute(self, _feedback):
        self._ask("redistribute")

    def verify(self, _feedback):
        self._ask("verify")
        assert not self.site.is_drained
        return self.site.is_well


class Site:
    """A cluster of three nodes; `cut_at` is the number of the event that ends all.

    An event is the beginning or the end of a call.
    """

    def __init__(self, folder):
        self.paths = Paths(str(folder / MASTER), MASTER)
        os.makedirs(self.paths.data_dir)
        pathlib.Path(self.paths.data("hmac.key")).write_text("secret\n")
        ssconf.write(self.paths, {"offline_nodes": ""})
        self.nodes = [FakeNode(self, name) for name in (MASTER, SECOND, THIRD)]
        self.events, self.lines, self.job_lists = [], [], []
        self.cut_at = None
        self.release = OLD
        self.is_drained, self.paused_until, self.is_well = False, None, True
        self.clock = FakeClock()
        self.process = FakeRunner(post_upgrade=FakeRunner.DONE)
        self.resumes = 0

    def call(self, *what):
        if self.cut_at == len(self.events):
            self.cut_at = None
            raise CutError
        self.events.append(what)

    def called(self, *what):
        self.call("end", *what)

    def upgrade(self, journal):
        effects = (self.process, self.clock, FakeMaster(self))
        return Upgrade(self.paths, effects, journal, self.nodes, self.lines.append)

    def begin(self, new):
        """Run the command; a second process goes on after the switch."""
        old = self.nodes[0].in_use
        journal = record.Journal(old=old, new=new, store=STORES[new])
        return self.finish(self.upgrade(journal).run(self.release))

    def finish(self, outcome):
        while outcome is Outcome.HANDED_OVER:
            self.release = self.nodes[0].in_use
            outcome = self.resume()
        return outcome

    def resume(self):
        plan = preparation.resume(self.paths, self.nodes)
        return self.upgrade(plan.journal).run(self.release)

    def until_done(self, new):
        """Run the command, and again after each cut, by the release in use."""
        try:
            return self.begin(new)
        except CutError:
            pass
        while True:
            self.resumes += 1
            self.release = self.nodes[0].in_use
            if record.read_intent(self.paths) is None:
                # It was killed before it began, or after its end.
                if self.nodes[0].in_use == new:
                    return Outcome.DONE
                return self.begin(new)
            try:
                return self.finish(self.resume())
            except CutError:
                continue

    def check(self, version, *, without=()):
        for node in self.nodes:
            if node.name in without:
                continue
            assert (node.in_use, node.running) == (version, version), node.name
            assert node.store == STORES[version], node.name
        assert not self.is_drained
        assert self.paused_until is None
        assert glob.glob(self.paths.data("intent*")) == []
        for path in glob.glob(f"{self.paths.backup_dir}/*"):
            with tarfile.open(path) as archive:
                assert "ganeti/hmac.key" in archive.getnames()
            assert os.stat(path).st_mode & 0o777 == 0o600


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_all_nodes_change_to_the_new_release_and_back(site):
    assert site.begin(NEW) is Outcome.DONE
    site.check(NEW)
    assert len(glob.glob(f"{site.paths.backup_dir}/ganeti*.tar")) == 1
    assert "Downgrading configuration" not in site.lines
    forth, site.lines[:] = list(site.lines), []
    site.clock.now += 100
    assert site.begin(OLD) is Outcome.DONE
    site.check(OLD)
    assert "Downgrading configuration" in site.lines
    assert forth[0] == "Draining queue"
    assert forth[-1] == "Verifying cluster."
    assert site.process.lines == [f"post-upgrade {OLD}", f"post-upgrade {NEW}"]


def count(tmp_path, new, first):
    site = Site(tmp_path / "whole")
    if first:
        site.begin(first)
        site.events.clear()
    site.begin(new)
    shutil.rmtree(tmp_path / "whole")
    return len(site.events)


@pytest.mark.sampled
@pytest.mark.parametrize(("first", "new"), [(None, NEW), (NEW, OLD)])
def test_a_kill_at_any_moment_is_followed_by_the_end_of_the_upgrade(
    tmp_path, first, new
):
    total = count(tmp_path, new, first)
    assert total > 40
    resumed = 0
    for number in range(total):
        site = Site(tmp_path / str(number))
        if first:
            site.begin(first)
            site.events.clear()
        site.cut_at = number
        assert site.until_done(new) is Outcome.DONE, number
        site.check(new)
        resumed += site.resumes
    assert resumed == total


def test_a_kill_while_the_links_are_switched_leaves_a_mixture_that_resume_ends(site):
    journal = record.Journal(old=OLD, new=NEW, store=4)
    site.nodes[0].broken.add("use")
    with pytest.raises(errors.OpExecError, match="gnt-cluster upgrade --resume"):
        site.upgrade(journal).run(OLD)
    assert [node.in_use for node in site.nodes] == [OLD, NEW, NEW]
    assert record.read_intent(site.paths)[:2] == (OLD, NEW)
    site.nodes[0].broken.clear()
    # Somebody starts the old daemons in between: they are stopped again.
    site.nodes[0].running = OLD
    assert site.finish(site.resume()) is Outcome.DONE
    site.check(NEW)


def test_a_node_that_dies_is_left_out_and_named(site):
    site.nodes[2].broken |= {"stop", "use", "convert", "start"}
    assert site.begin(NEW) is Outcome.PARTLY
    site.check(NEW, without=[THIRD])
    assert sum("no route" in line for line in site.lines) == 2
    assert site.lines[-1] == f"Warning: {THIRD} was left out: {THIRD}: no route"


def test_a_node_that_comes_back_in_time_is_not_left_out(site):
    site.nodes[2].broken |= {"use"}
    assert site.begin(NEW) is Outcome.DONE
    site.check(NEW)


def test_the_wait_for_jobs_names_them_and_ends_with_the_last(site):
    site.job_lists = [[3, 4, 5, 6, 7, 8, 9], [9], [9], []]
    assert site.begin(NEW) is Outcome.DONE
    waits = [line for line in site.lines if line.startswith("Waiting")]
    assert waits == [
        "Waiting for the end of jobs: 3, 4, 5, 6, 7 and 2 more",
        "Waiting for the end of jobs: 9",
    ]


def test_jobs_that_do_not_end_leave_everything_as_it_was(site):
    site.job_lists = [[12]] * 20000
    with pytest.raises(errors.OpExecError, match=r"1 jobs have not .* nothing was ch"):
        site.begin(NEW)
    site.check(OLD)
    assert all("master daemon" in event for event in site.events)


def test_a_second_upgrade_is_refused_while_one_is_under_way(site):
    site.cut_at = 20
    with pytest.raises(CutError):
        site.begin(NEW)
    with pytest.raises(
        errors.OpPrereqError, match=r"from 3\.1\.1 to 3\.1\.2 was begun"
    ):
        preparation.check_idle(site.paths)


def test_problems_of_the_cluster_afterwards_are_shown_by_the_result(site):
    site.is_well = False
    assert site.begin(NEW) is Outcome.PARTLY
    site.check(NEW)


@pytest.mark.parametrize(
    "text", ["", "3.1.1", "3.1.1,3.1.2", "3.1.1,../x,7", "a,b,c", "3.1.1,3.1.2,x"]
)
def test_a_damaged_intent_is_refused(site, text):
    pathlib.Path(site.paths.data("intent-to-upgrade")).write_text(text)
    with pytest.raises(errors.ConfigurationError, match="wanted OLD,NEW,PID"):
        record.read_intent(site.paths)


def test_the_intent_has_the_documented_form(site):
    record.begin(site.paths, record.Journal(old=OLD, new=NEW, store=4))
    text = pathlib.Path(site.paths.data("intent-to-upgrade")).read_text()
    assert text == f"{OLD},{NEW},{os.getpid()}\n"


@pytest.mark.parametrize("text", ["", "{}", '{"old":"3.1.1","new":"3.1.3","store":4}'])
def test_steps_of_another_upgrade_do_not_count(site, text):
    pathlib.Path(site.paths.data("intent-to-upgrade.steps")).write_text(text)
    loaded = record.load(site.paths, record.Intent(OLD, NEW, 7), 4)
    assert loaded == record.Journal(old=OLD, new=NEW, store=4)


# Preparation
def layout_of(tmp_path, *versions, in_use=OLD):
    home = tmp_path / "lib/ganeti"
    layout = releases.Layout(
        "/lib/ganeti/versions", "/sbin", "/bin", root=str(tmp_path)
    )
    for version in versions:
        for place in ("sbin", "bin", "tools"):
            (home / "versions" / version / place).mkdir(parents=True)
    if in_use:
        releases.use(layout, in_use)
    return layout


@pytest.mark.parametrize(
    ("wanted", "meant"), [("3.1.2", "3.1.2"), ("3.1", "3.1.10"), ("3.2", "3.2.0")]
)
def test_a_version_is_named_in_full_or_by_its_series(tmp_path, wanted, meant):
    layout = layout_of(tmp_path, "3.1.1", "3.1.2", "3.1.10", "3.2.0")
    assert preparation.resolve(layout, wanted) == meant


@pytest.mark.parametrize("wanted", ["3.1.3", "3.3", "../..", "x", "3.1.1.1", "3"])
def test_a_version_that_is_not_installed_is_refused(tmp_path, wanted):
    with pytest.raises(errors.OpPrereqError, match="version"):
        preparation.resolve(layout_of(tmp_path, "3.1.1"), wanted)


def test_an_installation_of_one_release_says_how_to_keep_several():
    with pytest.raises(errors.OpPrereqError, match="--enable-versions"):
        preparation.resolve(releases.Layout("", "/sbin", "/bin"), "3.1.2")


def prepare(site, tmp_path, new=NEW, in_use=OLD):
    layout = layout_of(tmp_path / "root", OLD, NEW, in_use=in_use)
    return preparation.prepare(site.paths, layout, new, site.nodes, site.lines.append)


def test_nodes_without_the_release_are_all_named_and_nothing_is_changed(site, tmp_path):
    for node in site.nodes[1:]:
        node.installed.remove(NEW)
    with pytest.raises(errors.OpPrereqError) as caught:
        prepare(site, tmp_path)
    text = caught.value.args[0]
    assert text.startswith("nothing was changed")
    assert SECOND in text
    assert THIRD in text
    assert all(event[-1] == "look" for event in site.events)
    site.check(OLD)


def test_the_release_in_use_is_refused(site, tmp_path):
    with pytest.raises(errors.OpPrereqError, match=r"3\.1\.1 is in use already"):
        prepare(site, tmp_path, new=OLD)


def test_a_plan_lists_the_steps_and_the_nodes_that_stay_behind(site, tmp_path):
    ssconf.write(site.paths, {"offline_nodes": "node9.example.com"})
    plan = prepare(site, tmp_path)
    assert plan.journal == record.Journal(old=OLD, new=NEW, store=4)
    assert plan.steps[0] == f"nodes: {MASTER}, {SECOND}, {THIRD}"
    assert f"Switching to version {NEW} on all nodes" in plan.steps
    assert any("node9.example.com is offline" in line for line in site.lines)


def test_a_form_of_the_store_that_the_earlier_release_lacks_is_refused(site, tmp_path):
    engine = store.open_master(site.paths.store_db, replicate=None, clock=SystemClock())
    engine.commit([store.Document("meta", "features", b'["pool-rows"]')])
    engine.close()
    with pytest.raises(errors.OpPrereqError, match=r"uses pool-rows, which 3\.1\.1"):
        prepare(site, tmp_path, new=OLD, in_use=NEW)


# Nodes
class Shell:
    """An SSH connection whose commands have given results."""

    result = RunResult((), 0, None, "", "")
    calls = ()

    def __init__(self, *_args, **_options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return None

    def run(self, argv, *, stdin, timeout_s):
        assert timeout_s > 60
        Shell.calls = (argv, json.loads(stdin))
        return Shell.result


@pytest.fixture
def remote(site, monkeypatch):
    monkeypatch.setattr(access.client, "Client", Shell)
    layout = releases.Layout("/lib/ganeti/versions", "/sbin", "/bin")
    return access.OtherNode(site.paths, SECOND, (None, 22), None, layout)


def test_a_node_runs_the_program_of_the_named_release(remote, monkeypatch):
    report = '{"release":"3.1.2","store":4,"more":1}'
    monkeypatch.setattr(Shell, "result", RunResult((), 0, None, report, ""))
    assert remote.run(NEW, "convert", 4).store == 4
    assert Shell.calls == (
        ["/lib/ganeti/versions/3.1.2/tools/upgrade-node"],
        {"step": "convert", "store": "4"},
    )


@pytest.mark.parametrize(
    ("code", "output", "text"),
    [
        (127, "", "version 3.1.2 is not installed there"),
        (126, "", "version 3.1.2 is not installed there"),
        (1, "no disk\n", "exited with code 1: no disk"),
        (0, "hello", "malformed|invalid"),
        (0, "x" * 70000, "answers too much"),
        (0, '{"release":"3.1.1"}', "wanted a program of version 3.1.2, found '3.1.1'"),
        (0, '{"release":"' + "\\u001b[2J" * 20 + '"}', r"found '\\x1b\[2J"),
    ],
)
def test_answers_of_a_node_are_checked(remote, monkeypatch, code, output, text):
    monkeypatch.setattr(Shell, "result", RunResult((), code, None, output, ""))
    with pytest.raises(errors.GenericError, match=text) as caught:
        remote.run(NEW, "look")
    assert SECOND in str(caught.value)
    assert len(str(caught.value)) < 800


def step(site, tmp_path, name, **message):
    layout = layout_of(tmp_path / "root", "3.1.1", NEW, in_use=NEW)
    process = FakeRunner(daemon_util=FakeRunner.DONE)
    message = {"step": name, **message}
    report = node_module.run_step(site.paths, process, message, layout)
    return report, process.lines


def test_the_steps_of_a_node(site, tmp_path, monkeypatch):
    monkeypatch.setattr(node_module._buildconf, "RELEASE_VERSION", OLD)
    report, lines = step(site, tmp_path, "look")
    assert (report.release, report.in_use, report.store) == (OLD, NEW, schema.VERSION)
    assert "pool-rows" in report.features
    assert lines == []
    report, lines = step(site, tmp_path / "2", "start")
    assert report.in_use == OLD
    assert lines == ["daemon-util stop-all", "daemon-util start-all"]
    report, lines = step(site, tmp_path / "3", "use")
    assert (report.in_use, lines) == (OLD, [])


@pytest.mark.parametrize(
    "message", [{"step": "rm"}, {"step": "convert", "store": "-1"}]
)
def test_a_message_with_mistakes_is_refused(site, tmp_path, message):
    with pytest.raises(errors.OpPrereqError, match="input"):
        step(site, tmp_path, message.pop("step"), **message)


def test_a_node_converts_its_store_down_and_up(site, tmp_path):
    store.open_master(site.paths.store_db, replicate=None, clock=SystemClock()).close()
    step(site, tmp_path, "convert", store="2")
    assert stored_version(site) == 2
    step(site, tmp_path / "2", "convert", store=str(schema.VERSION))
    assert stored_version(site) == schema.VERSION


def stored_version(site):
    db = sqlite3.connect(site.paths.store_db)
    try:
        return schema.version_of(db)
    finally:
        db.close()


def order(site, step):
    """Return the nodes in the order in which they began a step the first time."""
    begun = [event[0] for event in site.events if event[-1] == step and len(event) == 2]
    return begun.index(MASTER) == 0


@pytest.mark.parametrize("is_etcd", [False, True])
def test_no_candidate_takes_over_and_no_job_begins(site, monkeypatch, is_etcd):
    monkeypatch.setattr("ganeti.store.choice.is_etcd", lambda _paths: is_etcd)
    assert site.begin(NEW) is Outcome.DONE
    assert order(site, "stop") is not is_etcd
    assert order(site, "start") is is_etcd
    lines = ["Stopping daemons on master node.", "Stopping daemons everywhere."]
    begin = site.lines.index("Pausing the watcher for one hour.") + 1
    assert site.lines[begin : begin + 2] == (lines[::-1] if is_etcd else lines)
