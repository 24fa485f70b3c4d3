"""A server that drops callers before its greeting is called again, a limited number of times."""

import socket
import threading

import pytest

from ganeti.base import errors
from ganeti.protocols.ssh import client


def test_a_dropped_connection_is_tried_again_and_then_named(monkeypatch):
    monkeypatch.setattr(client, "CONNECT_PAUSE_S", 0.0)
    met = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drop():
            while len(met) < client.CONNECT_ATTEMPTS:
                sock, _peer = server.accept()
                met.append(sock)
                sock.close()

        thread = threading.Thread(target=drop)
        thread.start()
        with pytest.raises(errors.SshError, match="no SSH connection"):
            client.Client(
                "127.0.0.1",
                server.getsockname()[1],
                client.Identity(user="root", key_files=()),
            )
        thread.join()
    assert len(met) == client.CONNECT_ATTEMPTS


def test_a_silent_server_is_asked_once(monkeypatch):
    monkeypatch.setattr(client, "CONNECT_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        identity = client.Identity(user="root", key_files=())
        with pytest.raises(errors.SshError, match="frozen or overloaded"):
            client.Client("127.0.0.1", port, identity)
        server.settimeout(1)
        server.accept()[0].close()
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
