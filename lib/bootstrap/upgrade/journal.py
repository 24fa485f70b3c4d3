"""The record of an upgrade on the master: the two releases, and what is done.

The intent file, ``OLD,NEW,PID``, says that an upgrade is under way; its form is the
same in all releases. A second file has the steps that are done. It counts only beside
an intent file with the same releases.
"""

import os
from typing import Final, NamedTuple, Self

import msgspec

from ganeti.base import errors
from ganeti.base.filesystem import files, releases
from ganeti.base.pathutils import Paths

_STEPS: Final = "intent-to-upgrade.steps"
_MODE: Final = 0o600
#: In order. `Journal.steps` leaves out what one direction does not need. Releases read
#: the record of each other, so names and order stay as they are.
STEPS: Final = (
    "drain",
    "pause",
    "stop",
    "backup",
    # The newer release knows the way of the store in both directions: before the switch
    # it goes back, after the switch it goes forward.
    "go-back",
    "switch",
    "convert",
    "start",
    "redistribute",
    "restart",
    "undrain",
    "hooks",
    "unpause",
    "verify",
)
#: The daemons of all nodes run before this step and after that one.
FIRST_STOPPED: Final = "stop"
SWITCH: Final = "switch"


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """One upgrade.

    Attributes:
        old: release before.
        new: release afterwards.
        store: version of the store that the new release writes.
        done: steps that are done.
        failed: name of a node that was left out -> reason.
    """

    old: str
    new: str
    store: int
    done: tuple[str, ...] = ()
    failed: dict[str, str] = {}

    def replace(self, **changes: object) -> Self:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    @property
    def is_downgrade(self) -> bool:
        """Whether the new release is the earlier one."""
        return releases.key(self.new) < releases.key(self.old)

    @property
    def newer(self) -> str:
        """The release that knows how the store of both looks."""
        return self.old if self.is_downgrade else self.new

    @property
    def steps(self) -> tuple[str, ...]:
        """All steps of this direction, in order."""
        left_out = "convert" if self.is_downgrade else "go-back"
        return tuple(step for step in STEPS if step != left_out)

    @property
    def todo(self) -> tuple[str, ...]:
        """The steps that are left, in order."""
        return self.steps[len(self.done) :]

    @property
    def is_switched(self) -> bool:
        """Whether the new release is in use."""
        return SWITCH in self.done

    def resumed(self) -> Self:
        """Return the record at the beginning of a continuation.

        Somebody may have started daemons while the upgrade was interrupted: before the
        switch, everything from the stop on is repeated.
        """
        if self.is_switched or FIRST_STOPPED not in self.done:
            return self
        return self.replace(done=self.done[: self.steps.index(FIRST_STOPPED)])


class Intent(NamedTuple):
    """The intent file.

    Attributes:
        old: release before.
        new: release afterwards.
        pid: process that runs the upgrade, or ran it last.
    """

    old: str
    new: str
    pid: int


def read_intent(paths: Paths) -> Intent | None:
    """Return the upgrade that is under way, None if there is none.

    Raises:
        ConfigurationError: the file is damaged.
    """
    path = releases.intent_file(paths)
    try:
        text = files.read_file(path, max_size=1000).decode(errors="replace")
    except FileNotFoundError:
        return None
    words = text.strip().split(",")
    try:
        old, new, pid = words
        releases.key(old), releases.key(new)
        return Intent(old, new, int(pid))
    except (ValueError, errors.OpPrereqError) as err:
        raise errors.ConfigurationError(
            f"{path}: damaged: wanted OLD,NEW,PID, found {text.strip()!r:.100}; if the"
            " release that is wanted is in use on all nodes, remove the file"
        ) from err


def load(paths: Paths, intent: Intent, store: int) -> Journal:
    """Return the record of the upgrade that is under way.

    Args:
        paths: of this node.
        intent: see `read_intent`.
        store: version of the store of the new release, if no step was recorded.
    """
    fresh = Journal(old=intent.old, new=intent.new, store=store)
    try:
        text = files.read_file(paths.data(_STEPS))
        recorded = msgspec.json.decode(text, type=Journal)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return fresh
    if (recorded.old, recorded.new) != (fresh.old, fresh.new):
        return fresh
    return recorded if recorded.steps[: len(recorded.done)] == recorded.done else fresh


def begin(paths: Paths, journal: Journal) -> None:
    """Record the beginning, or that another process goes on; durable."""
    # The steps count only beside the intent, so an end between the two files leaves no
    # upgrade that has begun.
    save(paths, journal)
    text = f"{journal.old},{journal.new},{os.getpid()}\n"
    files.write_file(releases.intent_file(paths), text.encode(), mode=_MODE)


def save(paths: Paths, journal: Journal) -> None:
    """Record the steps that are done; durable."""
    data = msgspec.json.encode(journal)
    files.write_file(paths.data(_STEPS), data, mode=_MODE)


def end(paths: Paths) -> None:
    """Remove the record, the intent first."""
    for path in (releases.intent_file(paths), paths.data(_STEPS)):
        files.remove_file(path)
