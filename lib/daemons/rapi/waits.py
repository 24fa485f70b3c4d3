"""Waits for changes of jobs: many at a time, on one connection to the master daemon.

Limits are per user, so that one user's waits leave room for those of others; they are
of numbers and of bytes, since both daemons keep the arguments. A wait counts until its
answer is here or its time is over, also if the client has gone, so that clients who
close connections do not evade the limits.
"""

import collections
import threading
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from ganeti.daemons.rapi.problems import Refused, bad_request
from ganeti.protocols.luxi.shared import Done, SharedClient

METHOD: Final = "WaitForJobChange"
#: Seconds of a wait, and until the master daemon counts as not answering.
WAIT_S: Final = 10.0
ANSWER_S: Final = 3 * WAIT_S
#: Waits at a time: of all users, and of one.
_MAX_WAITS: Final = 2000
_MAX_PER_USER: Final = 1000
#: Largest request to the master daemon, in bytes.
_MAX_REQUEST: Final = 4 << 20
#: Bytes of all requests at a time: of all users, and of one. Decoded values take up to
#: 20 times as much memory, here and in the master daemon.
_MAX_BYTES: Final = 32 << 20
_MAX_BYTES_PER_USER: Final = 16 << 20
#: Levels around the arguments in a request, and more.
_LEVELS: Final = 8
#: Position of the time limit among the arguments.
_LIMIT_AT: Final = 4
_LATER: Final = {"Retry-After": "10"}


class Waits:
    """The waits of all clients; for use by many threads."""

    def __init__(self, client: SharedClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._is_stopping = False
        self._count = 0
        self._by_user: collections.Counter[str] = collections.Counter()
        self._bytes = 0
        self._bytes_by_user: collections.Counter[str] = collections.Counter()

    def admit(self, user: str, args: Sequence[Any]) -> int:
        """Count a wait, which `start` must follow.

        Args:
            user: who waits.
            args: of the method `METHOD`.

        Returns:
            the size of the request, for `start`.

        Raises:
            Refused: 400 or 413 for arguments that are not passed on, 429 if the user
                has too many waits, 503 if all users have.
        """
        size = _size_of(args)
        with self._lock:
            if self._by_user[user] >= _MAX_PER_USER:
                text = f"user {user} waits for {_MAX_PER_USER} changes of jobs already"
                raise Refused(HTTPStatus.TOO_MANY_REQUESTS, text, _LATER)
            if self._bytes_by_user[user] + size > _MAX_BYTES_PER_USER:
                text = (
                    f"the bodies of all waits of user {user} have more than"
                    f" {_MAX_BYTES_PER_USER} bytes"
                )
                raise Refused(HTTPStatus.TOO_MANY_REQUESTS, text, _LATER)
            if self._count >= _MAX_WAITS:
                text = f"{_MAX_WAITS} requests wait for changes of jobs already"
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, text, _LATER)
            if self._bytes + size > _MAX_BYTES:
                text = f"the bodies of all waits have more than {_MAX_BYTES} bytes"
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, text, _LATER)
            self._count += 1
            self._by_user[user] += 1
            self._bytes += size
            self._bytes_by_user[user] += size
        return size

    def start(self, user: str, args: Sequence[Any], size: int, done: Done) -> None:
        """Wait; ``done`` gets the result or the error, in another thread."""

        def end(result: Any, error: Exception | None) -> None:
            self._forget(user, size)
            done(result, error)

        if self._is_stopping:
            args = _at_once(args)
        self._client.submit(METHOD, args, end, timeout_s=ANSWER_S)

    def stop_soon(self) -> None:
        """Let all waits end with the present values, now and from now on."""
        self._is_stopping = True
        self._client.change_all(_at_once)

    def close(self) -> None:
        """End all waits and the connection."""
        self._client.close()

    def _forget(self, user: str, size: int) -> None:
        with self._lock:
            self._count -= 1
            self._bytes -= size
            self._by_user[user] -= 1
            self._bytes_by_user[user] -= size
            if not self._by_user[user]:
                del self._by_user[user]
                del self._bytes_by_user[user]


def _at_once(args: Sequence[Any]) -> list[Any]:
    """Return the arguments of a wait that ends at once."""
    return [*args[:_LIMIT_AT], 0]


def _size_of(args: Sequence[Any]) -> int:
    """Return the size in bytes of what the master daemon can read.

    Others use the connection, too, so anything else is refused.
    """
    try:
        data = msgspec.json.encode(args)
        msgspec.json.decode(b"[" * _LEVELS + data + b"]" * _LEVELS)
    except (ValueError, RecursionError) as err:
        raise bad_request(f"body: cannot be passed on: {err}") from None
    if len(data) > _MAX_REQUEST:
        raise Refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"body of a wait: wanted at most {_MAX_REQUEST} bytes",
        )
    return len(data)
