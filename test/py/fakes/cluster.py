"""Configurations to test with."""

import json
import pathlib
import uuid

from ganeti.model import objects
from ganeti.model.objects import CLUSTER_KEY, Snapshot, Update

SPEC = pathlib.Path(__file__).parents[2] / "data" / "spec"


def example_data():
    """Return the example of the interface tables, in the form of config.data."""
    return json.loads((SPEC / "objects.json").read_text())["example_config"]


def updates(data):
    """Return what puts a configuration in the form of config.data into a store."""
    actual = [
        Update(
            "cluster", CLUSTER_KEY, objects.from_dict(objects.Cluster, data["cluster"])
        )
    ]
    for table, cls in objects.TABLES.items():
        if table != "cluster":
            actual += [
                Update(table, key, objects.from_dict(cls, record))
                for key, record in data[table].items()
            ]
    return actual


def example():
    """Return the example as a snapshot: two nodes, one instance with a DRBD disk."""
    return Snapshot().apply(updates(example_data()), revision=1, term=1)


def make_id(kind, number):
    """Return the uuid of a made-up object."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{kind}{number}.example.com"))


def big(nodes, instances, candidates=3):
    """Return the updates of a cluster with so many nodes and plain instances."""
    base = example()
    template = next(iter(base.nodes.values()))
    guest = next(iter(base.instances.values()))
    volume = next(iter(base.disks.values())).children[0]
    actual = [
        Update(
            "cluster",
            CLUSTER_KEY,
            base.cluster.replace(
                master_node=make_id("node", 0),
                candidate_certs={},
                candidate_pool_size=candidates,
            ),
        ),
        *(Update("nodegroups", key, item) for key, item in base.nodegroups.items()),
    ]
    for number in range(nodes):
        node = template.replace(
            uuid=make_id("node", number),
            name=f"node{number}.example.com",
            primary_ip=f"192.0.2.{number}" if number < 250 else f"198.51.100.{number}",
            secondary_ip=f"192.0.2.{number}",
            master_candidate=number < candidates,
        )
        actual.append(Update("nodes", node.uuid, node))
    for number in range(instances):
        home = make_id("node", number % nodes)
        disk = volume.replace(
            uuid=make_id("disk", number),
            logical_id=("xenvg", f"{make_id('lv', number)}.disk0"),
            nodes=(home,),
            iv_name="disk/0",
        )
        nic = guest.nics[0].replace(
            uuid=make_id("nic", number),
            mac=f"aa:00:00:{number >> 16:02x}:{number >> 8 & 255:02x}:{number & 255:02x}",
        )
        actual.append(Update("disks", disk.uuid, disk))
        instance = guest.replace(
            uuid=make_id("instance", number),
            name=f"instance{number}.example.com",
            primary_node=home,
            disks=(disk.uuid,),
            nics=(nic,),
            network_port=None,
        )
        actual.append(Update("instances", instance.uuid, instance))
    return actual
