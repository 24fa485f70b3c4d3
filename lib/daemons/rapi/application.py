"""The WSGI application: from a request of HTTP to an answer.

The order of the checks is documented: resource (404), method (501), credentials (401),
rights (403), content type (415), body (400). Every request has an id, which stands in
the log, in the answer and in the reasons of the opcodes.
"""

import dataclasses
import errno
import functools
import html
import logging
import secrets
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.daemons.rapi import (
    access,
    handlers,
    preconditions,
    request_bodies,
    requests,
    sessions,
    waits,
)
from ganeti.daemons.rapi.authentication import Authenticator, unauthorized
from ganeti.daemons.rapi.document import made_here
from ganeti.daemons.rapi.following import event_texts, events
from ganeti.daemons.rapi.handlers import (
    Answer,
    Call,
    Following,
    Master,
    Parts,
    Waiting,
)
from ganeti.daemons.rapi.problems import Refused, bad_request, forbidden
from ganeti.daemons.rapi.users import User
from ganeti.protocols.http import parking
from ganeti.protocols.luxi.client import ORIGIN
from ganeti.protocols.rapi import model
from ganeti.protocols.rapi import resource_table as resources
from ganeti.protocols.rapi.model import Request, Resource

_log = logging.getLogger(__name__)

#: Largest body of any request, in bytes.
MAX_BODY: Final = model.MAX_LIST
#: Path of the OpenAPI document, which is not in the table that it describes.
_DOCUMENT: Final = "/openapi.json"
#: WSGI key of the text after the question mark.
_QUERY: Final = "QUERY_STRING"
#: Most query arguments, so that parsing them takes little time.
_MAX_ARGUMENTS: Final = 10_000
#: Characters of a path that the log shows.
_MAX_LOGGED: Final = 200
#: Requests that take longer than this are logged even if they only read, in seconds.
_SLOW_S: Final = 10.0
_JSON: Final = request_bodies.JSON
_encode = msgspec.json.Encoder().encode

StartResponse = Callable[..., Any]


@dataclasses.dataclass(kw_only=True)
class _Exchange:
    """One request of HTTP with its user and resource, for the log."""

    environ: Mapping[str, Any]
    id: str
    since: float
    path: str = ""
    user: User | None = None
    resource: Resource | None = None
    is_parked: bool = False
    is_plan: bool = False

    @property
    def address(self) -> str:
        """Return the address of the client."""
        return str(self.environ.get("REMOTE_ADDR", ""))

    @property
    def who(self) -> str:
        """Return the user, or the address without one, for whom limits count."""
        return self.address if self.user is None else self.user.name

    @property
    def requester(self) -> str:
        """Return the user, address and id for reasons and logs."""
        return ", ".join(f"{name} {value}" for name, value in self.origin.items())

    @property
    def origin(self) -> dict[str, str]:
        """Return the same for the audit log of the master daemon."""
        name = "anonymous" if self.user is None else self.user.name
        return {"user": name, "address": self.address, "request": self.id}


