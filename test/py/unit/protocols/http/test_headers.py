"""Headers and chunks that two programs could understand in two ways."""

import socket

import pytest

from ganeti.protocols.http import server, strict


def app(environ, start):
    """Answer with the body, or with what is wrong with it."""
    try:
        body = environ["wsgi.input"].read(1000)
    except strict.BodyTooLargeError:
        body = b"too large"
    except ValueError as err:
        body = str(err).encode()
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]


@pytest.fixture(scope="module")
def port():
    made = server.Server(
        ("127.0.0.1", 0), app, context=None, threads=1, max_body=10_000
    )
    yield made.start_serving()
    made.stop()


def send(port, lines, body=b""):
    """Return status and body of the answer to a request with some header lines."""
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        sock.sendall(b"POST /a HTTP/1.1\r\n" + lines + b"\r\n" + body)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := sock.recv(1 << 16):
            answer += piece
    assert answer.count(b"HTTP/1.1 ") == 1
    head, _, content = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), content


@pytest.mark.parametrize(
    "lines",
    [
        b" more\r\n",
        b"X: a\r\n more\r\n",
        b"X: a\r\n\tmore\r\n",
        b"Content-Length : 5\r\n",
        b"X Y: a\r\n",
        b": a\r\n",
        b"Content-Length: 0\r\nContent-Length: 5\r\n",
        b"Content-Length: 5\r\ncontent-length: 5\r\n",
        b"Host: a\r\nHost: b\r\n",
        b"Authorization: a\r\nAuthorization: b\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"X: a\rContent-Length: 5\r\n",
        b"X: a\0b\r\n",
        b"X: a\nContent-Length: 5\r\n",
        b"X\r\n",
        b"Content-Length: \x0b5\r\n",
        b"Transfer-Encoding: \x0cchunked\r\n",
        b"X: a\x7fb\r\n",
        b"Content-Length: 5\r\nContent_Length: 0\r\n",
        b"transfer_encoding: chunked\r\n",
    ],
)
def test_doubtful_headers_are_refused(port, lines):
    assert send(port, lines, b"GET /next HTTP/1.1\r\n\r\n")[0] == 400


def test_other_headers_may_be_repeated(port):
    lines = b"Content-Length: 2\r\nX: a\r\nX: b\r\nAccept: a\r\nAccept: b\r\n"
    assert send(port, lines, b"ab") == (200, b"ab")


CHUNKED = b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    "size", [b"-5", b"+5", b"0x5", b"1_0", b"zz", b"", b"5 5", b"\x0b5", b"5\r"]
)
def test_sizes_of_chunks_are_plain_hexadecimal_numbers(port, size):
    body = size + b"\r\nhello\r\n0\r\n\r\n"
    assert send(port, CHUNKED, body) == (200, b"malformed size of a chunk")


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b"5;x=y\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"5\r\nhello world\r\n", b"malformed end of a chunk"),
        (b"5\r\nhel", b"malformed end of a chunk"),
        (b"5\nhello\r\n0\r\n\r\n", b"malformed size of a chunk"),
        (b"5;" + b"x" * 300 + b"\r\nhello\r\n", b"malformed size of a chunk"),
        (b"FFFFFFFFFF\r\nhello", b"too large"),
        (b"2711\r\nhello", b"too large"),
        (b"f" * 17 + b"\r\nhello", b"malformed size of a chunk"),
    ],
)
def test_chunks_are_complete_and_not_too_large(port, body, wanted):
    assert send(port, CHUNKED, body) == (200, wanted)
