"""The choice among the units of OP_INSTANCE_CREATE."""

from ganeti import opcodes
from ganeti.cmdlib import base
from ganeti.cmdlib.instance import commit, create, reserve


class InstanceCreation(create.InstanceCreate):
    """Unit that creates an instance, unless the request reserves or commits one."""

    @classmethod
    def for_request(
        cls, op: opcodes.InstanceCreate
    ) -> type[base.LogicalUnit[opcodes.InstanceCreate]]:
        """Return the unit that executes a request."""
        if op.forthcoming:
            return reserve.InstanceReserve
        return commit.InstanceCommit if op.commit else create.InstanceCreate
