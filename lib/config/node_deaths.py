"""The state of deaths of nodes in the store; read here, never written.

`ganeti.repair.node_death` decides, `ganeti.masterd.node_death_state` writes.
"""

from typing import Final

from ganeti.repair.node_lives import DeathState
from ganeti.store import Store, read_typed

TABLE: Final = "meta"
KEY: Final = "node_deaths"


class NodeDeaths:
    """The reader; thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def state(self) -> DeathState:
        """Return the present state.

        Raises:
            ConfigurationError: it cannot be read.
        """
        return read_typed(self._store, TABLE, KEY, DeathState, "deaths of nodes")
