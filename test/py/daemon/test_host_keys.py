"""SSH host keys of nodes: each has its own, and none can answer for another."""

import shutil

import pytest

from ganeti import store
from ganeti.base.clock import SystemClock
from ganeti.bootstrap import store_access
from ganeti.master import config
from ganeti.protocols.ssh import host_keys, keys

NODES = ("node1", "node2", "node3")
KINDS = ("ed25519", "rsa")


@pytest.fixture(scope="module")
def cluster(cluster_of):
    return cluster_of(3)


def own_keys(cluster, node):
    return set(host_keys.own(str(cluster.file("/etc/ssh", node))))


def recorded(cluster, node="node1"):
    """Return name -> keys of a node's known_hosts."""
    by_name = {}
    for names, key in host_keys.read_known_hosts(
        str(cluster.file("/var/lib/ganeti/known_hosts", node))
    ):
        for name in names:
            by_name.setdefault(name, set()).add(key)
    return by_name


def name_of(cluster):
    with cluster.luxi() as client:
        return client.call("QueryConfigValues", [["cluster_name"]])[0]


@pytest.mark.sampled
def test_each_node_keeps_its_own_keys_which_all_nodes_know(cluster):
    wanted = {cluster.node(node).name: own_keys(cluster, node) for node in NODES}
    assert all(wanted.values())
    assert len(set.union(*wanted.values())) == sum(map(len, wanted.values()))
    wanted[name_of(cluster)] = set.union(*wanted.values())
    for node in NODES:
        assert recorded(cluster, node) == wanted
    cluster.wait_until_clean()


def ssh(cluster, alias, node):
    """Log in as scripts do, with the alias of a host key."""
    known = cluster.file("/var/lib/ganeti/known_hosts")
    options = {
        "HostKeyAlias": alias,
        "GlobalKnownHostsFile": known,
        "UserKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "IdentityFile": cluster.file("/root/.ssh/id_rsa"),
        "Port": cluster.layout.ssh_port,
    }
    words = [f"-o{option}={value}" for option, value in options.items()]
    return cluster.run("ssh", *words, cluster.node(node).address, "true")


def test_scripts_may_use_the_alias_of_the_cluster_or_that_of_the_node(cluster):
    for node in NODES:
        for alias in (name_of(cluster), cluster.node(node).name):
            assert not ssh(cluster, alias, node).failed
    refused = ssh(cluster, cluster.node("node3").name, "node2")
    assert "Host key verification failed" in refused.output


@pytest.fixture
def posing(cluster):
    """Let node2 answer with the host keys of node3."""
    own, other = (cluster.file("/etc/ssh", node) for node in ("node2", "node3"))
    kept = own.with_name("ssh.kept")
    shutil.copytree(own, kept)
    for kind in keys.ALGORITHMS:
        if (other / f"ssh_host_{kind}_key").exists():
            keys.save(
                keys.load(keys.host_key_path(str(other), kind)),
                keys.host_key_path(str(own), kind),
            )
    cluster.check("daemon-util", "reload-ssh-keys", node="node2")
    yield
    shutil.copytree(kept, own, dirs_exist_ok=True)
    shutil.rmtree(kept)
    cluster.check("daemon-util", "reload-ssh-keys", node="node2")


@pytest.mark.usefixtures("posing")
def test_a_node_with_the_keys_of_another_is_refused_by_name(cluster):
    node2, node3 = (cluster.node(node).name for node in ("node2", "node3"))
    output = cluster.run("gnt-cluster", "command", "-n", node2, "echo", "fooled").output
    assert "return code = 255" in output
    assert "fooled" not in output
    assert f"{node2}: wanted one of its recorded SSH host keys" in output
    assert f"which is that of {node3}" in output
    assert f"run gnt-node add --readd {node2}" in output
    verified = cluster.run("gnt-cluster", "verify")
    assert verified.failed
    assert f"which is that of {node3}" in verified.output
    copied = cluster.run("gnt-cluster", "copyfile", "-n", node2, "/etc/hostname")
    assert "wanted one of its recorded SSH host keys" in copied.output


