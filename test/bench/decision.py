"""CPU time of one allocation inside the master daemon: configuration to node names.

The nodes' reports are available at once; benchmark ``rpc`` measures the calls. One
instance changes between decisions, as in an active cluster.
"""

import argparse
import dataclasses
import random
import sys
import time

from fakes import allocators, clusters
from ganeti.master import iallocator
from ganeti.model import objects
from ganeti.protocols.rpc import PROCEDURES, Result, Runner

REPEATS = 15
TEMPLATES = ("drbd", "sharedfile")


def _uuid(kind, number):
    return f"00000000-0000-4000-8000-{kind}{number:011x}"


def _instance(number, nodes, template, dice):
    """Return an instance with its disk."""
    primary, secondary = dice.sample(nodes, 2)
    holders = (primary, secondary) if template == "drbd" else ()
    disk = objects.Disk(
        dev_type=template,
        logical_id=(*holders, 11000 + number, 0, 0, "secret"),
        size=10240,
        uuid=_uuid("d", number),
        serial_no=1,
        nodes=holders,
        iv_name="disk/0",
        params={},
    )
    nic = objects.Nic(
        mac=f"aa:00:00:{number >> 16:02x}:{number >> 8 & 255:02x}:{number & 255:02x}",
        nicparams={},
        uuid=_uuid("e", number),
    )
    record = clusters.instance(
        1,
        name=f"inst{number}.example.com",
        uuid=_uuid("1", number),
        primary_node=primary,
        beparams={"maxmem": dice.choice([512, 1024, 2048])},
    )
    return record.replace(disks=(disk.uuid,), nics=(nic,)), disk


def big_snapshot(count, instances, template):
    """Return a cluster and the reports of its nodes."""
    dice = random.Random(1)
    share = instances // count
    nodes = [
        clusters.node(1, name=f"node{number}.example.com", uuid=_uuid("0", number))
        for number in range(1, count + 1)
    ]
    uuids = [node.uuid for node in nodes]
    pairs = [_instance(n, uuids, template, dice) for n in range(instances)]
    records = [item for pair in pairs for item in pair]
    policy = {**clusters.cluster().ipolicy, "disk-templates": list(TEMPLATES)}
    snapshot = clusters.snapshot(
        nodes=0,
        extra=[*nodes, *records],
        master_node=uuids[0],
        enabled_hypervisors=["kvm"],
        enabled_disk_templates=list(TEMPLATES),
        ipolicy=policy,
    )
    memory = share * 6000 + 8192
    hypervisor = {
        "memory_total": memory,
        "memory_free": memory - 1024 - 2048 * share,
        "memory_dom0": 1024,
        "cpu_total": share + 8,
        "cpu_dom0": 1,
    }
    space = {"storage_size": share * 100000, "storage_free": share * 50000}
    running = {
        uuid: {
            snapshot.instances[item].name: {"memory": 512}
            for item in snapshot.primary_instances(uuid)
        }
        for uuid in uuids
    }
    info = ["boot", [space], [hypervisor]]
    return snapshot, Nodes(dict.fromkeys(uuids, info), running)


class Nodes(Runner):
    """Calls to nodes with prepared answers."""

    def __init__(self, infos, running):
        self._answers = {
            name: {
                node: PROCEDURES[name].read(Result(name, node, actual))
                for node, actual in rows.items()
            }
            for name, rows in (("node_info", infos), ("all_instances_info", running))
        }

    def call(self, procedure, _nodes, _args=(), *, timeout_s=None):
        """Return the answers of all nodes."""
        return self._answers[procedure]


def decisions(snapshot, runner, request):
    """Return the seconds of each decision; the first one has an empty cache."""
    known = iallocator.ClusterCache()
    uuids = sorted(snapshot.instances)
    for turn in range(REPEATS):
        item = snapshot.instances[uuids[turn]]
        changed = item.replace(serial_no=item.serial_no + 1)
        snapshot = snapshot.apply([objects.Update("instances", uuids[turn], changed)])
        start = time.process_time()
        answer = iallocator.run(runner, snapshot, "hail", request, cluster_cache=known)
        yield time.process_time() - start
        if not answer.success:
            raise SystemExit(answer.info)


def main():
    """Measure both templates."""
    parser = argparse.ArgumentParser("test/bench/run decision", description=__doc__)
    parser.add_argument("nodes", nargs="?", type=int, default=200)
    parser.add_argument("instances", nargs="?", type=int, default=4000)
    chosen = parser.parse_args()
    count, instances = chosen.nodes, chosen.instances
    for template in TEMPLATES:
        request = dataclasses.replace(
            allocators.allocate(),
            disk_template=template,
            memory=1024,
            disks=[{"size": 10240, "mode": "rw"}],
        )
        first, *others = decisions(*big_snapshot(count, instances, template), request)
        others.sort()
        sys.stdout.write(
            f"{template} {count} nodes, {instances} instances: first"
            f" {1000 * first:.0f} ms, then median {1000 * others[len(others) // 2]:.0f}"
            f" ms, least {1000 * others[0]:.0f} ms\n"
        )


if __name__ == "__main__":
    main()
