"""LUXI over real sockets: what clients may rely on and what they cannot break."""

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.clocks import PushedClock
from fakes.patience import until
from fakes.processes import process_named
from fakes.seeds import examples
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.protocols.luxi import Client, framing
from ganeti.protocols.luxi import client as luxi_client
from ganeti.protocols.luxi import loop as loop_module
from ganeti.protocols.luxi import server as server_module
from ganeti.protocols.luxi.loop import Loop
from ganeti.protocols.luxi.server import Encoded, Limits, Restricted, Server


class Handler:
    """Answers `Echo` at once, `Later` from another thread, keeps `Never`."""

    def __init__(self):
        self.kept = []
        self.arrived = threading.Semaphore(0)

    def __call__(self, call):
        if call.method == "Echo":
            call.succeed(call.args)
        elif call.method == "Later":
            threading.Thread(target=call.succeed, args=(call.args,)).start()
        elif call.method == "Fail":
            raise errors.OpPrereqError("no such node", "unknown_entity")
        elif call.method == "Crash":
            raise ZeroDivisionError("bug")
        elif call.method == "Big":
            call.succeed(["x" * 1000] * 20000)
        elif call.method == "Odd":
            call.succeed(object())
        else:
            self.kept.append(call)
            self.arrived.release()


@pytest.fixture
def paths(tmp_path):
    return [str(tmp_path / "query"), str(tmp_path / "master")]


@pytest.fixture
def clock():
    return PushedClock()


@pytest.fixture
def handler():
    return Handler()


@pytest.fixture
def server(paths, handler, clock):
    result = Server(handler, paths, clock=clock, limits=Limits(message_bytes=100_000))
    result.start()
    yield result
    result.stop()


@pytest.fixture
def client(server, paths):
    with Client(paths[0], retries=0, timeout_s=60) as result:
        yield result


def raw(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(60)
    sock.connect(path)
    return sock


def receive(sock):
    data = b""
    while not data.endswith(b"\x03"):
        chunk = sock.recv(65536)
        if not chunk:
            return data
        data += chunk
    return data


def test_several_requests_on_one_connection(client):
    assert client.call("Echo", [1, "two", None]) == [1, "two", None]
    assert client.call("Later", [{"a": [True]}]) == [{"a": [True]}]
    assert client.call("Echo") == []


def test_both_sockets_serve_and_have_mode_0660(server, paths):
    for path in paths:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
        with Client(path, retries=0) as client:
            assert client.call("Echo", [path]) == [path]


def test_long_paths_work(tmp_path, clock):
    path = tmp_path / ("d" * 120)
    path.mkdir()
    server = Server(Handler(), [str(path / "query")], clock=clock)
    server.start()
    try:
        with Client(str(path / "query"), retries=0) as client:
            assert client.call("Echo", [1]) == [1]
    finally:
        server.stop()
    with pytest.raises(errors.NoMasterError):
        Client(str(path / "query"), connect_timeout_s=0, retries=0).call("Echo")


def test_answer_bytes_are_as_documented(server, paths):
    with raw(paths[0]) as sock:
        request = {"method": "Echo", "args": [7], "version": 3010000, "extra": 1}
        sock.sendall(json.dumps(request).encode() + b"\n\x03")
        answer = receive(sock)
    assert answer.endswith(b"\x03")
    assert json.loads(answer[:-1]) == {"success": True, "result": [7]}


def test_pipelined_requests_are_answered_in_order(server, paths):
    with raw(paths[0]) as sock:
        ask = [
            json.dumps({"method": m, "args": [i]}).encode() + b"\x03"
            for i, m in enumerate(["Later", "Echo", "Later", "Echo"])
        ]
        sock.sendall(b"".join(ask))
        actual = b""
        while actual.count(b"\x03") < 4:
            actual += sock.recv(4096)
    answers = [json.loads(part)["result"] for part in actual.split(b"\x03")[:-1]]
    assert answers == [[0], [1], [2], [3]]


def test_errors_keep_class_and_arguments(client):
    with pytest.raises(errors.OpPrereqError) as caught:
        client.call("Fail")
    assert caught.value.args == ("no such node", "unknown_entity")
    with pytest.raises(errors.GenericError, match="ZeroDivisionError: bug"):
        client.call("Crash")
    with pytest.raises(errors.GenericError, match="Odd"):
        client.call("Odd")
    assert client.call("Echo", [1]) == [1]


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x03",
        b"no json\x03",
        b"[]\x03",
        b'{"method": "Echo"}\x03',
        b'{"method": 1, "args": []}\x03',
        b'{"method": "Echo", "args": {}}\x03',
        b'{"method": "\xff\xfe", "args": []}\x03',
        b"[" * 50_000 + b"\x03",
        b'{"method": "Echo", "args": [' + b"[" * 50_000 + b"\x03",
        b"x" * 150_000,
    ],
)
def test_garbage_gets_a_text_and_the_end(server, paths, client, garbage):
    with raw(paths[0]) as sock:
        sock.sendall(garbage)
        answer = json.loads(receive(sock)[:-1])
        assert answer["success"] is False
        assert answer["result"].startswith("Failed to parse request: ")
        try:
            assert sock.recv(1) == b""
        except ConnectionResetError:
            assert len(garbage) > 100_000
    assert client.call("Echo", [1]) == [1]


