"""Each inconsistency has its line."""

import pytest

from fakes import cluster
from ganeti.master import config
from ganeti.model.objects import CLUSTER_KEY, Network, Snapshot, Update

NODE1 = "8d0a1b62-7c11-4c43-9a3e-11aa22bb3301"
NODE2 = "8d0a1b62-7c11-4c43-9a3e-11aa22bb3302"
GROUP = "c7e4d2f0-52b8-4a1e-9d60-6b1f2e3d4c01"
WEB1 = "e19b7a34-0f4d-4d27-b6c2-70a1b2c3d401"
DISK = "3b6f8c15-9e2a-4f70-8c4d-a1b2c3d4e501"
BASE = cluster.example()


def change(table, key, **fields):
    return [Update(table, key, BASE.table(table)[key].replace(**fields))]


def of_cluster(**fields):
    return change("cluster", CLUSTER_KEY, **fields)


def second(table, key, new, **fields):
    return [Update(table, new, BASE.table(table)[key].replace(uuid=new, **fields))]


def network(**fields):
    return Update(
        "networks",
        "net",
        Network(name="lan", uuid="net", serial_no=1, network="192.0.2.8/29", **fields),
    )


def in_network(*, connected=True, **fields):
    nic = BASE.instances[WEB1].nics[0].replace(network="net", ip="192.0.2.11")
    group = BASE.nodes[BASE.instances[WEB1].primary_node].group
    joined = change("nodegroups", group, networks={"net": {}} if connected else {})
    return [network(**fields), *joined, *change("instances", WEB1, nics=(nic,))]


def test_the_example_is_consistent():
    assert config.verify(BASE) == []
    assert config.verify(Snapshot().apply(cluster.big(5, 20))) == []


def test_the_next_certificate_of_the_master_is_known():
    certs = {NODE1: "aa", f"{NODE1}-next": "bb"}
    renewing = BASE.apply(of_cluster(candidate_certs=certs))
    assert config.verify(renewing) == []


def test_an_empty_store_has_no_cluster():
    assert config.verify(Snapshot()) == ["there is no cluster record"]


@pytest.mark.parametrize(
    ("updates", "text"),
    [
        ([Update("nodes", "k", BASE.nodes[NODE1])], "nodes: key k holds the uuid"),
        (
            in_network(connected=False, reservations="00010000"),
            "NIC 0: its network lan is not connected to group default",
        ),
        (of_cluster(enabled_hypervisors=()), "enabled_hypervisors is empty"),
        (of_cluster(enabled_hypervisors=("kvm", "x")), "unknown value x"),
        (
            of_cluster(enabled_hypervisors=("kvm", "lxc")),
            "no parameters for the enabled hypervisor lxc",
        ),
        (of_cluster(beparams={"default": {}}), "cluster beparams: vcpus is missing"),
        (of_cluster(nicparams={}), "cluster nicparams: missing"),
        (
            of_cluster(ndparams={**BASE.cluster.ndparams, "ovs": 1}),
            "cluster ndparams: ovs should be of type bool, found 1",
        ),
        (of_cluster(candidate_certs={"x": "y"}), "certificate of the unknown node x"),
        (of_cluster(candidate_certs={"x-next": "y"}), "of the unknown node x"),
        (of_cluster(master_node="x"), "the master node x is unknown"),
        (
            change("nodes", NODE1, master_candidate=False, offline=True),
            "node node1.example.com: is the master, but offline",
        ),
        (
            change("nodes", NODE2, master_candidate=False),
            "there are 1 master candidates, wanted 2",
        ),
        (change("nodes", NODE2, drained=True), "is master_candidate and drained"),
        (change("nodes", NODE2, group="x"), "its group x is unknown"),
        (
            change("nodes", NODE2, ndparams={"exclusive_storage": True}),
            "exclusive_storage cannot be set on a node",
        ),
        (change("nodegroups", GROUP, name=GROUP), "its name looks like a uuid"),
        (
            change("nodegroups", GROUP, networks={"x": {}}),
            "group default: its network x is unknown",
        ),
        (second("nodegroups", GROUP, "g2"), "the name default is used more than once"),
        (change("instances", WEB1, primary_node="x"), "its primary node x is unknown"),
        (change("instances", WEB1, disks=("x",)), "its disk x is unknown"),
        (
            change("instances", WEB1, beparams={"vcpus": "2"}),
            "beparams: vcpus should be of type int, found '2'",
        ),
        (
            second("instances", WEB1, "i2", name="web2", disks=(), network_port=None),
            "MAC address aa:00:00:1a:2b:3c is used more than once",
        ),
        (second("instances", WEB1, "i2", name="w2", nics=()), "is attached 2 times"),
        (
            second("instances", WEB1, "i2", name="w2"),
            "port 11001 is used by instance w2",
        ),
        (change("disks", DISK, iv_name="disk/3"), "should be called disk/0"),
        (change("disks", DISK, nodes=("x",)), "its node x is unknown"),
        (
            second("disks", DISK, "d2"),
            "node node1.example.com: DRBD minor 0 is used more than once",
        ),
        (of_cluster(highest_used_port=11000), "should be at least 11001, found 11000"),
        (of_cluster(tcpudp_port_pool=(11000,)), f"used by disk {DISK}, the pool of"),
        (
            change("nodes", NODE2, primary_ip="192.0.2.11"),
            "used by node node1.example.com (primary), node node2.example.com (primary)",
        ),
        (in_network(), "192.0.2.11 is used by an instance, but not reserved"),
        ([network(reservations="01000000")], "192.0.2.9 is reserved, but not in use"),
        ([network(reservations="01")], "has 8 addresses, its reservations 2"),
    ],
)
def test_each_problem_has_its_line(updates, text):
    problems = config.verify(BASE.apply(updates))
    assert any(text in problem for problem in problems), problems
