"""Cluster init and destroy, nodes that join, come back and leave: over real sshd."""

import os
import socket

import pytest

from ganeti.base.tls import x509
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls
from ganeti.protocols.ssh import authorized_keys

pytestmark = pytest.mark.daemon

INIT = (
    "gnt-cluster",
    "init",
    "--enabled-hypervisors=fake",
    "--enabled-disk-templates=diskless",
    "--nic-parameters=mode=routed,link=",
    "--master-netdev=lo",
    "--no-etc-hosts",
    "--node-parameters=ssh_port=2022",
    "cluster.vc.test",
)
#: Daemons of a master.
OF_MASTER = ["ganeti-confd", "ganeti-masterd", "ganeti-noded", "ganeti-rapi"]
ADD = ("gnt-node", "add", "--no-ssh-key-check")


def state_files(cluster, node="node1"):
    directory = cluster.file("/var/lib/ganeti", node)
    return sorted(path.name for path in directory.iterdir() if path.is_file())


def daemons(cluster, node="node1"):
    actual = cluster.processes(node)
    return sorted(p.name for p in actual if p.name.startswith("ganeti-"))


def refusal(cluster, *argv):
    """Run a command that must fail, and return what it says."""
    result = cluster.run(*argv)
    assert result.failed, f"{argv} succeeded: {result.output}"
    return result.output


class TestInit:
    def test_a_cluster_is_made_destroyed_and_made_again(self, machines):
        cluster = machines(1)
        cluster.check(*INIT)
        assert daemons(cluster) == OF_MASTER
        assert cluster.check("gnt-cluster", "getmaster") == "node1.vc.test\n"
        assert "CLUSTER_POST_INIT" in cluster.check("gnt-job", "list")
        digest = x509.digest(x509.load_certificate(cluster.paths().client_pem))
        certs = cluster.file("/var/lib/ganeti/ssconf_master_candidates_certs")
        assert certs.read_text().endswith(f"={digest}\n")
        text = refusal(cluster, *INIT)
        assert "node node1.vc.test: already in a cluster" in text
        assert "--yes-do-it" in refusal(cluster, "gnt-cluster", "destroy")
        cluster.check("gnt-cluster", "destroy", "--yes-do-it")
        assert daemons(cluster) == []
        left = [n for n in state_files(cluster) if n.endswith((".pem", ".key", ".db"))]
        assert left == []
        cluster.check(*INIT)
        assert daemons(cluster) == OF_MASTER

    def test_a_failed_init_leaves_nothing(self, machines):
        cluster = machines(1)
        # Connections of a cluster that had this address before may linger.
        with socket.create_server((cluster.master.address, 1811)):
            text = refusal(cluster, *INIT)
        assert "ganeti-noded" in text
        assert state_files(cluster) == []
        assert daemons(cluster) == []
        cluster.check(*INIT)

    @pytest.mark.parametrize(
        ("option", "problem"),
        [
            ("--enabled-hypervisors=qemu", "found qemu"),
            ("--enabled-disk-templates=floppy", "found floppy"),
            ("--mac-prefix=01:00:00", "found '01:00:00'"),
            ("--secondary-ip=192.0.2.77", "is not an address of this machine"),
            ("--master-netmask=77", "found 77"),
            ("--default-iallocator=none", "no such program"),
            ("--ssh-key-type=dsa", "SSH key type dsa"),
        ],
    )
    def test_errors_are_reported_before_anything_is_done(self, bare, option, problem):
        text = refusal(bare, *INIT[:-1], option, INIT[-1])
        assert problem in text
        assert state_files(bare) == []

    def test_a_cluster_name_without_address_is_refused(self, bare):
        text = refusal(bare, *INIT[:-1], "nowhere.vc.test")
        assert "nowhere.vc.test: its address cannot be found" in text

    def test_a_cluster_name_of_this_node_is_refused(self, bare):
        assert "is the address of this node" in refusal(
            bare, *INIT[:-1], "node1.vc.test"
        )


