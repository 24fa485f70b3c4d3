"""The same with the store in etcd: three real servers fail, too, and candidates take over.

A sample; ``test/bench/run histories --store etcd`` and ``crash_points --store etcd`` play
more.
"""

import contextlib
import gc
import os
import sys

import pytest

from fakes import crash_points, seeds
from fakes.crash_points_etcd import EtcdCrashCluster
from fakes.histories import machines, play, schedule
from fakes.patience import until
from ganeti.base.process import SystemRunner
from ganeti.devel.vcluster import etcd
from ganeti.devel.vcluster.nodes import NodeControl

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
    # Machines outlive whoever starts them, usually a program that ends at once.
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]
HISTORIES = int(os.environ.get("HISTORIES", "4"))
POINTS = int(os.environ.get("CRASH_POINTS", "20"))
#: Nodes and candidates of the clusters.
SIZES = ((3, 3), (5, 4))
#: Nothing begins after this in each of two tests, which one worker plays.
MINUTES = min(3, float(os.environ.get("FIRE_MINUTES", "2")) / 2)


@pytest.mark.timeout(1200)
def test_histories_keep_the_commit_rule(record_property):
    seed = seeds.given("HISTORY_SEED")
    figures, _texts = play.run(
        HISTORIES, seed, SIZES, store="etcd", beside=2, minutes=MINUTES, show=print
    )
    record_property("figures", f"seed {seed}: {figures}")
    # A slow machine plays fewer.
    assert figures.histories >= 1
    assert figures.jobs > figures.histories
    assert figures.answers > figures.histories
    gc.collect()


@pytest.mark.timeout(1200)
def test_nothing_acknowledged_is_lost_at_any_point(record_property):
    seed = seeds.given("CRASH_SEED")
    reached = crash_points.run(
        POINTS, seed, make=EtcdCrashCluster, clusters=1, minutes=MINUTES
    )
    figures = f"seed {seed}: {reached.total()} points, {dict(reached)}"
    record_property("figures", figures)
    assert reached.total() >= POINTS / 10, figures
    gc.collect()


@pytest.fixture(scope="module")
def pair():
    with contextlib.closing(machines.Machines(2, 2, "etcd")) as made:
        yield made
    gc.collect()


def begun(pair, kind, servers, nodes=()):
    return pair.play(schedule.Fault(0.0, kind, nodes, servers=servers))


def sees(pair, node, server):
    """Return whether a node can connect to a server."""
    address, port = etcd.servers(pair.layout).hosts[server].split(":")
    command = f"timeout 1 bash -c 'echo > /dev/tcp/{address}/{port}'"
    control = NodeControl(pair.layout, SystemRunner())
    return not control.run(pair.nodes[node], ["sh", "-c", command]).failed


def test_a_server_is_cut_off_from_a_node_alone(pair):
    end = begun(pair, "server_cut", (1,), nodes=(0,))
    assert not sees(pair, 0, 1)
    assert sees(pair, 0, 0)
    assert sees(pair, 1, 1)
    end()
    assert sees(pair, 0, 1)


ASK = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())
"""


def health(pair, server):
    """Ask a server whether it has a majority, from its own network."""
    [process] = etcd.running(pair.layout, server)
    enter = ["nsenter", "-t", str(process.pid), "-n"]
    url = f"http://{etcd.servers(pair.layout).hosts[server]}/health"
    command = [*enter, sys.executable, "-c", ASK, url]
    return '"health":"true"' in SystemRunner().run(command, timeout_s=20).stdout


def test_a_server_is_cut_off_from_the_others(pair):
    end = begun(pair, "server_cut", (2,))
    until("no majority", lambda: not health(pair, 2))
    assert health(pair, 0)
    end()
    until("a majority", lambda: health(pair, 2))


def test_servers_end_and_stand_still(pair):
    end = begun(pair, "server_kill", (0,))
    assert not etcd.running(pair.layout, 0)
    end()
    assert etcd.running(pair.layout, 0)
    end = begun(pair, "server_pause", (1,))
    [process] = etcd.running(pair.layout, 1)
    assert state(process.pid) == "T"
    end()
    assert state(process.pid) != "T"


def state(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0]
