"""The address of the cluster after a partition: only one machine keeps it."""

import os

import pytest

from fakes.patience import until

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.sampled,
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
]


def addresses(cluster, node):
    return cluster.check("ip", "-o", "addr", node=node)


def test_a_deposed_master_drops_the_address_and_the_watcher_mends_others(cluster_of):
    cluster = cluster_of(3, "fake", "--isolated")
    address = cluster.file("/var/lib/ganeti/ssconf_master_ip").read_text().strip()
    wanted = f" {address}/"
    until("node1 has it", lambda: wanted in addresses(cluster, "node1"))
    cluster.command("partition", "node1", "node2,node3")
    cluster.check("gnt-cluster", "master-failover", node="node2", timeout_s=240)
    until("node2 has it", lambda: wanted in addresses(cluster, "node2"))
    assert wanted in addresses(cluster, "node1")
    cluster.command("heal")
    until("node1 drops it", lambda: wanted not in addresses(cluster, "node1"))
    cluster.wait_until_clean("node2")
    # As after a crash of the master daemon and of the machine's network set-up.
    device = cluster.file("/var/lib/ganeti/ssconf_master_netdev", "node1")
    link = device.read_text().strip()
    cluster.check("ip", "addr", "add", f"{address}/32", "dev", link, node="node1")
    verify = cluster.run("gnt-cluster", "verify", node="node2")
    assert verify.failed
    assert f"node1.vc.test: has the address {address} of the cluster" in verify.output
    cluster.check("ganeti-watcher", node="node1")
    assert wanted not in addresses(cluster, "node1")
    assert wanted in addresses(cluster, "node2")
    cluster.wait_until_clean("node2")


#: As fping lets the set-up script do: refuse while another machine has the address.
ANSWERS = """#!/usr/bin/python3
import os, socket, sys
with socket.socket() as probe:
    probe.settimeout(1)
    try:
        probe.connect((os.environ["GANETI_MASTER_IP"], 1811))
    except ConnectionRefusedError:
        pass
    except OSError:
        sys.exit(0)
sys.exit("another machine has this address")
"""


def test_a_master_that_froze_and_thawed_leaves_the_address_to_the_next(cluster_of):
    cluster = cluster_of(3, "fake", "--isolated", "--store", "etcd")
    address = cluster.file("/var/lib/ganeti/ssconf_master_ip").read_text().strip()
    wanted = f" {address}/"
    for name in ("node1", "node2", "node3"):
        hook = cluster.file("/etc/ganeti/hooks/master-ip-turnup-pre.d/answers", name)
        hook.parent.mkdir(parents=True, exist_ok=True)
        hook.write_text(ANSWERS)
        hook.chmod(0o755)
    until("node1 has it", lambda: wanted in addresses(cluster, "node1"))
    cluster.command("pause", "node1")

    def refused():
        logs = {
            name: cluster.file("/var/log/ganeti/master-daemon.log", name)
            for name in ("node2", "node3")
        }
        text = "another machine has this address; trying again"
        return next(
            (n for n, log in logs.items() if log.exists() and text in log.read_text()),
            None,
        )

    master = until("the next master asks in vain", refused)
    assert wanted not in addresses(cluster, master)
    verify = cluster.run("gnt-cluster", "verify", node=master)
    assert f"does not have the address {address} of the cluster" in verify.output
    cluster.command("resume", "node1")
    until("the next master has it", lambda: wanted in addresses(cluster, master))
    until("node1 lacks it", lambda: wanted not in addresses(cluster, "node1"))
    cluster.wait_until_clean(master)
