"""Machines as Debian's installer leaves them: init and add without options.

The machines are isolated nodes: each has its own network, with its own view of
``/sys/class/net``, and the standard paths.
"""

import os

import pytest

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
]
LIST = "/etc/ganeti/file-storage-paths"
IS_BRIDGE = ("test", "-d", "/sys/class/net/guests/bridge")


@pytest.fixture
def plain(machines):
    """A function that makes machines without a list of storage directories."""

    def make(count):
        cluster = machines(count, "--isolated")
        for node in cluster.layout.nodes:
            cluster.file(LIST, node.name).unlink()
            cluster.check("rmdir", "/srv/ganeti/file-storage", node=node.name)
        return cluster

    return make


def test_init_and_add_without_options_make_a_clean_cluster(plain):
    cluster = plain(2)
    done = cluster.run("gnt-cluster", "init", "cluster.vc.test")
    assert not done.failed, done.output
    assert (
        "Disk template: file, because this machine has no volume group xenvg"
        in done.output
    )
    assert "Interface of the cluster's address: br0" in done.output
    assert "Bridge of guests: br0" in done.output
    assert f"Allowing disk files in /srv/ganeti/file-storage: {LIST}" in done.output
    assert "no bridge" not in done.output
    cluster.check("gnt-node", "add", "--no-ssh-key-check", "node2")
    for name in ("node1", "node2"):
        lines = cluster.file(LIST, name).read_text().splitlines()
        assert lines[1:] == ["/srv/ganeti/file-storage"]
    cluster.wait_until_clean()
    assert "kvm" in cluster.check("gnt-cluster", "info")
    # Disks and a NIC with all defaults, as the page on installing has it.
    cluster.check(
        *("gnt-instance", "add", "-t", "file", "-s", "1g", "-B", "memory=256m"),
        *("-o", "tiny+default", "-n", "node2", "web1.vc.test"),
    )
    fields = ("-o", "status,nic.modes,nic.links")
    listed = cluster.check("gnt-instance", "list", "--no-headers", *fields)
    assert listed.split() == ["running", "bridged", "br0"]
    cluster.command(
        "serial", "web1.vc.test", "--until", "login: ?$", "--timeout", "180"
    )
    cluster.check("gnt-instance", "remove", "-f", "web1.vc.test")
    _hosts_survive_the_removal_of_a_node(cluster)


def _hosts_survive_the_removal_of_a_node(cluster):
    before = cluster.file("/etc/hosts").read_text()
    assert "node2.vc.test" in before
    cluster.check("gnt-node", "remove", "node2")
    assert cluster.file("/etc/hosts").read_text() == before


@pytest.mark.sampled
def test_a_missing_bridge_is_named_and_made_on_request(plain):
    cluster = plain(1)
    init = ("gnt-cluster", "init", "-N", "link=guests")
    planned = cluster.check(*init, "--create-bridge", "--plan", "cluster.vc.test")
    assert "create the bridge guests, without ports" in planned
    assert not cluster.file(LIST).exists()
    done = cluster.run(*init, "cluster.vc.test")
    assert not done.failed, done.output
    assert "Warning: this machine has no bridge guests" in done.output
    assert "--create-bridge" in done.output
    cluster.check("gnt-cluster", "destroy", "--yes-do-it")
    done = cluster.run(*init, "--create-bridge", "cluster.vc.test")
    assert not done.failed, done.output
    assert "Creating the bridge guests, without ports" in done.output
    cluster.check(*IS_BRIDGE)


