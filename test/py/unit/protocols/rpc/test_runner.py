"""Runners: who is called, what failures say."""

import json

import pytest

from fakes import cluster
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.protocols import rpc
from ganeti.protocols.http import client
from ganeti.protocols.rpc import calls, runner, wire


class Recorder:
    """A substitute for the HTTP client with prepared answers."""

    def __init__(self, answer):
        self.answer = answer
        self.requests = []

    def perform(self, requests, _on_start=None, on_answer=lambda _response: None):
        self.requests += requests
        answers = [self.answer(request) for request in requests]
        for answer in answers:
            on_answer(answer)
        return answers

    def start_all(self, requests):
        for request, done in requests:
            self.requests.append(request)
            done(self.answer(request))

    def close(self):
        """Nothing to close."""


def ok(request):
    return client.Response(200, b"[true, 7]")


@pytest.fixture
def make(tmp_path, monkeypatch):
    def build(answer=ok, snapshot=None, term=3):
        recorder = Recorder(answer)
        monkeypatch.setattr(client, "Client", lambda: recorder)
        paths = Paths(root=str(tmp_path / "n"), hostname="n")
        actual = cluster.example() if snapshot is None else snapshot
        made = rpc.NetworkRunner(lambda: actual, paths, term, port=1811)
        return made, recorder, actual

    return build


def test_each_node_gets_its_own_answer(make):
    made, recorder, snapshot = make()
    results = made.call("version", list(snapshot.nodes))
    assert {result.payload for result in results.values()} == {7}
    assert {request.address for request in recorder.requests} == {
        node.primary_ip for node in snapshot.nodes.values()
    }
    assert all(
        request.headers == ("X-Ganeti-Term: 3",) for request in recorder.requests
    )
    assert all(request.timeout_s == 60 for request in recorder.requests)


def test_offline_nodes_are_called_only_by_calls_that_accept_them(make):
    snapshot = cluster.example()
    uuid, node = next(iter(snapshot.nodes.items()))
    offline = snapshot.apply(
        [cluster.Update("nodes", uuid, node.replace(offline=True))]
    )
    made, recorder, _ = make(snapshot=offline)
    result = made.call_node(uuid, calls.master_node_name())
    assert (result.fail_msg, result.offline) == ("Node is marked offline", True)
    assert recorder.requests == []
    assert made.call_node(uuid, calls.node_powercycle("kvm", {})).payload == 7


def test_unknown_nodes_and_procedures(make):
    made, _, _ = make()
    assert "not a node" in made.call_node("nobody", calls.version()).fail_msg
    with pytest.raises(errors.ProgrammerError, match="no_such_call"):
        made.call("no_such_call", [])


def test_arguments_by_node(make):
    made, recorder, snapshot = make()
    made.call("blockdev_remove", list(snapshot.nodes), lambda uuid: [uuid])
    bodies = [json.loads(request.body) for request in recorder.requests]
    assert bodies == [[uuid] for uuid in snapshot.nodes]
    recorder.requests.clear()
    value = wire.PerNode({uuid: uuid[::-1] for uuid in snapshot.nodes})
    made.call("blockdev_remove", list(snapshot.nodes), [{"end": value}])
    bodies = [json.loads(request.body) for request in recorder.requests]
    assert bodies == [[{"end": uuid[::-1]}] for uuid in snapshot.nodes]


@pytest.mark.parametrize("limit", [0.5, 15.0, 700.0])
def test_a_caller_may_set_the_time_limit(make, limit):
    made, recorder, snapshot = make()
    node = next(iter(snapshot.nodes))
    made.call("version", list(snapshot.nodes), timeout_s=limit)
    made.call_node(node, calls.version(), timeout_s=limit)
    assert {request.timeout_s for request in recorder.requests} == {limit}


def test_a_delay_gets_the_time_it_needs(make):
    made, recorder, snapshot = make()
    made.call("test_delay", list(snapshot.nodes)[:1], [40.0])
    assert recorder.requests[0].timeout_s == 45


