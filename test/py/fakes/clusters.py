"""Small clusters as values."""

import json
import pathlib

from ganeti.model import objects
from ganeti.model.objects import Update

EXAMPLE = json.loads(
    (pathlib.Path(__file__).parents[2] / "data" / "spec" / "objects.json").read_text()
)["example_config"]
GROUP = "00000000-0000-4000-8000-0000000000a0"
NETWORK = "00000000-0000-4000-8000-0000000000c0"
#: Members of the cluster's data beyond those of the table in test/data/spec.
ADDED_KEYS = (
    *("maint_round_delay", "maint_balance", "maint_balance_threshold"),
    *("maint_balance_load", "maint_balance_disk_moves", "maint_repairs"),
    *("rapi_require_authentication", "serial_no"),
)
#: Of a certificate.
DIGEST = ":".join(["AB"] * 20)


def node_uuid(number):
    return f"00000000-0000-4000-8000-0000000000{number:02x}"


def instance_uuid(number):
    return f"00000000-0000-4000-8000-0000000001{number:02x}"


def group(name="default", uuid=GROUP, **changes):
    data = dict(next(iter(EXAMPLE["nodegroups"].values())), name=name, uuid=uuid)
    return objects.from_dict(objects.NodeGroup, {**data, **changes})


def node(number, **changes):
    data = {
        **next(iter(EXAMPLE["nodes"].values())),
        "name": f"node{number}.example.com",
        "uuid": node_uuid(number),
        "primary_ip": f"192.0.2.{number}",
        "secondary_ip": f"192.0.2.{number}",
        "group": GROUP,
        "ndparams": {},
        "tags": [],
    }
    return objects.from_dict(objects.Node, {**data, **changes})


def instance(number, primary=1, **changes):
    data = {
        "name": f"inst{number}.example.com",
        "uuid": instance_uuid(number),
        "primary_node": node_uuid(primary),
        "os": "tiny",
        "hypervisor": "kvm",
        "admin_state": "up",
        "admin_state_source": "admin",
        "disks_active": True,
        "serial_no": 1,
    }
    return objects.from_dict(objects.Instance, {**data, **changes})


def network(name="lan", uuid=NETWORK, **changes):
    """Return a network of 16 addresses: its ends reserved, none in use."""
    data = {
        "name": name,
        "uuid": uuid,
        "network": "198.51.100.0/28",
        "serial_no": 1,
        "reservations": "0" * 16,
        "ext_reservations": "1" + "0" * 14 + "1",
    }
    return objects.from_dict(objects.Network, {**data, **changes})


def cluster(**changes):
    data = {
        **EXAMPLE["cluster"],
        "master_node": node_uuid(1),
        "master_ip": "192.0.2.100",
        "candidate_certs": {},
        "enabled_hypervisors": ["kvm", "fake"],
        "enabled_disk_templates": ["diskless", "file", "sharedfile"],
        "hvparams": {**EXAMPLE["cluster"]["hvparams"], "fake": {}},
        "volume_group_name": None,
        "drbd_usermode_helper": None,
        "default_iallocator": "",
        "tags": [],
    }
    return objects.from_dict(objects.Cluster, {**data, **changes})


def snapshot(nodes=3, instances=0, extra=(), **cluster_changes):
    """Return a cluster of candidates in one group; instances live on node 1."""
    records = [
        ("cluster", "", cluster(**cluster_changes)),
        ("nodegroups", GROUP, group()),
        *(("nodes", node_uuid(n), node(n)) for n in range(1, nodes + 1)),
        *(
            ("instances", instance_uuid(n), instance(n))
            for n in range(1, instances + 1)
        ),
    ]
    tables = {objects.TABLES[name]: name for name in objects.TABLES}
    records += [(tables[type(item)], item.uuid, item) for item in extra]
    return objects.Snapshot().apply([Update(*row) for row in records])


def drbd_disk(uuid, primary, secondary, size=1024):
    """Return a mirrored disk of two nodes, with its two volumes."""
    names = [f"{uuid}.{kind}" for kind in ("data", "meta")]
    volumes = [
        objects.Disk(
            uuid=f"{uuid}-{kind}",
            dev_type="plain",
            logical_id=("xenvg", name),
            size=mib,
            nodes=(node_uuid(primary), node_uuid(secondary)),
            serial_no=1,
        )
        for kind, name, mib in zip(("data", "meta"), names, (size, 128), strict=True)
    ]
    pair = (node_uuid(primary), node_uuid(secondary))
    return objects.Disk(
        uuid=uuid,
        dev_type="drbd",
        logical_id=(*pair, 11000, 0, 0, "secret"),
        size=size,
        nodes=pair,
        children=tuple(volumes),
        serial_no=1,
    )


def changed(start, *records):
    """Return a snapshot with records added or replaced."""
    tables = {objects.TABLES[name]: name for name in objects.TABLES}
    rows = [Update(tables[type(item)], item.uuid, item) for item in records]
    return start.apply(rows)
