"""Data that a node reports about itself, and whether it reaches others."""

import contextlib
import os
import socket
import threading
import types

import pytest

from fakes import nodes, ports
from fakes.patience import PATIENCE_S
from ganeti.base import errors, pathutils
from ganeti.base.net import netutils
from ganeti.node.calls import basics


@pytest.fixture
def node(tmp_path):
    made = nodes.make_node(tmp_path, time=nodes.CountedClock())
    os.makedirs(made.paths.data_dir)
    return made


def test_node_info_answers_what_is_asked(node):
    units = [["file", nodes.STORAGE_DIR, []], ["lvm-vg", "xenvg", []]]
    boot_id, storage, hosts = nodes.call(node, "node_info", units, [["fake", {}]])
    assert len(boot_id) == 36
    assert storage[0]["storage_size"] >= storage[0]["storage_free"] > 0
    assert storage[1] is None
    assert hosts[0]["memory_total"] > 0
    assert nodes.call(node, "node_info", None, None)[1:] == (None, None)
    with pytest.raises(errors.HypervisorError, match="vax"):
        nodes.call(node, "node_info", None, [["vax", {}]])


def test_a_virtual_node_has_its_own_boot_id(node):
    shared, *_rest = nodes.call(node, "node_info", None, None)
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        assert shared == stream.read().strip()
    with open(f"{node.paths.root}/boot-id", "w", encoding="ascii") as stream:
        stream.write("mine\n")
    assert nodes.call(node, "node_info", None, None)[0] == "mine"


def test_the_watchers_pause_ends_by_itself(node):
    assert nodes.call(node, "get_watcher_pause") is None
    nodes.call(node, "set_watcher_pause", 1500.5)
    assert nodes.call(node, "get_watcher_pause") == 1500.5
    node.clock.now = 1501.0
    assert nodes.call(node, "get_watcher_pause") is None
    nodes.call(node, "set_watcher_pause", 9000)
    nodes.call(node, "set_watcher_pause", None)
    nodes.call(node, "set_watcher_pause", None)
    assert nodes.call(node, "get_watcher_pause") is None


def test_missing_bridges_are_named(node):
    nodes.call(node, "bridges_exist", [])
    with pytest.raises(errors.GenericError, match="no-such-bridge"):
        nodes.call(node, "bridges_exist", ["no-such-bridge"])
    # The emulator's own network needs no bridge; real nodes do not have it.
    nodes.call(node, "bridges_exist", ["user-network"])
    real = types.SimpleNamespace(paths=pathutils.Paths(hostname="node1"))
    assert basics.missing_bridges(real, ["user-network"]) == ["user-network"]


def test_files_have_sizes(node):
    with open(node.paths.data("f"), "w") as stream:
        stream.write("12345")
    path = pathutils.VIRTUAL_PREFIX + "/var/lib/ganeti/f"
    assert nodes.call(node, "get_file_info", path) == (True, {"size": 5})
    assert nodes.call(node, "get_file_info", path + "x") == (False, {})


def test_addresses(node):
    assert nodes.call(node, "node_has_ip_address", "127.0.0.3")
    assert not nodes.call(node, "node_has_ip_address", "192.0.2.99")


# Whether a node reaches the servers of others, on real sockets.

#: Seconds until a server that does not react is given up.
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


def reacts(port, greeting=b"", limit_s=LIMIT_S):
    return netutils.server_reacts(
        "127.0.0.1", port, timeout_s=limit_s, greeting=greeting
    )


def test_a_server_that_speaks_or_closes_reacts():
    with server(lambda connection: connection.sendall(b"SSH-2.0-x")) as port:
        assert reacts(port, limit_s=PATIENCE_S)
    with server(lambda connection: connection.recv(1)) as port:
        assert reacts(port, b"x", PATIENCE_S)


def test_a_frozen_server_and_a_closed_port_do_not_react():
    with listener() as (_made, port):
        assert not reacts(port)
        assert not reacts(port, b"x")
    assert not reacts(port)


def test_a_machine_that_refuses_a_connection_is_alive(monkeypatch):
    port = ports.free()
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
        assert basics.node_reaches(None, rows) == [(True, False), (False, True)]
    assert basics.node_reaches(None, []) == []


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([("node2; reboot", 1, 2)], "wanted an address, found 'node2; reboot'"),
        ([("127.0.0.1", 1, 2)] * 65, "wanted at most 64 nodes, found 65"),
    ],
)
def test_wrong_arguments_are_refused(rows, text):
    with pytest.raises(errors.OpExecError, match=text):
        basics.node_reaches(None, rows)
