"""A round of the maintenance daemon over many nodes: CPU and time.

    test/bench/run maintenance [--quick] [--balance]

With --balance only the passes of balancing are measured: on simulated machines, an eighth
of which has twice as many instances as the others, so that every pass finds moves until
the group is balanced. The CPU is that of the pass and of the plan in the master daemon.

Runs the rounds of the daemon against a master daemon in this process, over its socket,
and real agents: one process that answers at an address per node. So the CPU is that of
both daemons together, and the goal is harder than that of the daemon alone.
"""

import argparse
import contextlib
import http.server
import json
import multiprocessing
import pathlib
import tempfile
import time
import urllib.parse

from cluster import show

from fakes import clusters
from fakes.master import Master
from ganeti.automation.maintenance.diagnoses import Poller
from ganeti.automation.maintenance.service import Maintenance
from ganeti.base import clock
from ganeti.devel.sim import Simulation, automatons
from ganeti.devel.sim.description import (
    ClusterDescription,
    InstanceDescription,
    NodeDescription,
)
from ganeti.protocols.confd import wire

KEY = b"a key of the bench\n"
COMMAND = {"diagnose_data_collector_filename": "check"}
ROUNDS = 5


def address(number):
    """Return the address of a node."""
    high, low = divmod(number, 200)
    return f"127.78.{high}.{low + 1}"


def agents(names, ready):
    """Answer as the agents of all nodes, forever."""
    sign = wire.signer(wire.MAGIC_SHA1, KEY)

    class Agent(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            query = urllib.parse.urlsplit(self.path).query
            now = time.time()
            report = {
                "name": "diagnose",
                "timestamp": int(now * 1e9),
                "node": names[self.connection.getsockname()[0]],
                "challenge": dict(urllib.parse.parse_qsl(query))["challenge"],
                "data": {"status": "Ok", "details": {}},
            }
            text, salt = json.dumps(report), str(int(now))
            signed = {"msg": text, "salt": salt, "hmac": sign((salt + text).encode())}
            body = json.dumps(signed).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args):
            """Print nothing."""

    server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Agent)
    ready.send(server.server_port)
    server.serve_forever()


@contextlib.contextmanager
def running_agents(names):
    """Run the agents in a process; yield their port."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=agents, args=(names, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()


def site(nodes, instances):
    """Return a snapshot with an address per node."""
    numbers = range(1, nodes + 1)
    return clusters.snapshot(
        extra=[
            *(clusters.node(n, primary_ip=address(n)) for n in numbers),
            *(clusters.instance(n, n % nodes + 1) for n in range(1, instances + 1)),
        ],
        **COMMAND,
    )


def uneven(nodes, instances):
    """Return a cluster some of whose nodes have too many instances."""
    names = [f"node{number}" for number in range(nodes)]
    full = [name for place, name in enumerate(names) if place % 8 == 0]
    primaries = [*names, *full]
    return ClusterDescription(
        nodes=tuple(
            NodeDescription(
                name=name, candidate=place < 8, memory_mib=131072, disk_mib=8_000_000
            )
            for place, name in enumerate(names)
        ),
        instances=tuple(
            InstanceDescription(
                name=f"web{number}",
                primary=primaries[number % len(primaries)],
                secondary=names[(number * 7 + 3) % nodes]
                if names[(number * 7 + 3) % nodes] != primaries[number % len(primaries)]
                else names[(number * 7 + 4) % nodes],
            )
            for number in range(instances)
        ),
        # By default so many instances per node are not wanted, and none may move.
        ipolicy={"spindle-ratio": 100.0},
        maintenance={"balance": True, "roundDelay": 60, "balanceThreshold": 1e-6},
    )


def measure_balance(nodes, instances):
    """Play some passes in virtual time; show the CPU of each with moves."""
    figures, moves = [], []
    whole = automatons.service.Maintenance.round

    def timed(self):
        before = len(self.status().jobs)
        cpu = time.thread_time()
        wait_s = whole(self)
        spent = time.thread_time() - cpu
        added = len(self.status().jobs) - before
        if added > 0:
            figures.append(spent)
            moves.append(added)
        return wait_s

    automatons.service.Maintenance.round = timed
    Simulation(uneven(nodes, instances), ()).run(600.0)
    title = f"one round with moves, {nodes} nodes, {instances} instances"
    show(f"{title}, {len(figures)} rounds, {sum(moves)} moves", min(figures), "s", "-")
    show("  CPU of maintenance and master daemon, most", max(figures), "s", "<= 1")


def main():
    """Measure."""
    parser = argparse.ArgumentParser("test/bench/run maintenance", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller numbers")
    parser.add_argument("--balance", action="store_true", help="passes with moves")
    options = parser.parse_args()
    nodes, instances = (40, 400) if options.quick else (200, 4000)
    if options.balance or options.quick:
        measure_balance(nodes, instances)
    if options.balance:
        return
    snapshot = site(nodes, instances)
    names = {node.primary_ip: node.name for node in snapshot.nodes.values()}
    with (
        running_agents(names) as port,
        tempfile.TemporaryDirectory(prefix="gb", dir="/tmp") as directory,
    ):
        master = Master(pathlib.Path(directory) / "node1.example.com", snapshot)
        master.start()
        try:
            with master.client() as client:
                measure(client, port, f"{nodes} nodes, {instances} instances")
        finally:
            master.stop()


def measure(client, port, title):
    """Play rounds; show the least of each figure."""
    count = 0
    poller = Poller(lambda: KEY, clock.SystemClock())

    def poll(places):
        nonlocal count
        answers, problems = poller.poll(places)
        assert not problems, problems
        count = len(answers)
        return answers, problems

    maintenance = Maintenance(client.call, poll, clock.SystemClock(), port)
    figures = []
    for _ in range(ROUNDS):
        began, cpu = time.monotonic(), time.process_time()
        maintenance.round()
        figures.append((time.process_time() - cpu, time.monotonic() - began))
    cpu, spent = (min(column) for column in zip(*figures, strict=True))
    show(f"one round, {title}, {count} diagnoses", spent, "s", "-")
    show("  CPU of maintenance and master daemon", cpu, "s", "<= 1")


if __name__ == "__main__":
    main()
