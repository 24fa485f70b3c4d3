"""Commands that work without a master daemon: arguments of their steps, and questions."""

import json
import pathlib

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.base.process import SystemRunner
from ganeti.bootstrap import failover, store_backup, store_moves
from ganeti.bootstrap.init import initialise
from ganeti.store.copies import branches


@pytest.fixture
def environ(tmp_path):
    root = tmp_path / "n1.tst"
    place = root / "var/lib/ganeti"
    place.mkdir(parents=True)
    (place / "ssconf_master_node").write_text("n1.tst\n")
    return {"GANETI_ROOTDIR": str(root), "GANETI_HOSTNAME": "n1.tst"}


@pytest.fixture
def run(environ):
    def run(*words, answers=None, master=None):
        line = ["gnt-cluster", *words]
        return commands.run(line, master, environ=environ, answers=answers)

    return run


class Failovers:
    def __init__(self):
        self.options, self.planned, self.is_clean = [], [], True

    def fail_over(self, paths, runner, clock, options, *, feedback):
        assert isinstance(runner, SystemRunner)
        assert isinstance(clock, SystemClock)
        feedback(f"taking over on {paths.hostname}")
        self.options.append(options)
        return self.is_clean

    def plan(self, _paths, options, *, feedback):
        feedback("a copy is old")
        self.planned.append(options)
        return ["first step", "second step"]


@pytest.fixture
def failovers(monkeypatch):
    made = Failovers()
    monkeypatch.setattr(failover, "fail_over", made.fail_over)
    monkeypatch.setattr(failover, "plan", made.plan)
    return made


def options(*, no_voting=False, ignore_offline_nodes=True, accept_loss=False):
    return failover.FailoverOptions(
        no_voting=no_voting,
        ignore_offline_nodes=ignore_offline_nodes,
        accept_loss=accept_loss,
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", options()),
        ("--ignore-offline-nodes=", options(ignore_offline_nodes=False)),
        ("--ignore-offline-nodes=no", options()),
        ("--accept-loss", options(accept_loss=True)),
        ("--no-voting --yes-do-it", options(no_voting=True)),
    ],
)
def test_a_failover_has_the_options_of_its_command(run, failovers, words, expected):
    done = run("master-failover", *words.split())
    assert (done.code, done.out) == (0, "")
    assert done.err == "taking over on n1.tst\n"
    assert failovers.options == [expected]


def test_a_failover_that_left_something_undone_is_a_failure(run, failovers):
    failovers.is_clean = False
    assert run("master-failover").code == 1


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1), ("", 1)])
def test_a_failover_without_votes_needs_a_confirmation(run, failovers, answer, code):
    done = run("master-failover", "--no-voting", answers=[f"{answer}\n"])
    assert done.code == code
    question = "This will perform the failover even if most other nodes are down"
    assert done.terminal.startswith(question)
    assert len(failovers.options) == 1 - code


def test_a_planned_failover_changes_nothing_and_asks_nothing(run, failovers):
    done = run("master-failover", "--no-voting", "--plan", answers=["y\n"])
    assert (done.code, done.terminal, done.err) == (0, "", "a copy is old\n")
    expected = "Steps of this command\n  1. first step\n  2. second step\n"
    assert done.out == expected
    assert (failovers.options, failovers.planned) == ([], [options(no_voting=True)])


class Moves:
    def __init__(self):
        self.targets, self.runs = [], 0

    def __call__(self, _paths, runner, clock, target, feedback):
        assert isinstance(runner, SystemRunner)
        assert isinstance(clock, SystemClock)
        self.targets.append(target)
        feedback("checked")
        return self

    def steps(self):
        return ["copy the store"]

    def run(self):
        self.runs += 1


@pytest.fixture
def moves(monkeypatch):
    made = Moves()
    monkeypatch.setattr(store_moves, "Move", made)
    return made


def test_the_store_is_moved_to_the_target(run, moves):
    done = run("migrate-store", "--to", "etcd://192.0.2.7:2379")
    assert (done.code, done.err) == (0, "checked\n")
    assert (moves.targets, moves.runs) == (["etcd://192.0.2.7:2379"], 1)


