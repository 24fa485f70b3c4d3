"""The life of a network on real daemons; its addresses outlive kills of the master."""

import contextlib
import json

import pytest

from fakes.patience import job_end

pytestmark = [pytest.mark.daemon, pytest.mark.core]
ADD = ("gnt-instance", "add", "-t", "diskless", "-H", "fake", "-o", "tiny+default")
ADD += ("--no-install", "--no-start", "-n", "node2")
ROUTED = "mode=routed,link=100"


@pytest.fixture
def cluster(vcluster):
    return vcluster


def kill_and_start(cluster):
    cluster.command("kill", "node1", "ganeti-masterd")
    cluster.command("start", "node1", "ganeti-masterd")


def shown(cluster, name="lan"):
    (network,) = json.loads(cluster.check("gnt-network", "info", "--json", name))
    return network


def addresses(cluster, name):
    text = cluster.check("gnt-instance", "list", "--json", "-o", "nic.ips", name)
    return json.loads(text)[0]["nic.ips"]


def test_a_network_lives_over_kills_of_the_master_after_each_step(cluster):
    web1 = "web1.vc.test"
    for argv in (
        ("gnt-network", "add", "--network=198.51.100.0/29", "lan"),
        ("gnt-network", "connect", "-N", ROUTED, "lan"),
        (*ADD, "--net", "0:network=lan,ip=pool", web1),
        ("gnt-network", "modify", "--gateway=198.51.100.2", "lan"),
        ("gnt-instance", "modify", "--net", "add:network=lan,ip=pool", web1),
        ("gnt-network", "rename", "lan", "office"),
        ("gnt-network", "rename", "office", "lan"),
    ):
        cluster.check(*argv)
        kill_and_start(cluster)
    assert addresses(cluster, web1) == ["198.51.100.1", "198.51.100.3"]
    network = shown(cluster)
    assert network["map"] == "XXXX...X"
    assert network["instances"] == [
        {
            "name": web1,
            "nics": [
                {"index": 0, "ip": "198.51.100.1"},
                {"index": 1, "ip": "198.51.100.3"},
            ],
        }
    ]
    ssconf = cluster.file("/var/lib/ganeti/ssconf_networks", "node2").read_text()
    assert ssconf == f"{network['uuid']} lan\n"
    refused = cluster.run("gnt-network", "disconnect", "lan")
    assert (refused.code, "it is used by instance web1" in refused.stderr) == (1, True)
    for argv, left in (
        (("gnt-instance", "modify", "--net", "0:remove", web1), "X.XX...X"),
        (("gnt-instance", "remove", "-f", web1), "X.X....X"),
    ):
        cluster.check(*argv)
        kill_and_start(cluster)
        assert shown(cluster)["map"] == left
    cluster.check("gnt-network", "disconnect", "lan")
    cluster.check("gnt-network", "remove", "lan")
    assert cluster.check("gnt-network", "list", "--no-headers") == ""


def test_no_address_is_lost_or_given_twice_if_the_master_dies_in_creations(cluster):
    cluster.check("gnt-network", "add", "--network=198.51.100.0/28", "lan")
    cluster.check("gnt-network", "connect", "-N", ROUTED, "lan")
    names = [f"pool{k}.vc.test" for k in range(4)]
    jobs = [
        cluster.check(
            *(*ADD, "--net", "0:network=lan,ip=pool", "--submit", "--print-jobid"),
            name,
        ).split()[0]
        for name in names
    ]
    kill_and_start(cluster)
    with contextlib.closing(cluster.luxi()) as client:
        ends = [job_end(client, int(job))[0] for job in jobs]
    assert set(ends) <= {"success", "error"}
    text = cluster.check("gnt-instance", "list", "--json", "-o", "name,nic.ips")
    held = [row["nic.ips"][0] for row in json.loads(text)]
    assert len(held) == len(set(held)) >= ends.count("success")
    taken = shown(cluster)["map"]
    wanted = {f"198.51.100.{index}" for index in range(1, 15) if taken[index] == "X"}
    assert wanted == set(held)
    for row in json.loads(text):
        cluster.check("gnt-instance", "remove", "-f", row["name"])
    assert shown(cluster)["map"] == f"X{'.' * 14}X"
    cluster.check("gnt-network", "disconnect", "lan")
    cluster.check("gnt-network", "remove", "lan")
