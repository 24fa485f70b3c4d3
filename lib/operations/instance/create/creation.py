"""The choice among the units of OP_INSTANCE_CREATE."""

from typing import Final

from ganeti.model import opcodes
from ganeti.operations import base
from ganeti.operations.instance.create import (
    commit,
    create,
    import_export,
    remote_import,
    reserve,
)

#: Units of the modes in which the disks get a content that exists.
_FILLED: Final[dict[str, type[create.InstanceCreate]]] = {
    import_export.InstanceImport.MODE: import_export.InstanceImport,
    remote_import.InstanceRemoteImport.MODE: remote_import.InstanceRemoteImport,
}


class InstanceCreation(create.InstanceCreate):
    """Unit that creates an instance; other requests have units of their own."""

    @classmethod
    def for_request(
        cls, op: opcodes.InstanceCreate
    ) -> type[base.LogicalUnit[opcodes.InstanceCreate]]:
        """Return the unit that executes a request."""
        if op.forthcoming:
            return reserve.InstanceReserve
        if not op.commit and op.mode in _FILLED:
            return _FILLED[op.mode]
        return commit.InstanceCommit if op.commit else create.InstanceCreate
