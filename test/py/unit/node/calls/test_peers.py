"""Whether a node reaches the servers of others, on real sockets."""

import contextlib
import socket
import threading

import pytest

from ganeti.base import errors
from ganeti.base.net import netutils
from ganeti.node.calls import peers

LIMIT_S = 0.3


@contextlib.contextmanager
def listener():
    """A socket that accepts connections in its kernel alone."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made, made.getsockname()[1]


@contextlib.contextmanager
def server(answer):
    """A server that calls a function with each connection, then closes it."""

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = made.accept()
                with connection:
                    answer(connection)

    with listener() as (made, port):
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield port
        made.shutdown(socket.SHUT_RDWR)
        thread.join()


def reacts(port, greeting=b""):
    return netutils.server_reacts(
        "127.0.0.1", port, timeout_s=LIMIT_S, greeting=greeting
    )


def test_a_server_that_speaks_or_closes_reacts():
    with server(lambda connection: connection.sendall(b"SSH-2.0-x")) as port:
        assert reacts(port)
    with server(lambda connection: connection.recv(1)) as port:
        assert reacts(port, b"x")


def test_a_frozen_server_and_a_closed_port_do_not_react():
    with listener() as (_made, port):
        assert not reacts(port)
        assert not reacts(port, b"x")
    assert not reacts(port)


def test_a_machine_that_refuses_a_connection_is_alive(monkeypatch):
    with listener() as (_made, port):
        pass
    assert not reacts(port)
    # At an address of another machine.
    monkeypatch.setattr(netutils, "is_loopback", lambda _address: False)
    assert reacts(port)


def test_each_node_gets_its_answers_in_order():
    with (
        server(lambda connection: connection.sendall(b"SSH")) as ssh,
        server(lambda connection: connection.recv(1)) as daemon,
        listener() as (_made, frozen),
    ):
        rows = [("127.0.0.1", daemon, frozen), ("127.0.0.1", frozen, ssh)]
        assert peers.node_reaches(None, rows) == [(True, False), (False, True)]
    assert peers.node_reaches(None, []) == []


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([("node2; reboot", 1, 2)], "wanted an address, found 'node2; reboot'"),
        ([("127.0.0.1", 1, 2)] * 65, "wanted at most 64 nodes, found 65"),
    ],
)
def test_wrong_arguments_are_refused(rows, text):
    with pytest.raises(errors.OpExecError, match=text):
        peers.node_reaches(None, rows)
