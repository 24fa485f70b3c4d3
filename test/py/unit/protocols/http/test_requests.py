"""Requests as bytes: whose end is in doubt, which lane serves them, when peers stay."""

import contextlib
import socket
import threading
import types

import pytest

from fakes.patience import until
from ganeti.base.tls import x509
from ganeti.protocols.http import (
    admission,
    client,
    limits,
    server,
    sockets,
    tls,
    transfer,
)


def app(environ, start):
    """Answer with the path, unless it is /empty; read no body."""
    path = environ["PATH_INFO"].encode()
    path = b"" if path == b"/empty" else path
    start("200 OK", [("Content-Length", str(len(path)))])
    return [path]


@contextlib.contextmanager
def serving(**options):
    made = server.Server(
        ("127.0.0.1", 0), app, **{"context": None, "threads": 2} | options
    )
    made.start_serving()
    try:
        yield made
    finally:
        made.stop()


def talk(made, data):
    """Send bytes, close the sending side, and return all that is answered."""
    with socket.create_connection(made.bind_addr, 20) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        received = b""
        while piece := sock.recv(65536):
            received += piece
    return received


def post(path, *headers, body=b""):
    lines = [f"POST {path} HTTP/1.1", "Host: x", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


NEXT = post("/next", "Content-Length: 0")


def test_requests_of_one_connection_are_answered_in_order():
    with serving() as made:
        answer = talk(made, post("/first", "Content-Length: 0") + NEXT)
    assert answer.count(b"200 OK") == 2
    assert answer.index(b"/first") < answer.index(b"/next")


def test_an_answer_without_a_body_is_complete_before_the_next_request():
    with serving() as made, socket.create_connection(made.bind_addr, 20) as sock:
        sock.sendall(post("/empty", "Content-Length: 0"))
        received = b""
        while not received.endswith(b"\r\n\r\n"):
            received += sock.recv(65536)
        assert received.startswith(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n")
        sock.sendall(NEXT)
        assert sock.recv(65536).endswith(b"\r\n\r\n/next")


@pytest.mark.parametrize("length", ["-1", "+1", "1x", "0x1", "1 1"])
def test_a_length_that_is_no_number_ends_the_connection(length):
    with serving() as made:
        answer = talk(made, post("/a", f"Content-Length: {length}") + NEXT)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"/next" not in answer


def test_a_body_with_two_lengths_ends_the_connection():
    both = ("Transfer-Encoding: chunked", "Content-Length: 5")
    with serving() as made:
        answer = talk(made, post("/a", *both, body=b"0\r\n\r\n") + NEXT)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"two lengths of one body" in answer
    assert b"200 OK" not in answer


def test_the_rest_of_a_chunked_body_is_no_request():
    with serving() as made:
        chunks = post("/a", "Transfer-Encoding: chunked", body=NEXT)
        answer = talk(made, chunks)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"/next" not in answer


def test_errors_have_the_form_of_the_server():
    def content(status, text):
        return "application/json", f'{{"code": {status}, "text": "{text}"}}'.encode()

    with serving(error_content=content, max_body=4) as made:
        answer = talk(made, post("/a", "Content-Length: -1"))
        large = talk(made, post("/a", "Content-Length: 5", body=b"12345"))
    head, body = answer.split(b"\r\n\r\n")
    assert body == b'{"code": 400, "text": "Content-Length: not a number"}'
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 400 Bad Request",
        b"Content-Type: application/json",
        f"Content-Length: {len(body)}".encode(),
        b"Connection: close",
    ]
    assert large.startswith(b"HTTP/1.1 413 ")
    assert b'"code": 413' in large


def test_the_rest_of_a_refused_body_does_not_reset_the_connection(monkeypatch):
    monkeypatch.setattr(sockets, "_LINGER_S", 60)
    with serving(max_body=4) as made, socket.create_connection(made.bind_addr) as sock:
        sock.sendall(post("/a", "Content-Length: 9"))
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 413 ")
        for byte in b"123456789":
            sock.sendall(bytes([byte]))


def test_headers_have_a_limit():
    with serving() as made:
        fine = talk(made, post("/a", "Content-Length: 0", f"X: {'x' * 60_000}"))
        refused = talk(made, post("/a", "Content-Length: 0", f"X: {'x' * 66_000}"))
        early = talk(made, post("/a", f"X: {'x' * 66_000}"))
    assert fine.startswith(b"HTTP/1.1 200 ")
    for answer in (refused, early):
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"headers" in answer


# Lanes
LANES = (
    admission.Lane("calls", 1),
    admission.Lane("urgent", 1, waiting=2, patience_s=5),
)


def plan():
    return admission.Plan(LANES, lambda path: "urgent" if path == "/now" else "calls")


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        (b"POST /now HTTP/1.1\r\nHost: x", "urgent"),
        (b"POST /now HTTP/1.1", "urgent"),
        (b"POST /later HTTP/1.1\r\nX: POST /now HTTP/1.1", "calls"),
        # An incomplete line cannot be assigned yet.
        (b"POST /now", "calls"),
        (b"", "calls"),
        (b"POST /n\xff HTTP/1.1\r\n", "calls"),
    ],
)
def test_the_path_decides_the_lane(start, wanted):
    assert plan().lane_of(start) == wanted


def connection(name):
    return types.SimpleNamespace(remote_addr=name, ssl_env={})


