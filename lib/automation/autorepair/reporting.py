"""Messages of repairs in the log of a program that has no terminal."""

import logging
from collections.abc import Mapping

from ganeti.decisions.repair.plan import RepairState


class LogReporter:
    """Writes messages to a log; a `ganeti.automation.autorepair.Reporter`."""

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


def summary(count: Mapping[RepairState, int]) -> str:
    """Return the numbers of instances by state as a text; empty for none."""
    return ", ".join(f"{state}: {count[state]}" for state in sorted(count))