def test_a_planned_move_does_not_move(run, moves):
    done = run("migrate-store", "--to", "file", "--plan")
    assert (done.code, done.out) == (0, "Steps of this command\n  1. copy the store\n")
    assert moves.runs == 0


def test_a_move_needs_a_target(run, moves):
    done = run("migrate-store")
    assert done.code == 1
    assert "--to: wanted etcd://HOST:PORT,... or file" in done.err
    assert moves.targets == []


class Backups:
    """Backups of a store with 2 nodes and 3 instances at revision 7."""

    def __init__(self):
        self.written, self.checked, self.restored = [], [], []
        snapshot = type("Snapshot", (), {"nodes": "ab", "instances": "abc"})
        self.backup = store_backup.BackedUp(7, snapshot)

    def back_up(self, _paths, path, clock):
        assert isinstance(clock, SystemClock)
        self.written.append(path)
        return self.backup

    def read(self, path):
        if path.endswith("damaged"):
            raise errors.OpExecError(f"{path}: is no backup")
        return self.backup

    def check(self, _paths, snapshot):
        self.checked.append(snapshot)
        return ""

    def steps(self, path, done):
        assert done is self.backup
        return [f"read {path}"]

    def restore(self, _paths, runner, clock, path, *, feedback):
        assert isinstance(runner, SystemRunner)
        assert isinstance(clock, SystemClock)
        feedback("restored")
        self.restored.append(path)


@pytest.fixture
def backups(monkeypatch):
    made = Backups()
    for name in ("back_up", "read", "check", "steps", "restore"):
        monkeypatch.setattr(store_backup, name, getattr(made, name))
    return made


