"""The top level of config.data."""

from typing import ClassVar

from ganeti.model.objects.base import Record
from ganeti.model.objects.cluster import Cluster
from ganeti.model.objects.disk import Disk
from ganeti.model.objects.filters import FilterRule
from ganeti.model.objects.group import NodeGroup
from ganeti.model.objects.instance import Instance
from ganeti.model.objects.network import Network
from ganeti.model.objects.node import Node


class ConfigData(Record, frozen=True, kw_only=True):
    """The whole configuration, as in config.data."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(())

    version: int
    cluster: Cluster
    nodes: dict[str, Node]
    nodegroups: dict[str, NodeGroup]
    #: May be empty.
    instances: dict[str, Instance]
    #: May be empty.
    networks: dict[str, Network]
    #: May be empty.
    disks: dict[str, Disk]
    #: May be empty.
    filters: dict[str, FilterRule]
    serial_no: int
    #: Creation, seconds since 1970.
    ctime: float = 0.0
    #: Last change.
    mtime: float = 0.0
