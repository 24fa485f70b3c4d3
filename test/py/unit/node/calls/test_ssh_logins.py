"""Logins to other nodes, the tool that changes keys, and host keys of a node."""

import contextlib
import json
import os
import socket

import paramiko
import pytest

from fakes import nodes, ssh_server
from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.base.process import RunResult
from ganeti.base.tls import x509
from ganeti.node.calls import crypto, ssh_keys, verify
from ganeti.node.calls.membership import roles
from ganeti.protocols import ssconf
from ganeti.protocols.ssh import client, keys

THIS, OTHER, THIRD = (f"node{number}.example" for number in (1, 2, 3))


class Shells:
    """Logins in memory: results by node and first word of the command."""

    def __init__(self):
        self.results, self.opened, self.ran = {}, {}, []

    def __call__(self, name, port, identity, *, address, environment):
        self.opened[name] = (port, address, environment)
        self.identity = identity
        if isinstance(self.results[name], errors.GenericError):
            raise self.results[name]
        return Shell(self, name)


class Shell:
    def __init__(self, owner, name):
        self._owner, self._name = owner, name

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass

    def run(self, words, *, stdin=None, timeout_s):
        self._owner.ran.append((self._name, words, stdin, timeout_s))
        return self._owner.results[self._name][os.path.basename(words[0])]


def result(stdout="", stderr="", code=0):
    return RunResult((), code, None, stdout, stderr)


@pytest.fixture
def node(tmp_path):
    made = nodes.make_node(tmp_path, THIS)
    os.makedirs(made.paths.data_dir)
    os.makedirs(made.paths.lock_dir, exist_ok=True)
    values = {
        "cluster_name": "cluster.example",
        "node_primary_ips": f"{OTHER} 192.0.2.2",
        "ssh_ports": f"{THIS}=2201\n{OTHER}=2202",
    }
    ssconf.write(made.paths, values)
    return made


@pytest.fixture
def shells(monkeypatch):
    made = Shells()
    monkeypatch.setattr(client, "Client", made)
    identity = lambda paths, name: (paths.hostname, name)  # noqa: E731
    monkeypatch.setattr(client, "cluster_identity", identity)

    def lookup(name, _paths):
        if name != THIRD:
            raise errors.ResolverError(name, 0, "unknown host")
        return "192.0.2.3"

    monkeypatch.setattr(netutils, "lookup", lookup)
    return made


def environment(node, name):
    root = os.path.dirname(node.paths.root)
    return {"GANETI_ROOTDIR": f"{root}/{name}", "GANETI_HOSTNAME": name}


def test_nodes_are_asked_for_their_names(node, shells):
    names = {"sh": result(f"{OTHER}\n")}, {"sh": result("node3\n")}
    shells.results = dict(zip((OTHER, THIRD), names, strict=True))
    assert verify.check_reach(node, {OTHER: 2202, THIRD: 22}) == {}
    assert shells.opened == {
        OTHER: (2202, "192.0.2.2", environment(node, OTHER)),
        THIRD: (22, "192.0.2.3", environment(node, THIRD)),
    }
    assert shells.identity == (THIS, "cluster.example")
    command = "echo ${GANETI_HOSTNAME:-$(hostname --fqdn 2>/dev/null || hostname)}"
    expected = [(name, ["sh", "-c", command], None, 30.0) for name in (OTHER, THIRD)]
    assert sorted(shells.ran) == expected


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (result("node2\n"), None),
        (result(f"{OTHER}\n"), None),
        (result("node3\n"), f"wanted host name {OTHER}, found node3"),
        (
            result("node2.other\n"),
            f"wanted host name {OTHER}, found node2.other",
        ),
        (result(""), f"wanted host name {OTHER}, found "),
        (
            result("part\n", "sh: broken\n", 3),
            "cannot query its host name: part\nsh: broken",
        ),
    ],
)
def test_the_problem_of_a_node_is_named(node, shells, answer, problem):
    shells.results = {OTHER: {"sh": answer}}
    expected = {} if problem is None else {OTHER: problem}
    assert verify.check_reach(node, {OTHER: 22}) == expected


