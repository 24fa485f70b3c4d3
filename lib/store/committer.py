"""The committer: groups of staged changes become durable, one after another.

One thread takes all that has been staged, gives it to the backend as one transaction
and to the candidates as one change-set, and acknowledges when both have answered; what
arrives before that forms the next group.

When a group cannot be made durable, it and everything staged since fail together,
because what was staged later may have been decided on the lost state. A group that
candidates may have does not fail: see `Committer._write_here`.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from ganeti.base import errors
from ganeti.decisions.quorum import Voters
from ganeti.model.objects import Snapshot, Update
from ganeti.store import features, pools, wire
from ganeti.store.backend import (
    Backend,
    Copies,
    Group,
    OutcomeUnknownError,
    Row,
    State,
    chain,
)
from ganeti.store.base import Change, Document
from ganeti.store.copies import voters as voters_module
from ganeti.store.features import Features
from ganeti.store.published import Published
from ganeti.store.staging import Request, Staging

_log = logging.getLogger(__name__)

#: Seconds between two attempts to write to a disk that failed.
RETRY_S: Final = 1.0


class Committer:
    """The committer's thread, and the end of the history that it writes.

    That thread alone changes the fields; others read `latest`, `voters` and `used`,
    without a lock.
    """

    def __init__(
        self,
        backend: Backend,
        copies: Copies | None,
        state: State,
        staging: Staging,
        published: Published,
    ) -> None:
        """Go on from the end of the history; nothing happens before `start`."""
        self._backend = backend
        self._copies = copies
        self._staging = staging
        self._published = published
        #: The newest snapshot, durable or being made so.
        self.latest = state.snapshot
        self._digest = state.digest
        self._term = state.term
        self.voters = state.voters
        self.used = state.features
        self._has_acknowledged = False
        self._thread = threading.Thread(
            target=self._run, name="store-committer", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end of the thread, which `Staging.begin_close` brings."""
        self._thread.join()

    def _run(self) -> None:
        while requests := self._take():
            staged = requests[-1].staged
            try:
                self._commit(requests, staged)
            except errors.TermError as err:
                self._staging.depose(err)
                self._fail(requests, err)
            except errors.GenericError as err:
                _log.error("commit of revision %d failed: %s", staged.revision, err)
                self._fail(requests, err)
            except Exception as err:  # noqa: BLE001 - the same
                _log.exception("commit of revision %d failed", staged.revision)
                self._fail(requests, errors.CommitUnknownError(f"store: {err!r}"))

    def _take(self) -> list[Request]:
        """Return the next group, none when the store is closed."""
        self._probe()
        return self._staging.take(is_single=self._is_unsettled)

    def _probe(self) -> None:
        """Wait until the disk can be written again, if a group could not be."""
        staging = self._staging
        while staging.disk_failure:
            with staging.lock:
                staging.work.wait_for(lambda: staging.is_closing, RETRY_S)
                if staging.is_closing:
                    return
            try:
                self._backend.probe()
            except errors.GenericError as err:
                staging.disk_failure = str(err)
            else:
                staging.disk_failure = ""
                _log.warning("%s can be written again", self._backend.place)

    def _commit(self, requests: list[Request], staged: Snapshot) -> None:
        changes = [change for request in requests for change in request.changes]
        if changes:
            self._settle(staged)
            self._write(changes, staged)
        for request in requests:
            request.finish(None)

    @property
    def _is_unsettled(self) -> bool:
        """Return whether an earlier master's change of the candidate set is open.

        No majority may know it yet, so the set must not change again before a group of
        this master was acknowledged (`ganeti.decisions.quorum`, rule 6).
        """
        return bool(self.voters.before) and not self._has_acknowledged

    def _settle(self, staged: Snapshot) -> None:
        """Write a group that changes nothing, if the first group would change the set.

        Otherwise the first group settles the change. It must not be preceded by another
        one: with accepted loss it has the numbers that are left out, and whoever takes
        over from this master must not have a group of this term without them.
        """
        durable = self._published.snapshot
        if self._is_unsettled and staged.nodes is not durable.nodes:
            document = Document("meta", "term", str(self._term).encode())
            self._write([document], durable.at(self._staging.first, durable.term))

    def _write(self, changes: list[Change], staged: Snapshot) -> None:
        before, voters = self.voters, self._next_voters(staged)
        durable = self._published.snapshot
        if voters != before:
            changes.append(voters_module.encode(voters))
        rows, used = _stored_form(changes, durable, self.used, self._all_know)
        payload = wire.encode_rows(rows)
        group = Group(
            durable.revision,
            staged.revision,
            staged.term,
            self._digest,
            chain(self._digest, payload),
            payload,
            rows,
        )
        # Calls look addresses up here: the group goes to candidates that it adds, too.
        self.latest = staged
        if self._copies is not None:
            if used != self.used:
                self._copies.use(used)
            if voters != before:
                self._copies.refresh(staged, voters)
            # Before the disk, so that both work at the same time. A failure of the disk
            # does not show, therefore, that nobody has the group.
            self._copies.send(group)
        try:
            self._write_here(group)
        except BaseException:
            self.latest = durable
            if self._copies is not None:
                self._copies.use(self.used)
                self._copies.refresh(durable, before)
            raise
        self.used = used
        self._digest, self.voters = group.digest, voters
        if self._copies is not None:
            self._copies.wait(group)
        self._has_acknowledged = True
        self._published.publish(group, changes, staged)

    def _all_know(self, feature: str) -> bool:
        return self._copies is None or self._copies.all_know(feature)

    def _next_voters(self, staged: Snapshot) -> Voters:
        """Return the candidate set in force with the group that is to be written.

        The group before was acknowledged, so a change of the set is settled.
        """
        if self._is_unsettled:
            return self.voters
        if staged.nodes is self._published.snapshot.nodes:
            return self.voters.settled() if self.voters.before else self.voters
        wanted = voters_module.candidates_of(staged)
        if wanted == self.voters.now:
            return self.voters.settled()
        return self.voters.changed(wanted)

    def _write_here(self, group: Group) -> None:
        """Write a group to this node's disk.

        From a failure on, changes are refused until the disk works: see `_probe`. But
        if a candidate may have the group already, nothing else may be written in its
        place: this tries again until the disk works, the store is closed, or another
        master has taken over.
        """
        while True:
            try:
                self._write_out(group)
            except errors.TermError:
                # Another master has begun: no repetition can succeed any more.
                raise
            except Exception as err:
                if not self._staging.disk_failure:
                    _log.error("revision %d cannot be written: %s", group.revision, err)
                self._staging.disk_failure = str(err)
                if self._copies is None or self._copies.disown():
                    raise
                self._copies.pause(RETRY_S)
                if self._staging.is_closing:
                    raise errors.CommitUnknownError(
                        f"store: closed; candidates may have revision"
                        f" {group.revision}, which this node could not write: {err}"
                    ) from err
            else:
                self._staging.disk_failure = ""
                return

    def _write_out(self, group: Group) -> None:
        """Write a group; return only when its outcome is known.

        While it is unknown, this reads again, whoever waits: an answer to the caller
        would be a guess. Closing the store ends that with an error.
        """
        try:
            self._backend.write(group)
        except OutcomeUnknownError as err:
            _log.error("revision %d: the outcome is unknown: %s", group.revision, err)
            self._find_out(group, str(err))

    def _find_out(self, group: Group, reason: str) -> None:
        """Read until the outcome of a write is known.

        Raises:
            StorageError: it was not written.
            CommitUnknownError: closed before that, or this master is deposed.
            TermError: another master has written.
        """
        staging = self._staging
        while True:
            try:
                if self._is_durable(group):
                    return
            except errors.StorageError as err:
                reason = str(err)
            else:
                raise errors.StorageError(f"store: not written: {reason}")
            staging.disk_failure = reason
            with staging.lock:
                staging.work.wait_for(lambda: staging.is_ending, RETRY_S)
                if staging.is_ending:
                    why = "closed" if staging.deposed is None else str(staging.deposed)
                    raise errors.CommitUnknownError(
                        f"store: {why}; revision {group.revision} may be durable or"
                        f" not: {reason}"
                    )

    def _is_durable(self, group: Group) -> bool:
        """Return whether a group of an unknown outcome is durable.

        Raises:
            StorageError: it is still unknown.
            TermError: another master has written.
        """
        end = self._backend.end()
        if end == (group.revision, group.digest):
            return True
        if end != (group.base, group.parent):
            raise errors.TermError(
                f"term {group.term} is over: found revision {end[0]}"
            )
        return False

    def _fail(self, requests: list[Request], error: errors.GenericError) -> None:
        requests += self._staging.drop(self._published.snapshot)
        for request in requests:
            request.finish(error)


