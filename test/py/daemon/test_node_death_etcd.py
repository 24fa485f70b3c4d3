"""The death of the master itself: with the store in etcd, the next master fences it."""

import json
import os

import pytest

from fakes.patience import until

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.long,
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
]
GUEST = "web1.vc.test"
ADD = ("gnt-instance", "add", "--no-install", "-t", "sharedfile", "-s", "8m")
ADD += ("-o", "tiny+default", "--no-start", "-H", "fake", "--no-nics")
OLD = "node1"


@pytest.fixture(scope="module")
def cluster(cluster_of):
    etcd = ("--store", "etcd")
    made = cluster_of(4, "fake", "--isolated", "--monitoring", *etcd)
    made.check("gnt-cluster", "add-tags", "ganeti:watcher:autorepair:failover")
    made.check(*ADD, "-n", OLD, GUEST)
    made.check("gnt-instance", "startup", GUEST)
    return made


def new_master(cluster):
    """Return the short name of the master that took over; None before."""
    result = cluster.run("gnt-cluster", "getmaster", node="node2")
    name = result.stdout.strip().partition(".")[0]
    return None if result.failed or name == OLD else name


def journal(cluster, master):
    words = ("gnt-cluster", "journal", "--json", "--automaton", "node-death")
    return json.loads(cluster.check(*words, node=master))


def acts(entries):
    return [
        (item["name"], item["action"])
        for entry in entries
        for item in entry["items"]
        if item["decision"] == "chosen" and item["jobs"]
    ]


def test_the_next_master_fences_the_dead_one_and_starts_its_guest(cluster):
    cluster.check("gnt-cluster", "modify", "--node-death=yes")
    cluster.command("kill", OLD)
    master = until("another candidate is the master", lambda: new_master(cluster))

    def guest():
        fields = ("-o", "pnode,status", GUEST)
        words = ("gnt-instance", "list", "--no-headers", *fields)
        return cluster.run(*words, node=master).stdout.split()

    def runs_elsewhere():
        place = guest()
        return place and not place[0].startswith(OLD) and place[1] == "running"

    until("the guest runs elsewhere", runs_elsewhere)
    assert not cluster.control.is_powered(cluster.node(OLD))
    name = f"{OLD}.vc.test"
    done = acts(journal(cluster, master))
    assert done == [(name, "fence"), (name, "mark offline")]
    # The old master comes back as any other node.
    cluster.command("power", "on", OLD)
    for words in (("--node-powered=yes", name), ("--offline=no", "--force", name)):
        result = cluster.run("gnt-node", "modify", *words, node=master)
        assert not result.failed, result.output
    assert new_master(cluster) == master
    assert cluster.run("daemon-util", "check", "ganeti-masterd", node=OLD).code != 0
    cluster.wait_until_clean(node=master)
