"""All steps of a take-over with nodes that are directories, and a cut at each call."""

import json
import os
import pathlib
import shutil

import pytest

from fakes import ganeti2
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.migration.takeover import journal, main, steps
from ganeti.migration.takeover import node as node_module
from ganeti.protocols import ssconf

MASTER, OTHER = "node1.vc.test", "node2.vc.test"
CERTIFICATE = "-----BEGIN PRIVATE KEY-----\n"


class CutError(Exception):
    """The end of the program, as by a kill."""


class FakeNode:
    """A node that records its steps; the cluster ends at a given call."""

    def __init__(self, cluster, target):
        self.target = target
        self.cluster = cluster

    def run(self, step):
        self.cluster.call(self.target.name, step)
        if step == "forget" and self.target.name == MASTER:
            shutil.rmtree(node_module.state_dir(self.cluster.paths))
        return node_module.Report(
            guests=dict(self.cluster.guests.get(self.target.name, {})),
            running=self.cluster.running,
        )

    def put(self, path, data, *, mode):
        self.cluster.call(self.target.name, f"put {os.path.basename(path)}")
        if self.target.name == MASTER:
            pathlib.Path(path).write_bytes(data)
        assert mode == 0o640


class Cluster:
    """Two nodes; `cut_at` is the number of the call that never returns.

    `broken` are calls that fail, `running` the daemons that a node reports.
    """

    def __init__(self, paths):
        self.paths = paths
        self.calls = []
        self.cut_at = None
        self.guests = {OTHER: {"web1.vc.test": 77}}
        self.printed = []
        self.broken, self.running = set(), ()

    def call(self, *what):
        if self.cut_at == len(self.calls):
            self.cut_at = None
            raise CutError
        self.calls.append(what)
        if what in self.broken:
            raise errors.OpExecError(f"node {what[0]}: no luck")

    def steps(self, record):
        nodes = [FakeNode(self, target) for target in record.nodes]
        return steps.Steps(
            self.paths, SystemClock(), record, nodes, self.printed.append
        )

    def go(self, *, back=False):
        """Run take-over, as often as it takes."""
        while True:
            record = journal.load(steps.journal_path(self.paths)) or self.first
            if back:
                record = record.turned()
            try:
                return self.steps(record).run()
            except CutError:
                assert record is not None


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    paths = Paths(root=str(tmp_path / MASTER), hostname=MASTER)
    os.makedirs(paths.data("queue"))
    os.makedirs(paths.run_dir)
    pathlib.Path(paths.server_pem).write_text(CERTIFICATE)
    pathlib.Path(paths.data("config.data")).write_text(ganeti2.DEBIAN.read_text())
    values = {
        "cluster_name": "cluster.vc.test",
        "master_node": MASTER,
        "online_nodes": f"{OTHER}\n{MASTER}",
        "node_primary_ips": f"{MASTER} 192.0.2.1\n{OTHER} 192.0.2.2",
        "ssh_ports": f"{MASTER}=22\n{OTHER}=2222",
        "master_candidates": f"{OTHER}\n{MASTER}",
    }
    ssconf.write(paths, values)
    made = Cluster(paths)
    made.first = main._new_journal(paths, "/old/daemon-util").replace(
        guests={"web1.vc.test": (OTHER, 77)}
    )
    monkeypatch.setattr(steps.jobs, "verify_cluster", lambda *_: True)
    return made


def test_the_record_has_the_nodes_of_the_cluster_the_master_first(cluster) -> None:
    assert [(t.name, t.address, t.port) for t in cluster.first.nodes] == [
        (MASTER, "192.0.2.1", 22),
        (OTHER, "192.0.2.2", 2222),
    ]
    assert cluster.first.version == 3000000


def changed(cluster):
    """Change the store, as our daemons do."""
    engine = store.open_master(
        cluster.paths.store_db, replicate=None, clock=SystemClock(), seen_term=9
    )
    engine.commit([store.Document("meta", "serial", b"40")])
    engine.close()


@pytest.mark.parametrize("cut_at", range(17))
def test_a_cut_at_any_call_changes_nothing_in_the_end(cluster, cut_at) -> None:
    cluster.cut_at = cut_at
    cluster.go()
    record = journal.load(steps.journal_path(cluster.paths))
    assert record.over == journal.OVER
    order = [step for _node, step in cluster.calls]
    # The store is never written again after daemons may have changed it.
    assert "put store.db" not in order[order.index("start") :]
    assert "stop" not in order[order.index("start") :]
    first = list(dict.fromkeys(order))
    assert [step for step in first if step in journal.OVER] == [
        "stop",
        "keep",
        "convert",
        "start",
    ]
    starts = [node for node, step in cluster.calls if step == "start"]
    assert starts[-1] == MASTER
    follower = store.Follower(cluster.paths.store_db)
    assert len(follower.snapshot().instances) == 3
    follower.close()


@pytest.mark.parametrize("cut_at", range(14))
def test_the_way_back_keeps_changes_wherever_it_is_cut(cluster, cut_at) -> None:
    cluster.go()
    changed(cluster)
    cluster.calls.clear()
    cluster.cut_at = cut_at
    cluster.go(back=True)
    assert journal.load(steps.journal_path(cluster.paths)) is None
    data = json.loads(pathlib.Path(cluster.paths.data("config.data")).read_text())
    assert data["version"] == 3000000
    assert pathlib.Path(cluster.paths.data("queue/serial")).read_text() == "40\n"
    order = list(dict.fromkeys(step for _node, step in cluster.calls))
    assert order == ["halt", "put config.data", "restore", "start-old", "forget"]


