"""The WSGI application of the maintenance daemon; see ganeti-maintd(8)."""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final

import msgspec

from ganeti.automation.maintenance.service import incidents_of
from ganeti.decisions.repair.incidents import MaintenanceState

_VALUES: Final[dict[str, Callable[[MaintenanceState], Any]]] = {
    "/": lambda _state: [1],
    "/1": lambda _state: None,
    "/1/": lambda _state: None,
    "/1/status": incidents_of,
    "/1/jobs": lambda state: list(state.jobs),
    "/1/evacuated": lambda state: list(state.evacuated),
}


class Application:
    """Answers requests from the state of the last round; threads call it at once."""

    def __init__(
        self,
        state: Callable[[], MaintenanceState],
        metrics: Callable[[str], tuple[str, bytes]],
    ) -> None:
        """Prepare.

        Args:
            state: returns the state of the last round.
            metrics: returns type and content for the header Accept.
        """
        self._state = state
        self._metrics = metrics

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answer a request."""
        headers = [("Content-Type", "text/plain; charset=utf-8")]
        value = _VALUES.get(str(environ.get("PATH_INFO", "")))
        if environ.get("REQUEST_METHOD") != "GET":
            status, body = HTTPStatus.METHOD_NOT_ALLOWED, b"only GET is possible\n"
            headers.append(("Allow", "GET"))
        elif environ.get("PATH_INFO") == "/metrics":
            kind, body = self._metrics(str(environ.get("HTTP_ACCEPT", "")))
            status, headers = HTTPStatus.OK, [("Content-Type", kind)]
        elif value is None:
            status, body = HTTPStatus.NOT_FOUND, b"Resource not found\n"
        else:
            status, body = HTTPStatus.OK, msgspec.json.encode(value(self._state()))
            headers = [("Content-Type", "application/json")]
        headers.append(("Content-Length", str(len(body))))
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]
