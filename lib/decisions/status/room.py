"""Needs of instances that should run, and whether nodes could take them over. Pure.

An instance with a mirror in the cluster needs room on its secondary node; one on shared
storage, or without disks, on any other node of its group.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from ganeti.base.constants import disks
from ganeti.base.constants.instance import ADMINST_UP
from ganeti.decisions.verify import instances
from ganeti.decisions.verify.report import Report
from ganeti.model import objects
from ganeti.model.objects import params


class Needs(NamedTuple):
    """The needs of the instances that should run.

    Attributes:
        memory: MiB that they may use at most.
        vcpus: of all.
        movable: uuid of a node -> least MiB of its instances that can start on any
            node of their group.
    """

    memory: int
    vcpus: int
    movable: Mapping[str, int]


def needs(snapshot: objects.Snapshot) -> Needs:
    """Return the needs of all instances that should run."""
    memory = vcpus = 0
    movable: dict[str, int] = defaultdict(int)
    for instance in snapshot.instances.values():
        if instance.admin_state != ADMINST_UP:
            continue
        backend: Mapping[str, Any] = params.fill_beparams(snapshot, instance)
        memory += int(backend["maxmem"])
        vcpus += int(backend["vcpus"])
        is_movable = snapshot.disk_template(instance) in disks.DTS_EXT_MIRROR
        if is_movable and backend["auto_balance"]:
            movable[instance.primary_node] += int(backend["minmem"])
    return Needs(memory, vcpus, movable)


def shortages(
    snapshot: objects.Snapshot, wanted: Needs, free_mib: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Return the names of nodes, each with why a failure would leave instances down.

    Args:
        snapshot: the configuration.
        wanted: of its instances.
        free_mib: node uuid -> free memory, without nodes that did not report it.
    """
    report = Report()
    instances.n_plus_one(report, snapshot, free_mib)
    short = [(each.name or "", each.text) for each in report.take()]
    by_group: dict[str, int] = defaultdict(int)
    for uuid, free in free_mib.items():
        node = snapshot.nodes[uuid]
        if node.vm_capable and not node.drained:
            by_group[node.group] += free
    for uuid, mib in sorted(wanted.movable.items()):
        lost = snapshot.nodes.get(uuid)
        if lost is None or lost.offline:
            continue
        own = 0 if lost.drained else free_mib.get(uuid, 0)
        left = by_group[lost.group] - own
        if left < mib:
            text = (
                "not enough memory in its group to start its instances elsewhere should"
                f" it fail ({mib}MiB needed, {left}MiB available)"
            )
            short.append((lost.name, text))
    return short