def test_a_node_that_cannot_be_reached_does_not_hide_the_others(node, shells):
    shells.results = {
        OTHER: errors.SshError("no route to host"),
        THIRD: {"sh": result("node9")},
    }
    ports = {"gone.example": 22, OTHER: 22, THIRD: 22}
    actual = verify.check_reach(node, ports)
    assert list(actual) == ["gone.example", OTHER, THIRD]
    assert "unknown host" in actual["gone.example"]
    assert actual[OTHER] == "no route to host"
    assert actual[THIRD] == f"wanted host name {THIRD}, found node9"


@pytest.fixture
def distribution(node, shells):
    x509.write_cluster_certificate(node.paths.server_pem)
    return ssh_keys.Distribution(node)


def test_a_change_goes_to_the_tool_of_the_other_node(node, shells, distribution):
    shells.results = {OTHER: {"ssh-update": result("done")}}
    assert distribution.run_tool(OTHER, {"public_keys": ["add", {}]}) == "done"
    ((name, words, stdin, timeout_s),) = shells.ran
    tool = f"{node.paths.tools_dir}/ssh-update"
    assert (name, words, timeout_s) == (OTHER, [tool], 60.0)
    message = json.loads(stdin)
    pem = message.pop("node_daemon_certificate")
    assert pem.encode() in files.read_file(node.paths.server_pem)
    assert "PRIVATE" not in pem
    expected = {"cluster_name": "cluster.example", "public_keys": ["add", {}]}
    assert message == expected
    expected = (2202, "192.0.2.2", environment(node, OTHER))
    assert shells.opened == {OTHER: expected}


def test_a_file_is_read_after_the_change(node, shells, distribution):
    shells.results = {
        OTHER: {"ssh-update": result("done"), "cat": result("ssh-ed25519 AA\n")}
    }
    read = distribution.run_tool(OTHER, {}, ".ssh/id_rsa.pub")
    assert read == "ssh-ed25519 AA\n"
    root = environment(node, OTHER)["GANETI_ROOTDIR"]
    expected = (OTHER, ["cat", f"{root}/root/.ssh/id_rsa.pub"], None, 60.0)
    assert shells.ran[1:] == [expected]


@pytest.mark.parametrize(
    ("tool", "cat", "text"),
    [
        (
            result("a", "b\n", 2),
            None,
            "ssh-update exited with code 2: ab",
        ),
        (result(), result("", "no file\n", 1), "cat exited with code 1: no file"),
    ],
)
def test_a_step_that_fails_is_named(node, shells, distribution, tool, cat, text):
    shells.results = {OTHER: {"ssh-update": tool, "cat": cat}}
    with pytest.raises(errors.SshUpdateError) as caught:
        distribution.run_tool(OTHER, {}, ".ssh/id_rsa.pub")
    assert str(caught.value) == text


def test_a_node_that_the_files_lack_has_the_port_of_this_node(
    node, shells, distribution
):
    shells.results = {THIRD: {"ssh-update": result()}}
    distribution.run_tool(THIRD, {})
    assert shells.opened[THIRD][:2] == (2201, "192.0.2.3")
    ssconf.write(node.paths, {"ssh_ports": ""})
    distribution.run_tool(THIRD, {})
    assert shells.opened[THIRD][0] == 22


# SSH host keys of a node: a reloaded server refuses connections for a moment.

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
    monkeypatch.setattr(roles, "daemon_util", lambda *_words: None)
    made = Machine(tmp_path)
    with made.servers:
        yield made
    made.reserved.close()


def test_new_keys_are_used_when_the_reloaded_server_answers_at_last(machine):
    (new,) = crypto.make_host_keys(machine.node)
    assert crypto.use_host_keys(machine.node) == (new,)
    assert machine.waits == 3
    assert not os.path.exists(machine.key_path + crypto.WAITING_HOST_KEYS)


def test_a_server_that_never_answers_is_named_and_the_keys_wait(machine):
    crypto.make_host_keys(machine.node)
    machine.waits = 3
    with pytest.raises(errors.SshError, match=f"{NAME}.*cannot be reached"):
        crypto.use_host_keys(machine.node)
    assert os.path.exists(machine.key_path + crypto.WAITING_HOST_KEYS)
