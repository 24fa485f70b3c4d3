"""The choice among the units of OP_INSTANCE_CREATE."""

from ganeti import opcodes
from ganeti.cmdlib import base
from ganeti.cmdlib.instance import commit, create, import_export, reserve


class InstanceCreation(create.InstanceCreate):
    """Unit that creates an instance; other requests have units of their own."""

    @classmethod
    def for_request(
        cls, op: opcodes.InstanceCreate
    ) -> type[base.LogicalUnit[opcodes.InstanceCreate]]:
        """Return the unit that executes a request."""
        if op.forthcoming:
            return reserve.InstanceReserve
        if op.mode == "import" and not op.commit:
            return import_export.InstanceImport
        return commit.InstanceCommit if op.commit else create.InstanceCreate
