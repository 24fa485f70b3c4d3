"""Speed of the simulator: a day of 200 nodes, one of which dies.

Prints the simulated time divided by the time of a core that it took, without and with
4,000 instances.
"""

import argparse
import logging
import time

from ganeti.devel.sim import Simulation, parse_events
from ganeti.devel.sim.description import (
    ClusterDescription,
    InstanceDescription,
    NodeDescription,
)


def described(nodes, per_node):
    names = [f"node{number}" for number in range(nodes)]
    return ClusterDescription(
        nodes=tuple(
            NodeDescription(
                name=name, candidate=place < 8, memory_mib=65536, disk_mib=4_000_000
            )
            for place, name in enumerate(names)
        ),
        instances=tuple(
            InstanceDescription(
                name=f"web{number}",
                primary=names[number % nodes],
                secondary=names[(number + 1 + number // nodes) % nodes],
            )
            for number in range(nodes * per_node)
        ),
        node_death=True,
        diagnose=True,
        tags=("ganeti:watcher:autorepair:failover",),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--quick", action="store_true", help="only few instances")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for per_node in (1,) if options.quick else (1, 20):
        made = Simulation(
            described(options.nodes, per_node), parse_events("1h kill node3")
        )
        began = time.process_time()
        report = made.run(options.hours * 3600)
        seconds = time.process_time() - began
        moved = [end for end in report.instances if end.before != end.after]
        print(
            f"{options.nodes} nodes, {report.count} instances, {options.hours:g} h:"
            f" {seconds:.1f} s of a core, {report.seconds / seconds:,.0f} times real"
            f" time; {len(moved)} instances moved, {len(report.problems)} problems"
        )


if __name__ == "__main__":
    main()
