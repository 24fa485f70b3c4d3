"""Server and client against each other, on loopback."""

import contextlib
import dataclasses
import os
import queue
import socket
import ssl
import threading
import time

import pycurl
import pytest
from OpenSSL import SSL

from fakes import ports
from ganeti.base import errors
from ganeti.base.tls import x509
from ganeti.protocols.http import admission, client, liveness, server, tls


class App:
    """Echoes bodies; a path decides what else happens."""

    def __init__(self):
        self.seen = []
        self.ports = set()
        self.gate = threading.Event()
        self.entered = queue.SimpleQueue()

    def __call__(self, environ, start):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        self.seen.append((environ["PATH_INFO"], body, environ.get(tls.PEER_KEY)))
        self.ports.add(environ["REMOTE_PORT"])
        if environ["PATH_INFO"] == "/wait":
            self.entered.put(None)
            self.gate.wait(120)
        status = "403 Forbidden" if environ["PATH_INFO"] == "/no" else "200 OK"
        start(status, [("Content-Length", str(len(body)))])
        return [body]


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    """Return a directory with certificates, and their digests by name."""
    top = tmp_path_factory.mktemp("pem")
    digests = {"server": x509.write_cluster_certificate(str(top / "server.pem"))}
    for name in ("good", "other"):
        digests[name] = x509.write_client_certificate(
            str(top / f"{name}.pem"),
            server_pem=str(top / "server.pem"),
            name=name,
            serial=5,
        )
    x509.write_cluster_certificate(str(top / "foreign.pem"))
    return top, digests


@pytest.fixture
def app():
    made = App()
    yield made
    made.gate.set()


def running(app, context=None, **options):
    made = server.Server(
        ("127.0.0.1", 0), app, context=context, threads=options.pop("threads", 3)
    )
    for name, value in options.items():
        setattr(made, name, value)
    return made, made.start_serving()


@pytest.fixture
def plain(app):
    made, port = running(app)
    yield port
    app.gate.set()
    made.stop()


@pytest.fixture
def secure(app, pem, tmp_path):
    top, digests = pem
    listed = {"u1": digests["good"]}
    list_path = tmp_path / "list"
    list_path.write_text("1")
    guard = tls.PeerGuard(digests["server"], str(list_path), lambda: listed)
    path = str(top / "server.pem")
    made, port = running(app, tls.server_context(path, path, guard=guard))
    yield port
    made.stop()


@pytest.fixture
def caller():
    made = client.Client()
    yield made
    made.close()


def request(port, path="/echo", body=b"[]", pem=None, name="good", **more):
    credentials = None
    if pem is not None:
        top = pem[0]
        credentials = client.Credentials(
            str(top / f"{name}.pem"), str(top / "server.pem")
        )
    return client.Request(
        **{
            "address": "127.0.0.1",
            "port": port,
            "path": path,
            "body": body,
            "credentials": credentials,
            "timeout_s": 20,
            **more,
        }
    )


def test_answers_come_in_the_order_of_requests(plain, caller):
    bodies = [str(number).encode() for number in range(40)]
    answers = caller.perform([request(plain, body=body) for body in bodies])
    assert [answer.body for answer in answers] == bodies


def test_large_bodies_pass_both_ways(plain, caller):
    body = bytes(range(256)) * 20000
    (answer,) = caller.perform([request(plain, body=body, max_answer=len(body))])
    assert answer.body == body
    (answer,) = caller.perform([request(plain, body=body, max_answer=len(body) - 1)])
    assert "the answer is larger than" in answer.error


def test_a_listed_certificate_is_served_and_named(secure, caller, app, pem):
    (answer,) = caller.perform([request(secure, pem=pem)])
    assert answer.status == 200
    assert app.seen[0][2] == pem[1]["good"]


