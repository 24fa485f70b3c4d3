"""The WSGI application of the agent: from a path to reports, see ganeti-mond(8)."""

import logging
import re
import urllib.parse
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final

import msgspec

from ganeti.base.clock import Clock
from ganeti.base.constants import versions
from ganeti.base.constants.protocols import confd
from ganeti.daemons.mond import agent as agents
from ganeti.daemons.mond.agent import Agent
from ganeti.node.collectors import reports
from ganeti.node.collectors.collector_table import DIAGNOSE
from ganeti.node.collectors.diagnosis import NoDiagnosis

_log = logging.getLogger(__name__)

_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
#: Text that a reader may have signed together with the diagnosis, so that an old
#: answer, or that of another node, does not pass for this one.
_CHALLENGE: Final = re.compile(r"[0-9a-zA-Z-]{1,64}")
_encode: Final = msgspec.json.Encoder().encode

#: Returns content type and content of the metrics, for an Accept header.
Metrics = Callable[[str], tuple[str, bytes]]


class _Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Application:
    """Answers requests; many threads call it at once."""

    def __init__(
        self,
        agent: Agent,
        *,
        hostname: str,
        key: Callable[[], bytes],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        """Prepare to answer.

        Args:
            agent: has the reports.
            hostname: of this node, for answers to challenges.
            key: returns the cluster's key, which signs the diagnosis.
            metrics: see `Metrics`.
            clock: times of signatures.
        """
        self._agent = agent
        self._hostname = hostname
        self._key = key
        self._metrics = metrics
        self._clock = clock

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answer a request."""
        path = str(environ.get("PATH_INFO", ""))
        try:
            kind, body = self._answer(environ, path)
            status = HTTPStatus.OK
        except _Refused as err:
            kind, body, status = _TEXT, f"{err}\n".encode(), err.status
        except Exception as err:  # noqa: BLE001 - logged, and the server goes on
            _log.exception("request of %.200r failed", path)
            kind, status = _TEXT, HTTPStatus.INTERNAL_SERVER_ERROR
            body = f"{type(err).__name__}; the log has more\n".encode()
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET"))
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]

    def _answer(self, environ: dict[str, Any], path: str) -> tuple[str, bytes]:
        if environ.get("REQUEST_METHOD") != "GET":
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is possible")
        if path == "/metrics":
            return self._metrics(str(environ.get("HTTP_ACCEPT", "")))
        return _JSON, _encode(self._value(environ, path))

    def _value(self, environ: dict[str, Any], path: str) -> Any:
        if path == "/":
            return [versions.MOND_LATEST_API_VERSION]
        if path in ("/1", "/1/"):
            return None
        if path == "/1/list/collectors":
            return [agents.as_listed(item) for item in self._agent.active()]
        if path == "/1/report/all":
            return [self._agent.report(item) for item in self._agent.active()]
        if not path.startswith("/1/report/"):
            raise _Refused(HTTPStatus.NOT_FOUND, "no such resource")
        category, _slash, name = path.removeprefix("/1/report/").partition("/")
        collector = self._agent.named(category, name)
        if collector is None:
            raise _Refused(HTTPStatus.NOT_FOUND, "no such collector, or not active")
        report = self._agent.report(collector)
        query = str(environ.get("QUERY_STRING", ""))
        challenge = urllib.parse.parse_qs(query).get("challenge", [""])[0]
        # Any other report is signed for those alone who ask for that.
        if name != DIAGNOSE and not challenge:
            return report
        return self._sealed(report, challenge)

    def _sealed(self, report: dict[str, Any], challenge: str) -> dict[str, str]:
        if challenge:
            if not _CHALLENGE.fullmatch(challenge):
                raise _Refused(
                    HTTPStatus.BAD_REQUEST,
                    "challenge: wanted 1 to 64 letters, digits and dashes",
                )
            report = report | {"node": self._hostname, "challenge": challenge}
            if isinstance(report["data"], NoDiagnosis):
                report["problem"] = report["data"].problem
        # The answer without a challenge is signed as it always was. Of the other one,
        # the caller chooses a part of the text.
        purpose = confd.PURPOSE_REPORT if challenge else b""
        now = self._clock.time()
        return reports.sealed(report, self._key(), now, purpose=purpose)
