"""The newest master term that this node has seen.

A master that was deposed still acts for its own term; this node refuses its calls. The
term is kept in a file, so it survives restarts and the loss of the store's copy. It
counts for one cluster certificate only: a node that joins another cluster begins at
zero. A new authority of the same cluster takes it over. Which terms are admitted is
`ganeti.quorum`.
"""

import logging
import threading
from collections.abc import Collection

from ganeti import errors, serializer
from ganeti.quorum import Term, is_credible, refusal, term_of
from ganeti.utils import files

_log = logging.getLogger(__name__)


class TermGuard:
    """Remembers the newest term; thread-safe."""

    def __init__(self, path: str, cluster: str, *others: str) -> None:
        """Read the highest term from its file.

        Args:
            path: file with the term.
            cluster: digest of the cluster certificate.
            others: digests of further authorities of the same cluster.

        Raises:
            ConfigurationError: the file is damaged.
        """
        self._path = path
        self._cluster = cluster
        self._lock = threading.Lock()
        self._seen = _read(path, (cluster, *others))

    @property
    def seen(self) -> Term:
        """The newest term so far; number 0 if none."""
        return self._seen

    def admit(self, term: Term) -> None:
        """Check that a term may act here.

        Raises:
            TermError: a later one was seen, or this one of another owner.
            RpcError: its number is far out of reach.
        """
        seen = self._seen
        if term == seen:
            return
        text = refusal(seen, term)
        if text is not None:
            raise errors.TermError(text)
        if not is_credible(seen, term):
            raise errors.RpcError(f"master term {term} is far above {seen}")

    def check(self, term: Term) -> None:
        """Admit a term and remember it. Raises as `admit` does."""
        if term == self._seen:
            return
        with self._lock:
            self.admit(term)
            if term != self._seen:
                _log.info("master term %s -> %s", self._seen, term)
                self._seen = term
                self._save(term)

    def move_to(self, cluster: str) -> None:
        """Keep the term for another certificate of the same cluster."""
        with self._lock:
            if cluster != self._cluster:
                self._cluster = cluster
                if self._seen != Term():
                    self._save(self._seen)

    def _save(self, term: Term) -> None:
        data = serializer.dump(
            {"cluster": self._cluster, "term": term.number, "owner": term.owner}
        )
        try:
            files.write_file(self._path, data + b"\n", mode=0o600)
        except OSError:
            # A node with a broken disk must still accept calls, such as a power cycle.
            _log.exception("cannot save the master term")


def _read(path: str, clusters: Collection[str]) -> Term:
    """Return the stored term; files of earlier releases have its number alone."""
    try:
        data = serializer.load(files.read_file(path))
        if data["cluster"] not in clusters:
            return Term()
        return term_of([data["term"], data.get("owner", "")])
    except FileNotFoundError:
        return Term()
    except (errors.ParseError, KeyError, TypeError, ValueError) as err:
        raise errors.ConfigurationError(f"{path}: no master term: {err}") from err