@pytest.mark.parametrize("name", ["other", "server", "foreign"])
def test_other_certificates_are_refused_and_nothing_is_lost(
    secure, caller, app, pem, name
):
    (answer,) = caller.perform([request(secure, pem=pem, name=name)])
    assert "alert" in answer.error
    assert f"the server there refuses {pem[0]}/{name}.pem of this node" in answer.error
    assert (
        "run gnt-cluster verify on the master, then gnt-cluster renew-" in answer.error
    )
    assert answer.is_refused
    assert not answer.is_lost
    assert app.seen == []


def test_a_server_with_a_foreign_certificate_is_not_trusted(app, caller, pem):
    path = str(pem[0] / "foreign.pem")
    made, port = running(app, tls.server_context(path, path))
    (answer,) = caller.perform([request(port, pem=pem)])
    made.stop()
    assert "the server there has not the certificate" in answer.error
    assert answer.error.endswith("renew-crypto --new-cluster-certificate")
    assert not answer.is_refused
    assert not answer.is_lost


def shake_hands(port, pem, *, name="good", version=None, ciphers=None):
    """Make a handshake and one request; return protocol, cipher and status line."""
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    # The library itself must not be what refuses: the server has to.
    context.set_cipher_list(f"{ciphers or 'ALL'}:@SECLEVEL=0".encode())
    if version is not None:
        context.set_min_proto_version(version)
        context.set_max_proto_version(version)
    if name is not None:
        context.use_certificate_file(str(pem[0] / f"{name}.pem"))
        context.use_privatekey_file(str(pem[0] / f"{name}.pem"))
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.settimeout(None)
        connection = SSL.Connection(context, sock)
        connection.set_connect_state()
        connection.do_handshake()
        # In TLS 1.3 the client learns with its first read whether it was let in.
        connection.sendall(
            b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n[]"
        )
        status = connection.recv(100).split(b"\r\n")[0].decode()
        return (
            connection.get_protocol_version_name(),
            connection.get_cipher_name(),
            status,
        )


@pytest.mark.parametrize(
    ("version", "ciphers"),
    [
        (SSL.TLS1_3_VERSION, None),
        (SSL.TLS1_2_VERSION, None),
        (SSL.TLS1_2_VERSION, "ECDHE-RSA-AES128-GCM-SHA256"),
        (SSL.TLS1_2_VERSION, "ECDHE-RSA-CHACHA20-POLY1305"),
    ],
)
def test_a_handshake_with_ephemeral_keys_and_authenticated_encryption(
    secure, pem, version, ciphers
):
    name, cipher, status = shake_hands(secure, pem, version=version, ciphers=ciphers)
    assert status == "HTTP/1.1 200 OK"
    assert name == ("TLSv1.3" if version == SSL.TLS1_3_VERSION else "TLSv1.2")
    assert "GCM" in cipher or "CHACHA20" in cipher
    assert name == "TLSv1.3" or cipher.startswith("ECDHE-")


@pytest.mark.parametrize(
    "ciphers",
    [
        "AES256-GCM-SHA384",  # keys of the certificate itself
        "DHE-RSA-AES256-GCM-SHA384",
        "ECDHE-RSA-AES256-SHA384",  # encryption without authentication
        "ECDHE-RSA-AES128-SHA",
        "AES128-SHA",
        "NULL-SHA256",
    ],
)
def test_other_ciphers_are_refused(secure, pem, ciphers, app):
    with pytest.raises(SSL.Error, match="handshake failure"):
        shake_hands(secure, pem, version=SSL.TLS1_2_VERSION, ciphers=ciphers)
    assert app.seen == []


def test_old_tls_is_refused(secure, pem, app):
    with pytest.raises(SSL.Error, match="protocol version"):
        shake_hands(secure, pem, version=SSL.TLS1_1_VERSION)
    assert app.seen == []


@pytest.mark.parametrize("version", [SSL.TLS1_2_VERSION, SSL.TLS1_3_VERSION])
def test_a_caller_without_a_certificate_is_refused(secure, pem, app, version):
    with pytest.raises(SSL.Error, match=r"handshake failure|certificate required"):
        shake_hands(secure, pem, name=None, version=version)
    assert app.seen == []


