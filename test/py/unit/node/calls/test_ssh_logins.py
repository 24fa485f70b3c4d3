"""Logins to other nodes: the check of their names, and the tool that changes keys."""

import json
import os

import pytest

from fakes import nodes
from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.base.process import RunResult
from ganeti.base.tls import x509
from ganeti.node.calls.trust import ssh_keys, ssh_verify
from ganeti.protocols import ssconf
from ganeti.protocols.ssh import client

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
    assert ssh_verify.check_reach(node, {OTHER: 2202, THIRD: 22}) == {}
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
    assert ssh_verify.check_reach(node, {OTHER: 22}) == expected


def test_a_node_that_cannot_be_reached_does_not_hide_the_others(node, shells):
    shells.results = {
        OTHER: errors.SshError("no route to host"),
        THIRD: {"sh": result("node9")},
    }
    ports = {"gone.example": 22, OTHER: 22, THIRD: 22}
    actual = ssh_verify.check_reach(node, ports)
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
