"""The documents of the queue, and its interface to the store.

====================  ============================================================
``jobs/<id>``         a live job, see `ganeti.decisions.jobs.records`
``archive/<id>``      an archived job, same form
``archive/<id>/<n>``  log entries of an archived job, ``n`` and following ones
``joblogs/<id>/<n>``  log entry ``n`` of a live job; or of an archived one, while
                      a candidate's release does not know the form above
``meta/serial``       the last job id given out
``meta/drain``        exists while the queue is drained
====================  ============================================================
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from ganeti.model.objects import Snapshot

JOBS: Final = "jobs"
ARCHIVE: Final = "archive"
LOGS: Final = "joblogs"
META: Final = "meta"
SERIAL: Final = "serial"
DRAIN: Final = "drain"
#: Feature of the stored form: logs of archived jobs are in the archive.
ARCHIVED_LOGS: Final = "archived-logs"


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
        *,
        wait_s: float = 0.0,
    ) -> None:
        """Request a commit; ``done`` is called from another thread."""

    def may_use(self, feature: str) -> bool:
        """Return whether a feature of the stored form may be used."""

    def read(self, table: str, key: str) -> bytes | None:
        """Return one document."""

    def scan(self, table: str, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        """Yield the documents of a table."""