def test_nobody_there_is_not_lost(caller):
    port = ports.free()
    (answer,) = caller.perform([request(port, server="the-daemon")])
    assert answer.error == (
        f"Error 7: 127.0.0.1:{port} does not answer: connection refused; is the-daemon"
        " running there?"
    )
    assert not answer.is_lost


@pytest.fixture
def full_listener():
    """Return a port whose queue of connections is full, so that none is made."""
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(2):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(made.getsockname())
        yield made.getsockname()[1]


def test_a_missing_machine_is_distinguished_from_a_daemon(full_listener, caller):
    (answer,) = caller.perform([request(full_listener, connect_timeout_s=0.2)])
    assert answer.error == (
        f"Error 28: 127.0.0.1:{full_listener} does not answer: no connection within"
        " 0.2 s; is the machine up and its network connected?"
    )
    assert not answer.is_lost


def test_a_timeout_after_sending_is_lost(plain, caller, app):
    caller.perform([request(plain)])
    # On a busy machine the time may be over before anything was sent.
    for limit_s in (0.5, 5, 50):
        (answer,) = caller.perform([request(plain, path="/wait", timeout_s=limit_s)])
        if answer.is_lost:
            break
    assert answer.error.startswith(f"Error 28: 127.0.0.1:{plain}: Operation timed out")
    assert answer.is_lost
    app.entered.get(timeout=60)
    assert [path for path, _, _ in app.seen] == ["/echo", "/wait"]


def dying_server(answers):
    """Answer the first requests of one connection, then read one more and hang up."""
    listener = socket.create_server(("127.0.0.1", 0))
    got = []

    def serve():
        with listener:
            sock, _ = listener.accept()
            with sock:
                for number in range(answers + 1):
                    got.append(sock.recv(65536))
                    if number < answers:
                        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            # A second connection would be the client's own repetition.
            listener.settimeout(0.3)
            try:
                again, _ = listener.accept()
            except TimeoutError:
                return
            got.append(b"repeated")
            again.close()

    thread = threading.Thread(target=serve)
    thread.start()
    return listener.getsockname()[1], thread, got


@pytest.mark.parametrize("answers", [0, 1])
def test_a_request_is_never_repeated_by_itself(caller, answers):
    port, thread, got = dying_server(answers)
    for _ in range(answers):
        assert caller.perform([request(port)])[0].body == b"ok"
    (answer,) = caller.perform([request(port)])
    thread.join()
    assert answer.error
    assert answer.is_lost
    assert b"repeated" not in got


