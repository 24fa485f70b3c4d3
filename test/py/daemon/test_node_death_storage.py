"""Deaths of nodes and storage: shared disks that hang, and the store in etcd."""

import json
import os
import pathlib
import subprocess
import urllib.request

import pytest

from fakes.patience import until

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.long,
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="mounting and namespaces need root"),
]
METRIC = "ganeti_heartbeat_age_seconds{"
LATE = "none was written for some time; the storage may hang"


@pytest.fixture(scope="module")
def cluster(cluster_of):
    return cluster_of(3, "fake", "--monitoring")


@pytest.fixture
def storage(cluster, tmp_path):
    """A file system of its own below the shared disks of all nodes."""
    image = tmp_path / "image"
    with image.open("wb") as stream:
        stream.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    place = pathlib.Path(cluster.directory, "shared")
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    yield place
    # It is frozen if the test has failed.
    subprocess.run(["fsfreeze", "-u", place], check=False, capture_output=True)
    cluster.check("gnt-cluster", "modify", "--node-death=no")
    subprocess.run(["umount", "-l", place], check=True)


def ages(cluster, name):
    """Return the ages of the heartbeats of a node, in seconds."""
    url = f"http://{cluster.node(name).address}:1815/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return [float(line.split()[-1]) for line in lines if line.startswith(METRIC)]


def deaths(cluster):
    return json.loads(cluster.check("gnt-cluster", "info", "--json"))["node_deaths"]


def log(cluster, name):
    return cluster.file("/var/log/ganeti/monitoring-daemon.log", name).read_text()


def test_storage_that_hangs_stops_no_daemon_and_fences_nobody(cluster, storage):
    cluster.check("gnt-cluster", "modify", "--node-death=yes")
    names = [node.short for node in cluster.layout.nodes]
    for name in names:
        until("it is young", lambda name=name: min(ages(cluster, name), default=99) < 9)
    subprocess.run(["fsfreeze", "-f", storage], check=True)
    for name in names:
        # Its agent answers, and says that the storage hangs.
        until("it is late", lambda name=name: max(ages(cluster, name)) > 15)
        until("the log", lambda name=name: LATE in log(cluster, name))
    # The master and the node daemons answer; nobody is suspected.
    fields = ("--no-headers", "--units=m", "-o", "name,mtotal")
    listed = cluster.check("gnt-node", "list", *fields)
    assert len([line for line in listed.splitlines() if line.split()[1].isdigit()]) == 3
    assert deaths(cluster) == []
    assert "OOB_COMMAND" not in cluster.check("gnt-job", "list")
    subprocess.run(["fsfreeze", "-u", storage], check=True)
    for name in names:
        until("it goes on", lambda name=name: min(ages(cluster, name), default=99) < 9)
    assert deaths(cluster) == []


# The death of the master itself: with the store in etcd, the next master fences it.

GUEST = "web1.vc.test"
ADD = ("gnt-instance", "add", "--no-install", "-t", "sharedfile", "-s", "8m")
ADD += ("-o", "tiny+default", "--no-start", "-H", "fake", "--no-nics")
OLD = "node1"


@pytest.fixture(scope="module")
def etcd_cluster(cluster_of):
    etcd = ("--store", "etcd")
    made = cluster_of(4, "fake", "--isolated", "--monitoring", *etcd)
    made.check("gnt-cluster", "add-tags", "ganeti:watcher:autorepair:failover")
    made.check(*ADD, "-n", OLD, GUEST)
    made.check("gnt-instance", "startup", GUEST)
    return made


def new_master(etcd_cluster):
    """Return the short name of the master that took over; None before."""
    result = etcd_cluster.run("gnt-cluster", "getmaster", node="node2")
    name = result.stdout.strip().partition(".")[0]
    return None if result.failed or name == OLD else name


def journal(etcd_cluster, master):
    words = ("gnt-cluster", "journal", "--json", "--automaton", "node-death")
    return json.loads(etcd_cluster.check(*words, node=master))


def acts(entries):
    return [
        (item["name"], item["action"])
        for entry in entries
        for item in entry["items"]
        if item["decision"] == "chosen" and item["jobs"]
    ]


def test_the_next_master_fences_the_dead_one_and_starts_its_guest(etcd_cluster):
    etcd_cluster.check("gnt-cluster", "modify", "--node-death=yes")
    etcd_cluster.command("kill", OLD)
    master = until("another candidate is the master", lambda: new_master(etcd_cluster))

    def guest():
        fields = ("-o", "pnode,status", GUEST)
        words = ("gnt-instance", "list", "--no-headers", *fields)
        return etcd_cluster.run(*words, node=master).stdout.split()

    def runs_elsewhere():
        place = guest()
        return place and not place[0].startswith(OLD) and place[1] == "running"

    until("the guest runs elsewhere", runs_elsewhere)
    assert not etcd_cluster.control.is_powered(etcd_cluster.node(OLD))
    name = f"{OLD}.vc.test"
    done = acts(journal(etcd_cluster, master))
    assert done == [(name, "fence"), (name, "mark offline")]
    # The old master comes back as any other node.
    etcd_cluster.command("power", "on", OLD)
    for words in (("--node-powered=yes", name), ("--offline=no", "--force", name)):
        result = etcd_cluster.run("gnt-node", "modify", *words, node=master)
        assert not result.failed, result.output
    assert new_master(etcd_cluster) == master
    assert (
        etcd_cluster.run("daemon-util", "check", "ganeti-masterd", node=OLD).code != 0
    )
    etcd_cluster.wait_until_clean(node=master)