def new_keys(cluster, node):
    """Install a machine again, as far as SSH can see: it has other host keys."""
    directory = str(cluster.file("/etc/ssh", node))
    for kind in ("ed25519", "ecdsa"):
        keys.save(keys.generate(kind), keys.host_key_path(directory, kind))
    cluster.check("daemon-util", "reload-ssh-keys", node=node)


def test_a_node_that_is_added_again_has_its_new_keys_recorded_everywhere(cluster):
    name = cluster.node("node3").name
    before = recorded(cluster)[name]
    new_keys(cluster, "node3")
    refused = cluster.run("sh", "-c", f"echo n | gnt-node add --readd {name}")
    assert refused.failed
    assert recorded(cluster)[name] == before
    cluster.check("gnt-node", "add", "--readd", "--no-ssh-key-check", name)
    for node in NODES:
        assert recorded(cluster, node)[name] == own_keys(cluster, "node3")
    assert not before & own_keys(cluster, "node3")
    assert {key.split()[0] for key in own_keys(cluster, "node3")} >= {
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
    }
    cluster.wait_until_clean()


def test_a_node_that_leaves_is_forgotten(cluster):
    name = cluster.node("node3").name
    was = own_keys(cluster, "node3")
    cluster.check("gnt-node", "remove", name)
    for node in NODES[:2]:
        known = recorded(cluster, node)
        assert name not in known
        assert not was & known[name_of(cluster)]
    cluster.check("gnt-node", "add", "--no-ssh-key-check", name)
    # Leaving and joining change no host keys.
    assert recorded(cluster, "node2")[name] == was == own_keys(cluster, "node3")
    cluster.wait_until_clean()


@pytest.fixture
def shared(cluster):
    """Make the cluster one of an earlier release, whose nodes share host keys."""
    source = str(cluster.file("/etc/ssh"))
    pairs = {kind: keys.load(keys.host_key_path(source, kind)) for kind in KINDS}
    for node in NODES[1:]:
        directory = cluster.file("/etc/ssh", node)
        for path in directory.glob("ssh_host_*"):
            path.unlink()
        for kind, pair in pairs.items():
            keys.save(pair, keys.host_key_path(str(directory), kind))
        cluster.check("daemon-util", "reload-ssh-keys", node=node)
    cluster.check("daemon-util", "stop-master")
    paths = cluster.paths()
    follower = store.Follower(paths.store_db)
    master = follower.snapshot().cluster.master_node
    follower.close()
    clock = SystemClock()
    with store_access.opened(paths, clock, master) as engine:
        changed = config.Config(engine, clock)
        with changed.edit("test") as edit:
            for node in changed.snapshot().nodes.values():
                edit.update(node.replace(ssh_host_keys=()))
            edit.update_cluster(rsahostkeypub=keys.body(pairs["rsa"].public))
        alias = changed.snapshot().cluster.cluster_name
    for node in NODES:
        path = str(cluster.file("/var/lib/ganeti/known_hosts", node))
        host_keys.write_known_hosts(path, alias, [pairs["rsa"].public])
    cluster.check("daemon-util", "start-master")


@pytest.mark.usefixtures("shared")
@pytest.mark.timeout(600)
def test_a_cluster_with_shared_keys_works_until_each_node_gets_its_own(cluster):
    name = cluster.node("node2").name
    output = cluster.check("gnt-cluster", "verify")
    assert "no SSH host keys of their own are recorded" in output
    assert "gnt-cluster renew-crypto --new-ssh-host-keys" in output
    output = cluster.check("gnt-cluster", "command", "-n", name, "echo", "here")
    assert "here" in output
    before = own_keys(cluster, "node1")
    cluster.check("gnt-cluster", "renew-crypto", "-f", "--new-ssh-host-keys")
    wanted = {cluster.node(node).name: own_keys(cluster, node) for node in NODES}
    assert len(set.union(*wanted.values())) == 3 * len(KINDS)
    assert not before & set.union(*wanted.values())
    wanted[name_of(cluster)] = set.union(*wanted.values())
    for node in NODES:
        assert recorded(cluster, node) == wanted
    cluster.wait_until_clean()
