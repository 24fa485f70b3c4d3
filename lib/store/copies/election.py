"""Becoming master: promises of a new term, then the newest history among them.

The order is that of `ganeti.decisions.quorum`: first a majority of candidate copies
promises the term, so that no other master can write there any more; then their
histories are compared; then this node takes the newest one. Who is *meant* to be
master, and that the old one is dead, is not decided here.

`elector` makes the RPC calls of a node that is not the master yet.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.decisions.quorum import Copy, Election, Term, majority, next_number, term_of
from ganeti.model.objects import Snapshot
from ganeti.protocols import rpc
from ganeti.protocols.rpc import TIMEOUTS, Answer, Request, calls
from ganeti.protocols.rpc.answers import Facts
from ganeti.store import wire
from ganeti.store.backend import ArchivePage, Group
from ganeti.store.copies import branches
from ganeti.store.copies.sending import is_term_refusal
from ganeti.store.database import Database

_log = logging.getLogger(__name__)
T = TypeVar("T")

#: Elections in a row: another node may have promised a higher number between the
#: question and the promise.
_ATTEMPTS: Final = 3
#: Groups that a master may have sent without writing them itself.
_IN_FLIGHT: Final = 1


class Ask(Protocol):
    """A caller of nodes for no term."""

    def __call__(
        self, contacts: Snapshot, nodes: Sequence[str], request: Request[T], /
    ) -> Mapping[str, Answer[T]]:
        """Call nodes of which ``contacts`` has the records; return uuid -> answer."""


@dataclasses.dataclass(frozen=True)
class Survey:
    """The candidates' copies before anything is changed.

    Attributes:
        election: this node's and the answers of the others, as if they were promises.
        names: node uuid -> name, of all candidates.
        ahead: groups of the newest copy that this node lacks; None if its history is
            not a continuation of this node's.
    """

    election: Election
    names: Mapping[str, str]
    ahead: int | None = 0

    @property
    def is_enough(self) -> bool:
        """Return whether an election can be won."""
        return self.election.is_won

    def shortage(self) -> str:
        """Return why it cannot."""
        election = self.election
        if election.own not in election.voters.now:
            return f"{self._name(election.own)} is not a master candidate"
        sets = [s for s in (election.voters.now, election.voters.before) if s]
        counts = ", ".join(
            f"{len(each & election.counted)} of {len(each)}" for each in sets
        )
        needed = max(majority(len(each)) for each in sets)
        silent = ", ".join(sorted(self._name(uuid) for uuid in election.silent))
        return (
            f"copies of the configuration on {counts} master candidates can be read,"
            f" {needed} are needed; not heard: {silent}. Changes and jobs that were"
            " acknowledged may be on those alone, and would be lost"
        )

    def loss(self) -> str:
        """Return why this node's copy has lost changes, empty if it has not."""
        newest = self.election.newest
        if self.ahead is not None and self.ahead <= _IN_FLIGHT:
            return ""
        how = (
            "with a history that is not a continuation of this node's"
            if self.ahead is None
            else f"{self.ahead} change-sets ahead of this node"
        )
        copies = self.election.copies
        return (
            f"the copy of node {self._name(newest)} is at revision"
            f" {copies[newest].revision}, {how} (revision"
            f" {copies[self.election.own].revision}): the store of this node was set"
            f" back or damaged. Run gnt-cluster master-failover on"
            f" {self._name(newest)} to go on with the newest copy"
        )

    def _name(self, uuid: str) -> str:
        return self.names.get(uuid, uuid)