def test_a_repeatable_request_survives_the_end_of_a_kept_connection(caller):
    """The server closes it when it has read the request, and answers on another one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        got = []

        def serve():
            for is_last in (False, True):
                sock, _ = listener.accept()
                with sock:
                    got.append(sock.recv(65536))
                    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    if not is_last:
                        got.append(sock.recv(65536))

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        for _ in range(2):
            (answer,) = caller.perform([request(port, is_repeatable=True)])
            assert (answer.error, answer.body) == (None, b"ok")
        thread.join()
    assert got[0] == got[1] == got[2]


def test_no_request_is_lost_on_connections_that_the_server_has_closed(caller):
    """Requests that must not be repeated, after a restart that closed several."""
    kept = []
    both = threading.Barrier(2)

    def serve(sock):
        kept.append(sock)
        with sock:
            while sock.recv(65536):
                both.wait(timeout=60)
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    sock = listener.accept()[0]
                    threading.Thread(target=serve, args=(sock,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        port = listener.getsockname()[1]
        for _ in range(5):
            answers = caller.perform([request(port)] * 2)
            assert [(one.error, one.body) for one in answers] == [(None, b"ok")] * 2
            for sock in kept:
                with contextlib.suppress(OSError):  # closed in an earlier round
                    sock.shutdown(socket.SHUT_RDWR)
        listener.shutdown(socket.SHUT_RDWR)


def test_a_refused_kept_connection_is_tried_once_more(plain, caller, app):
    caller.perform([request(plain)])
    (answer,) = caller.perform([request(plain, path="/no")])
    assert answer.status == 403
    assert [path for path, _, _ in app.seen] == ["/echo", "/no", "/no"]


def test_a_certificate_replaced_after_the_handshake_is_tried_once_more(
    caller, pem, tmp_path
):
    """The new connection began with the old one, which is no longer listed."""
    top, digests = pem
    own = tmp_path / "own.pem"
    own.write_bytes((top / "good.pem").read_bytes())
    peers = []

    def renew_and_answer(environ, start):
        peers.append(environ[tls.PEER_KEY])
        new = tmp_path / "new.pem"
        new.write_bytes((top / "other.pem").read_bytes())
        is_old = peers[-1] == digests["good"]
        if is_old:
            new.replace(own)
        start("403 Forbidden" if is_old else "200 OK", [("Content-Length", "0")])
        return []

    list_path = tmp_path / "list"
    list_path.write_text("1")
    listed = {"u1": digests["good"], "u1-next": digests["other"]}
    guard = tls.PeerGuard(digests["server"], str(list_path), lambda: listed)
    path = str(top / "server.pem")
    made, port = running(renew_and_answer, tls.server_context(path, path, guard=guard))
    credentials = client.Credentials(str(own), path)
    (answer,) = caller.perform([request(port, credentials=credentials)])
    made.stop()
    assert answer.status == 200
    assert peers == [digests["good"], digests["other"]]


def test_connections_are_kept(plain, caller, app):
    for _ in range(50):
        caller.perform([request(plain)])
    assert len(app.seen) == 50
    assert len(app.ports) == 1


def test_more_requests_than_threads_wait_their_turn(plain, caller, app):
    answers = queue.SimpleQueue()
    for _ in range(6):
        caller.start(request(plain, path="/wait"), answers.put)
    for _ in range(3):
        app.entered.get(timeout=60)
    assert app.entered.empty()
    app.gate.set()
    assert [answers.get(timeout=60).status for _ in range(6)] == [200] * 6


def test_too_large_bodies_are_refused(app, caller):
    made, port = running(app, max_request_body_size=1000)
    (answer,) = caller.perform([request(port, body=b"x" * 1001)])
    made.stop()
    assert answer.status == 413
    assert app.seen == []


def test_half_a_handshake_blocks_nobody(secure, caller, pem):
    half = [socket.create_connection(("127.0.0.1", secure), 5) for _ in range(20)]
    for sock in half:
        sock.sendall(b"\x16\x03\x01\x02\x00")
    (answer,) = caller.perform([request(secure, pem=pem)])
    assert answer.status == 200
    for sock in half:
        sock.close()


def test_plain_http_to_a_tls_port_is_refused(secure, caller):
    (answer,) = caller.perform([request(secure)])
    assert answer.error


def test_an_address_in_use_is_an_error_of_the_start(app, plain):
    second = server.Server(("127.0.0.1", plain), app, context=None, threads=1)
    with pytest.raises(OSError, match="in use"):
        second.start_serving()


def test_a_call_that_does_not_end_does_not_hold_up_the_stop(app, caller):
    made, port = running(app)
    caller.start(request(port, path="/wait"), lambda _response: None)
    app.entered.get(timeout=60)
    assert not server.wait_until_stopped(made, 0.2)
    assert all(
        thread.daemon
        for thread in threading.enumerate()
        if thread.name.startswith("CP Server")
    )


def test_closing_answers_what_is_under_way(plain, app):
    caller = client.Client()
    answers = queue.SimpleQueue()
    caller.start(request(plain, path="/wait"), answers.put)
    app.entered.get(timeout=60)
    caller.close()
    assert answers.get(timeout=60).is_lost


def test_an_ended_client_starts_again(plain, caller):
    caller.perform([request(plain)])
    caller.close()
    assert caller.perform([request(plain)])[0].status == 200


def test_a_forked_child_leaves_the_parents_connections_alone(secure, caller, app, pem):
    caller.perform([request(secure, pem=pem)])
    child = os.fork()
    if not child:
        code = 1
        try:
            (answer,) = caller.perform([request(secure, body=b"[1]", pem=pem)])
            code = 0 if answer.body == b"[1]" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    (answer,) = caller.perform([request(secure, body=b"[2]", pem=pem)])
    assert answer.body == b"[2]"


def test_the_last_list_counts_when_the_disk_fails(tmp_path):
    path = tmp_path / "list"
    path.write_text("1")
    calls = []

    def read():
        calls.append(1)
        if len(calls) > 1:
            raise OSError(5, "no disk")
        return {"u1": "AA"}

    guard = tls.PeerGuard("SS", str(path), read)
    assert guard.allows("AA")
    path.write_text("longer now")
    assert guard.allows("AA")
    assert not guard.allows("SS")
    path.unlink()
    assert guard.allows("SS")
    assert not guard.allows("AA")


def test_both_certificates_of_a_renewal_are_the_masters(tmp_path):
    path = tmp_path / "list"
    path.write_text("1")
    guard = tls.PeerGuard("SS", str(path), lambda: {"u1": "AA", "u1-next": "BB"})
    assert [guard.holder(digest) for digest in ("AA", "BB", "CC")] == ["u1", "u1", ""]


class Frozen:
    """A server that answers one request over TLS and then nobody any more."""

    def __init__(self, pem):
        path = str(pem[0] / "server.pem")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(path)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.kept = self.late = None
        self.thread = threading.Thread(target=self.serve_one)
        self.thread.start()

    def serve_one(self):
        sock, _peer = self.listener.accept()
        self.kept = self.context.wrap_socket(sock, server_side=True)
        self.kept.settimeout(60)
        self.read_request()
        self.answer()

    def read_request(self):
        received = b""
        while not received.endswith(b"[]"):
            received += self.kept.recv(4096)

    def answer(self):
        self.kept.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")

    def shake_hands(self):
        """Make handshakes until a client is there that has not given up."""
        while self.late is None:
            sock, _peer = self.listener.accept()
            with sock, contextlib.suppress(OSError):
                self.late = self.context.wrap_socket(sock, server_side=True)

    def close(self):
        self.thread.join()
        self.listener.close()
        for sock in (self.kept, self.late):
            if sock is not None:
                sock.close()


@pytest.fixture
def frozen(pem, caller):
    made = Frozen(pem)
    assert caller.perform([request(made.port, pem=pem)])[0].status == 200
    yield made
    made.close()


def test_a_question_to_a_frozen_server_is_given_up(frozen, caller, pem):
    probing = {"probe_after_s": 0.01, "connect_timeout_s": 0.1, "pem": pem}
    answers = caller.perform([request(frozen.port, **probing)] * 2)
    for answer in answers:
        assert "does not answer" in answer.error
        assert f": 127.0.0.1:{frozen.port}" in answer.error
    assert {answer.is_lost for answer in answers} == {True, False}
    # Nothing is sent to it any more until it makes a handshake.
    later = caller.perform([request(frozen.port, connect_timeout_s=0.1, pem=pem)])[0]
    assert "does not answer" in later.error
    assert not later.is_lost


def test_a_listing_waits_less_for_a_server_that_was_silent(frozen, caller, pem):
    """A probe waits longer than the listing, so a slow server is alive."""
    first = request(frozen.port, probe_after_s=0.01, connect_timeout_s=0.1, pem=pem)
    assert "does not answer" in caller.perform([first])[0].error
    brief = request(
        frozen.port,
        probe_after_s=60,
        connect_timeout_s=60,
        silent_connect_s=0.05,
        timeout_s=60,
        pem=pem,
    )
    (answer,) = caller.perform([brief])
    assert "within 0.05 s" in answer.error or "does not answer" in answer.error
    assert not answer.is_lost
    alive = threading.Event()
    answered = liveness.Liveness.alive

    def note(self, host, now):
        answered(self, host, now)
        alive.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(liveness.Liveness, "alive", note)
        # The handshake comes too late for the request.
        frozen.shake_hands()
        assert alive.wait(60)


def test_the_limit_of_a_listing_ends_no_other_request(frozen, caller, pem):
    """The probe decides, which has the usual limit."""
    first = request(frozen.port, probe_after_s=0.01, connect_timeout_s=0.1, pem=pem)
    assert "does not answer" in caller.perform([first])[0].error
    patient = {"probe_after_s": 60, "connect_timeout_s": 60, "pem": pem}
    of_job, answers = (request(frozen.port, **patient), queue.SimpleQueue())
    started = caller.start(
        dataclasses.replace(of_job, silent_connect_s=60), answers.put
    )
    brief = dataclasses.replace(of_job, silent_connect_s=0.05)
    assert "does not answer" in caller.perform([brief])[0].error
    assert answers.empty()
    caller.abort(started)
    assert "ended on request" in answers.get(timeout=60).error


class ProbesFirst:
    """The library's handle, but it reports everything at once, and probes first."""

    def __init__(self, multi, probes):
        self._multi = multi
        self._probes = probes

    def __getattr__(self, name):
        return getattr(self._multi, name)

    def info_read(self):
        left, good, bad = self._multi.info_read()
        bad.sort(key=lambda item: item[0] not in self._probes)
        return left, good, bad