def test_malformed_request_raises_request_error(server, paths, handler, client):
    thread = threading.Thread(
        target=lambda: handler.arrived.acquire() and handler.kept[0].reject("no")
    )
    thread.start()
    with pytest.raises(errors.RequestError) as caught:
        client.call("Never")
    thread.join()
    assert caught.value.args == ("no",)


def test_truncated_message_costs_nothing(server, paths, client):
    with raw(paths[0]) as sock:
        sock.sendall(b'{"method": "Echo", "args": [')
    # Each call lets the event loop go round; the end of the other may come later.
    for _ in range(1000):
        assert client.call("Echo", [1]) == [1]
        if server.connection_count == 1:
            break
    assert server.connection_count == 1


def test_client_that_leaves_ends_its_wait(server, paths, handler, client):
    gone = threading.Event()
    with raw(paths[0]) as sock:
        sock.sendall(b'{"method": "Never", "args": []}\x03')
        assert handler.arrived.acquire(timeout=60)
        handler.kept[0].on_close = gone.set
    assert gone.wait(60)
    handler.kept[0].succeed(1)
    assert client.call("Echo", [2]) == [2]


def test_slow_reader_holds_up_nobody_and_is_cut_off(server, paths, clock, client):
    with raw(paths[0]) as sock:
        sock.sendall(b'{"method": "Big", "args": []}\x03')
        assert sock.recv(1) == b"{"
        assert client.call("Echo", [1]) == [1]
        assert len(client.call("Big")) == 20000
        client.close()
        clock.ahead = 200
        swept = threading.Event()
        server.loop.run_soon(lambda: (server._sweep(), swept.set()))
        # Reading earlier would make progress, which is a reason not to cut it off.
        assert swept.wait(60)
        total = 1
        while chunk := sock.recv(1 << 20):
            total += len(chunk)
        assert total < 20_000_000


def test_slow_reader_that_reads_gets_everything(server, paths):
    with raw(paths[0]) as sock:
        sock.sendall(b'{"method": "Big", "args": []}\x03')
        assert len(json.loads(receive(sock)[:-1])["result"]) == 20000


def test_idle_connection_is_closed_but_not_a_waiting_one(server, paths, handler, clock):
    with raw(paths[0]) as idle, raw(paths[0]) as waiting:
        waiting.sendall(b'{"method": "Never", "args": []}\x03')
        assert handler.arrived.acquire(timeout=60)
        clock.ahead = 200
        server.loop.run_soon(server._sweep)
        assert idle.recv(1) == b""
        handler.kept[0].succeed("late")
        assert json.loads(receive(waiting)[:-1])["result"] == "late"


def test_answering_twice_answers_once(server, paths, handler):
    with raw(paths[0]) as sock:
        for number in range(2):
            sock.sendall(b'{"method": "Never", "args": []}\x03')
            assert handler.arrived.acquire(timeout=60)
            handler.kept[number].succeed(number)
            handler.kept[0].succeed("again")
            assert json.loads(receive(sock)[:-1])["result"] == number