def test_a_way_back_before_the_start_leaves_the_old_file(cluster) -> None:
    before = pathlib.Path(cluster.paths.data("config.data")).read_bytes()
    cluster.cut_at = 4
    record = cluster.first
    with pytest.raises(CutError):
        cluster.steps(record).run()
    cluster.go(back=True)
    assert pathlib.Path(cluster.paths.data("config.data")).read_bytes() == before
    assert not any(step.startswith("put config") for _node, step in cluster.calls)


def failure(cluster, *, back=False):
    """Run until a step fails; return the text, the record, and the calls since then."""
    cluster.calls.clear()
    with pytest.raises(errors.OpExecError) as caught:
        cluster.go(back=back)
    first = min(cluster.calls.index(call) for call in cluster.broken)
    return (
        str(caught.value),
        journal.load(steps.journal_path(cluster.paths)),
        cluster.calls[first + 1 :],
    )


BACK_CALLS = [
    *((name, "halt") for name in (MASTER, OTHER)),
    *((name, step) for step in ("restore", "start-old") for name in (OTHER, MASTER)),
]


@pytest.mark.parametrize(
    "call",
    [(OTHER, "stop"), (OTHER, "keep"), (OTHER, "put store.db"), (OTHER, "convert")],
)
def test_a_step_that_fails_before_the_start_leaves_the_other_master(cluster, call):
    cluster.broken = {call}
    text, left, calls = failure(cluster)
    assert text.endswith(f"node {OTHER}: no luck; the other Ganeti runs again")
    assert left is None
    assert calls == [*BACK_CALLS, (OTHER, "forget"), (MASTER, "forget")]


def test_a_node_that_does_not_start_keeps_no_master_from_it(cluster):
    cluster.broken, cluster.running = {(OTHER, "start")}, ("ganeti-masterd",)
    text, left, calls = failure(cluster)
    assert "; the master daemon runs; run the same command again" in text
    assert (left.is_back, left.todo[0]) == (False, "start")
    assert calls == [(MASTER, "start"), (MASTER, "look")]


def test_a_start_without_a_master_goes_back(cluster):
    cluster.broken = {(MASTER, "start")}
    text, left, calls = failure(cluster)
    assert text.endswith("; the other Ganeti runs again")
    assert left is None
    assert [call for call in calls if call in BACK_CALLS] == BACK_CALLS
    assert (MASTER, "put config.data") in calls


def test_a_way_back_by_itself_that_fails_starts_what_it_can(cluster):
    cluster.broken = {(OTHER, "convert"), (OTHER, "restore")}
    text, left, calls = failure(cluster)
    assert "going back failed: restore: " in text
    assert text.endswith("; run take-over --undo to finish it")
    assert (left.is_back, left.todo[0]) == (True, "restore")
    assert calls == BACK_CALLS


@pytest.mark.parametrize("call", [(OTHER, "halt"), (OTHER, "put config.data")])
def test_a_way_back_that_fails_early_leaves_our_master(cluster, call):
    cluster.go()
    cluster.broken = {call}
    text, left, calls = failure(cluster, back=True)
    assert "the daemons of this implementation run again" in text
    assert (left.is_back, left.back) == (True, ())
    assert calls[-2:] == [(OTHER, "start"), (MASTER, "start")]
    cluster.broken = set()
    cluster.go(back=True)
    assert journal.load(steps.journal_path(cluster.paths)) is None


@pytest.mark.parametrize("step", ["restore", "start-old"])
def test_a_way_back_that_fails_late_starts_the_other_master(cluster, step):
    cluster.go()
    cluster.broken = {(OTHER, step)}
    text, left, calls = failure(cluster, back=True)
    assert text.endswith("run the same command again to repeat this step")
    assert left.todo[0] == step
    assert calls[-1] == (MASTER, "start-old")


def test_a_guest_that_is_gone_is_an_error(cluster) -> None:
    cluster.guests = {OTHER: {"web1.vc.test": 78}}
    with pytest.raises(errors.OpExecError) as caught:
        cluster.go()
    assert "verify: guests web1.vc.test do not run any more" in str(caught.value)
    assert "or take-over --undo to go back" in str(caught.value)


def test_changes_that_the_other_ganeti_cannot_read_are_listed(cluster) -> None:
    record = cluster.first
    assert steps.incompatible_changes(cluster.paths, record) == []
    cluster.go()
    record = journal.load(steps.journal_path(cluster.paths))
    assert steps.incompatible_changes(cluster.paths, record) == []
    strange = record.replace(master=OTHER, nodes=record.nodes[:1])
    pathlib.Path(cluster.paths.server_pem).write_text("-----BEGIN CERTIFICATE-----\n")
    lines = steps.incompatible_changes(cluster.paths, strange)
    assert [line.split()[0:2] for line in lines] == [
        ["node", OTHER],
        ["the", "master"],
        [cluster.paths.server_pem, "has"],
    ]
    # Our daemons are stopped: it is too late to refuse.
    assert (
        steps.incompatible_changes(cluster.paths, strange.replace(back=("halt",))) == []
    )


def test_a_node_refuses_an_unknown_step_and_a_relative_program(cluster) -> None:
    for message in (
        {"step": "rm", "daemon_util": "/x"},
        {"step": "look", "daemon_util": "x"},
        {"step": "look"},
    ):
        with pytest.raises(errors.OpPrereqError, match="wanted a step"):
            node_module.run_step(cluster.paths, None, message)


def test_a_node_names_what_is_missing(cluster, tmp_path) -> None:
    message = {"step": "look", "daemon_util": str(tmp_path / "none")}
    report = node_module.run_step(cluster.paths, None, message)
    assert "the other Ganeti must stay installed" in report.problems[0]
    own = cluster.paths.daemon_util
    report = node_module.run_step(cluster.paths, None, message | {"daemon_util": own})
    assert "belongs to this implementation" in report.problems[0]