@pytest.mark.sampled
def test_a_bridge_that_a_new_node_lacks_is_named_and_made_on_request(plain):
    cluster = plain(2)
    init = ("gnt-cluster", "init", "-N", "link=guests", "--create-bridge")
    cluster.check(*init, "cluster.vc.test")
    add = ("gnt-node", "add", "--no-ssh-key-check")
    done = cluster.run(*add, "node2")
    assert not done.failed, done.output
    assert "Warning: node2.vc.test has no bridge guests" in done.output
    assert cluster.run(*IS_BRIDGE, node="node2").failed
    planned = cluster.check(*add, "--readd", "--create-bridge", "--plan", "node2")
    assert "create the bridge guests on node2.vc.test if it is missing" in planned
    done = cluster.run(*add, "--readd", "--create-bridge", "node2")
    assert not done.failed, done.output
    assert "Creating the bridge guests on node2.vc.test, without ports" in done.output
    cluster.check(*IS_BRIDGE, node="node2")


#: Rules of a packet filter whose policy is to accept.
FILTER = """
table inet filter {{
  chain input {{
    type filter hook input priority 0; policy accept;
    ip saddr {address} tcp dport 1811 reject with {reason}
    ip saddr {address} tcp dport 8102 drop
  }}
}}
"""


def set_filter(cluster, text):
    script = 'printf "%s" "$0" | nft -f -'
    cluster.check("sh", "-c", script, f"flush ruleset\n{text}")


@pytest.mark.sampled
def test_packet_filters_are_named_with_the_rule_that_mends_them(plain):
    cluster = plain(2)
    set_filter(
        cluster,
        "table inet filter { chain input { type filter hook input priority 0;"
        " policy drop; accept; }; }\n",
    )
    done = cluster.run("gnt-cluster", "init", "--create-bridge", "cluster.vc.test")
    assert not done.failed, done.output
    assert "nftables: inet filter, chain input) drops" in done.output
    assert "Other nodes need TCP { 1811, 22, 8102 } and UDP 1814" in done.output
    address = cluster.node("node2").address
    for reason, seen in (
        ("icmpx type admin-prohibited", "is rejected by"),
        ("tcp reset", "is refused by"),
    ):
        set_filter(cluster, FILTER.format(address=address, reason=reason))
        add = ("gnt-node", "add", "--no-ssh-key-check", "--readd")
        if reason.startswith("icmpx"):
            add = add[:-1]
        done = cluster.run(*add, "node2")
        assert not done.failed, done.output
        text = f"node2.vc.test {seen} node1.vc.test on TCP port 1811 (node daemon)."
        assert text in done.output
        text = "node2.vc.test gets no answer from node1.vc.test on TCP port 8102"
        assert text in done.output
        rule = f"inet filter input ip saddr {address} tcp dport 8102 accept"
        assert rule in done.output
    # The rules that the warnings name are right.
    for port in (1811, 8102):
        rule = f"inet filter input ip saddr {address} tcp dport {port} accept"
        cluster.check("nft", "insert", "rule", *rule.split())
    done = cluster.run(*add, "node2")
    assert "on TCP port" not in done.output, done.output


def test_an_init_that_fails_leaves_neither_bridge_nor_list(plain):
    cluster = plain(1)
    # A directory where a file must be: the first certificate cannot be written.
    cluster.check("mkdir", "/var/lib/ganeti/known_hosts")
    done = cluster.run(
        *("gnt-cluster", "init", "--create-bridge", "-N", "link=guests"),
        "cluster.vc.test",
    )
    assert done.failed, done.output
    assert "known_hosts" in done.output
    assert "Traceback" not in done.output
    assert not cluster.file(LIST).exists()
    assert cluster.run("test", "-e", "/sys/class/net/guests").failed


def test_nodes_have_their_own_devices_and_share_storage(machines):
    cluster = machines(2, "--isolated")
    devices = cluster.check("ls", "/sys/class/net", node="node1").split()
    assert devices == ["br0", "eth0", "lo"]
    shared = "/srv/ganeti/shared-file-storage/note"
    cluster.check("touch", shared, node="node1")
    cluster.check("test", "-e", shared, node="node2")
    cluster.check("touch", "/srv/ganeti/file-storage/note", node="node1")
    assert cluster.run(
        "test", "-e", "/srv/ganeti/file-storage/note", node="node2"
    ).failed
