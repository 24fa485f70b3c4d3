"""Frozen records of the configuration: the value that the cluster is.

The field names are those of ``config.data``; `to_dict` and
`from_dict` write and read that form. `params` fills parameters from cluster, group
and node, `lookup` turns names into uuids. Writing does not belong here: see
`ganeti.master.config`.
"""

from ganeti.model.objects.codec import decode, encode, from_dict, to_dict
from ganeti.model.objects.records import (
    Cluster,
    ConfigData,
    CreationRequest,
    Disk,
    FilterRule,
    Instance,
    Network,
    Nic,
    Node,
    NodeGroup,
    Record,
    Reservation,
)
from ganeti.model.objects.snapshot import CLUSTER_KEY, TABLES, Snapshot, Update

__all__ = [
    "CLUSTER_KEY",
    "TABLES",
    "Cluster",
    "ConfigData",
    "CreationRequest",
    "Disk",
    "FilterRule",
    "Instance",
    "Network",
    "Nic",
    "Node",
    "NodeGroup",
    "Record",
    "Reservation",
    "Snapshot",
    "Update",
    "decode",
    "encode",
    "from_dict",
    "to_dict",
]