@pytest.mark.parametrize(
    ("response", "text", "is_lost", "deposed"),
    [
        (client.Response(0, b"", "Error 7: x"), "Error 7: x", False, False),
        (client.Response(0, b"", "Error 28: x", True), "Error 28: x", True, False),
        (client.Response(200, b'[false, "no disk"]'), "no disk", False, False),
        (client.Response(200, b"[1, 2, 3]"), "RPC layer error", True, False),
        (client.Response(200, b"garbage"), "RPC layer error", True, False),
        (client.Response(404, b'{"message": "gone"}'), "404: gone", False, False),
        (client.Response(500, b"<html>"), "500: <html>", False, False),
        (
            client.Response(409, b'{"message": "term 3 is over: x"}'),
            "term 3 is over",
            False,
            True,
        ),
    ],
)
def test_failures(response, text, is_lost, deposed):
    result = runner.read_answer("version", "n1", response)
    assert result.failed
    assert text in result.fail_msg
    assert (result.is_lost, result.deposed) == (is_lost, deposed)


def test_errors_can_name_the_daemon_that_is_missing(make):
    made, recorder, snapshot = make()
    made.call("version", list(snapshot.nodes)[:1])
    assert recorder.requests[0].server == "ganeti-noded"


def test_static_runners_know_uuids_and_names(make, tmp_path, monkeypatch):
    recorder = Recorder(ok)
    monkeypatch.setattr(client, "Client", lambda: recorder)
    paths = Paths(root=str(tmp_path / "n"), hostname="n")
    target = rpc.Target("u1", "n1", "127.0.0.9", 99)
    made = rpc.StaticRunner([target], paths)
    assert made.call_node("u1", calls.version()).payload == 7
    assert made.call_node("n1", calls.version()).payload == 7
    assert recorder.requests[0].headers == ()
    assert recorder.requests[0].port == 99


def test_the_own_certificate_is_used_when_there_is_one(make):
    made, recorder, snapshot = make()
    uuid = next(iter(snapshot.nodes))
    made.call_node(uuid, calls.version())
    assert recorder.requests[0].credentials.certificate.endswith("server.pem")


def test_other_targets_share_connections_and_term(make):
    made, recorder, _ = make()
    other = made.at([rpc.Target("u9", "n9", "127.0.0.9", 99)])
    assert other.call_node("n9", calls.version()).payload == 7
    other.close()
    assert recorder.requests[0].headers == ("X-Ganeti-Term: 3",)


def test_a_refused_term_is_reported_at_once(make):
    made, _recorder, snapshot = make(
        lambda _request: client.Response(wire.STATUS_DEPOSED, b"{}")
    )
    reports = []
    made.on_refusal = lambda: reports.append(1)
    nodes = list(snapshot.nodes)
    made.call("version", nodes)
    assert len(reports) == len(nodes)
    made.at([rpc.Target("x", "x", "192.0.2.1", 1)]).call("version", ["x"])
    assert len(reports) == len(nodes) + 1
    # Who asks a copy asks the others as well.
    made.call("store_status", nodes)
    assert len(reports) == len(nodes) + 1


def test_a_call_that_is_begun_reports_each_node(make):
    snapshot = cluster.example()
    uuid, node = next(iter(snapshot.nodes.items()))
    offline = snapshot.apply(
        [cluster.Update("nodes", uuid, node.replace(offline=True))]
    )
    applied = b'[true, {"applied": true}]'
    made, recorder, _ = make(
        lambda _request: client.Response(200, applied), snapshot=offline
    )
    results = {}
    nodes = [*snapshot.nodes, "nobody"]
    made.begin("store_apply", nodes, (3, 1, "data"), results.__setitem__)
    assert results.keys() == set(nodes)
    assert "not a node" in results["nobody"].fail_msg
    called = [request.address for request in recorder.requests]
    good = [each for each in snapshot.nodes if results[each].payload]
    assert called == [snapshot.nodes[each].primary_ip for each in good]
    # All get the same bytes, which are encoded once.
    assert len({id(request.body) for request in recorder.requests}) == 1
    assert json.loads(recorder.requests[0].body) == [3, 1, "data"]


def test_only_calls_about_copies_can_be_begun(make):
    made, recorder, snapshot = make()
    with pytest.raises(errors.ProgrammerError, match="version must be waited for"):
        made.begin("version", list(snapshot.nodes), (), print)
    assert recorder.requests == []
