"""Status file of an ``import-export`` program.

The node daemon reads it. It is a JSON object, and every update replaces the file.
"""

import collections
import json
import os
import threading
import time
from typing import Any, Final

MIB: Final = 1024 * 1024
#: Seconds between two updates during the transfer.
INTERVAL_S: Final = 0.5
#: Seconds over which the throughput is averaged.
_WINDOW_S: Final = 30.0
#: Most lines of output that are kept.
_LINES: Final = 20


class TransferStatus:
    """The state of one transfer; thread-safe."""

    def __init__(self, path: str, expected_mib: int | None) -> None:
        self._path = path
        self._expected = expected_mib
        self._lock = threading.Lock()
        self._lines: collections.deque[str] = collections.deque(maxlen=_LINES)
        self._samples: collections.deque[tuple[float, int]] = collections.deque()
        self._bytes = 0
        self._written_at = 0.0
        self._fields: dict[str, Any] = {
            "listen_port": None,
            "connected": False,
            "exit_status": None,
            "error_message": None,
        }

    def update(self, **fields: Any) -> None:
        """Change fields and write the file."""
        with self._lock:
            self._fields |= fields
            self._write()

    def note(self, line: str) -> None:
        """Keep a line of output."""
        with self._lock:
            self._lines.append(line)

    def count(self, size: int) -> None:
        """Add to the transferred bytes; write the file every `INTERVAL_S` seconds."""
        with self._lock:
            self._bytes += size
            if time.monotonic() - self._written_at >= INTERVAL_S:
                self._write()

    def _progress(self, now: float) -> dict[str, Any]:
        self._samples.append((now, self._bytes))
        while len(self._samples) > 2 and now - self._samples[0][0] > _WINDOW_S:
            self._samples.popleft()
        since, before = self._samples[0]
        rate = (self._bytes - before) / MIB / (now - since) if now > since else None
        done = self._bytes / MIB
        percent = eta = None
        if self._expected:
            percent = min(100.0, 100.0 * done / self._expected)
            if rate:
                eta = max(0.0, self._expected - done) / rate
        return {
            "progress_mbytes": done,
            "progress_throughput": rate,
            "progress_percent": percent,
            "progress_eta": eta,
        }

    def _write(self) -> None:
        now = time.monotonic()
        self._written_at = now
        data = {
            **self._fields,
            **self._progress(now),
            "recent_output": list(self._lines),
            "mtime": time.time(),
        }
        temporary = f"{self._path}.new"
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(data, stream)
        os.replace(temporary, self._path)
