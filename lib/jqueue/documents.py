"""The documents of the queue, and its interface to the store.

====================  ============================================================
``jobs/<id>``         a live job, see `ganeti.jqueue.records`
``archive/<id>``      an archived job, same form
``joblogs/<id>/<n>``  log entry ``n`` of a job, live or archived
``meta/serial``       the last job id given out
``meta/drain``        exists while the queue is drained
====================  ============================================================
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from ganeti.objects import Snapshot

JOBS: Final = "jobs"
ARCHIVE: Final = "archive"
LOGS: Final = "joblogs"
META: Final = "meta"
SERIAL: Final = "serial"
DRAIN: Final = "drain"


class Document(NamedTuple):
    """One changed document; ``data`` None removes it."""

    table: str
    key: str
    data: bytes | None


class Documents(Protocol):
    """The part of `ganeti.store.Store` that the queue uses."""

    def snapshot(self) -> Snapshot:
        """Return the newest configuration; never blocks."""

    def commit_soon(
        self,
        changes: Sequence[Document],
        done: Callable[[int, BaseException | None], None] | None = None,
    ) -> None:
        """Request a commit; ``done`` is called from another thread."""

    def read(self, table: str, key: str) -> bytes | None:
        """Return one document."""

    def scan(self, table: str, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        """Yield the documents of a table."""