def test_a_probe_and_its_request_may_time_out_together(
    frozen, secure, caller, pem, monkeypatch
):
    """The end of the probe gives up the request, which has ended as well."""
    start = client._Loop._start_probe

    def start_and_stand_still(loop, host, request):
        start(loop, host, request)
        loop._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        loop._multi = ProbesFirst(loop._multi, loop._probes)
        # Longer than both time limits, so that both have passed.
        time.sleep(0.3)

    monkeypatch.setattr(client._Loop, "_start_probe", start_and_stand_still)
    probing = {"probe_after_s": 0.05, "connect_timeout_s": 0.1, "pem": pem}
    answers = caller.perform([request(frozen.port, **probing)] * 2)
    assert all("does not answer" in answer.error for answer in answers)
    (alive,) = caller.perform([request(secure, pem=pem)])
    assert alive.status == 200


def test_a_request_that_acts_is_not_given_up(frozen, caller, pem):
    answers = queue.SimpleQueue()
    caller.start(request(frozen.port, pem=pem), answers.put)
    frozen.read_request()
    probing = {"probe_after_s": 0.01, "connect_timeout_s": 0.1, "pem": pem}
    assert (
        "does not answer" in caller.perform([request(frozen.port, **probing)])[0].error
    )
    assert answers.empty()
    frozen.answer()
    assert answers.get(timeout=60).status == 200