def test_unfinished_requests_of_all_clients_are_bounded(tmp_path, clock):
    path = str(tmp_path / "s")
    server = Server(
        Handler(), [path], clock=clock, limits=Limits(buffered_bytes=100_000)
    )
    server.start()
    try:
        with raw(path) as first, raw(path) as second:
            first.sendall(b"x" * 60_000)
            with Client(path, retries=0) as client:
                # When this is answered, the first part has been read.
                assert client.call("Echo", [1]) == [1]
            second.sendall(b"x" * 60_000)
            assert b"too large" in receive(second)
            first.sendall(b"\x03")
            assert json.loads(receive(first)[:-1])["success"] is False
            with raw(path) as third:
                third.sendall(b" " * 90_000 + b'{"method": "Echo", "args": [3]}\x03')
                assert json.loads(receive(third)[:-1])["result"] == [3]
    finally:
        server.stop()


@settings(max_examples=examples(40), deadline=None)
@given(parts=st.lists(st.binary(max_size=60), max_size=6))
def test_whatever_is_sent_the_next_client_is_served(parts):
    with tempfile.TemporaryDirectory(prefix="luxi-") as directory:
        path = f"{directory}/s"
        server = Server(Handler(), [path], clock=PushedClock())
        server.start()
        try:
            with raw(path) as sock, contextlib.suppress(OSError):
                for part in parts:
                    sock.sendall(part)
            with Client(path, retries=0) as client:
                assert client.call("Echo", [1]) == [1]
        finally:
            server.stop()


def test_more_clients_than_places_wait_their_turn(tmp_path, clock):
    path = str(tmp_path / "s")
    server = Server(Handler(), [path], clock=clock, limits=Limits(connections=2))
    server.start()
    try:
        first, second = raw(path), raw(path)
        with raw(path) as third, second:
            third.sendall(b'{"method": "Echo", "args": [3]}\x03')
            second.sendall(b'{"method": "Echo", "args": [2]}\x03')
            assert json.loads(receive(second)[:-1])["result"] == [2]
            first.close()
            assert json.loads(receive(third)[:-1])["result"] == [3]
    finally:
        server.stop()


@contextlib.contextmanager
def connected(path, count):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(raw(path)) for _ in range(count)]


def test_waiting_clients_leave_connections_for_others(tmp_path, handler, clock):
    path = str(tmp_path / "s")
    server = Server(
        handler,
        [path],
        clock=clock,
        limits=Limits(connections=6, reserved=2),
        waiting_methods=["Never"],
    )
    server.start()
    request = b'{"method": "Never", "args": []}\x03'
    try:
        with (
            connected(path, 4) as waiting,
            Client(path, retries=0, timeout_s=60) as client,
        ):
            for sock in waiting:
                sock.sendall(request)
                assert handler.arrived.acquire(timeout=60)
            with raw(path) as refused:
                refused.sendall(request)
                assert receive(refused) == b""
            assert client.call("Echo", [1]) == [1]
            # A place that becomes free is given away again.
            handler.kept[0].succeed(0)
            receive(waiting[0])
            waiting[0].sendall(request)
            assert handler.arrived.acquire(timeout=60)
    finally:
        server.stop()


def test_idle_connections_are_looked_at_every_five_seconds(tmp_path):
    """The loop itself does it: its waits end when the time comes."""
    clock, waits = PushedClock(), []
    server = Server(Handler(), [str(tmp_path / "socket")], clock=clock)
    poll = server.loop._epoll

    class Poll:
        """The real one, but its waits take no time: the clock goes on by them."""

        def __getattr__(self, name):
            return getattr(poll, name)

        def poll(self, timeout):
            waits.append(timeout)
            if len(waits) > 4:
                server.loop.end()
            clock.ahead += max(0.0, timeout)
            return poll.poll(0)

    swept = []
    server.loop._epoll = Poll()
    sweep = server._sweep
    server._sweep = lambda: (swept.append(len(waits)), sweep())
    server._run()
    assert waits == pytest.approx([5.0] * 5, abs=4.0)
    assert swept == [1, 2, 3, 4, 5]


