"""Check that the loss of one node leaves enough memory for its instances."""

from collections.abc import Iterable, Mapping, Sequence

from ganeti.base.constants import disks as disk_constants
from ganeti.decisions.verify.report import Report
from ganeti.model import objects
from ganeti.model.objects import params


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
        and snapshot.disk_template(instance) in disk_constants.DTS_EXT_MIRROR
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
