"""Lock levels in the order in which locks are taken."""

import enum
from typing import Final


class Level(enum.IntEnum):
    """A lock level; locks of a lower one are taken first."""

    CLUSTER = 0
    INSTANCE = 1
    NODEGROUP = 2
    NODE = 3
    NODE_RES = 4
    NETWORK = 5

    @property
    def label(self) -> str:
        """Return the name shown in lock lists, such as ``node-res``."""
        return self.name.lower().replace("_", "-")


#: The one lock of level CLUSTER: taken shared by nearly every opcode.
BGL: Final = "BGL"
