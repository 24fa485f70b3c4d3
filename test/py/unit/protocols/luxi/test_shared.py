"""Numbered calls: many that wait, on one connection, over real sockets."""

import itertools
import json
import queue
import socket
import threading

import pytest

from fakes.clocks import PushedClock
from fakes.patience import PATIENCE_S, until
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.protocols.luxi import Client
from ganeti.protocols.luxi import server as luxi_server
from ganeti.protocols.luxi.server import Server
from ganeti.protocols.luxi.shared import SharedClient


class Master:
    """Keeps calls of `Wait`, refuses `Refuse` and `Reject`, answers others at once."""

    def __init__(self, path):
        self.path = path
        self.kept = []
        self.closed = []
        self.server = None

    def __call__(self, call):
        if call.args[:1] == ["keep"]:
            call.on_close = lambda: self.closed.append(call.args)
            self.kept.append(call)
        elif call.args[:1] == ["refuse"]:
            raise errors.JobLost("job 9 is not in the queue")
        elif call.args[:1] == ["reject"]:
            call.reject("Failed to parse request: no")
        else:
            call.succeed(call.args)

    def start(self):
        self.server = Server(
            self, [self.path], clock=SystemClock(), waiting_methods=["Wait"]
        )
        self.server.start()

    def has(self, count):
        until(f"{count} calls are here", lambda: len(self.kept) == count)


@pytest.fixture
def master(tmp_path):
    made = Master(str(tmp_path / "luxi"))
    made.start()
    yield made
    made.server.stop()


@pytest.fixture
def clock():
    return PushedClock()


@pytest.fixture
def shared(master, clock):
    def connect():
        return Client(master.path, retries=0, connect_timeout_s=0)

    made = SharedClient(connect, clock)
    yield made
    made.close()


class Outcomes:
    """Collects the outcomes of calls by name."""

    def __init__(self, shared):
        self._shared = shared
        self._queue = queue.SimpleQueue()

    def submit(self, name, *args, timeout_s=60.0):
        self._shared.submit(
            "Wait",
            list(args),
            lambda result, error: self._queue.put((name, result, error)),
            timeout_s=timeout_s,
        )

    def get(self):
        return self._queue.get(timeout=PATIENCE_S)

    def error(self):
        name, result, error = self.get()
        assert result is None
        return name, error


@pytest.fixture
def outcomes(shared):
    return Outcomes(shared)