def test_a_full_lane_passes_further_calls_to_the_busy_one(monkeypatch):
    monkeypatch.setattr(admission, "_BUSY_WAITING", 1)
    waiting = admission.Lanes(types.SimpleNamespace(), plan())
    calls = [connection(str(number)) for number in range(4)]
    accepted = [waiting.put(conn, b"POST /now HTTP/1.1\r\n") for conn in calls]
    assert accepted == [True, True, True, False]
    names = [conn.ssl_env.get(admission.LANE_KEY) for conn in calls]
    assert names == ["urgent", "urgent", admission.BUSY, None]
    assert all(conn.ssl_env[admission.CONNECTION_KEY] is conn for conn in calls[:3])
    assert waiting.qsize == 3
    # The other lane has room.
    assert waiting.put(connection("5"), b"POST /later HTTP/1.1\r\n")


def test_calls_that_waited_for_longer_than_their_lane_allows_are_busy(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(admission.time, "monotonic", lambda: now[0])
    waiting = admission.Lanes(types.SimpleNamespace(), plan())
    first, second, patient = (connection(name) for name in ("a", "b", "c"))
    waiting.put(first, b"POST /now HTTP/1.1\r\n")
    waiting.put(patient, b"POST /later HTTP/1.1\r\n")
    now[0] += 3
    waiting.put(second, b"POST /now HTTP/1.1\r\n")
    now[0] += 2.5
    assert waiting.expire() == []
    assert first.ssl_env[admission.LANE_KEY] == admission.BUSY
    assert second.ssl_env[admission.LANE_KEY] == "urgent"
    now[0] += 1000
    waiting.expire()
    assert second.ssl_env[admission.LANE_KEY] == admission.BUSY
    assert patient.ssl_env[admission.LANE_KEY] == "calls"


# Peers
@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("pem") / "server.pem")
    x509.write_cluster_certificate(path)
    return path


@contextlib.contextmanager
def refused(pem, monkeypatch):
    """Yield a server and a connection to it that it refuses, as it makes no handshake."""
    # The limit of time must not end it here.
    monkeypatch.setattr(limits, "CLOSE_TIMEOUT_S", 1000)
    with (
        serving(context=tls.server_context(pem, pem)) as made,
        socket.create_connection(made.bind_addr, 20) as sock,
    ):
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        while sock.recv(4096):
            pass
        yield made, sock


def test_a_refused_peer_may_read_the_reason_and_then_leave(pem, monkeypatch):
    with refused(pem, monkeypatch) as (made, sock):
        sock.sendall(b"more")
        with socket.create_connection(made.bind_addr, 20):
            until("the server has gone on", lambda: made._connections.count() == 2)
            assert sock.send(b"and more") == 8
        sock.close()
        until("the connection is closed", lambda: made._connections.count() == 0)


def test_a_refused_peer_that_goes_on_sending_is_cut_off(pem, monkeypatch):
    with refused(pem, monkeypatch) as (made, sock):
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                sock.sendall(bytes(4096))
        until("the connection is closed", lambda: made._connections.count() == 0)


def test_a_call_whose_caller_has_left_is_abandoned():
    ours, theirs = socket.socketpair()
    with ours:
        sock = sockets.PlainSocket(ours)
        environ = {admission.CONNECTION_KEY: types.SimpleNamespace(socket=sock)}
        assert not server.is_abandoned(environ)
        theirs.sendall(b"the next request")
        assert not server.is_abandoned(environ)
        theirs.close()
        ours.recv(100)
        assert server.is_abandoned(environ)
    assert server.is_abandoned(environ)
    assert not server.is_abandoned({})


def test_a_server_that_stops_ends_at_once():
    made = server.Server(("127.0.0.1", 0), app, context=None, threads=1)
    made.start_serving()
    # Longer than the interval in which the server would notice by itself.
    made.expiration_interval = 1000
    with socket.create_connection(made.bind_addr, 20) as idle:
        until("it is seen", lambda: made._connections.count() == 1)
        assert server.wait_until_stopped(made, 60)
        assert idle.recv(1) == b""


# The client
def test_a_forked_process_does_not_use_the_thread_of_its_parent(monkeypatch):
    with serving() as made:
        request = call_request(made.bind_addr[1])
        caller = client.Client()
        assert [answer.status for answer in caller.perform([request])] == [200]
        loop = caller._loop
        with monkeypatch.context() as patch:
            patch.setattr(client.os, "getpid", lambda: -1)
            assert not loop.submit(transfer.Transfer(request, print))
            assert loop._queue.empty()
            # It has a thread of its own.
            assert [answer.status for answer in caller.perform([request])] == [200]
            assert caller._loop is not loop
            caller.close()
        loop.stop()


def test_a_request_that_waits_for_the_thread_is_answered_when_the_client_closes():
    answers, inside, gate = [], threading.Event(), threading.Event()

    def block(response):
        answers.append(response)
        inside.set()
        gate.wait(60)

    with serving() as made:
        request = call_request(made.bind_addr[1])
        caller = client.Client()
        caller.start(request, block)
        assert inside.wait(60)
        # The thread is busy: the end, and a request after it, wait for it.
        closing = threading.Thread(target=caller.close)
        loop = caller._loop
        closing.start()
        until("the end waits", lambda: caller._loop is None)
        until("it is queued", lambda: not loop._queue.empty())
        waiting = transfer.Transfer(request, answers.append)
        assert loop.submit(waiting)
        gate.set()
        closing.join(60)
        assert answers[0].status == 200
        assert answers[1:] == [client.Response(0, b"", "the HTTP client was closed")]
        assert not loop.submit(waiting)


def call_request(port):
    return client.Request(
        address="127.0.0.1",
        port=port,
        path="/a",
        body=b"",
        credentials=None,
        timeout_s=20,
    )
