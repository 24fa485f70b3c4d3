"""A master that knows that it is deposed calls no nodes."""

import threading

import pytest

from fakes import clusters
from fakes.master import Master
from fakes.patience import until
from fakes.rpc import FakeRunner, failure
from ganeti.base import errors
from ganeti.daemons.masterd.duties.deposed import WatchedRunner
from ganeti.store import memory


def test_nodes_are_called_until_the_master_is_deposed():
    snapshot = clusters.snapshot(nodes=1)
    (uuid,) = snapshot.nodes
    inner = FakeRunner(lambda: snapshot, {"version": 1})
    db = memory.open_memory()
    runner = WatchedRunner(inner, list, db.require_leading)
    assert runner.call_one("version", uuid).payload == 1
    db.depose(errors.TermError("the lease is over"))
    with pytest.raises(errors.TermError, match="the lease is over"):
        runner.call_one("version", uuid)
    assert len(inner.calls) == 1
    db.close()


def test_a_node_that_refuses_the_term_is_reported_whoever_asked_it():
    snapshot = clusters.snapshot(nodes=3)
    second = clusters.node_uuid(2)
    refused = failure("term 1 is over", deposed=True)
    inner = FakeRunner(
        lambda: snapshot,
        {"version": lambda node, _args: refused if node == second else 1},
    )
    reports = []
    runner = WatchedRunner(inner, reports.append)
    assert runner.call("version", list(snapshot.nodes), timeout_s=7.0)[second].deposed
    assert reports == [[second]]
    assert inner.limits["version"] == {7.0}
    runner.call_one("version", clusters.node_uuid(1))
    inner.script["version"] = failure("busy")
    runner.call_one("version", second)
    assert reports == [[second]]


def test_only_acts_wait_for_the_candidates_after_a_refusal():
    snapshot = clusters.snapshot(nodes=1)
    (uuid,) = snapshot.nodes
    inner = FakeRunner(lambda: snapshot, {"version": 1, "test_delay": None})
    asked = []

    def require_confirmed(procedure, _give_up):
        assert procedure == "test_delay"
        asked.append(len(inner.calls))
        if len(asked) > 1:
            raise errors.TermError("term 1 is over")

    runner = WatchedRunner(inner, list, require_confirmed=require_confirmed)
    runner.call_one("version", uuid)
    assert asked == []
    runner.call_one("test_delay", uuid, 1.0)
    assert asked == [1]
    with pytest.raises(errors.TermError, match="term 1 is over"):
        runner.call_one("test_delay", uuid, 1.0)
    assert len(inner.calls) == 2


def test_a_kill_ends_the_wait_of_its_job_alone(tmp_path, monkeypatch):
    master = Master(tmp_path / "node1.example.com").start()
    try:
        given_up = {}

        def settle(_leader, give_up):
            given_up[threading.current_thread().name] = give_up
            assert give_up.wait(60)
            raise errors.StorageError("nothing was called")

        monkeypatch.setattr(master.store._doubts, "settle", settle, raising=False)

        def jobs():
            return [each for name, each in given_up.items() if name.startswith("Jq")]

        delay = {"OP_ID": "OP_TEST_DELAY", "duration": 1.0, "on_nodes": ["node2"]}
        with master.client() as client:
            killed, other = (client.call("SubmitJob", [[delay]]) for _ in range(2))
            until("both wait", lambda: len(jobs()) == 2)
            assert client.call("CancelJob", [killed, True])[0] is True
            status = client.call(
                "WaitForJobChange", [killed, ["status"], ["running"], None, 60]
            )
            assert status[0] == ["error"]
            assert [each.is_set() for each in jobs()].count(True) == 1
            client.call("CancelJob", [other, True])
    finally:
        master.stop()


def test_calls_to_joining_nodes_wait_as_well(tmp_path):
    master = Master(tmp_path / "node1.example.com").start()
    try:
        deps = master.service.deps
        master.store.depose(errors.TermError("the lease is over"))
        with pytest.raises(errors.TermError, match="the lease is over"):
            deps.rpc_at([]).call_one("test_delay", clusters.node_uuid(2), 1.0)
    finally:
        master.stop()


def test_a_deposed_master_daemon_calls_no_node(tmp_path):
    master = Master(tmp_path / "node1.example.com").start()
    try:
        deps = master.service.deps
        master.script["version"] = master.rpc.script["version"] = 1
        assert deps.rpc.call_one("version", clusters.node_uuid(2)).payload == 1
        master.store.depose(errors.TermError("the lease is over"))
        for runner in (deps.rpc, deps.query_sources().rpc):
            with pytest.raises(errors.TermError, match="the lease is over"):
                runner.call_one("version", clusters.node_uuid(2))
    finally:
        master.stop()