class TestNodes:
    def test_a_node_joins_leaves_and_joins_again(self, machines):
        cluster = machines(3)
        cluster.check(*INIT)
        cluster.check(*ADD, "node2")
        uuids = cluster.check("gnt-node", "list", "--no-headers", "-o", "name,uuid")
        uuid = dict(line.split() for line in uuids.splitlines())["node2.vc.test"]
        assert daemons(cluster, "node2") == ["ganeti-confd", "ganeti-noded"]

        # Keys: both are candidates, so both may log in everywhere.
        known = authorized_keys.read_node_keys(cluster.paths().data("ganeti_pub_keys"))
        assert (
            authorized_keys.read_node_keys(
                cluster.paths("node2").data("ganeti_pub_keys")
            )
            == known
        )
        assert uuid in known
        for name in ("node1", "node2"):
            present = authorized_keys.read(
                str(cluster.file("/root/.ssh/authorized_keys", name))
            )
            assert set(known[uuid]) <= set(present)
        private = cluster.file("/root/.ssh/id_rsa", "node2").read_text()
        assert private != cluster.file("/root/.ssh/id_rsa").read_text()
        # Each keeps its own host keys.
        host_key = "/etc/ssh/ssh_host_ed25519_key"
        assert cluster.file(host_key, "node2").read_text() != (
            cluster.file(host_key).read_text()
        )

        text = refusal(cluster, *ADD, "node2")
        assert "node node2.vc.test: already in the cluster, use --readd" in text
        text = refusal(cluster, *ADD, "--readd", "node3")
        assert "node node3.vc.test: not in the cluster" in text
        text = refusal(cluster, *ADD, "--readd", "node1")
        assert "is the master and cannot be re-added" in text

        cluster.check("gnt-node", "remove", "node2")
        assert cluster.check("gnt-node", "list", "--no-headers", "-o", "name") == (
            "node1.vc.test\n"
        )
        assert uuid not in authorized_keys.read_node_keys(
            cluster.paths().data("ganeti_pub_keys")
        )
        assert not cluster.file("/var/lib/ganeti/server.pem", "node2").exists()
        present = authorized_keys.read(str(cluster.file("/root/.ssh/authorized_keys")))
        assert not set(known[uuid]) & set(present)
        # The administrator's own list of keys still lets the master in.
        cluster.check(*ADD, "node2")
        assert daemons(cluster, "node2") == ["ganeti-confd", "ganeti-noded"]

    @pytest.mark.sampled
    def test_hosts_that_cannot_join(self, machines, command):
        cluster = machines(2)
        cluster.check(*INIT)
        text = refusal(cluster, *ADD, "node7")
        assert "node7" in text
        assert "address cannot be found" in text

        x509.write_cluster_certificate(cluster.paths("node2").server_pem)
        text = refusal(cluster, *ADD, "node2")
        assert "is the certificate of another cluster; run node-cleanup" in text
        cluster.check("node-cleanup", "--yes-do-it", node="node2")
        assert state_files(cluster, "node2") == []

        lists = [
            cluster.file(path, "node2")
            for path in ("/root/.ssh/authorized_keys", "/etc/ssh/administrators")
        ]
        for path in lists:
            path.rename(f"{path}.away")
        assert "no key was accepted" in refusal(cluster, *ADD, "node2")
        for path in lists:
            os.rename(f"{path}.away", path)

        command(cluster.directory, "kill", "node2")
        text = refusal(cluster, *ADD, "node2")
        assert "node2.vc.test" in text
        assert "cannot be reached: Connection refused" in text
        assert "node2" not in cluster.check("gnt-node", "list")

    @pytest.mark.sampled
    def test_a_dead_node_comes_back(self, vcluster, command):
        command(vcluster.directory, "power", "off", "node3")
        vcluster.check("gnt-node", "modify", "-f", "-O", "yes", "node3")
        command(vcluster.directory, "power", "on", "node3")
        vcluster.check(*ADD, "--readd", "node3")
        roles = vcluster.check(
            "gnt-node", "list", "--no-headers", "-o", "role", "node3"
        )
        assert roles.strip() == "C"
        vcluster.wait_until_clean()


def test_new_ssh_keys_for_all_nodes(vcluster):
    before = vcluster.file("/root/.ssh/id_rsa.pub").read_text()
    known = authorized_keys.read_node_keys(vcluster.paths().data("ganeti_pub_keys"))
    nodes = [
        line.split()
        for line in vcluster.check(
            "gnt-node", "list", "--no-headers", "-o", "uuid,name"
        ).splitlines()
    ]
    uuids, names = ([row[column] for row in nodes] for column in (0, 1))
    args = (uuids, names, uuids, names, "rsa", "rsa", 2048)
    # The full name: the certificate of the node has no other.
    name = vcluster.master.name
    runner = rpc.StaticRunner(rpc.by_name([name], vcluster.paths()), vcluster.paths())
    try:
        runner.call_node(name, calls.node_ssh_keys_renew(*args)).unwrap("cannot renew")
    finally:
        runner.close()
    renewed = authorized_keys.read_node_keys(vcluster.paths().data("ganeti_pub_keys"))
    assert set(renewed) == set(known)
    assert all(renewed[uuid] != known[uuid] for uuid in known)
    for name in ("node1", "node2", "node3"):
        present = authorized_keys.read(
            str(vcluster.file("/root/.ssh/authorized_keys", name))
        )
        assert before.strip() not in present
        assert {line for lines in renewed.values() for line in lines} <= set(present)
    vcluster.wait_until_clean()


@pytest.mark.sampled
def test_a_master_that_was_replaced_comes_back_as_a_node(machines, command):
    cluster = machines(3)
    cluster.check(*INIT)
    for name in ("node2", "node3"):
        cluster.check(*ADD, name)
    command(cluster.directory, "power", "off", "node1")
    result = cluster.run("gnt-cluster", "master-failover", node="node2")
    assert not result.failed, result.output
    done = command(cluster.directory, "start", "node1")
    assert done.returncode == 0
    # By then the new master may have sent this node its name (it keeps quiet), or
    # sent its configuration, or neither.
    refusals = (
        "node1.vc.test master, more than half are needed",
        "the configuration names node2.vc.test as master",
    )
    reported = done.stderr
    assert not reported or any(refusal in reported for refusal in refusals), reported
    assert daemons(cluster) == ["ganeti-confd", "ganeti-noded"]
    command(cluster.directory, "power", "cycle", "node2")
    assert "ganeti-masterd" in daemons(cluster, "node2")
    roles = cluster.check(
        "gnt-node", "list", "--no-headers", "-o", "name,role", node="node2"
    )
    assert dict(line.split() for line in roles.splitlines())["node2.vc.test"] == "M"