class Elector:
    """Elects this node. Nothing else has the store open for writing."""

    def __init__(
        self, path: str, node: str, ask: Ask, silent: Collection[str] = ()
    ) -> None:
        """Prepare an election.

        Args:
            path: of this node's store.
            node: uuid of this node.
            ask: reaches other nodes, for no term.
            silent: nodes that have just not answered; waiting for each of them again
                would take a time limit.
        """
        self._silent = set(silent)
        self._path = path
        self._node = node
        self._ask = ask

    @property
    def silent(self) -> frozenset[str]:
        """Nodes that did not answer so far."""
        return frozenset(self._silent)

    def survey(self) -> Survey:
        """Ask all candidates for their copies; change nothing.

        Raises:
            ConfigurationError: this node's copy is missing or damaged.
            StorageError: the disk failed.
        """
        db = Database(self._path, create=False)
        try:
            return self._survey(db)[0]
        finally:
            db.close()

    def elect(
        self, *, is_takeover: bool, accept_loss: bool = False
    ) -> tuple[Term, Survey]:
        """Win a term, and take the newest history; return the term and who promised.

        This can be repeated after it ended half-way.

        Args:
            is_takeover: take a newer history, however much newer. Otherwise only what
                this node may have sent as the last master is taken.
            accept_loss: go on without a majority.

        Raises:
            ConfigurationError: this node's copy is missing or damaged.
            StorageError: no majority, or this node's copy has lost changes.
            TermError: another node is being elected at the same time.
        """
        db = Database(self._path, create=False)
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                survey, numbers = self._survey(db)
                _check(survey, is_takeover=is_takeover, accept_loss=accept_loss)
                position = db.position()
                number = next_number(position.term.number, numbers)
                term = Term(number, self._node)
                is_restart = survey.election.is_restart
                # Durable here before others are asked: after a crash, the next attempt
                # of this node takes a higher number.
                db.promise(term, is_own=True)
                election = self._gather(
                    db, term, is_restart=is_restart, is_takeover=is_takeover
                )
                result = Survey(election, _names(db.contacts()))
                if result.is_enough or accept_loss:
                    _log.info("elected for term %s", term)
                    return term, result
                _log.info("election %d: %s", attempt, result.shortage())
            raise errors.StorageError(result.shortage())
        finally:
            db.close()

    # Asking
    def _survey(self, db: Database) -> tuple[Survey, list[int]]:
        contacts, voters = db.contacts(), db.tables.voters()
        answers = self._question(contacts, voters.everyone, calls.store_status())
        cluster = db.tables.cluster()
        heard = {uuid: _copy(answer, cluster) for uuid, answer in answers.items()}
        copies = branches.without_known(db.tables.read, heard)
        copies[self._node] = own = _own_copy(db)
        last = db.last_master() or contacts.cluster.master_node
        election = Election(self._node, voters, copies)
        newest = election.newest
        is_restart = last == self._node and newest == self._node
        election = dataclasses.replace(election, is_restart=is_restart)
        ahead: int | None = 0
        if newest != self._node:
            groups = self._changes(contacts, newest, own)
            ahead = None if groups is None else len(groups)
        numbers = [_number(answer) for answer in answers.values()]
        return Survey(election, _names(contacts), ahead), numbers

    def _gather(
        self, db: Database, term: Term, *, is_restart: bool, is_takeover: bool
    ) -> Election:
        """Collect promises; take the newest history until it is this node's own."""
        copies: dict[str, Copy] = {}
        asked: set[str] = set()
        while True:
            # Again in each round: a history that was taken may name other candidates.
            contacts, voters = db.contacts(), db.tables.voters()
            todo = voters.everyone - asked
            asked |= todo
            cluster = db.tables.cluster()
            answers = self._question(contacts, todo, calls.store_promise(term))
            heard = {uuid: _copy(item, cluster) for uuid, item in answers.items()}
            copies |= branches.without_known(db.tables.read, heard)
            copies[self._node] = _own_copy(db)
            election = Election(self._node, voters, copies, is_restart)
            newest = election.newest
            if newest == self._node:
                return election
            is_restart = False
            self._adopt(db, term, newest, is_takeover=is_takeover)

    def _question(
        self, contacts: Snapshot, nodes: Collection[str], request: Request[Facts]
    ) -> dict[str, Mapping[str, Any]]:
        """Ask other nodes; those that do not answer or refuse are left out."""
        others = sorted(set(nodes) - self._silent - {self._node})
        known = [uuid for uuid in others if uuid in contacts.nodes]
        answers: dict[str, Mapping[str, Any]] = {}
        procedure = request.procedure.name
        for uuid, answer in self._ask(contacts, known, request).items():
            if answer.fail_msg is not None or not isinstance(answer.payload, Mapping):
                _log.info("%s: %s: %s", procedure, uuid, answer.fail_msg)
                if not is_term_refusal(answer.fail_msg or ""):
                    self._silent.add(uuid)
            else:
                answers[uuid] = answer.payload
        return answers

    # Taking another copy's history
    def _changes(self, contacts: Snapshot, node: str, own: Copy) -> list[Group] | None:
        asked = calls.store_changes(own.revision, own.digest)
        text = self._fetch(contacts, node, asked)
        return None if text is None else wire.decode_batch(text)[0]

    def _fetch(self, contacts: Snapshot, node: str, request: Request[T]) -> T:
        answer = self._ask(contacts, [node], request)[node]
        if answer.fail_msg is not None:
            raise errors.StorageError(f"{request.procedure.name}: {answer.fail_msg}")
        return answer.payload

    def _adopt(self, db: Database, term: Term, node: str, *, is_takeover: bool) -> None:
        contacts, own = db.contacts(), _own_copy(db)
        groups = self._changes(contacts, node, own)
        # A running master may have sent one change-set that it could not record before
        # it ended. More than that means that its own store was set back.
        if not is_takeover and (groups is None or len(groups) > _IN_FLIGHT):
            raise errors.StorageError(
                f"node {contacts.nodes[node].name} has changes that this node lost"
            )
        if groups is not None:
            if not db.append(groups, db.position(), term=term):
                raise errors.StorageError("another process writes to the store")
            _log.info("took %d change-sets from node %s", len(groups), node)
            return
        copy = wire.decode_copy(self._fetch(contacts, node, calls.store_dump()))
        kept = branches.keep(db, copy)
        db.replace(copy, term)
        _log.info("took the whole copy of node %s; ours is kept as %s", node, kept)
        self._fetch_archive(db, term, contacts, node)

    def _fetch_archive(
        self, db: Database, term: Term, contacts: Snapshot, node: str
    ) -> None:
        """Take the rows that a whole copy lacks, from where this copy ends."""
        while cursor := db.archive_cursor():
            table, _separator, after = cursor.partition("/")
            asked = calls.store_scan(table, after or None)
            text = self._fetch(contacts, node, asked)
            rows = wire.decode_batch(text)[1]
            upto = rows[-1][1] if rows else None
            page = ArchivePage(table, after, upto, is_whole=False)
            db.append([], db.position(), term=term, extra=rows, page=page)


