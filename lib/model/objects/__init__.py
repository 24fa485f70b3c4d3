"""Frozen records of the configuration: the value that the cluster is.

One module per object. The field names are those of ``config.data``; `to_dict` and
`from_dict` write and read that form. `params` fills parameters from cluster, group
and node, `lookup` turns names into uuids. Writing does not belong here: see
`ganeti.master.config`.
"""

from ganeti.model.objects.base import Record
from ganeti.model.objects.cluster import Cluster
from ganeti.model.objects.codec import decode, encode, from_dict, to_dict
from ganeti.model.objects.config import ConfigData
from ganeti.model.objects.disk import Disk
from ganeti.model.objects.filters import FilterRule
from ganeti.model.objects.group import NodeGroup
from ganeti.model.objects.instance import CreationRequest, Instance, Nic, Reservation
from ganeti.model.objects.network import Network
from ganeti.model.objects.node import Node
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
