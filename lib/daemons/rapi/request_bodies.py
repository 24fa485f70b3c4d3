"""Bodies of requests: read and decoded within what their resource can use.

Decoding makes up to 30 times as many bytes as the text has, so the number of values is
bounded before it, and the bytes of all bodies at a time per user.
"""

import collections
import contextlib
import threading
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from ganeti.daemons.rapi.problems import Refused, bad_request
from ganeti.protocols.http import strict
from ganeti.protocols.rapi.model import Resource

#: The content type of bodies.
JSON: Final = "application/json"
#: Characters that begin or follow each value but the first one.
_BEFORE_VALUES: Final = (b"[", b"{", b",")
#: Bytes per value of a body that has the greatest size, and a number of values that
#: every resource accepts.
_BYTES_PER_VALUE: Final = 40
_FEW_VALUES: Final = 10_000
#: Levels of lists and objects in each other.
_MAX_DEPTH: Final = 64
#: Bytes of bodies of requests that run at a time: of all users, and of one.
_MAX_HELD: Final = 96 << 20
_MAX_HELD_PER_USER: Final = 24 << 20
_LATER: Final = {"Retry-After": "1"}


class Held:
    """Counts the bytes of the bodies in memory; for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_user: collections.Counter[str] = collections.Counter()

    @contextlib.contextmanager
    def holding(self, user: str, size: int) -> Iterator[None]:
        """Count some bytes until the end of a request.

        Raises:
            Refused: 429 if the user has too many, 503 if all users have.
        """
        with self._lock:
            if self._by_user[user] + size > _MAX_HELD_PER_USER:
                text = (
                    f"bodies of user {user}: wanted at most {_MAX_HELD_PER_USER} bytes"
                )
                raise Refused(HTTPStatus.TOO_MANY_REQUESTS, f"{text} at a time", _LATER)
            if self._by_user.total() + size > _MAX_HELD:
                text = (
                    f"bodies of all users: wanted at most {_MAX_HELD} bytes at a time"
                )
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, text, _LATER)
            self._by_user[user] += size
        try:
            yield
        finally:
            with self._lock:
                self._by_user[user] -= size
                if not self._by_user[user]:
                    del self._by_user[user]


def size_of(environ: Mapping[str, Any], resource: Resource) -> int:
    """Return the announced size of a body; the greatest one if it is not announced.

    Raises:
        Refused: 413, the resource cannot use that many bytes.
    """
    length = environ.get("CONTENT_LENGTH")
    if length in {None, ""}:
        return resource.body_limit if environ.get("HTTP_TRANSFER_ENCODING") else 0
    size = int(length or 0)
    if size > resource.body_limit:
        raise _too_large(resource)
    return size


def read(environ: Mapping[str, Any], resource: Resource) -> Any:
    """Return the decoded body of a request, None without one or if it is ignored.

    Raises:
        Refused: 413, 415 or 400.
    """
    if not size_of(environ, resource):
        return None
    data = _read(environ, resource) if resource.uses_body else b"?"
    if not data:
        return None
    media_type = str(environ.get("CONTENT_TYPE", "")).partition(";")[0]
    if media_type.strip().lower() != JSON:
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"body: wanted content type {JSON}"
        )
    return _decode(data, resource) if resource.uses_body else None


def _decode(data: bytes, resource: Resource) -> Any:
    most = max(resource.body_limit // _BYTES_PER_VALUE, _FEW_VALUES)
    if sum(map(data.count, _BEFORE_VALUES)) > most:
        raise Refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"body: wanted at most {most} values"
        )
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise bad_request(f"body: not JSON: {err}") from None
    except RecursionError:
        raise bad_request("body: nested too deeply") from None
    if _is_deep(value):
        raise bad_request(
            f"body: nested too deeply, wanted at most {_MAX_DEPTH} levels"
        )
    return value


def _is_deep(value: Any) -> bool:
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, list | dict)
        ]
        if not level:
            return False
    return True


def _read(environ: Mapping[str, Any], resource: Resource) -> bytes:
    length, limit = environ.get("CONTENT_LENGTH"), resource.body_limit
    try:
        wanted = limit + 1 if length is None else int(length or 0)
        data = bytes(environ["wsgi.input"].read(wanted))
    except TimeoutError:
        raise Refused(
            HTTPStatus.REQUEST_TIMEOUT, "body: it did not arrive in time"
        ) from None
    except OSError:
        raise bad_request("body: the connection broke before its end") from None
    except strict.BodyTooLargeError:
        raise _too_large(resource) from None
    except ValueError as err:
        raise bad_request(f"body: {err}") from None
    if len(data) > limit:
        raise _too_large(resource)
    if length and len(data) != int(length):
        raise bad_request("body: shorter than announced")
    return data


def _too_large(resource: Resource) -> Refused:
    return Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"body: wanted at most {resource.body_limit} bytes",
    )