class Application:
    """The application of the server; many threads call it at once."""

    def __init__(
        self,
        master: Master,
        authenticator: Authenticator,
        clock: Clock,
        *,
        waiting: waits.Waits,
        requires_authentication: Callable[[], bool] = lambda: False,
        document: Callable[[], bytes] | None = None,
        streams: events.Events | None = None,
    ) -> None:
        """Prepare to answer.

        Args:
            master: calls of the master daemon.
            authenticator: returns the users of requests.
            clock: time for reasons, and for the log.
            waiting: waits for jobs, without a thread.
            requires_authentication: whether to refuse all requests without credentials;
                called for each of them.
            document: returns the OpenAPI document; by default it is made here.
            streams: of events.
        """
        self._master = master
        self._authenticator = authenticator
        self._clock = clock
        self._waits = waiting
        self._requires_authentication = requires_authentication
        self._document = document or made_here
        self._held = request_bodies.Held()
        self._sessions = authenticator.sessions
        self._streams = streams

    def __call__(
        self, environ: dict[str, Any], start_response: StartResponse
    ) -> Iterable[bytes]:
        """Answer a request."""
        exchange = _Exchange(
            environ=environ, id=secrets.token_hex(6), since=self._clock.monotonic()
        )
        return self._conclude(exchange, start_response, lambda: self._answer(exchange))

    def _conclude(
        self,
        exchange: _Exchange,
        start_response: StartResponse,
        answer: Callable[[], Any],
    ) -> Iterable[bytes]:
        """Send what a function returns or raises; nothing yet for a parked request."""
        headers: Mapping[str, str] = {}
        try:
            value = answer()
            status = HTTPStatus.OK
            if isinstance(value, Waiting):
                self._park(exchange, value)
                return []
            if isinstance(value, Following):
                self._follow(exchange, value)
                return []
            if isinstance(value, Answer):
                value, headers, status = value.value, value.headers, value.status
        except Refused as err:
            status, headers = HTTPStatus(err.status), err.headers
            value = _error_body(err)
        except Exception as err:  # noqa: BLE001 - logged, and the server goes on
            _log.exception("request %s failed", exchange.id)
            text = f"{type(err).__name__}; the log has request {exchange.id}"
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            value = _error_body(Refused(status, text))
        self._note(exchange, status, self._clock.monotonic() - exchange.since)
        return _send(start_response, exchange, status, value, headers)

    def _park(self, exchange: _Exchange, waiting: Waiting) -> None:
        """Leave a request until a job changes."""
        user = exchange.who
        size = self._waits.admit(user, waiting.args)
        # Nothing may fail from here on: the connection is not this thread's any more.
        ticket: parking.Ticket = exchange.environ[parking.KEY]()
        exchange.is_parked = True
        first = threading.Lock()

        def resume(outcome: Callable[[], Any]) -> None:
            # The change of the job, or the end of the session, whichever comes first.
            if first.acquire(blocking=False):
                ticket.resume(lambda start: self._conclude(exchange, start, outcome))

        forget = self._watch(exchange, lambda: resume(_session_over))

        def done(result: Any, error: Exception | None) -> None:
            def outcome() -> Any:
                if isinstance(error, errors.GenericError):
                    raise refusal_of(error) from error
                if error is not None:
                    raise error
                return handlers.changed(result)

            forget()
            resume(outcome)

        self._waits.start(user, waiting.args, size, done)

    def _watch(
        self, exchange: _Exchange, end: Callable[[], None]
    ) -> Callable[[], None]:
        """See `ganeti.daemons.rapi.sessions.Sessions.watch`."""
        if self._sessions is None or exchange.user is None:
            return lambda: None
        return self._sessions.watch(exchange.user, end)

    def _user_of(self, exchange: _Exchange, header: str | None) -> User | None:
        try:
            return self._authenticator.authenticate(header, exchange.address)
        except errors.GenericError as err:
            raise refusal_of(err) from err

    def _follow(self, exchange: _Exchange, following: Following) -> None:
        """Leave a connection to the streams of events."""
        streams, user = self._streams, exchange.user
        if streams is None or user is None:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "there are no events here")
        # The last event of a browser counts more than the address that it opened.
        header = exchange.environ.get("HTTP_LAST_EVENT_ID")
        since = event_texts.since_of(header, "Last-Event-ID") or following.since
        streams.admit(exchange.who)
        ticket: parking.Ticket = exchange.environ[parking.KEY]()
        exchange.is_parked = True
        wanted = events.Wanted(user, following.kinds, since, exchange.id)
        streams.start(ticket, wanted, functools.partial(self._watch, exchange))
        self._note(exchange, HTTPStatus.OK, 0.0)

    def _answer(self, exchange: _Exchange) -> Any:
        environ = exchange.environ
        exchange.path = _path(environ)
        is_1_1 = environ.get("SERVER_PROTOCOL") == "HTTP/1.1"
        if is_1_1 and not environ.get("HTTP_HOST"):
            raise bad_request("Host: the header is missing")
        actual = resources.find(exchange.path)
        header = environ.get("HTTP_AUTHORIZATION")
        if not header and self._requires_authentication():
            raise unauthorized()
        if actual is None and exchange.path == _DOCUMENT:
            return self._describe(exchange, header)
        if actual is None:
            raise Refused(HTTPStatus.NOT_FOUND)
        resource = actual.methods.get(str(environ["REQUEST_METHOD"]))
        if resource is None:
            raise Refused(HTTPStatus.NOT_IMPLEMENTED)
        exchange.resource = resource
        user = self._user_of(exchange, header)
        exchange.user = user
        if (resource.access or resource.signed_in) and user is None:
            raise unauthorized()
        if user is not None and not _may_call(
            user, resource, self._rights_path(exchange, exchange.path)
        ):
            raise forbidden("")
        size = request_bodies.size_of(environ, resource)
        with self._held.holding(exchange.who, size if resource.uses_body else 0):
            body = request_bodies.read(environ, resource)
            args = requests.arguments(resource, _arguments(environ))
            request = Request(path=actual.variables, args=args, body=body)
            exchange.is_plan = request.is_plan
            return self._run(exchange, resource, request)

    def _describe(self, exchange: _Exchange, header: str | None) -> msgspec.Raw:
        """Return the OpenAPI document, which states nothing about this cluster."""
        if exchange.environ["REQUEST_METHOD"] != "GET":
            raise Refused(HTTPStatus.NOT_IMPLEMENTED)
        exchange.user = self._user_of(exchange, header)
        return msgspec.Raw(self._document())

    def _run(self, exchange: _Exchange, resource: Resource, request: Request) -> Any:
        trail = requests.reasons(
            resource,
            request,
            requester=exchange.requester,
            now_ns=round(self._clock.time() * 1_000_000_000),
        )
        if resource.method != "GET" or resource.op_ids:
            self._authenticator.check_rate(
                exchange.who, changes=resource.method != "GET" and not request.is_plan
            )
        if resource.direct == "open_session":
            self._authenticator.check_sign_ins(exchange.who)
        origin = ORIGIN.set(exchange.origin)
        try:
            call = Call(
                resource=resource,
                request=request,
                master=self._master,
                trail=trail,
                user=exchange.user,
                address=exchange.address,
                session_times=(
                    sessions.DEFAULT_TIMES
                    if self._sessions is None
                    else self._sessions.times
                ),
                may_read=lambda path: _may_read(exchange.user, path),
            )
            condition = _condition(exchange, resource)
            if resource.job is not None:
                ops = self._permitted_ops(exchange, resource, request)
                if condition is not None:
                    find = functools.partial(handlers.present_object, call)
                    ops = preconditions.guarded(resource, request, ops, condition, find)
                for op in ops:
                    op["reason"] = [*(op.get("reason") or ()), *trail]
                if request.is_plan:
                    return handlers.plan(self._master, ops)
                return int(self._master.call("SubmitJob", [ops]))
            return _unless_known(exchange, handlers.HANDLERS[resource.direct](call))
        except errors.GenericError as err:
            raise refusal_of(err) from err
        finally:
            ORIGIN.reset(origin)

    def _permitted_ops(
        self, exchange: _Exchange, resource: Resource, request: Request
    ) -> list[dict[str, Any]]:
        """Return the opcodes of a job, or of its plan, without this request's reasons.

        A plan needs the rights of the job: it shows all that the job would change.
        """
        ops = requests.job_of(resource, request)
        if exchange.user is None:
            return ops
        paths = access.paths_of(exchange.path, ops)
        named = [self._rights_path(exchange, each) for each in paths]
        return _permitted(exchange.user, resource, named, ops, self._master)

    def _rights_path(self, exchange: _Exchange, path: str) -> str:
        """Return the path that patterns of rights must match."""
        user = exchange.user
        if user is None or not user.rights.rules:
            return path
        return access.named_path(path, self._name_of)

    def _name_of(self, kind: str, uuid: str) -> str:
        try:
            if kind == "disk":
                return str(self._master.call("QueryDiskName", [uuid]) or uuid)
            rows = self._master.call("QueryObjects", [kind, [uuid], ["name"], False])
        except errors.OpPrereqError:
            return uuid  # unknown, as the request itself will find
        except errors.GenericError as err:
            raise refusal_of(err) from err
        return str((rows and rows[0]["name"]) or uuid)

    def _note(self, exchange: _Exchange, status: HTTPStatus, took_s: float) -> None:
        method = str(exchange.environ.get("REQUEST_METHOD", ""))
        is_read = method == "GET" and status < HTTPStatus.BAD_REQUEST
        is_fast = exchange.is_parked or took_s < _SLOW_S
        _log.log(
            logging.DEBUG if is_read and is_fast else logging.INFO,
            "%s: %s%s %s: %d in %.0f ms",
            exchange.requester,
            "plan of " if exchange.is_plan else "",
            method,
            _printable(exchange.path),
            status,
            took_s * 1000,
        )


