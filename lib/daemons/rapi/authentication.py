"""Authentication of requests: basic credentials and bearer tokens, with throttling.

The users are those of a file, which is followed here.

A correct password is remembered as a keyed digest, because the verification of a scrypt
hash takes tens of milliseconds and clients send the password with every request.
Failures are limited per address, and per user and address, so a stranger who guesses
cannot lock out the user elsewhere. All failures of names take the same time.
"""

import base64
import binascii
import collections
import dataclasses
import hashlib
import hmac
import logging
import math
import os
import selectors
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.filesystem import files, filewatch
from ganeti.daemons.rapi import sessions, users
from ganeti.daemons.rapi.problems import Refused, bad_request

# The users file on disk: read when it changes, with inotify.

#: Largest file, in bytes.
_MAX_SIZE: Final = 16 << 20
#: Seconds between attempts to watch a directory that is missing.
_RETRY_S: Final = 5.0


def read_users(path: str) -> users.Users | None:
    """Return the content of a users file; one that is missing has no users.

    Returns:
        None if the file cannot be read: the last content counts.
    """
    try:
        text = files.read_file(path, max_size=_MAX_SIZE).decode()
    except FileNotFoundError:
        return users.Users()
    except (OSError, UnicodeDecodeError, errors.GenericError) as err:
        _log.error("%s: cannot be read, the last content counts: %s", path, err)
        return None
    content = users.parse(text)
    for problem in content.problems:
        _log.warning("%s: %s", path, problem)
    return content


class WatchedUsers:
    """Passes the content of a users file to a function now and after each change."""

    def __init__(self, path: str, use: Callable[[users.Users], None]) -> None:
        """Read the file once; `start` follows it.

        Args:
            path: the file, which need not exist.
            use: takes the content.
        """
        self._path = path
        self._use = use
        self._waker, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._follow, name="users", daemon=True)
        self._is_stopping = False
        self._load()

    def start(self) -> None:
        """Follow the file from a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Follow the file no longer."""
        self._is_stopping = True
        os.write(self._wake, b"\0")
        self._thread.join()
        os.close(self._waker)
        os.close(self._wake)

    def _load(self) -> None:
        content = read_users(self._path)
        if content is not None:
            self._use(content)
            count = len(content.by_name) + len(content.by_digest)
            _log.info("%s: %d users and tokens", self._path, count)

    def _follow(self) -> None:
        while not self._is_stopping:
            try:
                watch = filewatch.DirectoryWatch(os.path.dirname(self._path))
            except errors.InotifyError as err:
                _log.warning("changes of users are not noticed: %s", err)
                self._wait(None, _RETRY_S)
                continue
            try:
                # The file may have changed before the watch began.
                self._load()
                self._follow_directory(watch)
            finally:
                watch.close()

    def _follow_directory(self, watch: filewatch.DirectoryWatch) -> None:
        """Load the file after each change; return if its directory may be another."""
        name = os.path.basename(self._path)
        while not self._is_stopping:
            self._wait(watch, None)
            changed = watch.take()
            if name in changed or "" in changed:
                self._load()
            if "" in changed:
                return

    def _wait(
        self, watch: filewatch.DirectoryWatch | None, timeout_s: float | None
    ) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._waker, selectors.EVENT_READ)
            if watch is not None:
                selector.register(watch, selectors.EVENT_READ)
            selector.select(timeout_s)


# Limits of rates per key, such as failed logins per address.
#
# A bucket of tokens per key: each event takes one, and they come back at a constant
# rate. Time is an argument. The number of keys is bounded; the one that was used least
# recently is forgotten first.

_MAX_KEYS: Final = 10_000


