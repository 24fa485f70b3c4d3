"""Functions that answer requests which submit no job of their own.

`HANDLERS` has them by the name in `ganeti.protocols.rapi.model.Resource.direct`. A
handler gets the call and returns a JSON value, `Parts`, or an `Answer` with headers.
"""

import contextlib
import dataclasses
import threading
import urllib.parse
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes, jobqueue
from ganeti.daemons.rapi import (
    bodies,
    pages,
    preconditions,
    requests,
    sessions,
    waits,
)
from ganeti.daemons.rapi.following import event_texts
from ganeti.daemons.rapi.pool import Stream
from ganeti.daemons.rapi.problems import Refused, bad_request, forbidden
from ganeti.daemons.rapi.users import User
from ganeti.decisions.repair.incidents import MaintenanceState, as_listed
from ganeti.decisions.repair.journal import Selection
from ganeti.model import qlang
from ganeti.protocols.rapi.model import Request, Resource, kind_of

#: Seconds for the job that lists operating systems.
_OS_JOB_S: Final = 300.0
#: Requests that list operating systems at a time: each has a thread until its job ends.
_MAX_OS_LISTS: Final = 4
_os_lists: Final = threading.BoundedSemaphore(_MAX_OS_LISTS)
#: Plans at a time. The master daemon makes two at a time, in the order of the requests,
#: so plans of its commands wait for few others.
_MAX_PLANS: Final = 4
_plans: Final = threading.BoundedSemaphore(_MAX_PLANS)
#: Names that are encoded together.
_BATCH: Final = 500
#: The method of LUXI that returns objects of a kind in the documented form.
_OBJECTS: Final = "QueryObjects"
_ROLES: Final = {
    "M": "master",
    "C": "master-candidate",
    "R": "regular",
    "D": "drained",
    "O": "offline",
}
#: Source and text of the reason that Ganeti's client adds to every filter rule.
_BY_CLIENT: Final = ["gnt:client", ""]
#: Clients that poll an unfinished job should wait for this long, in seconds.
_RETRY: Final = {"Retry-After": "1"}


class Master(Protocol):
    """The calls of the master daemon; see `ganeti.daemons.rapi.pool.Pool`."""

    def call(
        self, method: str, args: Sequence[Any] = (), *, timeout_s: float | None = None
    ) -> Any:
        """Call a method and return its result."""

    def stream(self, method: str, args: Sequence[Any]) -> Stream:
        """Call a method and return the JSON text of its result in parts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """One request on its way to the master daemon.

    Attributes:
        resource: of the table.
        request: its input.
        master: the master daemon.
        trail: reasons for opcodes and filter rules.
        user: who asks, None for an anonymous request.
        address: of the client.
        session_times: how long new sessions last.
        may_read: whether the user may read a path.
    """

    resource: Resource
    request: Request
    master: Master
    trail: list[list[Any]] = dataclasses.field(default_factory=list)
    user: User | None = None
    address: str = ""
    session_times: sessions.Times = sessions.DEFAULT_TIMES
    may_read: Callable[[str], bool] = lambda _path: False

    @property
    def name(self) -> str:
        """Return the value of the path's variable."""
        return next(iter(self.request.path.values()))


@dataclasses.dataclass(frozen=True)
class Answer:
    """A JSON value with further headers, and a status that is no error."""

    value: Any
    headers: Mapping[str, str]
    status: HTTPStatus = HTTPStatus.OK


@dataclasses.dataclass(frozen=True)
class Waiting:
    """An answer that comes when a job changes.

    Attributes:
        args: of the method `ganeti.daemons.rapi.waits.METHOD`.
    """

    args: list[Any]


@dataclasses.dataclass(frozen=True)
class Following:
    """An answer without an end: events as they happen.

    Attributes:
        kinds: of events; empty for all.
        since: position of the last event that the client has, None for the present one.
    """

    kinds: frozenset[str]
    since: str | None


@dataclasses.dataclass(frozen=True)
class Parts:
    """An answer that is sent part by part, as the master daemon sends it.

    Attributes:
        parts: JSON text, not empty; closed in the end, or early.
    """

    parts: Stream | Generator[bytes, None, None]


Handler = Callable[[Call], Any]
HANDLERS: Final[dict[str, Handler]] = {}


def _handler(function: Handler) -> Handler:
    HANDLERS[function.__name__] = function
    return function


@_handler
def call_by_name(call: Call) -> Any:
    """Call the one method of the row with the values of the path's variables."""
    (method,) = call.resource.luxi
    return call.master.call(method, list(call.request.path.values()))


@_handler
def constant(call: Call) -> Any:
    """Return a value of the table."""
    return call.resource.options["value"]