def _session_over() -> Any:
    """Refuse what a session has asked for that has ended since."""
    raise unauthorized()


def _printable(path: str) -> str:
    return ascii(path[:_MAX_LOGGED])[1:-1]


def _may_call(user: User, resource: Resource, path: str) -> bool:
    """Return whether a user may call a resource at all.

    Who may create some objects may call the collection; the names are checked when the
    body is known.
    """
    rights = user.rights
    creates = resource.job is not None and resource.method == "POST"
    return rights.allow(resource, [path]) or (creates and bool(rights.rules))


def _condition(exchange: _Exchange, resource: Resource) -> str | None:
    """Return the header ``If-Match`` of a change, None without one.

    It must not be ignored: the client relies on it.
    """
    header = exchange.environ.get("HTTP_IF_MATCH") if resource.changes else None
    if header is not None and not resource.target:
        raise bad_request(
            f"If-Match: {resource.method} {resource.path} changes no single object that"
            " has a serial, so it cannot have a condition"
        )
    return header


def _unless_known(exchange: _Exchange, answer: Any) -> Any:
    """Return an answer without its value if the client has it."""
    header = exchange.environ.get("HTTP_IF_NONE_MATCH")
    tag = answer.headers.get(preconditions.ETAG) if isinstance(answer, Answer) else None
    if header is None or tag is None or not preconditions.is_known(header, tag):
        return answer
    return Answer(None, answer.headers, HTTPStatus.NOT_MODIFIED)


