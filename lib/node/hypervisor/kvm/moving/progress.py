"""Guests that stopped making progress at a live migration.

A guest whose processors only spin looks like one that computes. It differs in what it
does besides: since the migration it has read and written nothing, sent nothing, and its
agent, if it had one, is silent. A note begins at the arrival; each look at the guest
compares with it, and a guest that does something, or rests, loses its note after some
minutes. Nothing is done to a guest that is stuck: only a person knows whether it
computes.
"""

import contextlib
import os
from typing import Final, Self

import msgspec

from ganeti.base import errors
from ganeti.base.filesystem import files as file_utils
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm import agent, files
from ganeti.node.hypervisor.kvm.devices import taps
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.qmp import Qmp, checked

#: Seconds without input and output until a guest is stuck: if its agent fell silent,
#: and if it had none, so that it may be one that computes.
SILENT_S: Final = 180.0
QUIET_S: Final = 300.0
#: Seconds after its arrival for which a guest that makes progress is observed.
OBSERVED_S: Final = 900.0
#: Seconds until an agent that did not answer is asked again.
_AGAIN_S: Final = 60.0
#: Least part of one processor that a guest which spins uses, or waits for.
_BUSY: Final = 0.9
_MAX_NOTE: Final = 1000
_FRAMES: Final = "/sys/class/net/{tap}/statistics/rx_packets"


class _Counters(msgspec.Struct, frozen=True):
    rd_operations: int
    wr_operations: int
    flush_operations: int


class _BlockRow(msgspec.Struct, frozen=True):
    stats: _Counters


class _CharRow(msgspec.Struct, frozen=True):
    label: str
    is_open: bool = msgspec.field(name="frontend-open")


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """The last progress of a guest that has arrived.

    Attributes:
        pid: its emulator.
        arrived: monotonic time of its arrival, in seconds.
        since: the same of the last look that found progress.
        work: operations on its disks and frames that it sent.
        cpu_s: processor time that the emulator used or waited for.
        is_silent: whether it had an agent that does not answer; None before the
            question.
        asked: monotonic time of the last question to it.
    """

    pid: int
    arrived: float
    since: float
    work: int
    cpu_s: float
    is_silent: bool | None = None
    asked: float = 0.0

    def is_due(self, now: float) -> bool:
        """Return whether its agent is to be asked, once more if it did not answer."""
        is_first = self.is_silent is None
        return is_first or (self.is_silent is True and now - self.asked >= _AGAIN_S)

    def after(self, now: float, work: int, cpu_s: float) -> Self | None:
        """Return the note after a look; None if the guest needs no further one."""
        if work != self.work:
            return self.again(now, work, cpu_s)
        if now - self.arrived > OBSERVED_S and not self.spins(now, cpu_s):
            return None
        return self

    def again(self, now: float, work: int, cpu_s: float) -> Self | None:
        """Return the note after progress; None if the guest needs no further look."""
        if now - self.arrived > OBSERVED_S:
            return None
        return msgspec.structs.replace(
            self, since=now, work=work, cpu_s=cpu_s, is_silent=None
        )

    def spins(self, now: float, cpu_s: float) -> bool:
        """Return whether the guest only used its processors since the last progress."""
        return cpu_s - self.cpu_s >= _BUSY * (now - self.since)

    def stuck_s(self, now: float, cpu_s: float) -> float:
        """Return for how long the guest has been stuck, in seconds; 0 if it is not."""
        limit_s = SILENT_S if self.is_silent else QUIET_S
        time_s = now - self.since
        return time_s if time_s >= limit_s and self.spins(now, cpu_s) else 0.0


def begin(effects: NodeEffects, guest: Files) -> None:
    """Note that a running guest has arrived. Without the note it is not observed."""
    pid = guest.alive_pid()
    if pid is None:
        return
    now, cpu_s = effects.clock.monotonic(), files.wanted_time_s(pid)
    # No count of work is negative, so the first look finds progress.
    note = Note(pid=pid, arrived=now, since=now, work=-1, cpu_s=cpu_s)
    with contextlib.suppress(OSError):
        file_utils.write_file(guest.progress_note, msgspec.json.encode(note))


def stuck_s(effects: NodeEffects, guest: Files, pid: int, qmp: Qmp) -> float:
    """Return for how long a guest has been stuck, in seconds; 0 if it is not.

    Raises:
        HypervisorError: the emulator does not answer.
    """
    before = _read(guest)
    if before is None:
        return 0.0
    now, cpu_s = effects.clock.monotonic(), files.wanted_time_s(pid)
    note = before.after(now, _work(guest, qmp), cpu_s) if before.pid == pid else None
    if (
        note is not None
        and note.is_due(now)
        and now - note.since >= SILENT_S
        and note.spins(now, cpu_s)
        # The channel of a frozen guest serves another program.
        and not os.path.exists(agent.marker(guest))
    ):
        has_agent = _has_agent(qmp)
        if has_agent and _answers(guest):
            note = note.again(now, note.work, cpu_s)
        else:
            is_silent = bool(note.is_silent or has_agent)
            note = msgspec.structs.replace(note, is_silent=is_silent, asked=now)
    if note is None:
        file_utils.remove_file(guest.progress_note)
        return 0.0
    if note != before:
        with contextlib.suppress(OSError):
            file_utils.write_file(guest.progress_note, msgspec.json.encode(note))
    return note.stuck_s(now, cpu_s)


def _read(guest: Files) -> Note | None:
    try:
        data = file_utils.read_start(guest.progress_note, _MAX_NOTE)
        return msgspec.json.decode(data, type=Note)
    except (OSError, msgspec.DecodeError):
        return None


def _work(guest: Files, qmp: Qmp) -> int:
    """Return operations on disks and frames sent by a guest."""
    rows = checked(qmp, "query-blockstats", list[_BlockRow])
    work = sum(
        row.stats.rd_operations + row.stats.wr_operations + row.stats.flush_operations
        for row in rows
    )
    return work + sum(_frames(tap) for tap in taps.names(guest))


def _frames(tap: str) -> int:
    try:
        return int(file_utils.text_of(_FRAMES.format(tap=tap), file_utils.MAX_PROC))
    except (OSError, ValueError):
        return 0


def _has_agent(qmp: Qmp) -> bool:
    """Return whether a program in the guest has its end of the channel open."""
    rows = checked(qmp, "query-chardev", list[_CharRow])
    return any(row.label == "qga0" and row.is_open for row in rows)


def _answers(guest: Files) -> bool:
    try:
        with agent.Agent(guest.control("qga"), guest.name):
            return True
    except errors.HypervisorError:
        return False
