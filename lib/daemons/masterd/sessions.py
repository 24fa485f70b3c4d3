"""Sessions of the remote API: kept in memory, and stored without a commit per request.

Only digests of tokens are here and in the store, so nobody who reads either can use a
session. A token that is not known to be stored does not count yet, and one that is
revoked does not count any more, whether or not a majority has taken that down yet.
"""

import hmac
import logging
import secrets
import threading
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future
from typing import Final

import msgspec

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import ecodes
from ganeti.decisions import sessions
from ganeti.decisions.sessions import Live, Session, Shown, SignIn
from ganeti.store import Document, Store

_log = logging.getLogger(__name__)

TABLE: Final = "meta"
PREFIX: Final = "session/"
#: Seconds that a write of idle times may wait for another commit.
_WAIT_S: Final = 5.0
_ID_BYTES: Final = 8
_MOST_TEXT: Final = 200
_DIGEST_SIZE: Final = 64


class Keeper:
    """The only writer of the sessions; for use by many threads.

    Writes are asked for under the lock and awaited outside of it, so they reach the
    store in the order in which memory has changed.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._by_digest: dict[str, Live] | None = None
        self._wrote_at = clock.monotonic()

    def open(self, new: SignIn) -> Shown:
        """Begin a session; blocks until it is durable.

        Raises:
            OpPrereqError: there are too many, or a value cannot be.
            StorageError: it could not be made durable.
            TermError: another master has taken over.
        """
        _check(new)
        with self._lock:
            lives = self._swept()
            gone = sessions.surplus(lives.values(), new.user)
            if len(lives) - len(gone) >= sessions.MOST:
                raise errors.OpPrereqError(
                    f"sessions of all users: wanted fewer than {sessions.MOST}, found"
                    f" {len(lives)}; gnt-cluster sessions revoke ends some",
                    ecodes.ECODE_STATE,
                )
            now, moment = self._clock.time(), self._clock.monotonic()
            session_id = secrets.token_hex(_ID_BYTES)
            live = sessions.begin(new, session_id, now, moment)
            for each in gone:
                del lives[each.stored.digest]
            lives[new.token_digest] = live
            written = self._write([live.stored], [each.stored for each in gone])
        try:
            written.result()
        except BaseException:
            with self._lock:
                self._loaded().pop(new.token_digest, None)
            raise
        live.is_durable = True
        return live.shown(now, moment)

    def use(self, digest: str) -> Session | None:
        """Note a request with a token; return its session, None if there is none.

        Returns at once: when sessions were used is written within some minutes.
        """
        with self._lock:
            live = self._loaded().get(digest)
            now, moment = self._clock.time(), self._clock.monotonic()
            if live is None or not live.is_durable or live.is_over(now, moment):
                return None
            if not hmac.compare_digest(live.stored.digest, digest):
                return None
            live.used_at = moment
            if moment - self._wrote_at >= sessions.WRITE_S:
                self._write_used(now, moment)
            return live.stored

    def load(self) -> None:
        """Read the stored sessions, so that `use` need not."""
        with self._lock:
            self._loaded()

    def living(self, ids: Sequence[str]) -> list[str]:
        """Return which of these sessions go on; that is no use of them."""
        wanted = set(ids)
        with self._lock:
            now, moment = self._clock.time(), self._clock.monotonic()
            lives = self._loaded().values()
            return [
                live.stored.id
                for live in lives
                if live.stored.id in wanted and not live.is_over(now, moment)
            ]

    def shown(self, user: str | None = None) -> list[Shown]:
        """Return the sessions of a user, or all of them, the oldest first."""
        with self._lock:
            now, moment = self._clock.time(), self._clock.monotonic()
            shown = [
                live.shown(now, moment)
                for live in self._loaded().values()
                if live.is_durable and not live.is_over(now, moment)
            ]
        return sorted(
            (each for each in shown if user is None or each.user == user),
            key=lambda each: (each.created, each.id),
        )

    def revoke(
        self,
        *,
        ids: Collection[str] | None = None,
        users: Collection[str] | None = None,
    ) -> "Future[list[Shown]]":
        """End sessions that have one of these ids and belong to one of these users.

        Returns:
            the sessions, when their end is durable. Their tokens end at once.
        """
        with self._lock:
            lives = self._swept()
            now, moment = self._clock.time(), self._clock.monotonic()
            gone = [
                live
                for live in lives.values()
                if (ids is None or live.stored.id in ids)
                and (users is None or live.stored.user in users)
            ]
            for live in gone:
                del lives[live.stored.digest]
            shown = [live.shown(now, moment) for live in gone if live.is_durable]
            done: Future[list[Shown]] = Future()
            if not gone:
                done.set_result([])
                return done
            written = self._write([], [live.stored for live in gone])
        written.add_done_callback(lambda future: _pass_on(future, done, shown))
        return done

    def _write(
        self, changed: Iterable[Session], gone: Iterable[Session], wait_s: float = 0.0
    ) -> "Future[int]":
        """Ask for a commit. The caller holds the lock."""
        written: Future[int] = Future()

        def done(revision: int, error: BaseException | None) -> None:
            if error is None:
                written.set_result(revision)
            else:
                written.set_exception(error)

        documents = [
            *(
                Document(TABLE, _key(each), msgspec.json.encode(each))
                for each in changed
            ),
            *(Document(TABLE, _key(each), None) for each in gone),
        ]
        try:
            self._store.commit_soon(documents, done, wait_s=wait_s)
        except errors.GenericError as err:
            written.set_exception(err)
        return written

    def _write_used(self, now: float, moment: float) -> None:
        """Store when sessions were used, and remove those that are over."""
        before = self._loaded()
        lives = self._swept(write=False)
        over = [live.stored for digest, live in before.items() if digest not in lives]
        changed = []
        for live in lives.values():
            used = now - (moment - live.used_at)
            if live.is_durable and used > live.stored.used:
                live.stored = msgspec.structs.replace(live.stored, used=used)
                changed.append(live.stored)
        self._wrote_at = moment
        self._write(changed, over, _WAIT_S)

    def _swept(self, *, write: bool = True) -> dict[str, Live]:
        """Return the sessions that go on, and forget the others."""
        lives = self._loaded()
        now, moment = self._clock.time(), self._clock.monotonic()
        kept = {d: live for d, live in lives.items() if not live.is_over(now, moment)}
        if write and len(kept) < len(lives):
            over = [live.stored for d, live in lives.items() if d not in kept]
            self._write([], over, _WAIT_S)
        self._by_digest = kept
        return kept

    def _loaded(self) -> dict[str, Live]:
        """Return all sessions by digest. The caller holds the lock."""
        if self._by_digest is None:
            now, moment = self._clock.time(), self._clock.monotonic()
            self._by_digest = {}
            for key, data in self._store.scan(TABLE, PREFIX):
                try:
                    stored = msgspec.json.decode(data, type=Session)
                except (msgspec.DecodeError, UnicodeError) as err:
                    _log.error("%s cannot be read, so it has ended: %s", key, err)
                    continue
                live = sessions.resume(stored, now, moment)
                self._by_digest[stored.digest] = live
        return self._by_digest


def _pass_on(
    written: "Future[int]", done: "Future[list[Shown]]", shown: list[Shown]
) -> None:
    error = written.exception()
    if error is None:
        done.set_result(shown)
    else:
        _log.warning("revoked sessions end here, but are still stored: %s", error)
        done.set_exception(error)


def _key(session: Session) -> str:
    return f"{PREFIX}{session.id}"


def _check(new: SignIn) -> None:
    """Refuse what the remote API never asks for.

    Raises:
        OpPrereqError: with the wanted form.
    """
    wrong = sessions.check_times(new.idle_s, new.age_s)
    if any(len(each) != _DIGEST_SIZE for each in (new.token_digest, new.token_seal)):
        wrong = f"session: wanted digests of {_DIGEST_SIZE} digits"
    if not new.user or max(len(new.user), len(new.address)) > _MOST_TEXT:
        wrong = f"session: wanted a user and address of at most {_MOST_TEXT} characters"
    if wrong:
        raise errors.OpPrereqError(wrong, ecodes.ECODE_INVAL)
