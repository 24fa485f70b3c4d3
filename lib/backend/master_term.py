"""The highest master term that this node has seen.

A master that was deposed still believes in its own, lower term; what it asks is
refused. The number survives restarts. It counts for one cluster certificate only, so
that a node that joins another cluster starts anew.
"""

import logging
import threading

from ganeti import errors, serializer
from ganeti.utils import files

_log = logging.getLogger(__name__)


class TermGuard:
    """Remembers the highest term; thread-safe."""

    def __init__(self, path: str, cluster: str) -> None:
        """Read what was seen before.

        Args:
            path: file with the term.
            cluster: digest of the cluster certificate.

        Raises:
            ConfigurationError: the file is damaged.
        """
        self._path = path
        self._cluster = cluster
        self._lock = threading.Lock()
        self._seen = _read(path, cluster)

    @property
    def seen(self) -> int:
        """The highest term so far, 0 if none."""
        return self._seen

    def check(self, term: int) -> None:
        """Accept a term and remember it.

        Raises:
            TermError: a higher one was seen.
        """
        if term == self._seen:
            return
        with self._lock:
            if term < self._seen:
                raise errors.TermError(
                    f"term {term} is over: this node has seen term {self._seen}"
                )
            if term > self._seen:
                _log.info("master term %d -> %d", self._seen, term)
                self._seen = term
                self._save(term)

    def _save(self, term: int) -> None:
        data = serializer.dump({"cluster": self._cluster, "term": term})
        try:
            files.write_file(self._path, data + b"\n", mode=0o600)
        except OSError:
            # A node with a broken disk must still obey, above all a power cycle.
            _log.exception("cannot save the master term")


def _read(path: str, cluster: str) -> int:
    try:
        data = serializer.load(files.read_file(path))
        return int(data["term"]) if data["cluster"] == cluster else 0
    except FileNotFoundError:
        return 0
    except (errors.ParseError, KeyError, TypeError, ValueError) as err:
        raise errors.ConfigurationError(f"{path}: no master term: {err}") from err
