"""The record of a take-over on the master: which steps are done.

Written after each step, so that a take-over that was interrupted continues with the
step that was interrupted. Steps of one direction are done in order.
"""

import os
from typing import Final, Self

import msgspec

from ganeti.base import errors
from ganeti.base.filesystem import files

#: Steps from the other Ganeti to this implementation, and back.
OVER: Final = ("stop", "keep", "import", "copy", "convert", "start", "verify")
BACK: Final = ("halt", "export", "put", "restore", "start-old", "forget")
#: From this step on, the store has the configuration, and may have newer changes.
STORE_IN_USE: Final = "start"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One online node of the cluster."""

    name: str
    address: str
    port: int
    is_candidate: bool


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """One take-over.

    Attributes:
        cluster: name of the cluster.
        master: name of the node on which the take-over runs.
        version: of the old ``config.data``.
        daemon_util: of the other Ganeti, on each node.
        nodes: the online nodes; the master is the first.
        guests: name of each guest that ran -> name of its node and its process id.
        over: steps of `OVER` that are done.
        under_way: the step of `OVER` that was begun last.
        is_back: whether the way back was begun.
        back: steps of `BACK` that are done.
    """

    cluster: str
    master: str
    version: int
    daemon_util: str
    nodes: tuple[Target, ...]
    guests: dict[str, tuple[str, int]] = {}
    over: tuple[str, ...] = ()
    under_way: str = ""
    is_back: bool = False
    back: tuple[str, ...] = ()

    def replace(self, **changes: object) -> Self:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    @property
    def todo(self) -> tuple[str, ...]:
        """The steps of the present direction that are left."""
        if self.is_back:
            return BACK[len(self.back) :]
        return OVER[len(self.over) :]

    def begun(self, step: str) -> Self:
        """Return the record at the beginning of a step.

        Raises:
            ProgrammerError: it is another step's turn.
        """
        if self.todo[:1] != (step,):
            raise errors.ProgrammerError(f"step {step}: wanted one of {self.todo[:1]}")
        return self if self.is_back else self.replace(under_way=step)

    def done(self, step: str) -> Self:
        """Return the record after a step.

        Raises:
            ProgrammerError: it was another step's turn.
        """
        self.begun(step)
        if self.is_back:
            return self.replace(back=(*self.back, step))
        return self.replace(over=(*self.over, step))

    def turned(self) -> Self:
        """Return the record at the beginning of the way back."""
        return self if self.is_back else self.replace(is_back=True)

    @property
    def has_used_store(self) -> bool:
        """Whether daemons of this implementation may have changed the store."""
        return STORE_IN_USE in (*self.over, self.under_way)


def load(path: str) -> Journal | None:
    """Return the recorded take-over, None if there is none.

    Raises:
        ConfigurationError: the record is damaged.
    """
    try:
        text = files.read_file(path)
    except FileNotFoundError:
        return None
    try:
        journal = msgspec.json.decode(text, type=Journal)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise errors.ConfigurationError(f"{path}: damaged: {err}") from err
    if OVER[: len(journal.over)] != journal.over or (
        BACK[: len(journal.back)] != journal.back
    ):
        raise errors.ConfigurationError(f"{path}: damaged: steps out of order")
    return journal


def save(path: str, journal: Journal) -> None:
    """Write the record, durably."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    files.write_file(path, msgspec.json.encode(journal), mode=0o600)