def test_a_request_that_acts_is_given_up_after_a_longer_silence(
    frozen, caller, pem, monkeypatch
):
    monkeypatch.setattr(liveness, "PROBE_EVERY_S", 0.05)
    (answer,) = caller.perform(
        [
            request(
                frozen.port,
                pem=pem,
                probe_after_s=0.05,
                silence_s=0.2,
                connect_timeout_s=0.1,
                timeout_s=60,
            )
        ]
    )
    assert "does not answer" in answer.error
    assert answer.is_lost


def test_a_server_that_was_silent_for_long_is_not_trusted(
    frozen, caller, pem, monkeypatch
):
    monkeypatch.setattr(liveness, "STALE_S", 0.0)
    answer = caller.perform([request(frozen.port, connect_timeout_s=0.1, pem=pem)])[0]
    assert "does not answer" in answer.error
    assert not answer.is_lost


def test_a_busy_server_is_waited_for(secure, app, caller, pem, monkeypatch):
    monkeypatch.setattr(liveness, "PROBE_EVERY_S", 0.01)
    answered = threading.Semaphore(0)
    alive = liveness.Liveness.alive

    def noting(self, host, now):
        alive(self, host, now)
        answered.release()

    monkeypatch.setattr(liveness.Liveness, "alive", noting)
    done = queue.SimpleQueue()
    # As many as the server has workers: none is left to look at the questions.
    for _worker in range(3):
        caller.start(request(secure, "/wait", pem=pem, probe_after_s=0.01), done.put)
        app.entered.get(timeout=60)
    for _question in range(5):
        assert answered.acquire(timeout=60)
    assert done.empty()
    app.gate.set()
    assert [done.get(timeout=60).status for _worker in range(3)] == [200] * 3


