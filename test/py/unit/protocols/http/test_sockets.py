"""The server's side of a connection: time limits, ends and broken data."""

import socket
from types import SimpleNamespace

import pytest
from OpenSSL import SSL

from ganeti.base.tls import x509
from ganeti.protocols.http import limits, sockets, tls


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("pem") / "server.pem")
    x509.write_cluster_certificate(path)
    return path


class Pair:
    """A connected server and client; the client's descriptor never blocks."""

    def __init__(self, path):
        own, self.raw = socket.socketpair()
        self.raw.setblocking(False)
        self.server = tls.TlsSocket(tls.server_context(path, path), own)
        context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        context.use_certificate_file(path)
        context.use_privatekey_file(path)
        self.client = SSL.Connection(context, self.raw)
        self.client.set_connect_state()
        while not all([self.server.handshake(), self._shake()]):
            pass

    def _shake(self):
        try:
            self.client.do_handshake()
        except SSL.WantReadError:
            return False
        return True

    def read(self):
        buffer = bytearray(100)
        return bytes(buffer[: self.server.recv_into(buffer)])


class PlainPair:
    """The same without TLS."""

    def __init__(self):
        own, self.client = socket.socketpair()
        self.client.setblocking(False)
        self.server = sockets.PlainSocket(own)

    read = Pair.read


@pytest.fixture
def tls_pair(pem):
    made = Pair(pem)
    yield made
    made.server.close()
    made.raw.close()


@pytest.fixture(params=["tls", "plain"])
def pair(request):
    if request.param == "tls":
        yield request.getfixturevalue("tls_pair")
        return
    made = PlainPair()
    yield made
    made.server.close()
    made.client.close()


def test_without_a_limit_data_is_read_and_written(pair):
    assert pair.server.gettimeout() is None
    pair.client.send(b"question")
    assert pair.server.peek(3) == b"que"
    assert pair.read() == b"question"
    assert pair.server.send(b"answer") == 6
    assert pair.client.recv(100) == b"answer"
    assert pair.server.peek(1) is None


def test_silence_ends_a_read(pair):
    pair.server.settimeout(0.0)
    with pytest.raises(TimeoutError, match="timed out"):
        pair.read()


def test_a_peer_that_reads_nothing_ends_a_write(pair):
    pair.server.settimeout(0.0)
    with pytest.raises(TimeoutError, match="timed out"):
        for _ in range(1000):
            pair.server.send(bytes(65536))


def write_to_reader(pair, monkeypatch, pause_s):
    """Send 4 MiB to a peer that reads a record, at most 16 KiB, after each pause."""
    now = [0.0]

    def wait(_event, left_s=1.0):
        if left_s <= 0:
            raise TimeoutError
        now[0] += pause_s
        pair.client.recv(1 << 14)

    monkeypatch.setattr(sockets, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(pair.server, "_wait", wait)
    for _ in range(64):
        pair.server.send(bytes(1 << 16))


def test_a_peer_that_reads_an_answer_too_slowly_ends_it(pair, monkeypatch):
    write_to_reader(pair, monkeypatch, pause_s=1.0)
    pair.server.begin_request()
    write_to_reader(pair, monkeypatch, pause_s=1.0)
    with pytest.raises(TimeoutError):
        write_to_reader(pair, monkeypatch, pause_s=9.0)


def test_a_request_that_is_late_as_a_whole_ends_a_read(pair, monkeypatch):
    monkeypatch.setattr(limits, "REQUEST_TIMEOUT_S", -1.0)
    with pytest.raises(TimeoutError, match="timed out"):
        pair.read()


def test_an_ended_plain_connection_is_the_end():
    pair = PlainPair()
    pair.client.close()
    assert pair.server.peek(1) == b""
    assert pair.read() == b""
    pair.server.close()
    assert pair.server.peek(1) == b""


def test_a_plain_connection_is_established_by_its_first_request():
    pair = PlainPair()
    assert not pair.server.is_established
    pair.server.begin_request()
    assert pair.server.is_established
    pair.server.close()
    pair.client.close()


def test_a_closed_session_is_the_end(tls_pair):
    tls_pair.client.shutdown()
    assert tls_pair.read() == b""
    assert tls_pair.server.peek(1) == b""


def test_data_outside_the_session_is_a_broken_connection(tls_pair):
    tls_pair.raw.send(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        tls_pair.read()


def test_a_lost_connection_is_a_broken_connection(tls_pair):
    tls_pair.raw.close()
    with pytest.raises(ConnectionResetError):
        tls_pair.read()


def test_a_peer_without_tls_is_refused_in_the_handshake(pem):
    own, other = socket.socketpair()
    server = tls.TlsSocket(tls.server_context(pem, pem), own)
    assert not server.handshake()
    other.send(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(ConnectionAbortedError, match="no TLS connection"):
        server.handshake()
    assert not server.is_established
    other.close()
    own.close()


def test_a_peer_that_leaves_in_the_handshake_is_gone(pem):
    own, other = socket.socketpair()
    other.close()
    with pytest.raises(ConnectionResetError, match="during the handshake"):
        tls.TlsSocket(tls.server_context(pem, pem), own).handshake()
    own.close()


@pytest.fixture
def written(pair, monkeypatch):
    """Return (file for answers, what it has sent at a time)."""
    sent = []

    def send(data):
        sent.append(bytes(data))
        return len(data)

    monkeypatch.setattr(pair.server, "send", send)
    writer = sockets.make_file(pair.server, "wb", 8192)
    yield writer, sent
    writer.close()


def test_a_head_is_sent_with_the_first_part_of_its_body(written):
    writer, sent = written
    with writer.holding():
        assert writer.write(b"head ") == 5
    assert sent == []
    assert writer.write(b"one") == 3
    writer.write(b"two")
    writer.release()
    assert sent == [b"head one", b"two"]
    assert writer.bytes_written == len(b"head onetwo")


def test_a_head_without_a_body_is_sent_at_the_end(written):
    writer, sent = written
    with writer.holding():
        writer.write(b"head")
    writer.release()
    writer.release()
    assert sent == [b"head"]


@pytest.mark.parametrize(("size", "parts"), [(16380, 1), (16381, 2)])
def test_a_large_part_of_a_body_is_not_copied(written, size, parts):
    writer, sent = written
    with writer.holding():
        writer.write(b"head")
    writer.write(b"x" * size)
    assert (len(sent), b"".join(sent)) == (parts, b"head" + b"x" * size)


def test_an_error_in_place_of_a_head_is_sent_at_once(written):
    writer, sent = written
    with pytest.raises(TimeoutError), writer.holding():
        raise TimeoutError
    writer.write(b"error")
    assert sent == [b"error"]