def _arguments(
    call: Call, kind: str, names: Sequence[str], fields: Sequence[str]
) -> list[Any]:
    """Return the arguments of the method ``QueryObjects``."""
    lock = call.request.args.get("lock", False)
    return [kind, list(names), list(fields), lock]


def _quote(name: Any) -> str:
    return urllib.parse.quote(str(name), safe="")


def _name_parts(
    names: Sequence[Any], shown: str, path: str
) -> Generator[bytes, None, None]:
    """Yield the parts of a list of names and URIs."""
    before = b"["
    for start in range(0, len(names), _BATCH):
        batch = names[start : start + _BATCH]
        listed = [{shown: name, "uri": f"{path}/{_quote(name)}"} for name in batch]
        yield before + msgspec.json.encode(listed)[1:-1]
        before = b","
    yield b"]" if names else b"[]"


@_handler
def list_objects(call: Call) -> Any:
    """Return all objects of a kind: names and URIs, whole objects, or a page."""
    options = call.resource.options
    if pages.are_wanted(call.request.args):
        args, ask = call.request.args, call.master.call
        return pages.page_of(options, args, ask, call.may_read)
    kind, key = options["kind"], options["key"]
    if not call.request.args.get("bulk", False):
        actual = call.master.call(_OBJECTS, _arguments(call, kind, [], [key]))
        names = [row[key] for row in actual]
        return Parts(_name_parts(names, options["shown"], call.resource.path))
    arguments = _arguments(call, kind, [], options["fields"])
    return Parts(call.master.stream(_OBJECTS, arguments))


@contextlib.contextmanager
def _unknown_is_not_found() -> Iterator[None]:
    """Refuse with 404 what the master daemon does not know."""
    try:
        yield
    except errors.OpPrereqError as err:
        if err.args[1:] == (ecodes.ECODE_NOENT,):
            raise Refused(HTTPStatus.NOT_FOUND, str(err.args[0])) from err
        raise


def _object(call: Call, kind: str, fields: Sequence[str]) -> dict[str, Any]:
    """Return the object that the path names; refuse an unknown one."""
    with _unknown_is_not_found():
        actual = call.master.call(_OBJECTS, _arguments(call, kind, [call.name], fields))
    if not actual:
        raise Refused(HTTPStatus.NOT_FOUND)
    return dict(actual[0])


def present_object(call: Call, fields: Sequence[str]) -> Mapping[str, Any]:
    """Return fields of the object that a request changes; refuse an unknown one."""
    target = call.resource.target
    if target != "cluster":
        return _object(call, target, fields)
    info: dict[str, Any] = call.master.call("QueryClusterInfo")
    return info


def _tagged(value: Mapping[str, Any]) -> Answer:
    """Return an answer with the tag of the object that it describes."""
    text = msgspec.json.encode(value)
    tag = preconditions.tag_of(value, text)
    return Answer(msgspec.Raw(text), {preconditions.ETAG: tag})


@_handler
def get_object(call: Call) -> Any:
    """Return one object."""
    options = call.resource.options
    actual = _object(call, options["kind"], options["fields"])
    for copy, original in options.get("copies", {}).items():
        actual[copy] = actual[original]
    return _tagged(actual)


@_handler
def get_filter(call: Call) -> Any:
    """Return a filter rule."""
    names = call.resource.options["fields"]
    rows = call.master.call("QueryFilters", [[call.name], list(names)])
    if not rows:
        raise Refused(HTTPStatus.NOT_FOUND)
    return dict(zip(names, rows[0], strict=True))


@_handler
def get_job(call: Call) -> Any:
    """Return a job; one that is unknown has its id alone."""
    names = call.resource.options["fields"]
    [row] = call.master.call("QueryJobs", [[int(call.name)], list(names)])
    actual = {**dict(zip(names, row, strict=True)), "id": int(call.name)}
    if actual["status"] in {*jobqueue.JOBS_PENDING, jobqueue.JOB_STATUS_RUNNING}:
        return Answer(actual, _RETRY)
    return actual


@_handler
def get_role(call: Call) -> Any:
    """Return the role of a node."""
    return _ROLES[_object(call, "node", ["role"])["role"]]


@_handler
def console(call: Call) -> Any:
    """Return how to reach the console of a running instance."""
    actual = _object(call, "instance", ["console"])["console"]
    if actual is None:
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "Instance console unavailable")
    return actual


@_handler
def open_console(call: Call) -> Any:
    """Return a ticket for a console."""
    body = requests.of_type(call.request.body or {}, bodies.Console)
    with _unknown_is_not_found():
        return call.master.call("OpenConsole", [call.name, body.kind, body.session])


