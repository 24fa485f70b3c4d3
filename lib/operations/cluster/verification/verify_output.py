"""Output of verification: steps, findings, notes."""

from ganeti.decisions.verify import Report
from ganeti.operations.base import Feedback


class Output:
    """Writer of findings to the job log, under their step."""

    def __init__(self, log: Feedback, report: Report, *, error_codes: bool) -> None:
        self._log = log
        self._report = report
        self._error_codes = error_codes

    def step(self, text: str) -> None:
        """Write the findings so far, then begin a step."""
        self.flush()
        self._log.message(f"* {text}")

    def flush(self) -> None:
        """Write the findings since the last call."""
        for finding in self._report.take():
            self._log.message(finding.line(error_codes=self._error_codes))

    def notice(self, text: str) -> None:
        """Write a note."""
        self._log.message(f"  - NOTICE: {text}")

    def note(self, count: int, what: str) -> None:
        """Write a note about a number of objects, unless it is 0."""
        if count:
            self._log.message(f"  - NOTICE: {count} {what} found.")
