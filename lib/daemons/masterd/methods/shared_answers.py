"""Answers that several clients share, because they asked before the work began.

An answer is not older than the question: who asks while an answer is computed waits for
the next one, together with all others who ask until that one begins.
"""

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from typing import Any, Final

#: Seconds that one answer waits for the end of the one before. A node that does not
#: answer must not delay both.
_PATIENCE_S: Final = 0.25


class _Subject:
    """One question that clients ask now.

    Attributes:
        gate: held during the work.
        next: the answer whose work has not begun, if any.
        count: answers that have not come yet.
    """

    def __init__(self) -> None:
        self.gate = threading.Lock()
        self.next: Future[Any] | None = None
        self.count = 0


class SharedAnswers:
    """Computes answers; for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subjects: dict[Hashable, _Subject] = {}

    def ask(
        self, executor: Executor, key: Hashable, compute: Callable[[], Any]
    ) -> "Future[Any]":
        """Return the answer to a question, which others may share: do not cancel it.

        Args:
            executor: runs the work.
            key: of the question; equal questions have equal answers.
            compute: called once per shared answer.
        """
        with self._lock:
            subject = self._subjects.get(key) or _Subject()
            if subject.next is None:
                subject.next = executor.submit(self._work, key, subject, compute)
                subject.count += 1
                self._subjects[key] = subject
            return subject.next

    def _work(
        self, key: Hashable, subject: _Subject, compute: Callable[[], Any]
    ) -> Any:
        is_first = subject.gate.acquire(timeout=_PATIENCE_S)
        try:
            with self._lock:
                subject.next = None
            return compute()
        finally:
            if is_first:
                subject.gate.release()
            with self._lock:
                subject.count -= 1
                if not subject.count:
                    del self._subjects[key]
