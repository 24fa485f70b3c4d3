"""Headers that are none."""

import socket

from ganeti.http import server


def test_a_continuation_of_nothing_is_refused():
    app = lambda _environ, _start: []  # noqa: E731
    made = server.Server(("127.0.0.1", 0), app, context=None, threads=1)
    port = made.start_serving()
    try:
        with socket.create_connection(("127.0.0.1", port), 60) as sock:
            sock.sendall(b"POST /version HTTP/1.1\r\n more\r\n\r\n")
            answer = sock.recv(1 << 16)
    finally:
        made.stop()
    assert answer.startswith(b"HTTP/1.1 400 ")