@_handler
def get_tags(call: Call) -> Any:
    """Return the tags of an object."""
    name = "" if not call.request.path else call.name
    return call.master.call("QueryTags", [call.resource.options["kind"], name])


@_handler
def cluster_info(call: Call) -> Any:
    """Return the settings of the cluster."""
    actual = call.master.call("QueryClusterInfo")
    for copy, original in call.resource.options["copies"].items():
        actual[copy] = actual.get(original)
    return _tagged(actual)


@contextlib.contextmanager
def _place(places: threading.BoundedSemaphore, who: str) -> Iterator[None]:
    """Take one of some places for a while; refuse with 503 if there is none."""
    if not places.acquire(blocking=False):
        later = {"Retry-After": "10"}
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{who} already", later)
    try:
        yield
    finally:
        places.release()


def plan(master: Master, ops: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a job would do, in the form of ``--plan --json`` of commands."""
    with _place(_plans, f"{_MAX_PLANS} requests wait for plans"):
        return {"jobs": [master.call("PlanJob", [ops])]}


@_handler
def list_os(call: Call) -> Any:
    """Return the operating systems that can be used, each with its variants."""
    op = {
        "OP_ID": call.resource.options["op_id"],
        "output_fields": ["name", "variants"],
        "reason": call.trail,
    }
    with _place(_os_lists, f"{_MAX_OS_LISTS} requests wait for the operating systems"):
        job_id = call.master.call("SubmitJob", [[op]])
        rows = _result_of(call.master, int(job_id))
    actual = []
    for name, variants in rows:
        actual += [f"{name}+{each}" for each in variants] if variants else [name]
    return actual


def _result_of(master: Master, job_id: int) -> Any:
    """Wait for a job of one opcode and return the result of the opcode."""
    fields, known = ["status"], None
    waited_s = 0.0
    while waited_s < _OS_JOB_S:
        args = [job_id, fields, known, None, waits.WAIT_S]
        change = master.call(waits.METHOD, args, timeout_s=waits.ANSWER_S)
        known = change[0]
        if known[0] in jobqueue.JOBS_FINALIZED:
            break
        waited_s += waits.WAIT_S
    [[status, results]] = master.call("QueryJobs", [[job_id], ["status", "opresult"]])
    if status != jobqueue.JOB_STATUS_SUCCESS:
        known_error = errors.decode(results[0]) if results else None
        raise known_error or errors.OpExecError(f"job {job_id} ended as {status}")
    return results[0]


@_handler
def search(call: Call) -> Any:
    """Return the objects that match a text and that the user may read."""
    return pages.matches(call.request.args, call.master.call, call.may_read)


@_handler
def query(call: Call) -> Any:
    """Return the answer of a query."""
    fields, qfilter = call.request.args.get("fields"), None
    if call.request.body is not None and call.resource.method == "PUT":
        body = requests.of_type(call.request.body, bodies.Query)
        fields = body.fields or fields
        qfilter = body.qfilter if body.qfilter is not None else body.filter
    if not fields:
        raise bad_request("Missing parameter 'fields': names of the wanted fields")
    try:
        qlang.check(qfilter)
    except errors.ParseError as err:
        raise bad_request(str(err)) from err
    # As text: the answer of a large cluster is never decoded here.
    return Parts(call.master.stream("Query", [call.name, fields, qfilter]))


@_handler
def query_fields(call: Call) -> Any:
    """Return the definitions of the fields of a kind of object."""
    fields = call.request.args.get("fields")
    return call.master.call("QueryFields", [call.name, fields])


@_handler
def replace_filter(call: Call) -> Any:
    """Add, replace or create a filter rule and return its UUID."""
    raw = {} if call.request.body is None else call.request.body
    body = requests.of_type(raw, bodies.Filter)
    reason = [list(entry) for entry in body.reason]
    requests.check_sources(
        [
            entry
            for entry in reason
            if entry[:2] != _BY_CLIENT and entry[0] != requests.USER_SOURCE
        ]
    )
    key = call.request.path.get("filter_uuid")
    trail = [*reason, *call.trail]
    args = [key, body.priority, body.predicates, body.action, trail]
    return call.master.call("ReplaceFilter", args)


@_handler
def cancel_job(call: Call) -> Any:
    """Cancel a job and return whether that succeeded, with a text."""
    kill = bool(call.request.args.get("kill", False))
    return call.master.call("CancelJob", [int(call.name), *([kill] if kill else ())])


@_handler
def list_incidents(call: Call) -> Any:
    """Return the incidents of the maintenance daemon with the names of their nodes."""
    answer = call.master.call("QueryMaintenance")
    state = msgspec.convert(answer, MaintenanceState)
    names: dict[str, str] = {}
    if state.incidents:
        names = dict(call.master.call("QueryNodes", [[], ["uuid", "name"], False]))
    return as_listed(state, names)


@_handler
def list_node_deaths(call: Call) -> Any:
    """Return the nodes that do not answer, and what was done about each."""
    return call.master.call("QueryNodeDeaths", [False])["state"]["deaths"]


@_handler
def list_journal(call: Call) -> Any:
    """Return entries of the decision journal."""
    try:
        selection = msgspec.convert(call.request.args, Selection, strict=False)
    except msgspec.ValidationError as err:
        raise bad_request(f"journal: {err}") from err
    return call.master.call("QueryJournal", [msgspec.to_builtins(selection)])


@_handler
def cancel_incident(call: Call) -> Any:
    """Cancel an incident and return the UUID of its node."""
    with _unknown_is_not_found():
        return call.master.call("CancelIncident", [call.name])


@_handler
def freeze_automation(call: Call) -> Any:
    """Let no automaton act; a later freeze replaces the reason."""
    why = str(call.request.args.get("why") or "")
    return call.master.call("FreezeAutomation", [why])


@_handler
def open_session(call: Call) -> Any:
    """Begin a session and return it with its token, which is never shown again."""
    user = _signed_in(call)
    if user.session:
        raise forbidden(
            "a session cannot begin another one: wanted the password or the token of"
            f" user {user.name}"
        )
    token = sessions.new_token()
    new = sessions.sign_in(token, user, call.address, call.session_times)
    return {"token": token, **call.master.call("OpenSession", [new])}


@_handler
def list_sessions(call: Call) -> Any:
    """Return the sessions of the user; with the right ``root`` those of all users."""
    current = _signed_in(call).session
    listed = call.master.call("QuerySessions", [_whose(call)])
    return [{**each, "current": each["id"] == current} for each in listed]


@_handler
def revoke_session(call: Call) -> Any:
    """End a session that `list_sessions` would show."""
    _signed_in(call)
    if not call.master.call("RevokeSessions", [[call.name], _whose(call)]):
        text = f"session {call.name}: no such session; GET /2/session lists yours"
        raise Refused(HTTPStatus.NOT_FOUND, text)


def _signed_in(call: Call) -> User:
    """Return the user; the resource needs credentials, so there is one."""
    if call.user is None:
        raise errors.ProgrammerError(f"{call.resource.path}: no user")
    return call.user


def _whose(call: Call) -> str | None:
    """Return whose sessions the user may see, None for those of all users."""
    user = _signed_in(call)
    return None if user.rights.allow_root(["/2/session"]) else user.name


@_handler
def follow_events(call: Call) -> Any:
    """Return what happens from now on, or from a position on."""
    args = call.request.args
    kinds = event_texts.kinds_of(args.get("kinds"))
    return Following(kinds, event_texts.since_of(args.get("since"), "since"))


@_handler
def wait_for_job(call: Call) -> Any:
    """Wait until a job differs from what the client knows, or the time is over."""
    wait = wait_of(call)
    args = [int(call.name), wait.fields, wait.previous_job_info]
    return Waiting([*args, wait.previous_log_serial, waits.WAIT_S])


def changed(change: Any) -> dict[str, Any]:
    """Return the answer to a wait that has ended."""
    return {"job_info": change[0], "log_entries": change[1]}


def wait_of(call: Call) -> bodies.Wait:
    """Return the body of a wait for a job's change.

    Raises:
        Refused: 500 without a body, as documented; 400 for a wrong one.
    """
    if call.request.body is None:
        raise Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "body: wanted an object")
    body: bodies.Wait = requests.of_type(call.request.body, bodies.Wait)
    return body


#: Members that name an object in place of the name, or change what a value means.
_OTHERS: Final = ("group_uuid", "hypervisor", "instance_uuid", "node_uuid")


def present_values(
    master: Master, resource: Resource, ops: Sequence[Mapping[str, Any]]
) -> Any:
    """Return the present values that the one opcode of a request can change.

    Clients read an object, change a part, and write everything back. A value that is
    there already gives them nothing, so it needs no right of its own. Values are nested
    as in the opcode. Of a request about several objects, or about one that is not
    found, nothing is known.
    """
    job = resource.job
    if (
        job is None
        or len(ops) != 1
        or any(ops[0].get(key) is not None for key in _OTHERS)
    ):
        return None
    if job.op_id == "OP_CLUSTER_SET_PARAMS":
        return master.call("QueryClusterInfo")
    name = ops[0].get(next(iter(job.path), ""))
    if not job.present or not isinstance(name, str):
        return None
    try:
        args = [kind_of(resource.path), [name], list(job.present), False]
        (known,) = master.call(_OBJECTS, args)
    except (errors.GenericError, ValueError):
        return None
    return known