def raw(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(PATIENCE_S)
    sock.connect(path)
    return sock


def message(method, *args, **members):
    return json.dumps({"method": method, "args": args, **members}).encode() + b"\x03"


def answers(sock):
    """Yield decoded answers; each member of the object stays."""
    received = b""
    while True:
        while b"\x03" not in received:
            chunk = sock.recv(65536)
            if not chunk:
                return
            received += chunk
        first, _, received = received.partition(b"\x03")
        yield json.loads(first)


def test_answers_arrive_in_any_order_on_one_connection(master, outcomes):
    for name in range(50):
        outcomes.submit(name, "keep", name)
    master.has(50)
    assert master.server.connection_count == 1
    for call in reversed(master.kept):
        call.succeed(["done", call.args[1]])
    assert [outcomes.get() for _ in range(50)] == [
        (name, ["done", name], None) for name in reversed(range(50))
    ]


def test_an_error_is_that_of_its_call_alone(master, outcomes):
    outcomes.submit("waits", "keep")
    outcomes.submit("lost", "refuse")
    name, error = outcomes.error()
    assert name == "lost"
    assert isinstance(error, errors.JobLost)
    outcomes.submit("wrong", "reject")
    name, error = outcomes.error()
    assert name == "wrong"
    assert isinstance(error, errors.RequestError)
    master.kept[0].succeed(1)
    assert outcomes.get() == ("waits", 1, None)


def test_calls_survive_a_restart_of_the_daemon(master, outcomes):
    outcomes.submit("waits", "keep")
    master.has(1)
    master.server.stop()
    master.start()
    master.has(2)
    master.kept[1].succeed("after")
    assert outcomes.get() == ("waits", "after", None)


def test_a_call_is_sent_at_most_twice(master, outcomes):
    outcomes.submit("waits", "keep")
    for count in (1, 2):
        master.has(count)
        master.server.stop()
        master.start()
    name, error = outcomes.error()
    assert name == "waits"
    assert isinstance(error, errors.ConnectionClosedError)
    outcomes.submit("next", 1)
    assert outcomes.get() == ("next", [1], None)


def test_without_a_daemon_calls_fail(master, outcomes):
    outcomes.submit("waits", "keep")
    master.has(1)
    master.server.stop()
    assert isinstance(outcomes.error()[1], errors.NoMasterError)
    outcomes.submit("next", 1)
    assert isinstance(outcomes.error()[1], errors.NoMasterError)
    master.start()
    outcomes.submit("last", 1)
    assert outcomes.get() == ("last", [1], None)


def test_a_daemon_that_hangs_answers_too_late(master, outcomes, clock):
    outcomes.submit("short", "keep", timeout_s=30.0)
    outcomes.submit("long", "keep", timeout_s=60.0)
    master.has(2)
    clock.ahead = 40.0
    name, error = outcomes.error()
    assert name == "short"
    assert isinstance(error, errors.LuxiTimeoutError)
    for call in master.kept:
        call.succeed("late")
    assert outcomes.get() == ("long", "late", None)


def test_all_calls_can_be_changed(master, shared, outcomes):
    for name in range(3):
        outcomes.submit(name, "keep", name)
    master.has(3)
    shared.change_all(lambda args: ["now", args[1]])
    assert [outcomes.get() for _ in range(3)] == [
        (name, ["now", name], None) for name in range(3)
    ]
    for call in master.kept:
        call.succeed("ignored")
    outcomes.submit("next", 1)
    assert outcomes.get() == ("next", [1], None)


def test_the_end_of_the_client_ends_its_calls(master, shared, outcomes):
    outcomes.submit("waits", "keep")
    master.has(1)
    shared.close()
    assert isinstance(outcomes.error()[1], errors.ConnectionClosedError)
    until("the daemon has noticed", lambda: master.closed == [["keep"]])
    outcomes.submit("later", 1)
    assert isinstance(outcomes.error()[1], errors.ConnectionClosedError)
    shared.close()


def test_a_function_that_fails_harms_no_other_call(shared, outcomes, caplog):
    def fail(_result, _error):
        raise ZeroDivisionError

    shared.submit("Wait", [1], fail, timeout_s=60)
    outcomes.submit("next", 2)
    assert outcomes.get() == ("next", [2], None)
    assert "cannot be passed on" in caplog.text


def test_an_answer_without_a_number_breaks_the_connection(tmp_path, clock):
    """Its call is not known, and the next bytes are not either."""
    path = str(tmp_path / "odd")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        shared = SharedClient(
            lambda: Client(path, retries=0, connect_timeout_s=0), clock
        )
        outcomes = Outcomes(shared)
        outcomes.submit("waits", 1)
        for answer in (b'{"success": true, "result": 1}\x03', b"huh\x03"):
            sock, _ = listener.accept()
            sock.recv(65536)
            sock.sendall(answer)
            until("it is closed", lambda sock=sock: not sock.recv(65536))
            sock.close()
        assert isinstance(outcomes.error()[1], errors.ConnectionClosedError)
        shared.close()


# The server, and clients that are not this one
def test_requests_may_be_cut_anywhere(master):
    """A numbered call does not keep the next request from being read."""
    data = b"".join(message("Wait", n, call_id=n) for n in range(300))
    with raw(master.path) as sock:
        for start in range(0, len(data), 1000):
            sock.sendall(data[start : start + 1000])
        seen = list(itertools.islice(answers(sock), 300))
    assert seen == [{"success": True, "result": [n], "call_id": n} for n in range(300)]


@pytest.mark.parametrize("method", ["Wait", "Echo"])
def test_requests_that_arrive_faster_than_they_are_served_stay_apart(master, method):
    """A read may come before the requests of the read before it were taken."""
    count, filling = 300, "x" * 4000
    with raw(master.path) as sock:
        data = b"".join(message(method, n, filling, call_id=n) for n in range(count))
        sender = threading.Thread(target=sock.sendall, args=(data,))
        sender.start()
        seen = list(itertools.islice(answers(sock), count))
        sender.join()
    assert [each["result"] for each in seen] == [[n, filling] for n in range(count)]


def test_other_calls_of_the_connection_are_answered_meanwhile(master):
    with raw(master.path) as sock:
        received = answers(sock)
        sock.sendall(message("Wait", "keep", call_id=7) + message("Echo", 1))
        assert next(received) == {"success": True, "result": [1]}
        sock.sendall(message("Wait", "keep") + message("Echo", 2))
        master.has(2)
        master.kept[0].succeed("numbered")
        assert next(received)["call_id"] == 7
        master.kept[1].succeed("in order")
        assert next(received) == {"success": True, "result": "in order"}
        assert next(received) == {"success": True, "result": [2]}


def test_numbers_of_calls_that_do_not_wait_are_ignored(master):
    with raw(master.path) as sock:
        sock.sendall(message("Echo", 1, call_id=5))
        assert next(answers(sock)) == {"success": True, "result": [1]}


def test_a_number_in_use_ends_the_connection(master):
    with raw(master.path) as sock:
        received = answers(sock)
        sock.sendall(message("Wait", "keep", call_id=1))
        master.has(1)
        sock.sendall(message("Wait", "keep", call_id=1))
        assert "call_id 1 is in use" in next(received)["result"]
        assert list(received) == []
    until("the call is over", lambda: master.closed == [["keep"]])


def test_a_connection_has_a_limited_number_of_calls(master, monkeypatch):
    monkeypatch.setattr(luxi_server, "MAX_NUMBERED", 2)
    with raw(master.path) as sock:
        received = answers(sock)
        sock.sendall(b"".join(message("Wait", "keep", call_id=n) for n in range(3)))
        refused = next(received)
        assert (refused["success"], refused["call_id"]) == (False, 2)
        assert "2 waiting calls already" in refused["result"][1][0]
        master.kept[0].succeed(None)
        assert next(received)["call_id"] == 0
        sock.sendall(message("Wait", 1, call_id=3))
        assert next(received) == {"success": True, "result": [1], "call_id": 3}


def test_answers_wait_for_a_client_that_reads_slowly(master):
    count, big = 20, "x" * 300_000
    with raw(master.path) as sock:
        sock.sendall(b"".join(message("Wait", "keep", call_id=n) for n in range(count)))
        master.has(count)
        for call in master.kept:
            threading.Thread(target=call.succeed, args=(big,)).start()
        seen = list(itertools.islice(answers(sock), count))
    assert {each["call_id"] for each in seen} == set(range(count))
    assert {each["result"] for each in seen} == {big}
