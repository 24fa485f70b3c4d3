"""Frozen records of the configuration: the value that the cluster is.

One module per object. The field names are those of ``config.data``; `to_dict` and
`from_dict` write and read that form. `params` fills parameters from cluster, group
and node, `lookup` turns names into uuids. Writing does not belong here: see
`ganeti.config`.
"""

from ganeti.objects.base import Record
from ganeti.objects.cluster import Cluster
from ganeti.objects.codec import decode, encode, from_dict, to_dict
from ganeti.objects.config import ConfigData
from ganeti.objects.disk import Disk
from ganeti.objects.filters import FilterRule
from ganeti.objects.group import NodeGroup
from ganeti.objects.instance import CreationRequest, Instance, Nic, Reservation
from ganeti.objects.network import Network
from ganeti.objects.node import Node
from ganeti.objects.snapshot import CLUSTER_KEY, TABLES, Snapshot, Update

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
