"""The check of packet filters: real connections, by a real shell and from Python."""

import contextlib
import socket

import pytest

from ganeti import errors
from ganeti.bootstrap import port_checks
from ganeti.process import SystemRunner

HERE = "127.0.0.1"
NODE, MASTER = ("node2", HERE), ("node1", HERE)


@contextlib.contextmanager
def listener(backlog=8):
    with socket.create_server((HERE, 0), backlog=backlog) as server:
        yield server.getsockname()[1]


@contextlib.contextmanager
def silent_port():
    """A port that drops connections: the queue of its listener is full."""
    with listener(0) as port, contextlib.ExitStack() as stack:
        for _ in range(2):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex((HERE, port))
        yield port


def check(ports, shell=None):
    runner = shell or SystemRunner()
    return port_checks.warnings(runner, NODE, MASTER, ports, connect_s=0.3)


def test_open_and_refused_ports_need_no_warning():
    with socket.create_server((HERE, 0)) as server:
        unused = server.getsockname()[1]
    with listener() as port:
        assert check({port: "node daemon", unused: "live migration"}) == []


def test_silent_ports_are_named_with_both_machines_and_their_purpose():
    with listener() as fine, silent_port() as dropped:
        first, second = check({fine: "SSH", dropped: "node daemon"})
    assert first.startswith("Warning: node2 gets no answer from node1 on TCP port ")
    assert second.startswith("Warning: node1 gets no answer from node2 on TCP port ")
    for text in (first, second):
        assert f"port {dropped} (node daemon);" in text
        assert str(fine) not in text


class Broken:
    """A machine without a shell."""

    def __init__(self, error):
        self.error = error

    def run(self, _argv, *, timeout_s=None):
        assert timeout_s
        raise self.error


def test_a_node_that_cannot_run_the_check_gets_no_warning():
    with listener() as port:
        assert check({port: "SSH"}, Broken(errors.CommandError("no shell"))) == []


def test_a_broken_connection_ends_the_check():
    with pytest.raises(errors.SshError):
        check({1: "SSH"}, Broken(errors.SshError("gone")))
