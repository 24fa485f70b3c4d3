"""Note of a guest's departure, the decision of the source of a migration.

The emulator at the target never lets a guest go on by itself. The source decides: it
has given the guest up when this note says so, which is before anybody hears of it. The
note outlives the emulator, the node daemon and the machine, so that no restart of them
starts the guest here again, and a clean-up distinguishes a guest that has left from an
old report of the emulator.

A note is an empty file whose name says the stage and the uuid of the instance. It is
made before the guest is sent and renamed later, since that needs no space on a full
disk. By the uuid it does not concern a later instance of the same name: this node may
have been down when the instance was removed or renamed.
"""

import contextlib
import enum
import os
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ganeti.base.filesystem import files
from ganeti.node.hypervisor.kvm.devices import firmware
from ganeti.node.hypervisor.kvm.files import Files


class Stage(enum.StrEnum):
    """A stage of a departure; the name of its file begins with it."""

    #: The guest is being sent. Until the source decides, it alone may let it go on.
    SENDING = "migration-sending"
    #: The same; the guest was paused before.
    SENDING_PAUSED = "migration-sending-paused"
    #: It runs at the target, which lacks memory of it (postcopy).
    AHEAD = "migration-ahead"
    #: The target has all of it.
    LEFT = "migration-left"


_SENDING: Final = (Stage.SENDING, Stage.SENDING_PAUSED)
_GONE: Final = (Stage.AHEAD, Stage.LEFT)
_WORDS: Final = frozenset(Stage)
_UUID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _Note(NamedTuple):
    """A file in the directory of a guest; without uuid, of any instance of its name."""

    stage: Stage
    uuid: str

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"{self.stage}.{self.uuid}" if self.uuid else str(self.stage)

    def path(self, guest: Files) -> str:
        """Return the path of the file."""
        return f"{firmware.own_directory(guest)}/{self.name}"


def _notes(guest: Files) -> Iterator[_Note]:
    try:
        names = os.listdir(firmware.own_directory(guest))
    except FileNotFoundError:
        return
    for name in names:
        word, _, uuid = name.partition(".")
        if word in _WORDS and (not uuid or _UUID.fullmatch(uuid)):
            yield _Note(Stage(word), uuid)


def _note(guest: Files, uuid: str | None) -> _Note | None:
    """Return the note of the last stage."""
    known = [note for note in _notes(guest) if uuid is None or note.uuid in ("", uuid)]
    order = list(Stage)
    return max(known, key=lambda note: order.index(note.stage), default=None)


def stage(guest: Files, uuid: str | None = None) -> Stage | None:
    """Return the stage, None without a migration from here.

    Args:
        guest: the guest.
        uuid: of its instance; None for any of its name, where its emulator is here.
    """
    note = _note(guest, uuid)
    return note.stage if note is not None else None


def is_gone(guest: Files, uuid: str | None = None) -> bool:
    """Return whether this node has given the guest up, see `stage`."""
    return stage(guest, uuid) in _GONE


def is_sending(guest: Files) -> bool:
    """Return whether the guest was to be sent, and nothing has been decided since."""
    return stage(guest) in _SENDING


def begin(guest: Files, *, was_paused: bool, uuid: str = "") -> None:
    """Note that a guest is about to be sent.

    Args:
        guest: the guest.
        was_paused: whether it is paused now.
        uuid: of its instance.

    Raises:
        OSError: this cannot be noted.
    """
    forget(guest)
    _make_directory(guest)
    first = Stage.SENDING_PAUSED if was_paused else Stage.SENDING
    note = _Note(first, uuid if _UUID.fullmatch(uuid) else "")
    files.write_file(note.path(guest), b"")


def _make_directory(guest: Files) -> None:
    os.makedirs(firmware.own_directory(guest), mode=0o700, exist_ok=True)
    # A note outlives a loss of power only if its directory does.
    files.sync_dir(firmware.kept_directory(guest.paths))


def leave(guest: Files, *, has_all: bool) -> None:
    """Note durably that the guest has left; nothing can take this back.

    Args:
        guest: the guest.
        has_all: whether the target has all of its memory.

    Raises:
        OSError: this cannot be noted.
    """
    wanted = Stage.LEFT if has_all else Stage.AHEAD
    present = _note(guest, None)
    if present is None:
        # Sent by an earlier release, which made no note.
        _make_directory(guest)
        files.write_file(_Note(wanted, "").path(guest), b"")
    elif present.stage not in (wanted, Stage.LEFT):
        os.rename(present.path(guest), present._replace(stage=wanted).path(guest))
    # In any case: an earlier call may have been cut off, or have failed, before this.
    files.sync_dir(firmware.own_directory(guest))


def stay(guest: Files) -> bool:
    """Note that the guest stays; return false if it was not being sent."""
    notes = [note for note in _notes(guest) if note.stage in _SENDING]
    were = [files.remove_file(each.path(guest)) for each in notes]
    return any(were)


def forget(guest: Files) -> None:
    """Remove the note."""
    for note in list(_notes(guest)):
        files.remove_file(note.path(guest))
    with contextlib.suppress(OSError):
        # It may have other files of the guest.
        os.rmdir(firmware.own_directory(guest))
