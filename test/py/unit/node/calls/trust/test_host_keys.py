"""SSH host keys of a node: a reloaded server refuses connections for a moment."""

import contextlib
import os
import socket

import paramiko
import pytest

from fakes import nodes, ssh_server
from ganeti.base import errors
from ganeti.node.calls.membership import master
from ganeti.node.calls.trust import host_keys
from ganeti.protocols import ssconf
from ganeti.protocols.ssh import keys

NAME = "node1.example"
KIND = "ed25519"


class Machine(nodes.CountedClock):
    """A node whose reloaded SSH server opens its socket during the third wait."""

    def __init__(self, directory):
        super().__init__()
        self.waits = 0
        self.servers = contextlib.ExitStack()
        # Bound and not listening: connections are refused until a server has the port.
        self.reserved = socket.socket()
        self.reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.reserved.bind(("127.0.0.1", 0))
        self.port = self.reserved.getsockname()[1]
        self.node = nodes.make_node(directory, NAME, time=self)
        paths = self.node.paths
        for path in (paths.data_dir, paths.lock_dir, paths.sshd_dir):
            os.makedirs(path, exist_ok=True)
        self.key_path = keys.host_key_path(paths.sshd_dir, KIND)
        keys.save(keys.generate(KIND, None, "root"), self.key_path)
        values = {
            "ssh_ports": f"{NAME}={self.port}",
            "node_primary_ips": f"{NAME} 127.0.0.1",
        }
        ssconf.write(paths, values)

    def wait(self, event, timeout_s):
        self.waits += 1
        if self.waits == 3:
            self.reserved.close()
            key = paramiko.Ed25519Key.from_private_key_file(self.key_path)
            server = ssh_server.Server(key, ssh_server.Account(), port=self.port)
            self.servers.enter_context(server)
        return super().wait(event, timeout_s)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(master, "daemon_util", lambda *_words: None)
    made = Machine(tmp_path)
    with made.servers:
        yield made
    made.reserved.close()


def test_new_keys_are_used_when_the_reloaded_server_answers_at_last(machine):
    (new,) = host_keys.make(machine.node)
    assert host_keys.use(machine.node) == (new,)
    assert machine.waits == 3
    assert not os.path.exists(machine.key_path + host_keys.WAITING)


def test_a_server_that_never_answers_is_named_and_the_keys_wait(machine):
    host_keys.make(machine.node)
    machine.waits = 3
    with pytest.raises(errors.SshError, match=f"{NAME}.*cannot be reached"):
        host_keys.use(machine.node)
    assert os.path.exists(machine.key_path + host_keys.WAITING)
