"""The state of deaths of nodes in the store; read here.

`ganeti.decisions.repair.node_death` decides, `ganeti.daemons.masterd.deps`
writes, apart from the commit that switches them off.
"""

import threading
from typing import Final

import msgspec

from ganeti.decisions.repair.node_lives import DeathState
from ganeti.store import Document, Store, read_typed

TABLE: Final = "meta"
KEY: Final = "node_deaths"


class NodeDeaths:
    """The reader; thread-safe.

    Attributes:
        lock: held by a writer from when it reads the state to the end of its commit.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lock = threading.Lock()

    def state(self) -> DeathState:
        """Return the present state.

        Raises:
            ConfigurationError: it cannot be read.
        """
        return read_typed(self._store, TABLE, KEY, DeathState, "deaths of nodes")

    def given_up(self) -> list[Document]:
        """Return what the commit of a person's "no" stores, none without a state.

        The caller holds the lock.
        A "yes" can follow before the next round, which forgets everything all the same.
        """
        state = self.state()
        if state.is_empty:
            return []
        serial_no = state.serial_no + 1
        new = msgspec.structs.replace(state, serial_no=serial_no, is_given_up=True)
        return [Document(TABLE, KEY, msgspec.json.encode(new))]
