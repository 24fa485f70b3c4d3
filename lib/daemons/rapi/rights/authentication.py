"""Authentication of requests: basic credentials and bearer tokens, with throttling.

A correct password is remembered as a keyed digest, because the verification of a scrypt
hash takes tens of milliseconds and clients send the password with every request.
Failures are limited per address, and per user and address, so a stranger who guesses
cannot lock out the user elsewhere. All failures of names take the same time.
"""

import base64
import binascii
import collections
import hashlib
import hmac
import logging
import math
import os
import threading
from http import HTTPStatus
from typing import Final

from ganeti.base.clock import Clock
from ganeti.daemons.rapi.problems import Refused, bad_request
from ganeti.daemons.rapi.rights import users
from ganeti.daemons.rapi.rights.throttle import Buckets

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
#: Correct passwords that are remembered.
_MAX_REMEMBERED: Final = 1000
#: Verifications of scrypt hashes at the same time: each takes 16 MiB.
_AT_ONCE: Final = 2
#: Longest header that is looked at, in characters.
_MAX_HEADER: Final = 4096


class Authenticator:
    """Returns the users of requests; for use by many threads."""

    def __init__(self, clock: Clock, content: users.Users | None = None) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._verifying = threading.BoundedSemaphore(_AT_ONCE)
        self._key = os.urandom(32)
        self._users = content or users.Users()
        self._remembered: collections.OrderedDict[bytes, None] = (
            collections.OrderedDict()
        )
        self._by_address = Buckets(*_ADDRESS_FAILURES)
        self._by_user = Buckets(*_USER_FAILURES)
        self._changes = Buckets(*_CHANGES)
        self._reading_jobs = Buckets(*_READING_JOBS)

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
        buckets = self._changes if changes else self._reading_jobs
        with self._lock:
            now = self._clock.monotonic()
            wait_s = buckets.wait_s(user, now)
            if not wait_s:
                buckets.take(user, now)
        if wait_s:
            what = "changes" if changes else "jobs that read"
            raise _too_many(f"Too many {what}", wait_s)

    def _of_token(self, token: str, address: str) -> users.User:
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
        with self._lock:
            if self._users is content:
                self._remembered[mark] = None
                if len(self._remembered) > _MAX_REMEMBERED:
                    self._remembered.popitem(last=False)
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
