"""Configuration of Open vSwitch on a node whose parameters request it."""

from typing import Final

from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations.base import Context

#: Node parameters whose change takes effect by `configure`.
PARAMETERS: Final = frozenset(("ovs", "ovs_name", "ovs_link"))


def configure(ctx: Context, node: objects.Node) -> None:
    """Create the switch on the node if it should have one.

    Raises:
        OpExecError: the node failed to create it.
    """
    ndparams = params.fill_ndparams(ctx.snapshot, node)
    if ndparams["ovs"]:
        ctx.rpc.call_one(
            "node_configure_ovs", node.uuid, ndparams["ovs_name"], ndparams["ovs_link"]
        ).unwrap(f"cannot configure Open vSwitch on {node.name}")