def test_a_damaged_list_at_start_lets_nobody_in(tmp_path):
    path = tmp_path / "list"
    path.write_bytes(b"\0\0\0")

    def read():
        raise errors.ConfigurationError("damaged")

    guard = tls.PeerGuard("SERVER", str(path), read)
    assert not guard.allows("SERVER")
    path.unlink()
    assert guard.allows("SERVER")


@pytest.fixture
def two_lanes(app, pem, tmp_path):
    """Return the port of a server whose path /wait has one thread and one place."""
    top, digests = pem
    list_path = tmp_path / "list"
    list_path.write_text("1")
    listed = {"u1": digests["good"]}
    guard = tls.PeerGuard(digests["server"], str(list_path), lambda: listed)
    path = str(top / "server.pem")
    slow = admission.Lane("slow", threads=1, waiting=1, patience_s=60)
    quick = admission.Lane("quick", threads=1)

    def choose(path):
        return "slow" if path == "/wait" else "quick"

    def answer(environ, start):
        app.lanes.append(environ[admission.LANE_KEY])
        if environ[admission.LANE_KEY] == admission.BUSY:
            start("503 Service Unavailable", [("Content-Length", "0")])
            return []
        return app(environ, start)

    app.lanes = []
    plan = admission.Plan([slow, quick], choose)
    made = server.Server(
        ("127.0.0.1", 0),
        answer,
        context=tls.server_context(path, path, guard=guard),
        threads=plan,
    )
    yield made.start_serving()
    app.gate.set()
    made.stop()


def test_lanes_do_not_wait_for_each_other(two_lanes, caller, app, pem):
    answers = queue.SimpleQueue()
    caller.start(request(two_lanes, "/wait", pem=pem), answers.put)
    app.entered.get(timeout=60)
    for _ in range(2):
        caller.start(request(two_lanes, "/wait", pem=pem), answers.put)
    # One waits; there is no place for the other one.
    assert answers.get(timeout=60).status == 503
    (quick,) = caller.perform([request(two_lanes, "/echo", pem=pem)])
    assert quick.status == 200
    app.gate.set()
    assert [answers.get(timeout=60).status for _ in range(2)] == [200, 200]
    assert app.lanes == ["slow", "busy", "quick", "slow"]


def test_connections_that_waited_for_too_long_are_refused():
    class Conn:
        remote_addr = "127.0.0.1"

        def __init__(self):
            self.ssl_env = {}

    lane = admission.Lane("slow", threads=1, waiting=3, patience_s=-1)
    made = admission.Lanes(None, admission.Plan([lane], lambda _path: "slow"))
    conn = Conn()
    assert made.put(conn, b"POST /a HTTP/1.1\r\n")
    assert conn.ssl_env[admission.LANE_KEY] == "slow"
    assert made.expire() == []
    assert conn.ssl_env[admission.LANE_KEY] == admission.BUSY
    assert made.qsize == 1


