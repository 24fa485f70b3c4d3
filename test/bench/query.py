"""Time of a list of many instances inside the master daemon: answer and encoding.

Then processor time of pages of it, and of searches: p50 and p95, also after changes.
"""

import argparse
import functools
import gc
import json
import sys
import time
import tracemalloc

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


def percentiles(what, run, change=lambda: None, times=40):
    """Print median and p95 of the processor time of some runs, each after a change."""
    took = []
    for _ in range(times):
        change()
        start = time.process_time()
        run()
        took.append((time.process_time() - start) * 1000)
    took.sort()
    p50, p95 = took[times // 2], took[int(times * 0.95)]
    print(f"{what:45} {p50:8.1f} ms p50 {p95:8.1f} ms p95")


class Changing:
    """A cluster whose records change, and pages and searches of it."""

    def __init__(self, snapshot):
        self.snapshot, self.step = snapshot, 0
        self.nodes = Nodes(snapshot)
        self.orders, self.index = query.Orders(), query.SearchIndex()

    def change(self):
        """Change one instance."""
        self.step += 1
        record = self.snapshot.instances[f"inst-{self.step * 97 % 1000}"]
        record = record.replace(
            tags=(f"step{self.step}",), primary_node=f"node-{self.step % 100}"
        )
        update = objects.Update("instances", record.uuid, record)
        self.snapshot = self.nodes.snapshot = self.snapshot.apply([update])

    def page(self, fields, qfilter=None, **wanted):
        """Return the page in the middle, after 100 rows."""
        ask = functools.partial(
            query.page, Sources(self.snapshot, self.nodes), "instance"
        )
        first = ask(fields, qfilter, query.Wanted(**wanted), orders=self.orders)
        wanted["cursor"] = first.next or ""
        return lambda: query.page(
            Sources(self.snapshot, self.nodes),
            "instance",
            fields,
            qfilter,
            query.Wanted(**wanted),
            orders=self.orders,
        )

    def find(self, text):
        """Search all kinds."""
        return self.index.find(Sources(self.snapshot), text, (), 20)


def measure_pages(snapshot):
    """Measure pages of 100, and searches."""
    live = Changing(snapshot)
    status = [*FIELDS, "status", "oper_ram"]
    pattern, running = ["=~", "name", "7.*1"], ["=", "status", "running"]
    for what, run in (
        ("page by name, with status", live.page(status)),
        ("page by name, with status and count", live.page(status, count=True)),
        ("page by primary node", live.page(FIELDS, sort="-pnode")),
        ("page of a filter on names, counted", live.page(FIELDS, pattern, count=True)),
        ("page of a filter on status", live.page(FIELDS, running)),
    ):
        percentiles(what, run)
        percentiles(f"{what}, changed", run, live.change)
    for text in ("inst777", "inst", "example", "step", "nothing at all"):
        percentiles(f"search {text!r}", lambda text=text: live.find(text))
        percentiles(
            f"search {text!r}, changed", lambda text=text: live.find(text), live.change
        )


def measure_memory(snapshot):
    """Print the memory of the index and of an order, as the allocator counts it."""
    for what, fill in (
        ("texts for searches", lambda live: live.find("x")),
        ("an order", lambda live: live.page(FIELDS, sort="pnode")),
    ):
        live = Changing(snapshot)
        tracemalloc.start()
        fill(live)
        gc.collect()
        print(f"memory of {what}: {tracemalloc.get_traced_memory()[0] / 2**20:.1f} MiB")
        tracemalloc.stop()


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
    measure_pages(snapshot)
    measure_memory(snapshot)


if __name__ == "__main__":
    main()
