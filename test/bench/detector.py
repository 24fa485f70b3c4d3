"""The watch over the lives of many nodes: CPU on the master.

    test/bench/run detector [--quick]

A master daemon in this process watches nodes, with the rounds of the maintenance daemon
over its socket. The nodes are loopback addresses; a few real node daemons with real TLS
answer for all. So the CPU is that of both daemons of the master together.
"""

import argparse
import pathlib
import statistics
import tempfile
import threading
import time

from cluster import show
from maintenance import address
from rpc import start_daemons

from fakes import clusters
from fakes.master import Master
from ganeti.automation.maintenance.node_deaths import NodeDeaths
from ganeti.base import clock
from ganeti.protocols import rpc

DAEMONS = 4
FIRST_PORT = 18110
PROBES = ("version", "node_reaches", "node_heartbeats")


class Probes(rpc.StaticRunner):
    """Makes the calls of the detector; others have no effect."""

    def call(self, procedure, nodes, *args, **more):
        if procedure in PROBES:
            return super().call(procedure, nodes, *args, **more)
        text = "left out in this bench"
        return {node: rpc.Result(procedure, node, fail_msg=text) for node in nodes}


def measure(master, nodes, probes):
    """Play probes with their pauses; show the median of their CPU."""
    clock_ = clock.SystemClock()
    figures, pauses = [], []
    with master.client() as client:
        deaths = NodeDeaths(client.call, lambda _node: 0, clock_)
        for _ in range(probes + 1):
            began, cpu = time.monotonic(), time.process_time()
            pause_s = deaths.round()
            figures.append((time.process_time() - cpu, time.monotonic() - began))
            pauses.append(pause_s + figures[-1][1])
            threading.Event().wait(pause_s)
    # The first one makes the connections.
    cpu, spent = (
        statistics.median(column) for column in zip(*figures[1:], strict=True)
    )
    interval_s = statistics.median(pauses[1:])
    show(f"one probe of {nodes} nodes", spent, "s", "-")
    show("  CPU of both daemons of the master", cpu * 1000, "ms", "-")
    show(f"  in {interval_s:.1f} s", cpu / interval_s * 100, "% of a core", "<= 1")


def main():
    """Measure."""
    parser = argparse.ArgumentParser("test/bench/run detector", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller numbers")
    options = parser.parse_args()
    nodes, probes = (40, 3) if options.quick else (200, 7)
    records = [
        clusters.node(n, primary_ip=address(n), master_candidate=n < 4)
        for n in range(1, nodes + 1)
    ]
    snapshot = clusters.snapshot(
        extra=records,
        node_death=True,
        candidate_pool_size=3,
        candidate_certs={node.uuid: clusters.DIGEST for node in records},
    )
    with tempfile.TemporaryDirectory(prefix="gb", dir="/tmp") as directory:
        daemons = start_daemons(directory, DAEMONS)
        targets = [
            rpc.Target(
                node.uuid, node.name, node.primary_ip, FIRST_PORT + place % DAEMONS
            )
            for place, node in enumerate(snapshot.nodes.values())
        ]
        runner = Probes(targets, daemons[0].paths, 1)
        master = Master(pathlib.Path(directory) / "node1.example.com", snapshot)
        master.start()
        object.__setattr__(master.service.deps, "rpc", runner)
        try:
            measure(master, nodes, probes)
        finally:
            master.stop()
            runner.close()
            for node in daemons:
                node.stop()


if __name__ == "__main__":
    main()
