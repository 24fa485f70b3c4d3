"""New SSH host keys of nodes: an end at any step leaves every node known to the others."""

import contextlib
import os

import pytest

from fakes import clusters
from fakes.certified import Site
from fakes.rpc import failure
from ganeti.base import errors
from ganeti.node.calls import crypto
from ganeti.node.calls.membership import roles
from ganeti.protocols.ssh import client, keys
from ganeti.protocols.ssh import host_keys as public_keys

MASTER, OTHER, PLAIN = (clusters.node_uuid(number) for number in (1, 2, 3))


class Servers:
    """Three nodes with SSH servers, which have read their key files at some time."""

    def __init__(self, site, monkeypatch):
        self.site = site
        self.presented = {}
        shared = keys.generate("ecdsa")
        #: The recorded RSA key of the cluster; no server of this test has one.
        self.cluster = site.engine.snapshot.cluster.cluster_name
        for node in site.nodes.values():
            os.makedirs(node.paths.sshd_dir, exist_ok=True)
            keys.save(shared, keys.host_key_path(node.paths.sshd_dir, "ecdsa"))
            self.reload(node)
        self.shared = public_keys.checked([shared.public])[0]
        for node in site.nodes.values():
            public_keys.write_known_hosts(self.path(node), self.cluster, [self.shared])
        monkeypatch.setattr(
            public_keys, "shared", lambda _cluster, nodes: self.old(nodes)
        )
        monkeypatch.setattr(
            crypto, "_presented", lambda node: self.presented[node.paths.hostname]
        )
        monkeypatch.setattr(roles, "daemon_util", lambda node, _verb: self.reload(node))
        monkeypatch.setattr(crypto, "_RELOAD_S", -1.0)

    def old(self, nodes):
        return [] if all(node.ssh_host_keys for node in nodes) else [self.shared]

    def path(self, node):
        return node.paths.data("known_hosts")

    def reload(self, node):
        self.site.steps.take("reload")
        files = public_keys.own(node.paths.sshd_dir)
        self.presented[node.paths.hostname] = files

    def known(self, of, on):
        """Return the keys that a node accepts of another one."""
        identity = client.Identity(
            user="root", key_files=(), known_hosts=self.path(on), alias=self.cluster
        )
        return client._Trust(of.paths.hostname, identity).keys

    def assert_known(self):
        """No node is refused, now and after a restart of its server."""
        for of in self.site.nodes.values():
            now = set(self.presented[of.paths.hostname])
            later = set(public_keys.own(of.paths.sshd_dir))
            for on in self.site.nodes.values():
                assert now | later <= set(self.known(of, on)), of.paths.hostname

    def assert_own(self):
        """Each node has keys of its own, and the others accept these alone."""
        everyone = list(self.presented.values())
        assert len(set().union(*everyone)) == sum(map(len, everyone))
        for of in self.site.nodes.values():
            for on in self.site.nodes.values():
                assert self.known(of, on) == self.presented[of.paths.hostname]
            names = os.listdir(of.paths.sshd_dir)
            assert not [name for name in names if crypto.WAITING_HOST_KEYS in name]
        assert self.shared not in set().union(*everyone)

    def renew(self):
        self.site.renew(ssh_host_keys=True)

    def recorded(self, uuid):
        return self.site.engine.snapshot.nodes[uuid].ssh_host_keys


@pytest.fixture
def servers(tmp_path, monkeypatch):
    return Servers(Site(tmp_path, monkeypatch), monkeypatch)


def test_nodes_with_shared_keys_get_their_own(servers):
    servers.assert_known()
    servers.renew()
    servers.assert_own()
    assert {servers.recorded(u) for u in servers.site.nodes} == set(
        servers.presented.values()
    )


