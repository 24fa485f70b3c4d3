"""Heartbeats on shared storage that hangs: daemons go on, and nobody is fenced for it."""

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
    pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root"),
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
