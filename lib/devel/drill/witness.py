"""Judgement of drills from outside: by the counter of the guest, and by jobs.

During a drill jobs are submitted twice a second to whoever is the master, and the disk
of the guest is read. Afterwards each job whose id was returned must be known, and no
emulator may have been kept from the disk by its lock alone.
"""

import re
import threading
import time
from typing import Any, Final, Protocol, Self

from ganeti.base import errors
from ganeti.devel.drill import proof
from ganeti.devel.vcluster.layout import Node

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

    def boots(self) -> tuple[proof.Boot, ...]:
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
        self._last: proof.Boot | None = None
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

    def look(self, boot: proof.Boot, now: float) -> None:
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
