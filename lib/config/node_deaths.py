"""The state of deaths of nodes in the store; read here, never written.

`ganeti.repair.node_death` decides, `ganeti.masterd.node_death_state` writes.
"""

from typing import Final

import msgspec

from ganeti import errors
from ganeti.repair.node_death import DeathState
from ganeti.store import Store

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
        data = self._store.read(TABLE, KEY)
        if data is None:
            return DeathState()
        try:
            return msgspec.json.decode(data, type=DeathState)
        except (msgspec.DecodeError, UnicodeError) as err:
            raise errors.ConfigurationError(f"deaths of nodes: {err}") from err
