"""Peers that connect and stay silent, or send too slowly."""

import contextlib
import logging
import socket
import ssl
import threading
import types

import pytest

from fakes.patience import until
from ganeti.base.tls import x509
from ganeti.protocols.http import admission, client, limits, server, tls


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    top = tmp_path_factory.mktemp("pem")
    digest = x509.write_cluster_certificate(str(top / "server.pem"))
    x509.write_client_certificate(
        str(top / "good.pem"), server_pem=str(top / "server.pem"), name="n", serial=5
    )
    return top, digest


def app(environ, start):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def serve(context):
    result = server.Server(
        ("127.0.0.1", 0),
        app,
        context=context,
        threads=2,
        is_known=lambda address: address == "127.0.0.9",
    )
    result.start_serving()
    return result


@pytest.fixture
def made(pem):
    path = str(pem[0] / "server.pem")
    result = serve(tls.server_context(path, path))
    yield result
    result.stop()


@pytest.fixture
def plain():
    result = serve(None)
    yield result
    result.stop()


@pytest.fixture
def caller():
    result = client.Client()
    yield result
    result.close()


def ask(caller, pem, port):
    credentials = client.Credentials(
        str(pem[0] / "good.pem"), str(pem[0] / "server.pem")
    )
    (answer,) = caller.perform(
        [
            client.Request(
                address="127.0.0.1",
                port=port,
                path="/",
                body=b"[1]",
                credentials=credentials,
                timeout_s=20,
            )
        ]
    )
    return answer


def silent(stack, port, count, source="127.0.0.1"):
    """Open connections that send nothing; wait until the server has seen them all."""
    for _ in range(count):
        sock = socket.create_connection(("127.0.0.1", port), source_address=(source, 0))
        stack.enter_context(sock)
    return sock


def is_open(sock):
    sock.settimeout(0)
    try:
        return sock.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def test_silent_connections_keep_nobody_out(made, pem, caller, caplog):
    port = made.bind_addr[1]
    with contextlib.ExitStack() as stack, caplog.at_level(logging.WARNING):
        for last in range(2, 9):
            silent(stack, port, 60, f"127.0.0.{last}")
        known = silent(stack, port, 1, "127.0.0.9")
        assert ask(caller, pem, port).body == b"[1]"
        assert made._connections.count() <= admission.MAX_HALF_OPEN + 5
        # The strangers lost theirs; the room of the cluster's address was kept.
        assert is_open(known)
    lines = [r for r in caplog.records if "too many connections" in r.message]
    assert len(lines) == 1


def test_one_address_has_a_limit_of_its_own(made, pem, caller):
    port = made.bind_addr[1]
    with contextlib.ExitStack() as stack:
        silent(stack, port, 200, "127.0.0.2")
        assert ask(caller, pem, port).body == b"[1]"
        assert made._connections.count() <= admission.PER_ADDRESS + 2


def idle(stack, port, pem, count, source):
    """Open connections of TLS that have completed their handshake, and are idle."""
    context = ssl.create_default_context(cafile=str(pem[0] / "server.pem"))
    context.check_hostname = False
    context.load_cert_chain(str(pem[0] / "good.pem"))
    return [
        stack.enter_context(
            context.wrap_socket(
                socket.create_connection(
                    ("127.0.0.1", port), source_address=(source, 0)
                )
            )
        )
        for _ in range(count)
    ]


def test_idle_connections_of_one_address_keep_nobody_out(
    made, pem, caller, monkeypatch
):
    monkeypatch.setattr(admission, "PER_ADDRESS", 4)
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 30)
    port = made.bind_addr[1]
    with contextlib.ExitStack() as stack:
        [honest] = idle(stack, port, pem, 1, "127.0.0.3")
        idle(stack, port, pem, 60, "127.0.0.2")
        assert ask(caller, pem, port).body == b"[1]"
        honest.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n[2]")
        assert b"200 OK" in honest.recv(1000)


def test_who_of_the_idle_gives_way():
    def addresses(*each):
        return half_open(*each)

    few = addresses("10.0.0.1", "10.0.0.2", "10.0.0.2")
    assert admission.idle_victim(few, "10.0.0.1", is_full=False) is None
    assert admission.idle_victim(few, "10.0.0.3", is_full=True).since == 1
    assert admission.idle_victim([], "10.0.0.3", is_full=True) is None
    many = addresses("10.0.0.1", *["10.0.0.2"] * admission.IDLE_PER_ADDRESS)
    assert admission.idle_victim(many, "10.0.0.2", is_full=False).since == 1
    assert admission.idle_victim(many, "10.0.0.1", is_full=False) is None


class _Body:
    """The unread body of a request; counts what is read at a time."""

    def __init__(self, size):
        self.remaining, self.largest = size, 0

    def read(self, size):
        self.largest = max(self.largest, size)
        self.remaining -= size
        return bytes(size)


