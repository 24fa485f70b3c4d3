"""Runners at their edges: busy nodes, calls that are ended, certificates, votes."""

import json
import os
import threading

import pytest

from fakes import cluster
from fakes.rpc import FakeRunner, failure
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.protocols import rpc
from ganeti.protocols.http import client
from ganeti.protocols.rpc import base, calls, procedure, runner, voting, wire

BUSY = client.Response(503, b'{"message": "too many calls"}')
GOOD = client.Response(200, b"[true, 7]")


class Time:
    """The clock of the runner; each pause that ends lets a second pass."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


class Client:
    """An HTTP client whose answers a test prepares by round."""

    def __init__(self, time, *rounds):
        self.time, self.rounds = time, list(rounds)
        self.sent, self.started, self.aborted = [], [], []
        self.on_perform = lambda: None
        self.is_closed = False

    def perform(self, requests, on_start=lambda _transfers: None, on_answer=None):
        self.sent.append(list(requests))
        on_start([("transfer", request.address) for request in requests])
        self.on_perform()
        self.time.now += 1
        answers = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        return list(answers[: len(requests)])

    def start(self, request, done):
        self.started.append((request, done))

    def abort(self, transfer):
        self.aborted.append(transfer)

    def close(self):
        self.is_closed = True


class Pause(threading.Event):
    """An event that is waited for without spending time."""

    asked = []

    def wait(self, timeout=None):
        self.asked.append(timeout)
        return self.is_set()


@pytest.fixture
def make(tmp_path, monkeypatch):
    time = Time()
    monkeypatch.setattr(runner, "time", time)
    monkeypatch.setattr(Pause, "asked", [])
    real = runner._Ongoing.__init__

    def ongoing(self, *args):
        real(self, *args)
        self.is_aborted = Pause()

    monkeypatch.setattr(runner._Ongoing, "__init__", ongoing)

    def build(*rounds, term="7:n1", **options):
        http = Client(time, *rounds)
        monkeypatch.setattr(client, "Client", lambda: http)
        paths = Paths(root=str(tmp_path / "n"), hostname="n")
        targets = [rpc.Target(f"u{n}", f"n{n}", f"192.0.2.{n}", 1811) for n in (1, 2)]
        return rpc.StaticRunner(targets, paths, term, **options), http

    return build


def test_only_busy_nodes_are_asked_again_with_the_time_that_is_left(make):
    made, http = make([BUSY, GOOD], [BUSY], [GOOD])
    results = made.call("instance_start", ["u1", "u2"], [{}])
    assert {node: answer.payload for node, answer in results.items()} == {
        "u1": 7,
        "u2": 7,
    }
    assert [[r.address for r in some] for some in http.sent] == [
        ["192.0.2.1", "192.0.2.2"],
        ["192.0.2.1"],
        ["192.0.2.1"],
    ]
    # Of 900 s: one second per round, and the pause before the next one.
    assert [some[0].timeout_s for some in http.sent] == [900, 898, 897]
    assert Pause.asked == [1.0, 1.0]


def test_a_node_that_stays_busy_has_failed_when_the_time_is_over(make):
    made, http = make([BUSY])
    answer = made.call_node("u1", calls.instance_start({}), timeout_s=4)
    assert answer.fail_msg == "too many calls"
    assert (answer.is_lost, answer.deposed, answer.is_silent) == (False, False, False)
    assert [some[0].timeout_s for some in http.sent] == [4, 2, 1]


def test_a_reading_call_gives_a_busy_node_up_after_a_minute(make):
    made, http = make([BUSY])
    assert made.call_node("u1", calls.node_volumes()).failed
    assert len(http.sent) == 59
    assert http.sent[1][0].timeout_s == 58


@pytest.mark.parametrize("name", ["version", "store_apply", "node_powercycle"])
def test_calls_of_other_lanes_are_not_repeated(make, name):
    made, http = make([BUSY])
    assert made.call(name, ["u1"])["u1"].fail_msg == "too many calls"
    assert len(http.sent) == 1


def test_a_call_that_runs_programs_can_be_ended(make, monkeypatch):
    timers = []

    class Timer:
        def __init__(self, seconds, function, args):
            timers.append((seconds, function, args, self))
            self.daemon = False

        def start(self):
            assert self.daemon

    monkeypatch.setattr(runner.threading, "Timer", Timer)
    made, http = make([BUSY, GOOD])
    http.on_perform = lambda: made.abort(threading.current_thread())
    results = made.call("blockdev_wipe", ["u1", "u2"], [{}, 0, 1])
    # An ended call is not repeated, although a node was busy.
    assert results["u1"].fail_msg == "too many calls"
    assert len(http.sent) == 1
    (term, call) = http.sent[0][0].headers
    assert term == "X-Ganeti-Term: 7:n1"
    name, _, call_id = call.partition(": ")
    assert name == "X-Ganeti-Call"
    assert len(bytes.fromhex(call_id)) == 8
    assert [request.address for request, _done in http.started] == [
        "192.0.2.1",
        "192.0.2.2",
    ]
    for request, _done in http.started:
        assert request.path == "/call_abort"
        assert request.headers == (term,)
        assert json.loads(request.body) == [call_id]
        assert request.timeout_s == 10
    ((seconds, give_up, args, _timer),) = timers
    assert seconds == 10
    assert http.aborted == []
    give_up(*args)
    assert http.aborted == [("transfer", "192.0.2.1"), ("transfer", "192.0.2.2")]


def test_a_call_without_programs_is_given_up_without_a_word_to_the_nodes(make):
    made, http = make([GOOD])
    http.on_perform = lambda: made.abort(threading.current_thread())
    assert made.call_node("u1", calls.instance_start({})).payload == 7
    assert http.started == []
    assert http.sent[0][0].headers == ("X-Ganeti-Term: 7:n1",)
    # Nothing is left of the call.
    made.abort(threading.current_thread())
    assert http.started == []


def test_who_waits_hears_of_a_frozen_node_and_of_the_end(make):
    made, http = make([GOOD])
    heard = []
    made.on_silence = lambda thread, is_silent: heard.append((thread, is_silent))
    http.on_perform = lambda: http.sent[0][0].on_silence(True)
    made.call_node("u1", calls.version())
    me = threading.current_thread()
    assert heard == [(me, True), (me, False)]
    other = made.at([rpc.Target("u9", "n9", "192.0.2.9", 1811)])
    assert other.on_silence is made.on_silence
    assert other.on_refusal is made.on_refusal


def test_listings_wait_less_for_a_silent_node_and_share_the_connections(make):
    made, http = make([GOOD])
    brief = made.for_listings()
    brief.call_node("u1", calls.version())
    made.call_node("u1", calls.version())
    assert [some[0].silent_connect_s for some in http.sent] == [0.3, 2.0]
    brief.close()
    assert not http.is_closed


@pytest.mark.parametrize(
    ("procedure", "is_first"),
    [("node_powercycle", True), ("store_apply", True), ("version", False)],
)
def test_commits_and_power_cycles_wait_for_no_handshakes(make, procedure, is_first):
    made, http = make([GOOD])
    made.call(procedure, ["u1"], [None] * len(calls.PROCEDURES[procedure].args))
    assert http.sent[0][0].goes_first is is_first


def test_only_the_owner_of_connections_closes_them(make):
    made, http = make([GOOD])
    made.at([]).close()
    assert not http.is_closed
    made.close()
    assert http.is_closed


def test_without_certificates_there_are_no_credentials(make):
    made, http = make([GOOD], use_tls=False)
    made.at([rpc.Target("u1", "n1", "192.0.2.1", 1)]).call_node("u1", calls.version())
    made.call_node("u1", calls.version())
    assert [some[0].credentials for some in http.sent] == [None, None]


def test_the_certificate_of_the_node_comes_before_that_of_the_cluster(make, tmp_path):
    made, http = make([GOOD])
    paths = Paths(root=str(tmp_path / "n"), hostname="n")
    made.call_node("u1", calls.version())
    os.makedirs(os.path.dirname(paths.client_pem))
    with open(paths.client_pem, "w") as stream:
        stream.write("x")
    made.call_node("u1", calls.version())
    first, second = (some[0].credentials for some in http.sent)
    assert first == client.Credentials(paths.server_pem, paths.server_pem, None)
    assert second == client.Credentials(paths.client_pem, paths.server_pem, None)


def test_an_authority_is_read_again_when_its_file_changes(tmp_path, monkeypatch):
    path = tmp_path / "server.pem"
    read, is_used = [], [True]

    def ask(name):
        read.append(name)
        return is_used[0]

    monkeypatch.setattr(runner.authority, "is_used", ask)
    kept = runner._Authority()
    assert kept.pem(str(path)) is None
    path.write_text("one")
    assert [kept.pem(str(path)), kept.pem(str(path))] == [b"one", b"one"]
    assert read == [str(path)]
    path.write_text("second")
    assert kept.pem(str(path)) == b"second"
    is_used[0] = False
    path.write_text("of all nodes")
    assert kept.pem(str(path)) is None


@pytest.mark.parametrize(
    ("target", "identity"),
    [
        (rpc.Target("u", "n1", "a", 1), "n1"),
        (rpc.Target(cluster.example().cluster.uuid, "n1", "a", 1), None),
        (rpc.Target("u", "n1", "a", 1, certified="other"), "other"),
    ],
)
def test_certificates_name_the_uuid_if_it_is_known(target, identity):
    assert target.identity == (identity or target.uuid)
    assert not target.offline


def test_names_become_targets_on_the_port_of_the_services_file(tmp_path, monkeypatch):
    asked = []

    def port(name, default):
        asked.append((name, default))
        return 1999

    monkeypatch.setattr(runner.netutils, "service_port", port)
    paths = Paths(root=str(tmp_path / "n"), hostname="n")
    assert rpc.by_name(["192.0.2.7"], paths) == [
        rpc.Target("192.0.2.7", "192.0.2.7", "192.0.2.7", 1999)
    ]
    assert rpc.by_name(["192.0.2.7"], paths, 5)[0].port == 5
    assert asked == [("ganeti-noded", 1811)]


def test_results_raise_what_the_phase_of_an_operation_needs():
    good = rpc.Result("version", "n1", payload=7)
    assert not good.failed
    assert (good.unwrap("x"), good.require("x", "state")) == (7, 7)
    bad = rpc.Result("version", "n1", fail_msg="")
    assert bad.failed
    with pytest.raises(errors.OpExecError) as caught:
        bad.unwrap("cannot ask")
    assert caught.value.args == ("cannot ask: node n1: ",)
    with pytest.raises(errors.OpPrereqError) as caught:
        failure("no disk", node="n2").require("cannot ask", "environment_error")
    assert caught.value.args == ("cannot ask: node n2: no disk", "environment_error")
    assert procedure.OFFLINE_TEXT == "Node is marked offline"


def test_reasons_of_failures():
    def text(status, body):
        response = client.Response(status, body)
        return runner.read_answer("version", "n1", response).fail_msg

    assert text(200, b'[false, ""]') == "the call failed without a reason"
    assert text(200, b"[false, " + b"9" * 5 + b"]") == "99999"
    assert text(200, json.dumps([False, "x" * 5000]).encode()) == "x" * 4000
    assert text(500, b"y" * 300) == f"HTTP error 500: {'y' * 200}"
    assert text(500, b"[]") == "HTTP error 500: []"
    assert text(500, b'{"other": 1}') == 'HTTP error 500: {"other": 1}'
    long = json.dumps({"message": "z" * 5000}).encode()
    assert text(404, long) == f"HTTP error 404: {'z' * 4000}"


@pytest.mark.parametrize("status", [400, 403, 404, 409, 500, 503])
def test_an_http_error_is_no_answer_of_the_procedure(status):
    response = client.Response(status, b'{"message": "no"}')
    result = runner.read_answer("version", "n1", response)
    assert result.failed
    assert not result.is_answered
    assert (result.deposed, result.is_rejected) == (status == 409, status != 409)
    assert not result.is_silent
    refusal = runner.read_answer("version", "n1", client.Response(200, b'[false, ""]'))
    assert refusal.is_answered


def test_a_failure_of_the_connection_keeps_what_is_known_about_it():
    broken = client.Response(0, b"", "broken")
    plain = runner.read_answer("version", "n1", broken)
    assert (plain.is_silent, plain.is_lost, plain.refused) == (True, False, False)
    for name, here in (("is_lost", "is_lost"), ("is_refused", "refused")):
        answer = broken._replace(**{name: True})
        assert getattr(runner.read_answer("version", "n1", answer), here)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("a", 5), "a, 5"),
        (ValueError(), "ValueError"),
        (errors.OpPrereqError("no", "state"), "no, state"),
    ],
)
def test_errors_of_procedures_have_a_text(error, text):
    assert wire.error_text(error) == text


@pytest.mark.parametrize(
    ("own", "missing", "total", "verdict"),
    [
        (2, 1, 3, "won"),
        (2, 0, 4, "undecided-or-lost"),
        (2, 1, 4, "undecided"),
        (1, 1, 3, "undecided"),
        (1, 0, 3, "lost"),
        (0, 2, 4, "lost"),
        (0, 3, 4, "undecided"),
        (1, 0, 1, "won"),
    ],
)
def test_more_than_half_of_all_nodes_decide(own, missing, total, verdict):
    actual = voting.Count(own, missing, total).verdict.value
    assert actual == verdict.replace("undecided-or-lost", "lost")


def test_votes_are_gathered_with_a_short_time_limit():
    snapshot = cluster.example()
    one, two, *_rest = snapshot.nodes
    nodes = FakeRunner(
        lambda: snapshot,
        {
            "master_node_name": lambda node, _args: (
                "n1" if node == one else failure("no", refused=True)
            )
        },
    )
    refusing = {one, "another"}
    votes = voting.gather(nodes, iter([one, two]), refusing)
    assert votes == {one: "n1", two: None}
    assert refusing == {two, "another"}
    assert nodes.limits == {"master_node_name": {10.0}}
    assert voting.count(votes, "n1") == voting.Count(1, 1, 2)
    assert voting.count({"a": "x", "b": "y"}, "y") == voting.Count(1, 0, 2)
    assert voting.gather(nodes, [one]) == {one: "n1"}


class Overloaded(FakeRunner):
    """A runner of a machine that gets a few answers at a time; some nodes are dead."""

    def __init__(self, rates, dead=()):
        super().__init__(cluster.example, {"master_node_name": self.answer})
        self.rates, self.dead, self.left = iter(rates), set(dead), 0

    def call(self, procedure, nodes, args=(), *, timeout_s=None):
        self.left = next(self.rates)
        return super().call(procedure, nodes, args, timeout_s=timeout_s)

    def answer(self, node, _args):
        if node in self.dead or not self.left:
            return failure("no answer", is_silent=True)
        self.left -= 1
        return "n1"


def test_votes_of_very_many_nodes_are_gathered_while_there_is_progress():
    nodes = [f"u{number}" for number in range(1250)]
    votes = voting.gather(Overloaded([288, 150, 250]), nodes)
    assert voting.count(votes, "n1") == voting.Count(688, 562, 1250)
    # Nothing came: the machines are down.
    votes = voting.gather(Overloaded([288, 0]), nodes)
    assert voting.count(votes, "n1") == voting.Count(288, 962, 1250)
    # Those that can be meant decide nothing, or are few enough to be down.
    runner = Overloaded([625], dead=nodes[:10])
    assert voting.count(voting.gather(runner, nodes[:64]), "n1").missing == 10
    assert voting.count(voting.gather(Overloaded([1]), nodes[:64]), "n1").missing == 63


def test_a_late_runner_lets_calls_wait():
    waiting = base.LateRunner()
    answers, is_called = [], threading.Event()

    class Nodes:
        def call_nodes(self, *args):
            answers.append(args)
            is_called.set()
            return {"u1": 7}

        def begin(self, *args):
            answers.append(args)

    request, apply = calls.version(), calls.store_apply(2, 1, "")
    caller = threading.Thread(target=waiting, args=(["u1"], request))
    caller.start()
    assert answers == []
    waiting.set(Nodes())
    caller.join(60)
    assert is_called.is_set()
    assert answers == [(["u1"], request)]
    assert waiting(["u1"], request) == {"u1": 7}
    waiting.begin(["u1"], apply, print)
    assert answers[-1] == ("store_apply", ["u1"], (2, 1, ""), print)
