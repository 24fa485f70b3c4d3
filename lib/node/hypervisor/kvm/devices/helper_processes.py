"""Processes beside the emulators: those of TPMs and shared directories.

A guest cannot use its TPM or a directory any more when its process has ended; its next
start, also by a reboot, starts the process again.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ganeti.base import errors, pathutils
from ganeti.node.hypervisor.kvm import files, runtime
from ganeti.node.hypervisor.kvm.devices import shares, tpm
from ganeti.node.hypervisor.kvm.files import Files

#: Processes of the node by id, with their arguments.
_Commands = dict[int, list[str]]
_REMEDY: Final = "its process has ended, 'gnt-instance reboot' starts it again"


class Need(NamedTuple):
    """A process of a guest; without a directory, that of its TPM."""

    directory: str = ""

    @property
    def text(self) -> str:
        """The loss of it, with the remedy."""
        what = f"shared directory {self.directory}" if self.directory else "TPM"
        return f"{what}: {_REMEDY}"


def lost(paths: pathutils.Paths) -> dict[str, list[Need]]:
    """Return the processes that running guests of this node lack, by guest.

    The processes of the node are read at most once, and only if a guest needs some.
    """
    guests = (Files(paths, name) for name in files.known_names(paths))
    return {guest.name: needs for guest, needs in _lost(guests)}


def lost_of(guest: Files) -> list[Need]:
    """Return the processes that one guest lacks if it runs."""
    return [need for _guest, needs in _lost([guest]) for need in needs]


def _lost(guests: Iterable[Files]) -> Iterator[tuple[Files, list[Need]]]:
    needs = dict(_needs(guests))
    commands = _commands() if needs else {}
    for guest, wanted in needs.items():
        missing = [each for each in wanted if not _is_there(guest, each, commands)]
        # They end with their guest.
        if missing and guest.alive_pid() is not None:
            yield guest, missing


def _needs(guests: Iterable[Files]) -> Iterator[tuple[Files, list[Need]]]:
    """Return the running guests that need processes, with these."""
    for guest in guests:
        if guest.alive_pid() is None:
            continue
        try:
            # The start of the guest counts, not its present parameters.
            hvp = runtime.load(guest).hvparams
            wanted = [Need(path) for path in shares.wanted(hvp).values()]
        except errors.HypervisorError:
            continue
        if hvp.get("tpm"):
            wanted.append(Need())
        if wanted:
            yield guest, wanted


def _commands() -> _Commands:
    pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    return {pid: files.command_line(pid) for pid in pids}


def _is_there(guest: Files, need: Need, commands: _Commands) -> bool:
    if not need.directory:
        word = tpm.state_argument(guest)
        return any(word in words for words in commands.values())
    word = shares.source_argument(guest.paths.at(need.directory))
    return any(
        word in words and shares.is_of(guest, pid) for pid, words in commands.items()
    )