def _check(survey: Survey, *, is_takeover: bool, accept_loss: bool) -> None:
    if not survey.is_enough and not accept_loss:
        raise errors.StorageError(survey.shortage())
    if not is_takeover and survey.loss():
        raise errors.StorageError(survey.loss())


def _names(contacts: Snapshot) -> dict[str, str]:
    return {uuid: node.name for uuid, node in contacts.nodes.items()}


def _own_copy(db: Database) -> Copy:
    position = db.position()
    return Copy(position.written, position.revision, position.digest.hex())


def _copy(answer: Mapping[str, Any], cluster: str) -> Copy:
    """Return the copy in an answer; one of another cluster counts as empty."""
    try:
        revision = int(answer["revision"])
        written = int(answer.get("written", answer["term"]))
        digest = str(answer["digest"])
    except (KeyError, TypeError, ValueError):
        return Copy(0, 0)
    # A node that was in another cluster before must not win with that one's changes.
    if answer.get("cluster") != cluster or revision <= 0 or written < 0:
        return Copy(0, 0)
    return Copy(written, revision, digest)


def _number(answer: Mapping[str, Any]) -> int:
    try:
        return term_of([answer["term"], ""]).number
    except (KeyError, ValueError):
        return 0


#: Seconds to wait for a candidate's answer about its copy; later it counts as silent.
_CALL_S: Final = 10.0
#: Calls whose answers may be as large as the store.
_LARGE: Final = (calls.store_changes, calls.store_dump, calls.store_scan)


@contextlib.contextmanager
def asking(paths: Paths) -> Iterator[Ask]:
    """Yield a function that calls nodes without a term.

    A call with a new term would depose the present master, which a question must not.
    """
    contacts = [Snapshot()]
    runner = rpc.NetworkRunner(lambda: contacts[0], paths, None)

    def ask(
        snapshot: Snapshot, nodes: Sequence[str], request: Request[T]
    ) -> Mapping[str, Answer[T]]:
        contacts[0] = snapshot
        is_large = request.procedure in _LARGE
        limit = TIMEOUTS["fast"] if is_large else _CALL_S
        return runner.call_nodes(nodes, request, timeout_s=limit)

    try:
        yield ask
    finally:
        runner.close()


def elector(paths: Paths, node: str, ask: Ask, silent: frozenset[str]) -> Elector:
    """Return an elector of this node that does not call silent nodes again.

    Args:
        paths: of this node.
        node: UUID of this node.
        ask: see `asking`.
        silent: UUIDs of nodes that did not answer before.
    """
    return Elector(paths.store_db, node, ask, silent)
