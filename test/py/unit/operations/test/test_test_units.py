"""The logical units that test the machinery."""

import socket
import threading

import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.engine import Engine
from fakes.jobs import FakeCallbacks
from fakes.rpc import failure
from ganeti.base import errors
from ganeti.master.jqueue.effects import Canceled
from ganeti.master.locking import Level


def delay(duration=2.0, **options):
    return {"OP_ID": "OP_TEST_DELAY", "duration": duration, **options}


def test_a_delay_sleeps_once_and_extra_times_when_wanted():
    engine = Engine()
    start = engine.clock.now
    assert engine.run(delay()) is None
    assert engine.clock.now == start + 2
    engine.run(delay(repeat=2))
    assert engine.clock.now == start + 8
    assert " - INFO: Test delay iteration 3/3" in engine.callbacks.text()


def test_a_delay_on_nodes_locks_them_when_wanted():
    engine = Engine(script={"test_delay": None})
    engine.run(delay(on_nodes=["node2"], on_master=False, no_locks=False))
    assert engine.rpc.called("test_delay") == [(clusters.node_uuid(2), (2.0,))]
    assert engine.locks.modes() == {
        Level.NODE: (frozenset([clusters.node_uuid(2)]), False)
    }
    engine.run(delay(on_nodes=["node2"]))
    assert engine.locks.modes() == {}


def test_a_delay_fails_when_a_node_does():
    engine = Engine(script={"test_delay": failure("asleep")})
    with pytest.raises(errors.OpExecError, match="asleep"):
        engine.run(delay(on_nodes=["node1"]))


def test_a_delay_on_the_master_ends_when_its_job_is_killed():
    engine = Engine()
    began = engine.clock.now

    class Killer(FakeClock):
        """A client asks to kill the job during the first wait."""

        def wait(self, event, timeout_s):
            engine.callbacks.is_canceled = True
            engine.callbacks.kill()
            return super().wait(event, timeout_s)

    engine.clock = Killer()
    with pytest.raises(Canceled):
        engine.run(delay(600.0))
    assert engine.clock.now == began


@pytest.mark.parametrize(
    "options",
    [
        {"duration": -1.0},
        {"duration": 0.0},
        {"interruptible": True, "on_nodes": ["node1"]},
    ],
)
def test_impossible_delays_are_refused(options):
    with pytest.raises(errors.OpPrereqError):
        Engine().run(delay(**options))


class Client(FakeCallbacks):
    """Connects to every socket that is announced."""

    def log(self, kind, payload):
        super().log(kind, payload)
        if kind in ("delay-test", "jqueue-test"):
            threading.Thread(target=self.answer, args=(payload[0],)).start()

    @staticmethod
    def answer(path):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)


def test_an_interruptible_delay_ends_when_a_client_connects():
    assert Engine().run(delay(60.0, interruptible=True), callbacks=Client()) is None


def test_the_queue_test_stops_at_each_point_until_the_client_answers():
    op = {
        "OP_ID": "OP_TEST_JQUEUE",
        "notify_waitlock": True,
        "notify_exec": True,
        "log_messages": ["one", "two"],
    }
    client = Client()
    assert Engine().run(op, callbacks=client) is True
    points = [
        payload[1:] if kind == "jqueue-test" else payload
        for kind, payload in client.entries
    ]
    assert points == [
        ["expandnames", None],
        ["exec", None],
        ["startmsg", 2],
        "TESTMSG=one",
        ["logmsg", 1],
        "TESTMSG=two",
        ["logmsg", 2],
    ]


def test_the_queue_test_fails_on_request():
    with pytest.raises(errors.OpExecError, match="requested"):
        Engine().run({"OP_ID": "OP_TEST_JQUEUE", "fail": True})


def test_masked_secrets_are_noticed_and_clear_ones_not_logged():
    engine = Engine()
    engine.run({"OP_ID": "OP_TEST_OS_PARAMS", "osparams_secret": {"a": "pass1"}})
    assert "pass1" not in engine.callbacks.text()
    with pytest.raises(errors.OpExecError, match="a: masked"):
        engine.run(
            {"OP_ID": "OP_TEST_OS_PARAMS", "osparams_secret": {"a": "<redacted>"}}
        )


def test_cluster_query_gives_the_documented_keys():
    import json

    info = Engine().run({"OP_ID": "OP_CLUSTER_QUERY"})
    spec = json.loads(
        (clusters.pathlib.Path(__file__).parents[4] / "data/spec/luxi.json").read_text()
    )
    documented = {row["key"] for row in spec["cluster_info"]}
    assert set(info) == documented | set(clusters.ADDED_KEYS)
    assert info["master"] == "node1.example.com"
    assert json.dumps(info)