def test_idle_clients_must_leave_early_when_places_are_short(tmp_path, clock):
    path = str(tmp_path / "s")
    server = Server(
        Handler(), [path], clock=clock, limits=Limits(connections=3, reserved=2)
    )
    server.start()
    try:
        with connected(path, 3) as idle:
            until("three connections", lambda: server.connection_count == 3)
            clock.ahead += 6.0
            server.loop.run_soon(server._sweep)
            assert [receive(sock) for sock in idle] == [b""] * 3
        with Client(path, retries=0, timeout_s=60) as client:
            assert client.call("Echo", [1]) == [1]
    finally:
        server.stop()


def test_hundreds_of_waiting_clients_cost_no_threads(server, paths, handler):
    before = threading.active_count()
    socks = [raw(paths[0]) for _ in range(300)]
    for sock in socks:
        sock.sendall(b'{"method": "Never", "args": []}\x03')
    for _ in socks:
        assert handler.arrived.acquire(timeout=60)
    # Threads of earlier tests may end during this test.
    assert threading.active_count() <= before
    for call in handler.kept:
        call.succeed(1)
    for sock in socks:
        assert receive(sock) == b'{"success":true,"result":1}\x03'
        sock.close()


def test_timers_run_in_order_unless_cancelled(server):
    done, ran = threading.Event(), []

    def plan():
        server.loop.call_later(0.02, done.set)
        server.loop.call_later(0.01, lambda: ran.append("second"))
        server.loop.call_later(0.0, lambda: ran.append("first"))
        server.loop.call_later(0.0, lambda: ran.append("never")).cancel()

    server.loop.run_soon(plan)
    assert done.wait(60)
    assert ran == ["first", "second"]


def test_stop_removes_the_sockets(paths, clock):
    server = Server(Handler(), paths, clock=clock)
    server.start()
    with Client(paths[0], retries=0) as client:
        client.call("Echo")
        server.stop()
        assert not any(os.path.exists(path) for path in paths)
        with pytest.raises(errors.ProtocolError):
            Client(paths[0], connect_timeout_s=0, retries=0).call("Echo")


def test_a_function_after_the_end_writes_to_no_file_of_others(clock, monkeypatch):
    loop, written = Loop(clock), []
    monkeypatch.setattr(os, "eventfd_write", lambda *args: written.append(args))
    loop.run_soon(int)
    assert written == [(loop._wake_fd, 1)]
    loop.close()
    loop.run_soon(int)
    # The number of a closed file goes to the next one.
    assert len(written) == 1


def test_a_server_that_cannot_bind_leaves_no_socket(tmp_path, clock, monkeypatch):
    first, second = tmp_path / "query", tmp_path / "absent" / "master"
    made = []
    for owner, name in ((loop_module, "listen"), (server_module, "Loop")):
        real = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *args, real=real: made.append(real(*args)) or made[-1]
        )
    with pytest.raises(FileNotFoundError):
        Server(Handler(), [str(first), str(second)], clock=clock)
    loop, sock = made
    assert sock.fileno() == -1
    assert loop._epoll.closed
    assert not first.exists()


class NoWait:
    """A timer that notes how long it was asked to sleep."""

    def __init__(self, on_sleep=lambda: None):
        self.slept = []
        self.on_sleep = on_sleep

    def monotonic(self):
        return sum(self.slept)

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.on_sleep()


def test_missing_socket_is_waited_for_then_reported(tmp_path):
    timer = NoWait()
    with pytest.raises(errors.NoMasterError):
        Client(str(tmp_path / "none"), timer=timer).call("Echo")
    assert timer.slept == [1.0] * 30


def of_node(tmp_path, timer, *, master="node1.example.com"):
    """Return a client on node1, with ssconf files that name the master."""
    paths = Paths(root=str(tmp_path), hostname="node1.example.com")
    os.makedirs(paths.data_dir)
    os.makedirs(paths.run_dir)
    if master:
        with open(paths.data("ssconf_master_node"), "w") as stream:
            stream.write(f"{master}\n")
    client = Client.of_node(paths, timer=timer)
    client.noted = []
    client.on_wait = client.noted.append
    return client, paths


@contextlib.contextmanager
def process_of_daemon(paths):
    """Run a process with the daemon's name and pid file, which never listens."""
    with process_named("ganeti-masterd") as child:
        with open(paths.pid_file("ganeti-masterd"), "w") as stream:
            stream.write(f"{child.pid}\n")
        yield child.pid