class Buckets:
    """Buckets of tokens by key; not for use by two threads at once."""

    def __init__(self, size: float, per_s: float, *, keys: int = _MAX_KEYS) -> None:
        """Prepare full buckets.

        Args:
            size: events that may follow each other at once.
            per_s: events per second that may go on.
            keys: largest number of keys that are remembered.
        """
        self._size = size
        self._per_s = per_s
        self._keys = keys
        self._levels: collections.OrderedDict[str, tuple[float, float]] = (
            collections.OrderedDict()
        )

    def wait_s(self, key: str, now: float) -> float:
        """Return after how many seconds an event is permitted; 0 for at once."""
        missing = 1.0 - self._level(key, now)
        return max(0.0, missing / self._per_s)

    def take(self, key: str, now: float) -> None:
        """Count an event."""
        level = max(0.0, self._level(key, now) - 1.0)
        self._levels[key] = (level, now)
        self._levels.move_to_end(key)
        if len(self._levels) > self._keys:
            self._levels.popitem(last=False)

    def _level(self, key: str, now: float) -> float:
        level, since = self._levels.get(key, (self._size, now))
        return min(self._size, level + (now - since) * self._per_s)


_log = logging.getLogger(__name__)

CHALLENGE: Final = {"WWW-Authenticate": f'Basic realm="{users.REALM}"'}
#: Failures of one address that may follow each other, and per second.
_ADDRESS_FAILURES: Final = (30, 0.5)
#: The same of one user at one address.
_USER_FAILURES: Final = (10, 0.1)
#: Changes by one user that may follow each other, and per second.
_CHANGES: Final = (2000, 200.0)
#: Jobs that only read, of one user, that may follow each other, and per second: each is
#: stored, as every job is.
_READING_JOBS: Final = (200, 5.0)
#: New sessions of one user that may follow each other, and per second: each is stored.
_SIGN_INS: Final = (60, 0.5)
#: Requests of sessions that have ended, from one address: at once, and per second.
_ENDED_SESSIONS: Final = (300, 20.0)
#: Correct passwords that are remembered.
_MAX_REMEMBERED: Final = 1000
#: Verifications of scrypt hashes at the same time: each takes 16 MiB.
_AT_ONCE: Final = 2
#: Longest header that is looked at, in characters.
_MAX_HEADER: Final = 4096


