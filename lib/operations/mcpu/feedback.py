"""Messages of logical units to the user, as entries of the job's log."""

from typing import Any

from ganeti.base.constants import jobqueue
from ganeti.master.jqueue.executor import Callbacks


class JobLog:
    """A job's log with the documented line formats."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks

    def message(self, text: str) -> None:
        """Log a line as it is, such as ``* creating instance disks...``."""
        self._callbacks.log(jobqueue.ELOG_MESSAGE, text)

    def info(self, text: str) -> None:
        """Log a line of information."""
        self._callbacks.log(jobqueue.ELOG_MESSAGE, f" - INFO: {text}")

    def warn(self, text: str, hint: str | None = None) -> None:
        """Log a warning with advice."""
        self._callbacks.log(jobqueue.ELOG_MESSAGE, f" - WARNING: {text}")
        if hint:
            self._callbacks.log(jobqueue.ELOG_MESSAGE, f"      Hint: {hint}")

    def step(self, number: int, total: int, text: str) -> None:
        """Log ``STEP number/total text``."""
        self._callbacks.log(jobqueue.ELOG_MESSAGE, f"STEP {number}/{total} {text}")

    def entry(self, kind: str, payload: Any) -> None:
        """Log an entry of another kind, see ``constants.jobqueue`` ELOG_*."""
        self._callbacks.log(kind, payload)
