"""Sessions: tokens that users get for a password or token of their own.

The master daemon knows the sessions by digests of their tokens, and is asked at each
request, so a session that is revoked is refused at once. It does not know the users
file. The seal of a session binds it to the line that its user had then: a keyed digest
whose key is the token, so that nobody can try passwords with what is stored.
"""

import hashlib
import hmac
import logging
import re
import secrets
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.daemons.rapi.users import User, token_digest
from ganeti.decisions import sessions

_log = logging.getLogger(__name__)

#: How tokens of sessions begin, so that no other token is looked for in the master.
PREFIX: Final = "s-"
_TOKEN: Final = re.compile(rf"{PREFIX}[0-9a-f]{{64}}")
_TOKEN_BYTES: Final = 32
#: Seconds between two questions which of the watched sessions go on.
_PAUSE_S: Final = 0.5
#: Seconds that the master daemon has for an answer.
_ANSWER_S: Final = 5.0


def is_token(text: str) -> bool:
    """Return whether a text has the form of a session's token."""
    return _TOKEN.fullmatch(text) is not None


def new_token() -> str:
    """Return a new token of 256 random bits."""
    return PREFIX + secrets.token_hex(_TOKEN_BYTES)


def seal(token: str, user: User) -> str:
    """Return the keyed digest of what a session of a user depends on."""
    secret, rights = user.secret, user.rights
    text = msgspec.json.encode(
        [
            user.name,
            [secret.scheme, secret.value, secret.expires],
            sorted(rights.words),
            [[rule.right, rule.pattern] for rule in rights.rules],
        ]
    )
    return hmac.digest(token.encode(), text, hashlib.sha256).hex()


class Times(NamedTuple):
    """Seconds without a request after which new sessions end, and in any case."""

    idle_s: int = sessions.IDLE_S
    age_s: int = sessions.AGE_S


DEFAULT_TIMES: Final = Times()


def sign_in(token: str, user: User, address: str, times: Times) -> dict[str, Any]:
    """Return the argument of ``OpenSession`` for a user at an address."""
    return {
        "user": user.name,
        "token_digest": token_digest(token),
        "token_seal": seal(token, user),
        "address": address,
        "user_end": user.secret.expires,
        **times._asdict(),
    }


class Sessions:
    """Asks the master daemon about sessions; for use by many threads.

    Attributes:
        times: how long new sessions last.
    """

    def __init__(
        self, ask: Callable[..., Any], clock: Clock, times: Times = DEFAULT_TIMES
    ) -> None:
        """Prepare; nothing is asked before the first token.

        Args:
            ask: calls a method of the master daemon; see
                `ganeti.daemons.rapi.pool.Pool.call`.
            clock: waits between questions.
            times: see the class.
        """
        self.times = times
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._watched: dict[object, tuple[User, Callable[[], None]]] = {}
        self._has_some = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_present: Callable[[User], bool] = lambda _user: True

    def find(
        self, token: str, user_of: Callable[[str], User | None]
    ) -> tuple[User, str] | None:
        """Return user and id of the session of a token, None if it has none.

        A session whose user has changed since ends.

        Args:
            token: see `is_token`.
            user_of: returns the present user of a name.

        Raises:
            GenericError: the master daemon does not answer.
        """
        row = self._ask("UseSession", [token_digest(token)])
        if row is None:
            return None
        session_id, name, sealed = row
        user = user_of(name)
        if user is not None and hmac.compare_digest(seal(token, user), sealed):
            return user, session_id
        reason = "the user's password, token or rights have changed"
        self._ask("RevokeSessions", [[session_id], name, reason])
        return None

    def use_present(self, is_present: Callable[[User], bool]) -> None:
        """Have watched sessions end whose user has changed; called by `Authenticator`.

        Args:
            is_present: whether a user is as the users file has it.
        """
        self._is_present = is_present

    def watch(self, user: User, end: Callable[[], None]) -> Callable[[], None]:
        """Call a function within a second after the session of a user has ended.

        An answer that takes long calls this. Nothing happens for others than sessions.

        Args:
            user: of the request.
            end: called once at most, in another thread; must not block.

        Returns:
            a function that ends the watch.
        """
        if not user.session:
            return lambda: None
        key = object()
        with self._lock:
            self._watched[key] = (user, end)
            self._has_some.set()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="sessions", daemon=True
                )
                self._thread.start()

        def forget() -> None:
            with self._lock:
                self._forget_locked(key)

        return forget

    def stop(self) -> None:
        """Watch no longer."""
        with self._lock:
            self._stopped.set()
            self._has_some.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._clock.wait(self._has_some, None)
            try:
                self.look()
            except errors.GenericError as err:
                # A master that restarts or fails over still has the sessions.
                _log.info("whether sessions go on is not known: %s", err)
            self._clock.wait(self._stopped, _PAUSE_S)

    def look(self) -> None:
        """Call the functions of watched sessions that have ended.

        Raises:
            GenericError: the master daemon does not answer.
        """
        with self._lock:
            watched = dict(self._watched)
        if not watched:
            return
        ids = sorted({user.session for user, _end in watched.values()})
        answer = self._ask("QueryLivingSessions", [ids], timeout_s=_ANSWER_S)
        living = set(answer)
        for key, (user, end) in watched.items():
            if user.session in living and self._is_present(user):
                continue
            with self._lock:
                is_first = self._forget_locked(key)
            if is_first:
                end()

    def _forget_locked(self, key: object) -> bool:
        """Forget a watch; return whether there was one."""
        had = self._watched.pop(key, None) is not None
        if not self._watched and not self._stopped.is_set():
            self._has_some.clear()
        return had