def test_a_body_that_nobody_reads_is_never_whole_in_memory(plain, monkeypatch):
    request = server._Request(plain, types.SimpleNamespace())
    request.rfile = _Body(20 << 20)
    request.conn = types.SimpleNamespace(
        wfile=types.SimpleNamespace(holding=contextlib.nullcontext)
    )
    monkeypatch.setattr(
        server.http_server.HTTPRequest, "send_headers", lambda _self: None
    )
    request.send_headers()
    assert (request.rfile.remaining, request.rfile.largest) == (0, 64 << 10)


def test_a_connection_is_dropped_before_its_own_turn(
    made, pem, caller, caplog, monkeypatch
):
    monkeypatch.setattr(admission, "PER_ADDRESS", 2)
    port = made.bind_addr[1]
    with contextlib.ExitStack() as stack, caplog.at_level(logging.ERROR):
        # All are ready at once, and each new one drops an old one that is ready too.
        for _ in range(200):
            silent(stack, port, 1).sendall(b"no handshake")
        assert ask(caller, pem, port).body == b"[1]"
    assert not caplog.records


def half_open(*addresses):
    return [
        admission.Waiting(number, address, number)
        for number, address in enumerate(addresses)
    ]


def known(address):
    return address.startswith("10.")


def test_who_gives_way():
    full = admission.PER_ADDRESS
    many = [f"192.0.2.{n % 200}" for n in range(admission.MAX_HALF_OPEN)]
    assert admission.victim([], "10.0.0.1", known) is None
    same = half_open("10.0.0.2", *["10.0.0.1"] * full)
    assert admission.victim(same, "10.0.0.1", known).since == 1
    room = admission.MAX_HALF_OPEN - admission.RESERVED
    strangers = half_open("10.0.0.1", *many[: room - 2], "198.51.100.1")
    assert admission.victim(strangers[:-1], "198.51.100.2", known) is None
    assert admission.victim([*strangers, *half_open("x")], "y", known).since in {0, 1}
    assert admission.victim(strangers, "10.0.0.2", known) is None
    everyone = half_open("10.0.0.1", *many)
    assert admission.victim(everyone, "10.0.0.2", known).address == many[0]
    cluster = half_open(*(f"10.0.1.{n}" for n in range(admission.MAX_HALF_OPEN)))
    assert admission.victim(cluster, "10.0.0.2", known).since == 0


def test_the_log_is_limited():
    limit = admission.LogLimit()
    assert limit.note(0.0) == 1
    assert [limit.note(1.0) for _ in range(5)] == [0] * 5
    assert limit.note(admission.LOG_EVERY_S) == 6


def test_a_body_that_comes_byte_by_byte_is_cut_off(made, pem, monkeypatch):
    monkeypatch.setattr(limits, "REQUEST_TIMEOUT_S", 1)
    context = ssl.create_default_context(cafile=str(pem[0] / "server.pem"))
    context.check_hostname = False
    context.load_cert_chain(str(pem[0] / "good.pem"))
    with (
        socket.create_connection(("127.0.0.1", made.bind_addr[1])) as raw,
        context.wrap_socket(raw) as sock,
    ):
        assert b"200 OK" not in answer_to_trickle(sock)


def test_such_a_body_is_cut_off_without_tls(plain, monkeypatch):
    monkeypatch.setattr(limits, "REQUEST_TIMEOUT_S", 1)
    with socket.create_connection(("127.0.0.1", plain.bind_addr[1])) as sock:
        assert b"200 OK" not in answer_to_trickle(sock)


def test_without_tls_a_reader_of_an_answer_has_a_limit(plain, monkeypatch):
    monkeypatch.setattr(limits, "ANSWER_TIMEOUT_S", 0)
    monkeypatch.setattr(limits, "MIN_ANSWER_RATE", 1 << 60)
    plain.timeout = 600
    body = bytes(16 << 20)
    head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    idle = plain.requests.idle
    with socket.create_connection(("127.0.0.1", plain.bind_addr[1])) as sock:
        sock.settimeout(20)
        sock.sendall(head.encode() + body)
        sock.recv(1, socket.MSG_PEEK)
        until("its worker is idle", lambda: plain.requests.idle == idle)
        count = 0
        with contextlib.suppress(ConnectionError):
            while data := sock.recv(1 << 16):
                count += len(data)
    assert count < len(body)


def answer_to_trickle(sock):
    """Send a body byte by byte; return the beginning of the answer."""
    ended = threading.Event()
    sock.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")

    def trickle():
        with contextlib.suppress(OSError):
            while not ended.wait(0.05):
                sock.sendall(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    sock.settimeout(20)
    try:
        data = sock.recv(100)
    except ConnectionError:
        data = b""
    ended.set()
    thread.join()
    return data