def test_a_lane_takes_as_many_connections_as_may_wait():
    class Conn:
        remote_addr = "127.0.0.1"

        def __init__(self):
            self.ssl_env = {}

    slow = admission.Lane("slow", threads=1, waiting=2)
    quick = admission.Lane("quick", threads=1, waiting=0)
    plan = admission.Plan([slow, quick], lambda path: path.removeprefix("/"))
    made = admission.Lanes(None, plan)
    taken = []
    for start in (b"POST /slow HTTP/1.1\r\n",) * 3 + (b"POST /quick HTTP/1.1\r\n", b""):
        conn = Conn()
        assert made.put(conn, start)
        assert conn.ssl_env[admission.CONNECTION_KEY] is conn
        taken.append(conn.ssl_env[admission.LANE_KEY])
    # The third, the fourth, and one that cannot be assigned are answered at once.
    assert taken == ["slow", "slow", "busy", "busy", "busy"]
    # No worker was started.
    assert (made.qsize, made.idle) == (5, 0)
    assert admission.Plan.single(7).lanes == (admission.Lane("all", 7),)
    assert admission.Plan.single(7).lane_of(b"POST /x HTTP/1.1\r\n") == "all"


def test_handshakes_with_very_many_servers_are_made_in_turn(caller, pem, monkeypatch):
    monkeypatch.setattr(client, "_CONNECTING_S", 1000.0)

    def refuse():
        for _ in range(500):
            listener.accept()[0].close()

    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    port, started = listener.getsockname()[1], []
    thread = threading.Thread(target=refuse, daemon=True)
    thread.start()
    answers = caller.perform(
        [request(port, pem=pem)] * 500,
        on_answer=lambda _answer: started.append(len(caller._loop._running)),
    )
    thread.join(60)
    listener.close()
    assert all(answer.error and not answer.is_lost for answer in answers)
    # The handshakes of all at once would take longer than the time limit of each.
    assert max(started) <= client._MAX_BEGINNING
    assert not caller._loop._beginning


def test_commits_wait_for_no_other_handshakes(frozen, secure, caller, pem, monkeypatch):
    monkeypatch.setattr(client, "_MAX_BEGINNING", 1)
    monkeypatch.setattr(client, "_CONNECTING_S", 1000.0)
    monkeypatch.setattr(liveness, "STALE_S", 0.0)
    done = queue.SimpleQueue()
    # It accepts the connection, and makes no handshake.
    first = caller.start(request(frozen.port, connect_timeout_s=60, pem=pem), done.put)
    listing = request(secure, pem=pem)
    caller.start(listing, done.put)
    commit = dataclasses.replace(listing, goes_first=True)
    assert caller.perform([commit])[0].status == 200
    assert done.empty()
    caller.abort(first)
    answers = [done.get(timeout=60) for _ in range(2)]
    assert {answer.status for answer in answers} == {0, 200}


@pytest.mark.parametrize(("rate", "started"), [(100, 1), (10**12, 2)])
def test_large_bodies_are_delivered_in_turn_and_answered_at_a_time(
    plain, caller, app, monkeypatch, rate, started
):
    monkeypatch.setattr(client, "_MAX_BEGINNING", 1)
    monkeypatch.setattr(client, "_READ_RATE", rate)
    large, done = request(plain, "/wait", bytes(100_000)), queue.SimpleQueue()
    caller.start_all([(large, done.put)] * 2)
    for _ in range(started):
        app.entered.get(timeout=60)
    # Others would take their share of the bandwidth while the server's limit runs.
    assert len(caller._loop._running) == started
    app.gate.set()
    assert {done.get(timeout=60).status for _ in range(2)} == {200}


def test_a_handshake_under_way_is_not_doubled_by_a_probe(
    frozen, caller, pem, monkeypatch
):
    monkeypatch.setattr(liveness, "STALE_S", 0.0)
    probes = []
    monkeypatch.setattr(client._Loop, "_start_probe", lambda *args: probes.append(args))
    acting = {"probe_after_s": 0.0, "silence_s": 60.0, "connect_timeout_s": 0.2}
    first = request(frozen.port, pem=pem, **acting)
    (answer,) = caller.perform([first])
    # The end of the handshake's own time limit shows that the server is frozen.
    assert not probes
    assert "it accepts connections but does not answer" in answer.error
    assert caller._loop._liveness.is_silent(first.host)