def _may_read(user: User | None, path: str) -> bool:
    """Return whether a user, or anybody without one, may read a path."""
    actual = resources.find(path)
    resource = actual.methods.get("GET") if actual is not None else None
    if resource is None:
        return False
    if user is None:
        return not resource.access
    return user.rights.allow(resource, [path])


def _permitted(
    user: User,
    resource: Resource,
    paths: list[str],
    ops: list[dict[str, Any]],
    master: Master,
) -> list[dict[str, Any]]:
    """Return what the user may submit; refuse objects and parameters beyond it."""
    if not user.rights.allow(resource, paths):
        raise forbidden("")
    if not access.root_parameters(ops) or user.rights.allow_root(paths):
        return ops
    names = access.root_parameters(ops, handlers.present_values(master, resource, ops))
    if names:
        raise forbidden(
            f"parameter {', '.join(names)}: gives control of nodes, so user"
            f" {user.name} needs the right 'root' for it in the users file"
        )
    return access.without_root(ops)


def _path(environ: Mapping[str, Any]) -> str:
    """Return the path of a request in the form of `model.segment`; refuse odd ones.

    It is made of the text of the request: in ``PATH_INFO`` the ends of its parts cannot
    be distinguished from slashes in names.
    """
    whole = str(environ.get("REQUEST_URI", "")).partition("?")[0]
    if not whole.startswith("/"):  # with scheme and host
        whole = "/" + whole.partition("://")[2].partition("/")[2]
    parts = whole.encode("latin-1").split(b"/")
    try:
        names = [urllib.parse.unquote_to_bytes(part).decode() for part in parts]
    except UnicodeError:
        raise Refused(HTTPStatus.NOT_FOUND) from None
    return "/".join(map(model.segment, names))


