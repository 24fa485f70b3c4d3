"""Changes of tags by a run of repairs, with its settings and its messages."""

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol

from ganeti.automation.autorepair import cluster_view
from ganeti.automation.autorepair.recorder import Recorder
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.text.control_chars import escape
from ganeti.decisions.repair import journal
from ganeti.decisions.repair.tags import RepairRecord
from ganeti.protocols import luxi

_FINAL: Final = frozenset({"success", "error", "canceled"})
REFUSALS: Final = (errors.JobQueueError, errors.OpPrereqError, errors.RequestError)
#: Seconds that one call waits for a change of a job.
_CALL_S: Final = 20.0

Op = dict[str, Any]


class Reporter(Protocol):
    """The place for messages; each names its object."""

    def detail(self, text: str) -> None:
        """Report why nothing is done."""

    def info(self, text: str) -> None:
        """Report a change, or a repair in progress."""

    def warning(self, text: str) -> None:
        """Report tags that a person has to correct."""

    def error(self, text: str) -> None:
        """Report something that the master refused or that failed."""


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """Settings of a run.

    Attributes:
        source: name of the program in the reason trail of jobs.
        reason: its reason there.
        comment: comment of the jobs.
        job_delay_s: seconds that a repair's job waits first, in which the tag gets the
            job's id; both need the instance's lock.
        wait_s: seconds that the run waits for changes of tags altogether; None for no
            limit.
        dry_run: report jobs and tags instead of changing anything.
    """

    source: str
    reason: str
    comment: str
    job_delay_s: float
    wait_s: float | None = None
    dry_run: bool = False


class LogReporter:
    """Writes messages to a log; a `Reporter`."""

    def __init__(self, log: logging.Logger, detail_level: int = logging.DEBUG) -> None:
        """Prepare; ``detail_level`` is that of reasons why nothing is done."""
        self._log = log
        self._detail_level = detail_level

    def detail(self, text: str) -> None:
        """Report why nothing is done."""
        self._log.log(self._detail_level, "autorepair: %s", text)

    def info(self, text: str) -> None:
        """Report a change, or a repair in progress."""
        self._log.info("autorepair: %s", text)

    def warning(self, text: str) -> None:
        """Report tags that a person has to correct."""
        self._log.warning("autorepair: %s", text)

    def error(self, text: str) -> None:
        """Report something that the master refused or that failed."""
        self._log.error("autorepair: %s", text)


class TagChanges:
    """Changes of tags by jobs that a run waits for.

    Attributes:
        round: the report of the run to the journal; None if it has no effects.
        has_failed: whether the master refused a job, or a change of tags failed.
    """

    def __init__(
        self,
        client: luxi.Client,
        clock: Clock,
        settings: RunSettings,
        reporter: Reporter,
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._report = reporter
        wait_s = settings.wait_s
        self._deadline = None if wait_s is None else clock.monotonic() + wait_s
        self.round: Recorder | None = None
        self.has_failed = False

    def common(self, record: RepairRecord | None = None, why: str = "") -> Op:
        """Return the parameters of all opcodes: comment and reason trail."""
        now_ns = int(self._clock.time() * 1_000_000_000)
        trail = [[self._settings.source, self._settings.reason, now_ns]]
        if record is not None:
            tag = dataclasses.replace(record, jobs=()).tag
            trail.append([cluster_view.REASON_SOURCE, f"{tag} {why}", now_ns])
        if self.round is not None:
            trail.append(self.round.reason(now_ns))
        return {"comment": self._settings.comment, "reason": trail}

    def change(
        self,
        kind: str,
        name: str | None,
        add: Sequence[str],
        remove: Sequence[str],
        *,
        is_optional: bool = False,
    ) -> bool:
        """Change tags by a job and wait for it; new tags are set first.

        Args:
            kind: of the object.
            name: of the object, None for the cluster.
            add: new tags.
            remove: tags to remove.
            is_optional: the job may be done later than this run.

        Returns:
            whether the tags have changed, or there was nothing to change.
        """
        remove = [tag for tag in dict.fromkeys(remove) if tag not in add]
        where = f"{kind} {name}" if name else kind
        if self._settings.dry_run:
            self._pretend(where, add, remove)
            return True
        ops: list[Op] = []
        for verb, changed in (("SET", list(add)), ("DEL", remove)):
            if changed:
                op = {"OP_ID": f"OP_TAGS_{verb}", "kind": kind, "tags": changed}
                ops.append(op | ({"name": name} if name else {}) | self.common())
        if not ops:
            return True
        try:
            job = self._client.call("SubmitJob", [ops])
            if is_optional and not self._settings.job_delay_s:
                # It waits for the lock that the job of the repair holds by now. To wait
                # for it here would do the repairs of all instances one after another.
                return True
            problem = self._wait(job, is_optional=is_optional)
        except (errors.JobQueueFull, errors.JobQueueDrainError):
            raise
        except REFUSALS as err:
            problem = f"the change of its tags was not accepted: {err}"
        if problem:
            self.fail(f"{where}: {escape(problem)}")
        return not problem

    def _pretend(self, where: str, add: Sequence[str], remove: Sequence[str]) -> None:
        for word, changed in (("add to", add), ("remove from", remove)):
            if changed:
                self._report.info(f"Would {word} {where}: {' '.join(changed)}")

    def _wait(self, job: Any, *, is_optional: bool) -> str:
        """Wait for the end of a change of tags; return an error's text, or ""."""
        known, serial = None, None
        while True:
            left_s = _CALL_S
            if self._deadline is not None:
                left_s = max(0.0, self._deadline - self._clock.monotonic())
            args = [job, ["status", "opresult"], known, serial, min(_CALL_S, left_s)]
            try:
                answer = self._client.call("WaitForJobChange", args)
            except errors.JobLost:
                return f"job {job} does not exist any more"
            if answer is None:
                return f"job {job} does not exist any more"
            if answer != "nochange":
                known, entries = answer
                serial = entries[-1][0] if entries else serial
                if known[0] in _FINAL:
                    return _problem(job, *known)
            if left_s <= 0:
                break
        if is_optional:
            return ""
        # A later run must not meet a tag that this one did not act on.
        self._client.call("CancelJob", [job, False])
        return f"job {job}, which changes the tags, has not ended yet"

    def fail(self, text: str) -> None:
        """Report what the master refused, or what failed."""
        self.has_failed = True
        self._report.error(text)


def _problem(job: Any, status: str, results: Any) -> str:
    """Return the error of an ended job; "" if it succeeded."""
    if status == "success":
        return ""
    return f"job {job}: {journal.first_error(results) or status}"
