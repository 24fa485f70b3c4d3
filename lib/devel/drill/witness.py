"""Judgement of drills from outside: by the counter of the guest, and by jobs.

During a drill jobs are submitted twice a second to whoever is the master, and the disk
of the guest is read. Afterwards each job whose id was returned must be known, and no
emulator may have been kept from the disk by its lock alone.

Each boot of the guest has a sector with a line: an id of the boot, a counter that grows
as long as the guest lives, and the last counter of the boot before as this boot saw it
at its beginning. If the boot before has counted on since then, two guests ran at the
same time; no clock takes part in this proof. See ``tools/os/tiny/guest/init``.
"""

import itertools
import re
import threading
import time
from typing import Any, Final, NamedTuple, Protocol, Self

from ganeti.base import errors
from ganeti.devel.vcluster.layout import Node

SECTOR: Final = 512
#: Most boots that are read.
_MAX_BOOTS: Final = 2048
_LINE: Final = re.compile(rb"([0-9a-f-]{36}) ([0-9]{1,12}) ([0-9]{1,12})")


class Boot(NamedTuple):
    """One boot of the guest.

    Attributes:
        boot_id: made by the kernel of the guest.
        counter: last step.
        seen: counter of the boot before when this one began; 0 for the first.
    """

    boot_id: str
    counter: int
    seen: int


def read_boots(path: str) -> tuple[Boot, ...]:
    """Return the boots on a disk, in order.

    Raises:
        OpExecError: a sector is not of the form that the guest writes.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as disk:
        return parse_boots(disk.read(_MAX_BOOTS * SECTOR))


def parse_boots(data: bytes) -> tuple[Boot, ...]:
    """Return the boots in the sectors of a disk; see `read_boots`."""
    boots = []
    for start in range(0, len(data), SECTOR):
        line = data[start : start + SECTOR].rstrip(b"\0").rstrip(b"\n")
        if not line:
            break
        match = _LINE.fullmatch(line)
        if match is None:
            raise errors.OpExecError(
                f"sector {start // SECTOR} of the disk of the guest: wanted a boot and"
                f" two counters, found {line[:60]!r}"
            )
        boot_id, counter, seen = match.groups()
        boots.append(Boot(boot_id.decode(), int(counter), int(seen)))
    return tuple(boots)


def overlap(boots: tuple[Boot, ...]) -> str:
    """Return how two boots ran at the same time, as a text; empty if none did."""
    for number, (before, after) in enumerate(itertools.pairwise(boots), 1):
        if before.counter != after.seen:
            return (
                f"boot {number} counted to {before.counter}, but to {after.seen} when"
                f" boot {number + 1} began: the guest ran twice at the same time"
            )
    return ""


_JOB: Final = ({"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": True},)
#: Seconds between two jobs.
_PAUSE_S: Final = 0.5
#: Seconds between two looks at the disk; the guest counts five times a second.
_LOOK_S: Final = 0.1
#: Most seconds until a master accepts a job; a frozen one accepts connections.
_SUBMIT_S: Final = 3.0
#: Jobs that one question asks for.
_CHUNK: Final = 100
#: Statuses of a job that has not ended.
_PENDING: Final = frozenset({"queued", "waiting", "canceling", "running"})
#: The emulator's own refusal to open a disk that another emulator writes.
_LOCKED: Final = re.compile(r"Failed to get (?:shared )?.{0,2}write")


class Observed(Protocol):
    """The cluster as a witness sees it."""

    @property
    def candidates(self) -> list[Node]:
        """The nodes that may be the master, the last known one first."""

    def boots(self) -> tuple[Boot, ...]:
        """Return the boots of the guest."""

    def call(
        self, method: str, *args: Any, node: Node | None = None, timeout_s: float = 0
    ) -> Any:
        """Call the master daemon, or the one of a node."""


class Witness:
    """Observes the guest and submits jobs during a block, in threads of its own.

    Attributes:
        jobs: ids that were returned.
        problems: what must not be.
        still_s: longest time for which the guest did not count.
    """

    def __init__(self, site: Observed) -> None:
        self._site = site
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=each, daemon=True)
            for each in (self._submit, self._watch)
        ]
        self.jobs: set[int] = set()
        self.problems: list[str] = []
        self.still_s = 0.0
        self._last: Boot | None = None
        self._grown = time.monotonic()

    def __enter__(self) -> Self:
        self._grown = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _submit(self) -> None:
        while not self._end.wait(_PAUSE_S):
            for node in self._site.candidates:
                try:
                    job = self._site.call(
                        "SubmitJob", _JOB, node=node, timeout_s=_SUBMIT_S
                    )
                except (errors.GenericError, OSError):
                    # Without an answer nothing was promised.
                    continue
                if job in self.jobs:
                    self.problems.append(f"the id {job} was given to two jobs")
                self.jobs.add(int(job))
                break

    def _watch(self) -> None:
        while not self._end.wait(_LOOK_S):
            try:
                boots = self._site.boots()
            except (errors.GenericError, OSError) as err:
                self.problems.append(f"disk of the guest: {err}")
                return
            if boots:
                self.look(boots[-1], time.monotonic())

    def look(self, boot: Boot, now: float) -> None:
        """Take the newest boot at a time, in seconds, into account."""
        last = self._last
        if boot == last:
            return
        if last and boot.boot_id == last.boot_id and boot.counter < last.counter:
            self.problems.append(
                f"the counter went from {last.counter} back to {boot.counter}: two"
                " emulators wrote to the disk"
            )
        if last:
            self.still_s = max(self.still_s, now - self._grown)
        self._last, self._grown = boot, now

    def unfinished(self) -> list[int]:
        """Return the jobs that have not ended; note those that are not known.

        Raises:
            GenericError: no master answers.
        """
        rows = self._rows(sorted(self.jobs), ["status"])
        if lost := [job for job, row in rows.items() if row is None]:
            self.problems.append(
                f"{len(lost)} of {len(rows)} acknowledged jobs are lost, first"
                f" {lost[0]}"
            )
            self.jobs -= set(lost)
        return [job for job, row in rows.items() if row and row[0] in _PENDING]

    def judge_starts(self) -> None:
        """Note jobs that were kept from the disk of the guest by its lock alone.

        Raises:
            GenericError: no master answers.
        """
        if not self.jobs:
            self.problems.append("no master accepted a job")
            return
        numbers = list(range(min(self.jobs), max(self.jobs) + 1))
        for job, row in self._rows(numbers, ["opresult"]).items():
            if row and _LOCKED.search(str(row)):
                self.problems.append(
                    f"job {job} would have started the guest twice; only the lock of"
                    " its disk prevented it"
                )

    def _rows(self, jobs: list[int], fields: list[str]) -> dict[int, Any]:
        rows: dict[int, Any] = {}
        for start in range(0, len(jobs), _CHUNK):
            chunk = jobs[start : start + _CHUNK]
            answer = self._site.call("QueryJobs", chunk, fields)
            rows.update(zip(chunk, answer, strict=True))
        return rows
