"""Note of a guest's departure, the decision of the source of a migration.

The emulator at the target never lets a guest go on by itself. The source decides: it
has given the guest up when this note says so, which is before anybody hears of it. The
note outlives the emulator, the node daemon and the machine, so that no restart of them
starts the guest here again, and a clean-up distinguishes a guest that has left from an
old report of the emulator.

A note is an empty file whose name says the stage. It is made before the guest is sent
and renamed later, since that needs no space on a full disk.
"""

import contextlib
import enum
import os
from typing import Final

from ganeti.hypervisor.kvm import kept
from ganeti.hypervisor.kvm.files import Files
from ganeti.utils import files as file_utils


class Stage(enum.StrEnum):
    """A stage of a departure; each is the name of a file."""

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


def _path(guest: Files, each: Stage) -> str:
    return f"{kept.own_directory(guest)}/{each}"


def stage(guest: Files) -> Stage | None:
    """Return the stage, None without a migration from here."""
    for each in reversed(Stage):
        if os.path.exists(_path(guest, each)):
            return each
    return None


def is_gone(guest: Files) -> bool:
    """Return whether this node has given the guest up."""
    return stage(guest) in _GONE


def is_sending(guest: Files) -> bool:
    """Return whether the guest was to be sent, and nothing has been decided since."""
    return stage(guest) in _SENDING


def begin(guest: Files, *, was_paused: bool) -> None:
    """Note that a guest is about to be sent.

    Raises:
        OSError: this cannot be noted.
    """
    forget(guest)
    _make_directory(guest)
    first = Stage.SENDING_PAUSED if was_paused else Stage.SENDING
    file_utils.write_file(_path(guest, first), b"")


def _make_directory(guest: Files) -> None:
    os.makedirs(kept.own_directory(guest), mode=0o700, exist_ok=True)
    file_utils.sync_dir(kept.directory(guest.paths))


def leave(guest: Files, *, has_all: bool) -> None:
    """Note durably that the guest has left; nothing can take this back.

    Args:
        guest: the guest.
        has_all: whether the target has all of its memory.

    Raises:
        OSError: this cannot be noted.
    """
    wanted = Stage.LEFT if has_all else Stage.AHEAD
    present = stage(guest)
    if present in (wanted, Stage.LEFT):
        return
    path = _path(guest, wanted)
    if present is None:
        # Sent by an earlier release, which made no note.
        _make_directory(guest)
        file_utils.write_file(path, b"")
        return
    os.rename(_path(guest, present), path)
    file_utils.sync_dir(kept.own_directory(guest))


def stay(guest: Files) -> bool:
    """Note that the guest stays; return false if it was not being sent."""
    were = [file_utils.remove_file(_path(guest, each)) for each in _SENDING]
    return any(were)


def forget(guest: Files) -> None:
    """Remove the note."""
    for each in Stage:
        file_utils.remove_file(_path(guest, each))
    with contextlib.suppress(OSError):
        # It may have other files of the guest.
        os.rmdir(kept.own_directory(guest))