def test_without_a_process_of_the_daemon_the_wait_is_short(tmp_path):
    timer = NoWait()
    client, paths = of_node(tmp_path, timer)
    with open(paths.pid_file("ganeti-masterd"), "w") as stream:
        stream.write(f"{os.getpid()}\n")  # another program has this number now
    with pytest.raises(errors.NoMasterError):
        client.call("Echo")
    assert timer.slept == [1.0] * 10
    assert client.noted[0] == (
        "waiting for ganeti-masterd, which does not run on this node, 2 s"
    )
    assert len(client.noted) == 8


def test_a_client_in_a_hurry_tries_once_and_waits_shortly(tmp_path, server, paths):
    timer = NoWait()
    client, _paths = of_node(tmp_path, timer)
    client.hurry(connect_s=1.0, answer_s=0.01)
    with pytest.raises(errors.NoMasterError):
        client.call("Echo")
    assert timer.slept == [1.0]
    with Client(paths[0], timer=timer) as client:
        client.hurry(connect_s=1.0, answer_s=0.01)
        with pytest.raises(errors.LuxiTimeoutError, match=r"within 0\.01 seconds"):
            client.call("Never")
    assert timer.slept == [1.0]


def test_a_daemon_that_starts_is_waited_for(tmp_path):
    timer = NoWait()
    client, paths = of_node(tmp_path, timer)
    with process_of_daemon(paths) as pid, pytest.raises(errors.NoMasterError):
        client.call("Echo")
    assert timer.slept == [1.0] * 30
    assert client.noted[0] == (
        f"waiting for ganeti-masterd (process {pid}), which does not listen, 2 s"
    )


def test_the_short_wait_begins_when_the_daemon_ends(tmp_path):
    client, paths = of_node(tmp_path, None)
    with contextlib.ExitStack() as stack:

        def end_after_eight_steps():
            if len(timer.slept) == 8:
                stack.close()

        timer = client._timer = NoWait(end_after_eight_steps)
        stack.enter_context(process_of_daemon(paths))
        with pytest.raises(errors.NoMasterError):
            client.call("Echo")
    assert timer.slept == [1.0] * 17


def test_a_client_whose_daemon_ended_waits_for_the_next_one(tmp_path, clock):
    timer = NoWait()
    client, _ = of_node(tmp_path, timer)
    os.makedirs(os.path.dirname(client.path))
    server = Server(Handler(), [client.path], clock=clock)
    server.start()
    assert client.call("Echo", [1]) == [1]
    server.stop()
    with pytest.raises(errors.NoMasterError):
        client.call("Echo")
    assert timer.slept == [5.0] + [1.0] * 30


@pytest.mark.parametrize("override", ["", "master", "/nowhere/socket"])
def test_outside_of_a_cluster_nothing_is_waited_for(tmp_path, override):
    timer = NoWait()
    client, paths = of_node(tmp_path, timer, master="")
    client = Client.of_node(paths, timer=timer, override=override)
    with pytest.raises(errors.NoMasterError):
        client.call("Echo")
    # Whatever serves another socket need not belong to this node.
    assert timer.slept == [1.0] * (10 if override.startswith("/") else 0)


def test_a_long_silence_is_noted(server, handler, paths, monkeypatch):
    monkeypatch.setattr(luxi_client, "NOTE_ANSWER_S", 0.01)
    monkeypatch.setattr(luxi_client, "CONNECT_STEP_S", 0.01)
    noted = []
    with Client(paths[0], timeout_s=0.05, retries=0) as client:
        client.on_wait = noted.append
        with pytest.raises(errors.LuxiTimeoutError, match=r"Never.*0\.05 seconds"):
            client.call("Never")
        assert len(noted) == 4
        assert noted[0] == "waiting for ganeti-masterd to answer Never, 0 s"
        with pytest.raises(errors.LuxiTimeoutError):
            client.call("WaitForJobChange")
    assert len(noted) == 4