@pytest.mark.sampled
def test_an_end_at_any_step_keeps_all_nodes_known_and_can_be_repeated(servers):
    site = servers.site
    site.steps.end_at(None)
    servers.renew()
    total = site.steps.count
    assert total > 60
    for number in range(1, total + 30):
        before = dict(servers.presented)
        with site.ending_at(number), contextlib.suppress(errors.OpExecError):
            servers.renew()
        servers.assert_known()
        if number % 7 == 0:  # a second end before the repetition
            with site.ending_at(number // 2), contextlib.suppress(errors.OpExecError):
                servers.renew()
            servers.assert_known()
        servers.renew()
        servers.assert_own()
        assert before != servers.presented
    assert max(map(len, before.values())) == 1


@pytest.mark.parametrize("silent", [OTHER, PLAIN])
def test_no_key_is_used_while_a_node_does_not_know_it(servers, monkeypatch, silent):
    before = dict(servers.presented)
    rpc = servers.site.engine.rpc
    actual = rpc._run

    def run(procedure, uuid, args):
        if procedure == "upload_file" and uuid == silent:
            return failure("no space left")
        return actual(procedure, uuid, args)

    with monkeypatch.context() as patch:
        patch.setattr(rpc, "_run", run)
        name = servers.site.names[silent]
        with pytest.raises(errors.OpExecError, match=rf"{name}: no space.*again"):
            servers.renew()
    assert servers.presented == before
    servers.assert_known()
    servers.renew()
    servers.assert_own()


def answer_of(servers, monkeypatch, action, text):
    """Let one node answer to a step with a text of its own."""
    actual = servers.site.engine.rpc._run

    def run(procedure, uuid, args):
        if (
            uuid == PLAIN
            and procedure == "node_crypto_tokens"
            and args[0][0][1] == action
        ):
            return [["ssh_host", text]]
        return actual(procedure, uuid, args)

    monkeypatch.setattr(servers.site.engine.rpc, "_run", run)


@pytest.mark.parametrize("action", ["get", "make"])
@pytest.mark.parametrize(
    "text",
    [
        "ssh-ed25519 AAAA",
        "node1,* ssh-ed25519 AAAA",
        "",
        "\n".join(["{key}"] * 10),
        "{key} " + "x" * 100_000,
        "{key}\nnode1 {key}",
    ],
)
def test_a_node_that_lies_harms_itself_alone(servers, monkeypatch, action, text):
    key = keys.generate("ed25519").public.strip()
    answer_of(servers, monkeypatch, action, text.replace("{key}", key))
    with pytest.raises(
        errors.OpExecError, match="SSH host keys not renewed: node node3"
    ):
        servers.renew()
    servers.assert_known()
    assert servers.recorded(PLAIN) == ()
    for uuid in (MASTER, OTHER):
        own = servers.presented[servers.site.names[uuid]]
        assert servers.recorded(uuid) == own != (servers.shared,)
    text = servers.site.nodes[MASTER].paths.data("known_hosts")
    assert len(public_keys.read_known_hosts(text)) == 3


def test_a_node_cannot_claim_the_new_key_of_another(servers, monkeypatch):
    servers.renew()
    stolen = servers.recorded(OTHER)[0]
    answer_of(servers, monkeypatch, "make", stolen)
    with pytest.raises(errors.OpExecError, match=r"node3.*is one of node node2"):
        servers.renew()
    assert stolen not in servers.recorded(PLAIN)
    servers.assert_known()


def test_a_node_whose_server_keeps_its_keys_keeps_both(servers, monkeypatch):
    actual = servers.reload
    monkeypatch.setattr(
        roles,
        "daemon_util",
        lambda node, _verb: None if node is servers.site.nodes[PLAIN] else actual(node),
    )
    with pytest.raises(errors.OpExecError, match=r"node3.*presents other host keys"):
        servers.renew()
    servers.assert_known()
    assert len(servers.recorded(PLAIN)) == 2
    assert len(servers.recorded(OTHER)) == 1
    monkeypatch.setattr(roles, "daemon_util", lambda node, _verb: actual(node))
    servers.renew()
    servers.assert_own()


def test_keys_in_other_files_than_the_usual_ones_are_not_touched(servers):
    node = servers.site.nodes[PLAIN]
    elsewhere = keys.generate("ed25519").public
    servers.presented[node.paths.hostname] = public_keys.checked([elsewhere])
    os.rename(node.paths.sshd_dir, f"{node.paths.sshd_dir}.away")
    os.makedirs(node.paths.sshd_dir)
    with pytest.raises(errors.OpExecError, match=r"node3.*those of other files"):
        servers.renew()
    assert os.listdir(node.paths.sshd_dir) == []


def test_a_cluster_that_does_not_manage_ssh_is_refused(servers):
    with servers.site.engine.config.edit("test") as edit:
        edit.update_cluster(modify_ssh_setup=False)
    with pytest.raises(errors.OpPrereqError, match="--no-ssh-init"):
        servers.renew()