def _arguments(environ: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the query arguments; refuse malformed ones."""
    text = str(environ.get(_QUERY, ""))
    if not text:
        return {}
    try:
        given = urllib.parse.parse_qs(
            text.encode("latin-1").decode(),
            keep_blank_values=True,
            max_num_fields=_MAX_ARGUMENTS,
            errors="strict",
        )
    except ValueError:
        raise bad_request("query arguments: malformed") from None
    # Empty ones are ignored, but for the one without which the change would happen.
    return {
        name: texts if name == model.PLAN.name else list(filter(None, texts))
        for name, texts in given.items()
    }


def refusal_of(err: errors.GenericError) -> Refused:
    """Return the documented refusal for an error of the master daemon."""
    if isinstance(err, errors.JobQueueFull):
        return Refused(
            HTTPStatus.SERVICE_UNAVAILABLE,
            str(err) or "The job queue is full",
            {"Retry-After": "10"},
        )
    if isinstance(err, errors.JobQueueDrainError):
        return Refused(HTTPStatus.SERVICE_UNAVAILABLE, str(err), {"Retry-After": "60"})
    if isinstance(err, errors.LuxiTimeoutError):
        return Refused(HTTPStatus.GATEWAY_TIMEOUT, str(err))
    if isinstance(err, errors.LuxiPermissionError):
        return Refused(
            HTTPStatus.INTERNAL_SERVER_ERROR, "No permission for the master's socket"
        )
    if isinstance(err, errors.NoMasterError):
        return Refused(HTTPStatus.BAD_GATEWAY, "Master daemon is not reachable")
    if isinstance(err, errors.ProtocolError):
        return Refused(HTTPStatus.BAD_GATEWAY, str(err))
    # With several arguments, such as the code of OpPrereqError, str shows a tuple.
    text, *more = map(str, err.args or ("",))
    suffix = f" ({', '.join(more)})" if more else ""
    return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, f"{text}{suffix}")


def error_content(status: int, message: str) -> tuple[str, bytes]:
    """Return content type and body of an error that the application does not see."""
    return _JSON, _encode(_error_body(Refused(status, message)))


def _error_body(err: Refused) -> dict[str, Any]:
    body = err.body()
    for name in ("message", "detail"):
        if name in body:
            body[name] = html.escape(body[name], quote=False)
    return body


class _Sent:
    """The parts of an answer on the way to the client.

    The server closes it in the end, also if it sends none of them.
    """

    def __init__(self, exchange: _Exchange, answer: Parts) -> None:
        self._exchange = exchange
        self._parts = answer.parts

    def __iter__(self) -> Iterator[bytes]:
        """Yield the parts; the client notices an end that comes too early."""
        try:
            yield from self._parts
        except errors.GenericError as err:
            _log.warning("%s: the answer is cut off: %s", self._exchange.requester, err)
            raise ConnectionResetError(errno.ECONNRESET, "no more to send") from err

    def close(self) -> None:
        """Release what the parts come from."""
        self._parts.close()


def _send(
    start_response: StartResponse,
    exchange: _Exchange,
    status: HTTPStatus,
    value: Any,
    headers: Mapping[str, str],
) -> Iterable[bytes]:
    listed = [("Content-Type", _JSON), ("X-Request-Id", exchange.id), *headers.items()]
    line = f"{status.value} {status.phrase}"
    if isinstance(value, Parts):
        start_response(line, listed)
        return _Sent(exchange, value)
    if status is HTTPStatus.NOT_MODIFIED:
        start_response(line, listed)
        return []
    data = _encode(value)
    start_response(line, [*listed, ("Content-Length", str(len(data)))])
    # Clients expect no body after this method, and would take one for an answer.
    return [] if exchange.environ.get("REQUEST_METHOD") == "HEAD" else [data]
