"""The master's address: raising and dropping it on the master node."""

from typing import Any

from ganeti import objects
from ganeti.cmdlib.base import Context
from ganeti.rpc import Result


def parameters(cluster: objects.Cluster) -> dict[str, Any]:
    """Return the object that node calls about the master's address take."""
    return {
        "uuid": cluster.master_node,
        "ip": cluster.master_ip,
        "netmask": cluster.master_netmask,
        "netdev": cluster.master_netdev,
        "ip_family": cluster.primary_ip_family,
    }


def turn_up(ctx: Context) -> Result:
    """Ask the master node to raise the address, as configured now."""
    cluster = ctx.snapshot.cluster
    return ctx.rpc.call_one(
        "node_activate_master_ip",
        cluster.master_node,
        parameters(cluster),
        cluster.use_external_mip_script,
    )


def turn_down(ctx: Context) -> Result:
    """Ask the master node to drop the address, as configured now."""
    cluster = ctx.snapshot.cluster
    return ctx.rpc.call_one(
        "node_deactivate_master_ip",
        cluster.master_node,
        parameters(cluster),
        cluster.use_external_mip_script,
    )