def test_a_backup_is_described(run, backups, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("backup-store", "saved")
    path = str(tmp_path / "saved")
    expected = f"{path}: revision 7, 2 nodes, 3 instances\n"
    assert (done.code, done.out) == (0, expected)
    assert backups.written == [path]


def test_a_restoration_is_confirmed_with_its_numbers(
    run, backups, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    done = run("restore-store", "saved", answers=["n\n"])
    assert done.code == 1
    assert "revision 7, 2 nodes, 3 instances. Changes made since then" in done.terminal
    assert (len(backups.checked), backups.restored) == (1, [])
    done = run("restore-store", "saved", answers=["y\n"])
    assert (done.code, done.err) == (0, "restored\n")
    assert backups.restored == [str(tmp_path / "saved")]


def test_a_forced_restoration_asks_nothing(run, backups):
    done = run("restore-store", "--force", "/srv/saved", answers=["n\n"])
    assert (done.code, done.terminal) == (0, "")
    assert backups.restored == ["/srv/saved"]


def test_a_planned_restoration_changes_nothing(run, backups):
    done = run("restore-store", "--force", "--plan", "/srv/saved")
    assert done.out == "Steps of this command\n  1. read /srv/saved\n"
    assert backups.restored == []


def test_a_damaged_backup_is_not_restored(run, backups):
    done = run("restore-store", "--force", "/srv/damaged")
    assert done.code == 1
    assert "/srv/damaged: is no backup" in done.err
    assert backups.restored == []


@pytest.mark.parametrize(
    "words",
    [
        ("backup-store", "/srv/saved"),
        ("restore-store", "-f", "/srv/saved"),
        ("migrate-store", "--to", "file"),
    ],
)
def test_only_the_master_changes_the_store(run, environ, backups, moves, words):
    master_file = f"{environ['GANETI_ROOTDIR']}/var/lib/ganeti/ssconf_master_node"
    pathlib.Path(master_file).write_text("n2.tst\n")
    done = run(*words)
    assert done.code == 1
    assert "please connect to 'n2.tst' and run the command there" in done.err
    assert (backups.written, backups.restored, moves.targets) == ([], [], [])


@pytest.fixture
def finalized(monkeypatch):
    nodes = []

    def finalize(paths, runner, *, feedback):
        assert isinstance(runner, SystemRunner)
        feedback("removing")
        nodes.append(paths.hostname)

    monkeypatch.setattr(initialise, "finalize_destroy", finalize)
    return nodes


def test_a_cluster_is_destroyed_only_with_the_option(run, finalized):
    master = FakeMaster()
    done = run("destroy", master=master)
    assert done.code == 1
    assert "add the option --yes-do-it" in done.err
    assert (master.calls, finalized) == ([], [])
    master.results["OP_CLUSTER_DESTROY"] = "uuid of n1"
    done = run("destroy", "--yes-do-it", master=master)
    assert (done.code, done.err, finalized) == (0, "removing\n", ["n1.tst"])
    assert master.calls[0][1][0][0]["OP_ID"] == "OP_CLUSTER_DESTROY"


def test_files_stay_if_the_job_that_destroys_a_cluster_fails(run, finalized):
    master = FakeMaster()
    refused = errors.OpPrereqError("there are still 2 nodes", "wrong_input")
    master.results["OP_CLUSTER_DESTROY"] = refused
    done = run("destroy", "--yes-do-it", master=master)
    assert (done.code, finalized) == (1, [])
    assert "there are still 2 nodes" in done.err


def lost(path, **values):
    known = {"groups": [], "is_complete": True, "jobs": []}
    return branches.Branch(path, **known | values)


LOST = {
    "/a": lost(
        "/a",
        groups=[branches.LostGroup(41, 3, ["instances web1: added", "nodes n1"])],
        jobs=[branches.LostJob(12, "success", ["INSTANCE_CREATE(web1)", "TEST"])],
    ),
    "/b": lost("/b", is_complete=False),
    "/c": lost("/c", is_complete=False, is_compared=False),
}


@pytest.fixture
def kept(monkeypatch):
    paths = []
    monkeypatch.setattr(branches, "files", lambda _store: list(paths))
    monkeypatch.setattr(branches, "read", LOST.__getitem__)
    return paths


def test_changes_of_lost_histories_are_listed(run, kept):
    kept += LOST
    done = run("lost-changes")
    assert done.code == 0
    assert done.out.splitlines() == [
        "/a",
        "  revision 41, term 3:",
        "    instances web1: added",
        "    nodes n1",
        "  job 12: success: INSTANCE_CREATE(web1), TEST",
        "/b",
        "  older lost changes are no longer kept",
        "/c",
        (
            "  this node was demoted before its copy was compared with the master's:"
            " the cluster may lack these changes"
        ),
    ]


def test_lost_changes_of_named_files_alone(run, kept):
    kept += LOST
    assert run("lost-changes", "/b").out.splitlines()[0] == "/b"


def test_without_lost_changes_the_list_is_empty(run, kept):
    assert run("lost-changes").out == "No lost history is kept on this node\n"
    assert json.loads(run("lost-changes", "--json").out) == []


def test_programs_get_all_of_the_lost_changes(run, kept):
    kept += ["/a", "/c"]
    first, second = json.loads(run("lost-changes", "--json").out)
    group = {
        "revision": 41,
        "term": 3,
        "changes": ["instances web1: added", "nodes n1"],
    }
    ops = ["INSTANCE_CREATE(web1)", "TEST"]
    assert first == {
        "path": "/a",
        "is_complete": True,
        "is_compared": True,
        "groups": [group],
        "jobs": [{"id": 12, "status": "success", "opcodes": ops}],
    }
    expected = {"path": "/c", "is_complete": False, "is_compared": False}
    assert second == expected | {"groups": [], "jobs": []}


def test_lost_changes_are_searched_beside_the_store_of_this_node(
    run, kept, environ, monkeypatch
):
    asked = []
    monkeypatch.setattr(branches, "files", lambda path: asked.append(path) or [])
    run("lost-changes")
    paths = Paths(root=environ["GANETI_ROOTDIR"], hostname="n1.tst")
    assert asked == [paths.store_db]
