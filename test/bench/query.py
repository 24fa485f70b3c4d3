"""Time of a list of many instances inside the master daemon: answer and encoding."""

import argparse
import json
import sys
import time

import msgspec

from ganeti.master import query
from ganeti.master.query import Sources
from ganeti.model import objects
from ganeti.protocols.rpc import Result, Runner

FIELDS = ["name", "hypervisor", "os", "pnode", "admin_state", "be/maxmem"]
REPEATS = 5


def make_snapshot(example, count):
    """Return a cluster of 100 nodes with many instances, from the example records."""
    config = objects.from_dict(objects.ConfigData, example)
    group = next(iter(config.nodegroups.values()))
    node = next(iter(config.nodes.values())).replace(group=group.uuid)
    instance = next(iter(config.instances.values()))
    updates = [
        objects.Update("cluster", "", config.cluster.replace(master_node="node-0")),
        objects.Update("nodegroups", group.uuid, group),
    ]
    for number in range(100):
        record = node.replace(name=f"node{number}.example.com", uuid=f"node-{number}")
        updates.append(objects.Update("nodes", record.uuid, record))
    for number in range(count):
        record = instance.replace(
            name=f"inst{number}.example.com",
            uuid=f"inst-{number}",
            primary_node=f"node-{number % 100}",
            disks=(),
        )
        updates.append(objects.Update("instances", record.uuid, record))
    return objects.Snapshot().apply(updates)


class Nodes(Runner):
    """All nodes run all of their instances."""

    def __init__(self, snapshot):
        self.snapshot = snapshot

    def call(self, procedure, nodes, args=(), *, timeout_s=None):
        """Answer for each node."""
        del args, timeout_s
        instances = self.snapshot.instances
        info = {"memory": 512, "vcpus": 1, "state": 0, "time": 1.0}
        return {
            node: Result(
                procedure,
                node,
                {
                    instances[uuid].name: info
                    for uuid in self.snapshot.primary_instances(node)
                },
            )
            for node in nodes
        }


def measure(what, run):
    """Print the best time of some runs."""
    best = None
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        took = time.perf_counter() - start
        best = took if best is None else min(best, took)
    print(f"{what:45} {best * 1000:8.1f} ms")


def main():
    """Measure."""
    parser = argparse.ArgumentParser("test/bench/run query", description=__doc__)
    parser.add_argument("instances", nargs="?", type=int, default=5000)
    count = parser.parse_args().instances
    with open(f"{sys.path[0]}/../data/spec/objects.json", encoding="utf-8") as stream:
        example = json.load(stream)["example_config"]
    snapshot = make_snapshot(example, count)
    sources = Sources(snapshot, Nodes(snapshot))
    every = [
        field.name
        for field in query.RESOURCES["instance"].fields.values()
        if not field.live
    ]
    status = ["name", "hypervisor", "os", "pnode", "status", "oper_ram"]
    print(f"{count} instances")
    measure(
        "default fields from the configuration",
        lambda: query.query(sources, "instance", FIELDS, None),
    )
    answer = query.query(sources, "instance", FIELDS, None).to_dict()
    measure("their encoding", lambda: msgspec.json.encode(answer))
    measure(
        "with status and memory, nodes answer at once",
        lambda: query.query(sources, "instance", status, None),
    )
    pattern = ["=~", "name", "^inst1"]
    measure(
        "filter on the name",
        lambda: query.query(sources, "instance", FIELDS, pattern),
    )
    measure(
        f"all {len(every)} configuration fields",
        lambda: query.query(sources, "instance", every, None),
    )


if __name__ == "__main__":
    main()