class Authenticator:
    """Returns the users of requests; for use by many threads."""

    def __init__(
        self,
        clock: Clock,
        content: users.Users | None = None,
        known_sessions: sessions.Sessions | None = None,
    ) -> None:
        self._clock = clock
        self.sessions = known_sessions
        if known_sessions is not None:
            known_sessions.use_present(self.is_present)
        self._lock = threading.Lock()
        self._verifying = threading.BoundedSemaphore(_AT_ONCE)
        self._key = os.urandom(32)
        self._users = content or users.Users()
        self._remembered: collections.OrderedDict[bytes, None] = (
            collections.OrderedDict()
        )
        self._by_address = Buckets(*_ADDRESS_FAILURES)
        self._by_user = Buckets(*_USER_FAILURES)
        self._by_ended_session = Buckets(*_ENDED_SESSIONS)
        self._changes = Buckets(*_CHANGES)
        self._reading_jobs = Buckets(*_READING_JOBS)
        self._sign_ins = Buckets(*_SIGN_INS)

    def replace(self, content: users.Users) -> None:
        """Use another content of the users file from now on."""
        with self._lock:
            self._users = content
            self._remembered.clear()

    def authenticate(self, header: str | None, address: str) -> users.User | None:
        """Return the user of a request, None without credentials.

        Args:
            header: value of ``Authorization``.
            address: of the client.

        Raises:
            Refused: 400 for a malformed header, 401 for wrong credentials, 429 after
                too many wrong ones.
            GenericError: the master daemon, which knows the sessions, does not answer.
        """
        if not header:
            return None
        if len(header) > _MAX_HEADER:
            raise bad_request("Authorization: the header is too long")
        scheme, _, value = header.strip().partition(" ")
        if scheme.lower() == "bearer":
            return self._of_token(value.strip(), address)
        if scheme.lower() != "basic":
            raise unauthorized()
        name, password = _credentials(value.strip())
        return self._of_password(name, password, address)

    def check_rate(self, user: str, *, changes: bool = True) -> None:
        """Count a change by a user, or a job that only reads.

        Raises:
            Refused: 429, there are too many.
        """
        if changes:
            self._count(self._changes, user, "changes")
        else:
            self._count(self._reading_jobs, user, "jobs that read")

    def check_sign_ins(self, user: str) -> None:
        """Count a new session of a user.

        Raises:
            Refused: 429, there are too many.
        """
        self._count(self._sign_ins, user, "new sessions")

    def _count(self, buckets: Buckets, user: str, what: str) -> None:
        with self._lock:
            now = self._clock.monotonic()
            wait_s = buckets.wait_s(user, now)
            if not wait_s:
                buckets.take(user, now)
        if wait_s:
            raise _too_many(f"Too many {what}", wait_s)

    def is_present(self, user: users.User) -> bool:
        """Return whether a user still is as the users file has it."""
        bare = dataclasses.replace(user, session="")
        return self._users.by_any_name.get(user.name) == bare

    def _of_session(self, token: str, address: str) -> users.User:
        mark = self._mark("", token)
        with self._lock:
            is_known = mark in self._remembered
        if not is_known:
            # Before the master daemon is asked, which others need. Nobody guesses such
            # a token, so ended sessions keep nobody else from signing in.
            self._check_ended_sessions(address)
        known = None
        content = self._users
        if self.sessions is not None:
            known = self.sessions.find(token, content.by_any_name.get)
        if known is None:
            with self._lock:
                self._remembered.pop(mark, None)
                self._by_ended_session.take(address, self._clock.monotonic())
            raise unauthorized()
        self._remember(mark, content)
        user, session_id = known
        return dataclasses.replace(user, session=session_id)

    def _remember(self, mark: bytes, content: users.Users) -> None:
        with self._lock:
            if self._users is content:
                self._remembered[mark] = None
                if len(self._remembered) > _MAX_REMEMBERED:
                    self._remembered.popitem(last=False)

    def _of_token(self, token: str, address: str) -> users.User:
        if sessions.is_token(token):
            return self._of_session(token, address)
        # First: nobody guesses a token, and others may have the same address.
        actual = self._users.by_digest.get(users.token_digest(token))
        if actual is not None and (
            actual.secret.expires is None or self._clock.time() < actual.secret.expires
        ):
            return actual
        self._check_failures(address)
        self._note_failure(address, "")
        raise unauthorized()

    def _of_password(self, name: str, password: str, address: str) -> users.User:
        content = self._users
        user = content.by_name.get(name)
        mark = self._mark(name, password)
        with self._lock:
            is_known = mark in self._remembered
        if user is not None and is_known:
            return user
        self._check_failures(address, name)
        with self._verifying:
            is_right = users.is_password(user, name, password, costs=content.costs)
        if user is None or not is_right:
            self._note_failure(address, name)
            raise unauthorized()
        self._remember(mark, content)
        return user

    def _mark(self, name: str, password: str) -> bytes:
        text = f"{name}\0{password}".encode()
        return hmac.digest(self._key, text, hashlib.sha256)

    def _check_failures(self, address: str, name: str = "") -> None:
        with self._lock:
            now = self._clock.monotonic()
            wait_s = max(
                self._by_address.wait_s(address, now),
                self._by_user.wait_s(f"{address} {name}", now),
            )
        if wait_s:
            raise _too_many("Too many failed logins", wait_s)

    def _check_ended_sessions(self, address: str) -> None:
        with self._lock:
            wait_s = self._by_ended_session.wait_s(address, self._clock.monotonic())
        if wait_s:
            raise _too_many("Too many requests of sessions that have ended", wait_s)

    def _note_failure(self, address: str, name: str) -> None:
        with self._lock:
            now = self._clock.monotonic()
            self._by_address.take(address, now)
            self._by_user.take(f"{address} {name}", now)
        _log.info("wrong credentials from %s for user %.50r", address, name)


def unauthorized() -> Refused:
    """Return the refusal of a request with missing or wrong credentials."""
    return Refused(HTTPStatus.UNAUTHORIZED, headers=CHALLENGE)


def _too_many(message: str, wait_s: float) -> Refused:
    after = {"Retry-After": str(math.ceil(wait_s))}
    return Refused(HTTPStatus.TOO_MANY_REQUESTS, message, after)


def _credentials(value: str) -> tuple[str, str]:
    """Return name and password of basic credentials; refuse malformed ones."""
    try:
        text = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        raise bad_request("Authorization: malformed basic credentials") from None
    name, colon, password = text.partition(":")
    if not colon:
        raise bad_request("Authorization: malformed basic credentials")
    return name, password
