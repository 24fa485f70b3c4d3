"""Durations of calls of nodes, summed up by procedure since the daemon started."""

import threading


class CallTimes:
    """Counts calls; for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Procedure -> calls, answers that failed, seconds.
        self._sums: dict[str, tuple[int, int, float]] = {}

    def add(self, procedure: str, seconds: float, failed: int) -> None:
        """Count a call of one or more nodes.

        Args:
            procedure: its name.
            seconds: until the last node had answered, or the time was over.
            failed: number of nodes without a good answer.
        """
        with self._lock:
            calls, failures, total = self._sums.get(procedure, (0, 0, 0.0))
            self._sums[procedure] = (calls + 1, failures + failed, total + seconds)

    def rows(self) -> list[tuple[str, int, int, float]]:
        """Return procedure, calls, failed answers and seconds, sorted."""
        with self._lock:
            return [(name, *sums) for name, sums in sorted(self._sums.items())]