def _stored_form(
    changes: list[Change],
    durable: Snapshot,
    present: Features,
    all_know: Callable[[str], bool],
) -> tuple[list[Row], Features]:
    """Return the rows of a group, and the features that are in use with it.

    A feature is used as soon as all candidates know it.
    """
    wanted = {feature for feature in features.KNOWN - present if all_know(feature)}
    before = wire.Stored(durable, present)
    rows = wire.rows(changes, present | wanted, before)
    begun = set()
    if features.POOL_ROWS in wanted and any(map(pools.is_in_rows, rows)):
        begun.add(features.POOL_ROWS)
        # From here on all large networks have this form.
        rows = wire.rows(
            [*_large_networks(durable), *changes], present | wanted, before
        )
    if features.COMPRESSED_NETWORKS in wanted and any(map(wire.is_compressed, rows)):
        begun.add(features.COMPRESSED_NETWORKS)
    # Asked for by the writer, with `may_use`.
    if features.ARCHIVED_LOGS not in present and any(map(wire.is_archived_log, rows)):
        begun.add(features.ARCHIVED_LOGS)
    used = present | begun
    if used == present:
        return rows, present
    document = features.encode(used)
    changes.append(document)
    return [*rows, document], used


def _large_networks(snapshot: Snapshot) -> list[Update]:
    networks = snapshot.networks.items()
    return [Update(pools.TABLE, *item) for item in networks if pools.is_large(item[1])]
