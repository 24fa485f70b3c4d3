"""Activation and deactivation of the master IP on the master node."""

from typing import Any

from ganeti.model import objects
from ganeti.operations.base import Context
from ganeti.protocols.rpc import Result, calls


def parameters(cluster: objects.Cluster) -> dict[str, Any]:
    """Return the parameters of node calls about the master IP."""
    return {
        "uuid": cluster.master_node,
        "ip": cluster.master_ip,
        "netmask": cluster.master_netmask,
        "netdev": cluster.master_netdev,
        "ip_family": cluster.primary_ip_family,
    }


def turn_up(ctx: Context) -> Result:
    """Have the master node activate the address, as currently configured."""
    cluster = ctx.snapshot.cluster
    return ctx.rpc.call_node(
        cluster.master_node,
        calls.node_activate_master_ip(
            parameters(cluster), cluster.use_external_mip_script
        ),
    )


def turn_down(ctx: Context) -> Result:
    """Have the master node deactivate the address, as currently configured."""
    cluster = ctx.snapshot.cluster
    return ctx.rpc.call_node(
        cluster.master_node,
        calls.node_deactivate_master_ip(
            parameters(cluster), cluster.use_external_mip_script
        ),
    )
