"""OP_NETWORK_REMOVE: delete a network."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ganeti.base.constants.protocols import hooks
from ganeti.master.locking import Level
from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import ALL, LogicalUnit
from ganeti.operations.network import usage


class NetworkRemove(LogicalUnit[opcodes.NetworkRemove]):
    """Unit that deletes a network that no group is connected to.

    ``force`` is accepted for scripts and skips nothing: a NIC without its network would
    make the configuration inconsistent.
    """

    HOOKS_PATH: ClassVar[str | None] = "network-remove"
    HOOKS_TYPE: ClassVar[str | None] = hooks.HTYPE_NETWORK

    def expand_names(self) -> None:
        """Lock the network, and all groups, so that none gets connected."""
        snapshot = self.ctx.snapshot
        self.uuid = lookup.expand_network(snapshot, self.op.network_name)
        self.name = snapshot.networks[self.uuid].name
        self.locks.names[Level.NETWORK] = [self.uuid]
        self.locks.names[Level.NODEGROUP] = ALL
        self.locks.shared.add(Level.NODEGROUP)

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the name."""
        return {"NETWORK_NAME": self.name}

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master, for both phases."""
        master = (self.ctx.snapshot.cluster.master_node,)
        return master, master

    def check_prereq(self) -> None:
        """Check that no group and no instance uses the network."""
        usage.check_unused(self.ctx.snapshot, self.uuid)

    def execute(self) -> None:
        """Delete the network."""
        with self.ctx.config.edit(self.ctx.owner) as edit:
            usage.check_unused(edit.snapshot, self.uuid)
            edit.remove_network(self.uuid)
