"""Parked requests, over real sockets with and without TLS."""

import contextlib
import http.client
import queue
import socket
import ssl

import pytest

from fakes.patience import PATIENCE_S, until
from ganeti.base.tls import x509
from ganeti.protocols.http import parking, server, tls

HOST = b"Host: x\r\n"


class App:
    """Parks ``/park``, answers it within the call for ``/now``, echoes other paths."""

    def __init__(self):
        self.tickets = queue.SimpleQueue()

    def __call__(self, environ, start):
        path = environ["PATH_INFO"]
        if path == "/now":
            environ[parking.KEY]().resume(text("now"))
            return []
        if path == "/park":
            self.tickets.put(environ[parking.KEY]())
            return []
        return text(path)(start)

    def ticket(self):
        return self.tickets.get(timeout=PATIENCE_S)


def text(value, **headers):
    def answer(start):
        data = value.encode()
        listed = {"Content-Length": str(len(data)), **headers}
        start("200 OK", list(listed.items()))
        return [data]

    return answer


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    path = tmp_path_factory.mktemp("pem") / "server.pem"
    path.write_bytes(x509.create_self_signed().pem)
    return str(path)


@pytest.fixture
def app():
    return App()


@pytest.fixture(params=["tls", "plain"])
def served(request, app, pem):
    """Run a server with one thread; return it and a function that connects."""
    secure = request.param == "tls"
    context = tls.server_context(pem, pem) if secure else None
    made = server.Server(("127.0.0.1", 0), app, context=context, threads=1)
    port = made.start_serving()

    def connect():
        sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        if not secure:
            return sock
        client = ssl.create_default_context()
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        return client.wrap_socket(sock)

    yield made, connect
    made.stop()


@pytest.fixture
def place(served):
    return served[0].parking


@pytest.fixture
def connect(served):
    return served[1]


def send(sock, path, *, version=b"1.1", more=b""):
    sock.sendall(b"GET " + path.encode() + b" HTTP/" + version + b"\r\n" + HOST + more)
    sock.sendall(b"\r\n")


class Unbuffered:
    """A socket whose readers take no bytes of the answer after theirs."""

    def __init__(self, sock):
        self._sock = sock

    def makefile(self, mode):
        return self._sock.makefile(mode, buffering=0)


def receive(sock):
    """Return the body of the next answer, and its headers."""
    answer = http.client.HTTPResponse(Unbuffered(sock))
    answer.begin()
    return answer.read().decode(), dict(answer.getheaders())


def test_a_parked_request_needs_no_thread(app, place, connect):
    with contextlib.ExitStack() as stack:
        parked = [stack.enter_context(connect()) for _ in range(20)]
        for sock in parked:
            send(sock, "/park")
        tickets = [app.ticket() for _ in parked]
        assert place.count == 20
        with connect() as other:
            send(other, "/other")
            assert receive(other)[0] == "/other"
        for number, ticket in enumerate(tickets):
            ticket.resume(text(f"answer {number}"))
        wanted = {f"answer {number}" for number in range(20)}
        assert {receive(sock)[0] for sock in parked} == wanted
    assert place.wait_until_empty(PATIENCE_S)


def test_the_connection_serves_further_requests(app, connect):
    with connect() as sock:
        for number in range(3):
            send(sock, "/park")
            app.ticket().resume(text(f"answer {number}"))
            assert receive(sock)[0] == f"answer {number}"
            send(sock, "/other")
            assert receive(sock)[0] == "/other"


def test_an_answer_may_come_before_the_worker_has_left(connect):
    with connect() as sock:
        for _ in range(20):
            send(sock, "/now")
            assert receive(sock)[0] == "now"


def test_the_next_request_waits_for_the_answer(app, place, connect):
    with connect() as sock:
        send(sock, "/park")
        ticket = app.ticket()
        send(sock, "/second")
        with connect() as other:
            send(other, "/other")
            receive(other)
        assert place.count == 1
        ticket.resume(text("first"))
        assert receive(sock)[0] == "first"
        assert receive(sock)[0] == "/second"
        sock.sendall((b"GET /park HTTP/1.1\r\n" + HOST + b"\r\n") * 2)
        app.ticket().resume(text("third"))
        assert receive(sock)[0] == "third"
        app.ticket().resume(text("fourth"))
        assert receive(sock)[0] == "fourth"


def test_a_client_that_goes_is_noticed(app, place, connect):
    sock = connect()
    send(sock, "/park")
    ticket = app.ticket()
    sock.close()
    assert place.wait_until_empty(PATIENCE_S)
    ticket.resume(text("nobody reads this"))
    with connect() as other:
        send(other, "/other")
        assert receive(other)[0] == "/other"


def test_a_client_that_goes_after_its_next_request_is_noticed(app, place, connect):
    sock = connect()
    send(sock, "/park")
    app.ticket()
    send(sock, "/second")
    sock.close()
    assert place.wait_until_empty(PATIENCE_S)


@pytest.mark.parametrize(
    ("version", "more"), [(b"1.0", b""), (b"1.1", b"Connection: close\r\n")]
)
def test_a_connection_for_one_request_is_closed(app, connect, version, more):
    with connect() as sock:
        send(sock, "/park", version=version, more=more)
        app.ticket().resume(text("answer"))
        assert receive(sock)[0] == "answer"
        assert sock.recv(1) == b""


def test_an_answer_that_fails_has_status_500(app, connect, caplog):
    def fail(_start):
        raise ZeroDivisionError

    with connect() as sock:
        send(sock, "/park")
        app.ticket().resume(fail)
        with contextlib.closing(http.client.HTTPResponse(sock)) as answer:
            answer.begin()
            assert answer.status == 500
    assert "ZeroDivisionError" in caplog.text


def test_answers_without_a_length_are_chunked(app, connect):
    def answer(start):
        start("200 OK", [("X-Late", "yes")])
        return [b"one", b"", b"two"]

    with connect() as sock:
        send(sock, "/park")
        app.ticket().resume(answer)
        body, headers = receive(sock)
        assert (body, headers["X-Late"]) == ("onetwo", "yes")
        send(sock, "/other")
        assert receive(sock)[0] == "/other"


def test_the_end_of_the_server_closes_parked_connections(served, app):
    made, connect = served
    with connect() as sock:
        send(sock, "/park")
        ticket = app.ticket()
        until("the worker has left it", lambda: len(made.parking._watched) == 1)
        made.stop()
        with contextlib.suppress(OSError):
            assert sock.recv(1) == b""
        ticket.resume(text("too late"))
        made.stop()
