"""Checks of the nodes that run instances, and of their disks."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ganeti.base.constants import disks
from ganeti.base.constants import disks as disk_constants
from ganeti.decisions.verify import mirrors
from ganeti.decisions.verify.report import Report
from ganeti.model import objects
from ganeti.model.objects import params


@dataclasses.dataclass(frozen=True)
class Observations:
    """Data that nodes reported.

    Attributes:
        running: node uuid -> names of the instances it runs, without nodes that did not
            report them.
        disks: instance uuid -> node uuid -> (ok, status object or text) per disk.
        volume_groups: node uuid -> its volume groups, of nodes that report them.
    """

    running: Mapping[str, frozenset[str]]
    disks: Mapping[str, Mapping[str, Sequence[Sequence[Any]]]]
    volume_groups: Mapping[str, frozenset[str]] = dataclasses.field(
        default_factory=dict
    )

    def lacks_group(self, node: str, disk: objects.Disk) -> bool:
        """Return whether a node is known to lack a volume group of a mirror."""
        return mirrors.lacks_group(self.volume_groups.get(node), disk)


def judge(
    report: Report,
    snapshot: objects.Snapshot,
    instance: objects.Instance,
    observed: Observations,
    policy_problems: Sequence[str],
) -> None:
    """Check one instance.

    Args:
        report: collects the findings.
        snapshot: the configuration.
        instance: the instance.
        observed: data that nodes reported.
        policy_problems: its violations of the group's policy.
    """
    _parameters(report, snapshot, instance)
    for text in policy_problems:
        report.error("EINSTANCEPOLICY", instance.name, text)
    _nodes(report, snapshot, instance)
    _placement(report, snapshot, instance, observed)
    _groups(report, snapshot, instance)
    _disks(report, snapshot, instance, observed)


def _parameters(
    report: Report, snapshot: objects.Snapshot, instance: objects.Instance
) -> None:
    known = {
        "hypervisor": params.hvparams_for(
            snapshot.cluster, instance.hypervisor, instance.os, {}
        ),
        "backend": params.beparams_for(snapshot.cluster, {}),
    }
    given = {"hypervisor": instance.hvparams, "backend": instance.beparams}
    for what, values in given.items():
        for name in sorted(set(values) - set(known[what])):
            report.error(
                "EINSTANCEMISSINGCFGPARAMETER",
                instance.name,
                f"{what} parameter {name} is not known to the cluster",
            )
    report.error_if(
        instance.hypervisor not in snapshot.cluster.enabled_hypervisors,
        "EINSTANCEMISSINGCFGPARAMETER",
        instance.name,
        f"hypervisor {instance.hypervisor} is not enabled in the cluster",
    )


def _nodes(
    report: Report, snapshot: objects.Snapshot, instance: objects.Instance
) -> None:
    primary = snapshot.nodes.get(instance.primary_node)
    if primary is None:
        report.error("EINSTANCEBADNODE", instance.name, "its primary node is unknown")
        return
    report.error_if(
        primary.offline and instance.admin_state == "up",
        "EINSTANCEBADNODE",
        instance.name,
        f"instance is marked as running and lives on offline node {primary.name}",
    )
    secondaries = [snapshot.nodes[uuid] for uuid in snapshot.secondary_nodes(instance)]
    off = sorted(node.name for node in secondaries if node.offline)
    report.error_if(
        off,
        "EINSTANCEBADNODE",
        instance.name,
        f"instance has offline secondary node(s) {', '.join(off)}",
    )
    for node in (primary, *secondaries):
        report.error_if(
            not node.vm_capable,
            "EINSTANCEBADNODE",
            instance.name,
            f"instance lives on non-vm_capable node {node.name}",
        )
    report.error_if(
        len(secondaries) > 1,
        "EINSTANCELAYOUT",
        instance.name,
        "instance has multiple secondary nodes: "
        + ", ".join(sorted(node.name for node in secondaries)),
        warn_only=True,
    )


def _placement(
    report: Report,
    snapshot: objects.Snapshot,
    instance: objects.Instance,
    observed: Observations,
) -> None:
    primary = instance.primary_node
    node = snapshot.nodes.get(primary)
    if node is not None and primary in observed.running:
        report.error_if(
            instance.admin_state == "up"
            and instance.name not in observed.running[primary],
            "EINSTANCEDOWN",
            instance.name,
            f"instance not running on its primary node {node.name}",
        )
    unfinished = (
        "its installation did not finish; install it again with gnt-instance reinstall,"
        " or remove it"
    )
    if instance.is_half_renamed:
        unfinished = (
            "the rename script of its operating system did not finish; run it again"
            f" with gnt-instance rename {instance.name} {instance.name}"
        )
    report.error_if(instance.is_unfinished, "EINSTANCEDOWN", instance.name, unfinished)
    for uuid, names in sorted(observed.running.items()):
        if uuid != primary:
            report.error_if(
                instance.name in names,
                "EINSTANCEWRONGNODE",
                instance.name,
                f"instance should not run on node {snapshot.nodes[uuid].name}; if a"
                " migration was interrupted, run gnt-instance migrate --cleanup"
                f" {instance.name}",
            )


def _groups(
    report: Report, snapshot: objects.Snapshot, instance: objects.Instance
) -> None:
    groups = {
        snapshot.nodes[uuid].group
        for uuid in snapshot.instance_nodes(instance)
        if uuid in snapshot.nodes
    }
    names = sorted(
        snapshot.nodegroups[uuid].name for uuid in groups if uuid in snapshot.nodegroups
    )
    report.error_if(
        len(groups) > 1,
        "EINSTANCESPLITGROUPS",
        instance.name,
        "instance has primary and secondary nodes in different groups:"
        f" {', '.join(names)}",
        warn_only=True,
    )


def _disks(
    report: Report,
    snapshot: objects.Snapshot,
    instance: objects.Instance,
    observed: Observations,
) -> None:
    missing = [uuid for uuid in instance.disks if uuid not in snapshot.disks]
    report.error_if(
        missing,
        "EINSTANCEMISSINGDISK",
        instance.name,
        f"disks {', '.join(missing)} are not in the configuration",
    )
    rows = observed.disks.get(instance.uuid, {})
    torn = {} if missing else _mirrors(report, snapshot, instance, observed)
    for node_uuid, statuses in sorted(rows.items()):
        node = snapshot.nodes[node_uuid].name
        for index, (is_known, status) in enumerate(statuses):
            if index not in torn:
                _one_disk(report, instance, f"disk/{index} on {node}", is_known, status)


def _mirrors(
    report: Report,
    snapshot: objects.Snapshot,
    instance: objects.Instance,
    observed: Observations,
) -> dict[int, mirrors.Problem]:
    """Check mirrors by the answers of both nodes; return those with a problem."""
    rows, lacks = observed.disks.get(instance.uuid), observed.lacks_group
    problems = mirrors.of_instance(snapshot, instance, rows, lacks) if rows else {}
    for index, problem in problems.items():
        lost = problem.state is mirrors.State.LOST
        report.error(
            "EINSTANCEMISSINGDISK" if lost else "EINSTANCEFAULTYDISK",
            instance.name,
            f"disk/{index}: {problem.line()}",
            warn_only=not problem.is_error,
        )
    return problems


def _one_disk(
    report: Report, instance: objects.Instance, where: str, is_known: Any, status: Any
) -> None:
    if not instance.disks_active:
        return
    if report.error_if(
        not is_known,
        "EINSTANCEFAULTYDISK",
        instance.name,
        f"couldn't retrieve status for {where}: {status}",
    ):
        return
    if report.error_if(
        not isinstance(status, Mapping),
        "EINSTANCEMISSINGDISK",
        instance.name,
        f"{where} is missing",
    ) or not isinstance(status, Mapping):
        return
    level = status.get("ldisk_status")
    if not status.get("is_degraded") and level in (None, disk_constants.LDS_OK):
        return
    word = disk_constants.LDS_NAMES.get(level or 0, "degraded")
    report.error_if(
        level == disk_constants.LDS_FAULTY or status.get("is_degraded"),
        "EINSTANCEFAULTYDISK",
        instance.name,
        f"{where} is {'degraded' if level in (None, disk_constants.LDS_OK) else word}",
    )
    report.error_if(
        level == disk_constants.LDS_UNKNOWN,
        "EINSTANCEFAULTYDISK",
        instance.name,
        f"{where} has unknown status",
        warn_only=True,
    )


def orphans(report: Report, snapshot: objects.Snapshot, observed: Observations) -> None:
    """Find running instances that are not in the configuration."""
    known = snapshot.names("instances")
    for uuid, names in sorted(observed.running.items()):
        for name in sorted(names):
            report.error_if(
                name not in known,
                "ENODEORPHANINSTANCE",
                snapshot.nodes[uuid].name,
                f"instance {name} should not exist",
            )


def n_plus_one(
    report: Report, snapshot: objects.Snapshot, free_mib: Mapping[str, int]
) -> None:
    """Check every secondary node as the failover target of another node's instances.

    Balanced instances that are up count, with their minimum memory.

    Args:
        report: collects the findings.
        snapshot: the configuration.
        free_mib: node uuid -> free memory, without nodes that did not report it.
    """
    for uuid, free in sorted(free_mib.items()):
        needed: dict[str, int] = {}
        for other in snapshot.secondary_instances(uuid):
            instance = snapshot.instances[other]
            backend = params.fill_beparams(snapshot, instance)
            if instance.admin_state == "up" and backend["auto_balance"]:
                primary = instance.primary_node
                needed[primary] = needed.get(primary, 0) + backend["minmem"]
        for primary, mib in sorted(needed.items()):
            report.error_if(
                free < mib,
                "ENODEN1",
                snapshot.nodes[uuid].name,
                "not enough memory to accommodate instance failovers should node"
                f" {snapshot.nodes[primary].name} fail ({mib}MiB needed, {free}MiB"
                " available)",
            )


def on_shared_storage(
    snapshot: objects.Snapshot, instances: Iterable[objects.Instance]
) -> list[str]:
    """Return the names of instances that are up and may run on any node of their group.

    They have no secondary node, so the memory for them is not that of one node.
    """
    return [
        instance.name
        for instance in instances
        if instance.admin_state == "up"
        and snapshot.disk_template(instance) in disks.DTS_EXT_MIRROR
    ]


def not_evacuable(report: Report, nodes: Sequence[str]) -> None:
    """Warn of nodes whose instances have no place elsewhere."""
    for name in nodes:
        report.error_if(
            name,
            "ENODEN1",
            name,
            "should this node fail, not all of its instances have a place on the others"
            " of its group; see hcheck and gnt-cluster capacity",
            warn_only=True,
        )
