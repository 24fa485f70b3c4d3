"""The newest master term that this node has seen.

A master that was deposed still acts for its own term; this node refuses its calls. The
term is kept in a file, so it survives restarts and the loss of the store's copy. It
counts for one cluster certificate only: a node that joins another cluster begins at
zero. A new authority of the same cluster takes it over. Which terms are admitted is
`ganeti.decisions.quorum`.
"""

import dataclasses
import logging
import secrets
import threading
from collections.abc import Collection

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.decisions.quorum import Term, Voters, is_credible, refusal, term_of
from ganeti.model import serializer

_log = logging.getLogger(__name__)


@dataclasses.dataclass
class _Review:
    """A question to the candidates: does a majority follow the master of a term?

    Attributes:
        ident: random, so that no earlier word of a candidate counts.
        term: the term, refused so far.
        seen: what was seen when the review began.
        vouchers: candidates that have promised the term, and no later one, since then.
    """

    ident: str
    term: Term
    seen: Term
    vouchers: set[str] = dataclasses.field(default_factory=set)


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
        self._review: _Review | None = None

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

    def open_review(self, term: Term) -> str:
        """Begin to count the candidates that vouch for a term; return the id of that.

        A later call ends an earlier review, and so does a term that is seen.

        Raises:
            RpcError: the term is admitted anyway.
        """
        with self._lock:
            if refusal(self._seen, term) is None:
                raise errors.RpcError(f"master term {term} is not refused here")
            self._review = _Review(secrets.token_hex(16), term, self._seen)
            return self._review.ident

    def vouch(self, voucher: str, review: str, candidates: frozenset[str]) -> bool:
        """Count one candidate's word; a majority of them resets the term.

        This is safe: had a majority promised a later term before the review began, none
        of these would vouch, and two majorities share a candidate. A later term that is
        elected in between arrives with the first call of its master.

        Args:
            voucher: uuid of the candidate.
            review: from `open_review`.
            candidates: uuids of all candidates.

        Returns:
            whether the term counts now.

        Raises:
            RpcError: there is no such review, or no such candidate.
        """
        with self._lock:
            current = self._review
            if current is None or current.ident != review or current.seen != self._seen:
                raise errors.RpcError("the review of the master term is over")
            if voucher not in candidates:
                raise errors.RpcError(f"{voucher} is no master candidate known here")
            current.vouchers.add(voucher)
            if not Voters(candidates).has_majority(current.vouchers):
                return False
            _log.warning(
                "master term %s -> %s, which a majority of the candidates follows",
                self._seen,
                current.term,
            )
            self._review = None
            self._seen = current.term
            self._save(current.term)
            return True

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
