"""Refusals of requests: a status of HTTP and the texts of the documented error body."""

import http
from collections.abc import Mapping
from typing import Any


class Refused(Exception):
    """A request that is answered with an error.

    Attributes:
        status: of HTTP.
        message: the specific text, empty for the standard reason of the status. Of 404
            it is the detail: clients compare the text of that status.
        headers: further headers of the answer.
        more: further members of the body; not in Ganeti.
    """

    def __init__(
        self,
        status: int,
        message: str = "",
        headers: Mapping[str, str] | None = None,
        *,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})
        self.more = dict(more or {})

    def body(self) -> dict[str, Any]:
        """Return the documented error body: ``code``, ``message``, ``explain``.

        With status 404 it may have ``detail``, with 409 it has ``conflict``; both are
        not in Ganeti.
        """
        standard = http.HTTPStatus(self.status)
        is_fixed = self.status == http.HTTPStatus.NOT_FOUND
        detail = {"detail": self.message} if is_fixed and self.message else {}
        return {
            "code": self.status,
            "message": (not is_fixed and self.message) or standard.phrase,
            "explain": standard.description or standard.phrase,
            **detail,
            **self.more,
        }


def bad_request(message: str) -> Refused:
    """Return the refusal of a malformed request."""
    return Refused(http.HTTPStatus.BAD_REQUEST, message)


def forbidden(message: str) -> Refused:
    """Return the refusal of a request whose sender may not make it."""
    return Refused(http.HTTPStatus.FORBIDDEN, message)