@pytest.mark.parametrize("is_left", [False, True])
def test_master_elsewhere_is_reported_at_once(tmp_path, is_left):
    paths = Paths(root=str(tmp_path), hostname="node1.example.com")
    os.makedirs(paths.data_dir)
    with open(paths.data("ssconf_master_node"), "w") as stream:
        stream.write("node2.example.com\n")
    timer = NoWait()
    client = Client.of_node(paths, timer=timer)
    if is_left:
        # As after a failover: nobody listens at the socket of the former master.
        os.makedirs(os.path.dirname(client.path))
        with (
            framing.reachable(client.path) as path,
            socket.socket(socket.AF_UNIX) as left,
        ):
            left.bind(path)
    with pytest.raises(errors.NoMasterError):
        client.call("Echo")
    assert timer.slept == []


def test_socket_that_appears_late_is_used(tmp_path, clock):
    path, servers = str(tmp_path / "s"), []

    def start():
        if not servers:
            servers.append(Server(Handler(), [path], clock=clock))
            servers[0].start()

    with Client(path, timer=NoWait(start)) as client:
        assert client.call("Echo", [5]) == [5]
    servers[0].stop()


def dropping_server(path):
    """Serve connections that end after one request, and count the requests."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    seen = []

    def run():
        while True:
            sock, _ = listener.accept()
            with sock:
                seen.append(receive(sock))
            if seen[-1] == b"":
                listener.close()
                return

    thread = threading.Thread(target=run)
    thread.start()
    return thread, seen


@pytest.mark.parametrize(("method", "count"), [("Query", 4), ("SubmitJob", 1)])
def test_only_what_is_safe_is_repeated(tmp_path, method, count):
    path = str(tmp_path / "s")
    thread, seen = dropping_server(path)
    timer = NoWait()
    with pytest.raises(errors.ConnectionClosedError):
        Client(path, retries=3, timer=timer).call(method)
    raw(path).close()
    thread.join(60)
    assert len(seen) - 1 == count
    assert timer.slept == [5.0, 10.0, 15.0][: count - 1]


def test_silence_is_a_timeout(server, paths):
    with (
        Client(paths[0], timeout_s=0.05, retries=0) as client,
        pytest.raises(errors.LuxiTimeoutError, match="Never"),
    ):
        client.call("Never")


@pytest.mark.parametrize(("pid", "named"), [(4711, True), (0, False), (None, False)])
def test_a_daemon_that_hangs_is_named(server, paths, pid, named):
    client = Client(paths[0], timeout_s=0.05, retries=0, find_daemon=lambda: pid)
    with client, pytest.raises(errors.LuxiTimeoutError) as caught:
        client.call("Never")
    text = ": ganeti-masterd (process 4711) runs, but seems to hang; see its log"
    assert str(caught.value).endswith(text) == named


def test_submissions_carry_a_warning_while_there_is_one(server, handler, paths):
    seen = []
    server.warning = lambda: "one copy alone"

    def answer_one():
        assert handler.arrived.acquire(timeout=60)
        handler.kept.pop().succeed(7)

    with Client(paths[0], retries=0, timeout_s=60, on_warning=seen.append) as client:
        assert client.call("Echo", [1]) == [1]
        assert seen == []
        answering = threading.Thread(target=answer_one)
        answering.start()
        assert client.call("SubmitJob", [[]]) == 7
        answering.join()
        assert seen == ["one copy alone"]
        server.warning = str
        answering = threading.Thread(target=answer_one)
        answering.start()
        assert client.call("SubmitJob", [[]]) == 7
        answering.join()
    assert seen == ["one copy alone"]


def test_a_connection_that_the_daemon_closed_is_stale(server, client, clock):
    assert not client.is_stale()
    assert client.call("Echo", [1]) == [1]
    assert not client.is_stale()

    def is_stale():
        # Again and again: the server begins the period after it has sent the answer.
        clock.ahead += 1000
        server.loop.run_soon(server._sweep)
        return client.is_stale()

    until("the connection is stale", is_stale)


def test_an_interrupted_call_fails_at_once(server, paths, handler):
    with Client(paths[0], retries=0) as client:
        raised = []

        def call():
            try:
                client.call("Never")
            except errors.ConnectionClosedError as err:
                raised.append(err)

        thread = threading.Thread(target=call)
        thread.start()
        assert handler.arrived.acquire(timeout=10)
        client.interrupt()
        thread.join(10)
        assert raised
        assert client.call("Echo", [2]) == [2]


def test_a_streamed_result_is_the_text_of_the_whole_one(server, client):
    for value in ([], ["}", {"b": []}]):
        text = b"".join(client.stream("Echo", value))
        assert json.loads(text) == value
    text = b"".join(client.stream("Big"))
    assert json.loads(text) == client.call("Big")
    assert client.call("Echo", [1]) == [1]


def test_a_streamed_result_may_be_encoded_already(server, client, handler):
    text = b"[" + b",".join([b'"x"'] * 200_000) + b"]"
    for _ in range(2):
        parts = client.stream("Keep")
        reader = threading.Thread(target=_answer_encoded, args=(handler, text))
        reader.start()
        assert b"".join(parts) == text
        reader.join()


def _answer_encoded(handler, text):
    assert handler.arrived.acquire(timeout=60)
    handler.kept.pop().succeed(Encoded(text))


def test_an_encoded_result_of_a_plain_call_is_decoded(server, client, handler):
    answering = threading.Thread(target=_answer_encoded, args=(handler, b"[1]"))
    answering.start()
    assert client.call("Keep") == [1]
    answering.join()


def test_the_error_of_a_streamed_call_leaves_the_connection(server, client):
    with pytest.raises(errors.OpPrereqError):
        next(client.stream("Fail"))
    before = client.connect()
    assert client.call("Echo", [1]) == [1]
    assert client.connect() is before


def test_a_stream_that_is_left_closes_the_connection(server, client):
    parts = client.stream("Big")
    next(parts)
    parts.close()
    assert client._socket is None
    assert client.call("Echo", [1]) == [1]


@pytest.mark.parametrize(
    "answer",
    [
        b'{"success":true,"result":[1]\x03',
        b'{"success":true,"result":[1]}\x03{',
        b'{"result":[1],"success":true}\x03',
        b"nonsense\x03",
        b'{"success":true,"result":[1]',
        b"",
    ],
)
def test_a_malformed_streamed_answer_is_an_error(tmp_path, answer):
    path = str(tmp_path / "odd")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve():
            peer, _address = listener.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        client = Client(path, retries=0)
        with pytest.raises(errors.ProtocolError):
            b"".join(client.stream("Echo"))
        assert client._socket is None
        thread.join()


@pytest.mark.skipif(os.geteuid() != 0, reason="other users need root")
def test_a_restricted_socket_is_for_one_user_and_root(paths, tmp_path):
    inner = Handler()
    os.chmod(tmp_path, 0o755)
    where = str(tmp_path / "restricted")
    server = Server(
        Handler(),
        [],
        clock=PushedClock(),
        restricted=Restricted(where, USER, USER, inner),
    )
    assert stat.S_IMODE(os.stat(where).st_mode) == 0o660
    assert (os.stat(where).st_uid, os.stat(where).st_gid) == (0, USER)
    # The credentials are what counts: here anybody may connect.
    os.chmod(where, 0o666)
    server.start()
    try:
        with Client(where, retries=0) as client:
            assert client.call("Echo", [1]) == [1]
        assert as_user(USER, where) == b'{"success":true,"result":[1]}\x03'
        assert as_user(USER + 1, where) == b""
    finally:
        server.stop()


#: A user that no process of this machine has.
USER = 64123
_ASK = """
import os, socket, sys
os.setgroups([])
os.setresgid(*[int(sys.argv[1])] * 3)
os.setresuid(*[int(sys.argv[1])] * 3)
sock.connect(sys.argv[2])
try:
    sock.sendall(b'{"method":"Echo","args":[1]}' + bytes([3]))
    os.write(1, sock.recv(4096))
except (BrokenPipeError, ConnectionResetError):
    pass
"""


def as_user(uid, path):
    """Return the answer that another user gets."""
    # The directories above may belong to root alone, so the child starts inside.
    program = "import socket; sock = socket.socket(socket.AF_UNIX)" + _ASK
    return subprocess.run(
        [sys.executable, "-c", program, str(uid), os.path.basename(path)],
        cwd=os.path.dirname(path),
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    ).stdout
