"""Resources of the cluster: version, settings, queries, filter rules and jobs."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from ganeti.protocols.rapi import model, names, row_parts
from ganeti.protocols.rapi.client_method import (
    PARAMETERS,
    Method,
    Parameter,
    method,
    optional,
    switch,
)
from ganeti.protocols.rapi.model import (
    READ,
    REASON,
    WRITE,
    Argument,
    Body,
    Kind,
    acting,
    job,
    reading,
)
from ganeti.protocols.rapi.row_parts import tag_resources

#: Features that clients look for before they use them.
FEATURES: Final = (
    "instance-create-reqv1",
    "instance-reinstall-reqv1",
    "node-migrate-reqv1",
    "node-evac-res1",
)
_QUERY: Final = "/2/query/[resource]"
_FILTER: Final = "/2/filters/[filter_uuid]"
_JOB: Final = "/2/jobs/[job_id]"
_INCIDENTS: Final = "/2/maintenance/incidents"
_FREEZE: Final = "/2/maintenance/freeze"
_SESSION: Final = "/2/session"


def _entries(reasons: Any) -> Any:
    return [] if reasons is None else reasons


_FIXED: Final = (
    reading("/", "answer nothing", "constant", None, value=None),
    reading("/2", "answer nothing", "constant", None, value=None),
    reading(
        "/version",
        "return the version of the API",
        "constant",
        int,
        client=method("GetVersion", has_reason=False),
        value=2,
    ),
    reading(
        "/2/features",
        "list the features of this server",
        "constant",
        list[str],
        value=[*FEATURES, names.PLAN],
    ),
)

_CLUSTER: Final = (
    reading(
        "/2/info",
        "return the settings of the cluster",
        "cluster_info",
        dict[str, Any],
        luxi="QueryClusterInfo",
        client=method("GetInfo"),
        copies={"vg_name": "volume_group_name", "drbd_helper": "drbd_usermode_helper"},
    ),
    reading(
        "/2/status",
        "return the state of the cluster: a verdict, numbers, and what is wrong (not in"
        " Ganeti)",
        "call_by_name",
        dict[str, Any],
        luxi="QueryStatus",
        access=(WRITE, READ),
    ),
    job(
        "PUT",
        "/2/modify",
        "modify the settings of the cluster",
        "OP_CLUSTER_SET_PARAMS",
        forbidden=("compression_tools", "rapi_require_authentication"),
        client=method(
            "ModifyCluster", PARAMETERS, about="Modify settings of the cluster"
        ),
    ),
    job(
        "PUT",
        "/2/redistribute-config",
        "send the configuration to all nodes again",
        "OP_CLUSTER_REDIST_CONF",
        body=Body.IGNORED,
        client=method("RedistributeConfig"),
    ),
    reading(
        "/2/os",
        "list operating systems with their variants",
        "list_os",
        list[str],
        luxi="SubmitJob WaitForJobChange QueryJobs",
        client=method(
            "GetOperatingSystems",
            about="Return the operating systems, one per variant.",
        ),
        op_id="OP_OS_DIAGNOSE",
    ),
)

_SEARCH: Final = (
    reading(
        "/2/search",
        "find objects by name, UUID, tag, address, operating system or job id (not in"
        " Ganeti)",
        "search",
        list[dict[str, str]],
        model.text("q", "part of the text that is searched", required=True),
        model.text(
            "limit",
            "most objects; default 20",
            form={"type": "string", "pattern": "^0*([1-9][0-9]?|1[0-9]{2}|200)$"},
        ),
        Argument(
            name="kinds",
            kind=Kind.NAMES,
            about="kinds of objects, such as instance,node; all by default",
        ),
        luxi="Search",
    ),
)

_QUERIES: Final = (
    reading(
        _QUERY,
        "query a kind of object",
        "query",
        dict[str, Any],
        Argument(
            name="fields",
            kind=Kind.NAMES,
            about="names of fields with commas between them",
            required=True,
        ),
        luxi="Query",
        access=(WRITE, READ),
    ),
    acting(
        "PUT",
        _QUERY,
        "query a kind of object with a filter",
        "query",
        Argument(
            name="fields",
            kind=Kind.NAMES,
            about="names of fields with commas between them, if not in the body",
        ),
        luxi="Query",
        result=dict[str, Any],
        access=(WRITE, READ),
        body=Body.OWN,
        body_type="Query",
        max_body=model.MAX_LIST,
    ),
    reading(
        f"{_QUERY}/fields",
        "list the fields of a kind of object",
        "query_fields",
        dict[str, Any],
        Argument(
            name="fields",
            kind=Kind.NAMES,
            about="names of fields with commas between them; all by default",
        ),
        luxi="QueryFields",
        client=method(
            "QueryFields",
            optional(
                "fields", Sequence[str], in_query=True, is_late=True, convert=",".join
            ),
            about="Return the definitions of query fields, of all fields by default.",
        ),
    ),
)


_RULE: Final = (
    Parameter("priority", int, "rules of smaller numbers come first"),
    Parameter("predicates", Any, "conditions that must all hold"),
    Parameter(
        "action", Any, "``ACCEPT``, ``PAUSE``, ``REJECT``, ``CONTINUE`` or a rate limit"
    ),
    Parameter(
        "reason_trail",
        Any,
        "entries of source, text and nanoseconds",
        None,
        member="reason",
        convert=_entries,
    ),
)


def _rule(verb: str, path: str, about: str, client: Method) -> model.Resource:
    """Return the resource that adds or replaces a filter rule."""
    return acting(
        verb,
        path,
        about,
        "replace_filter",
        REASON,
        luxi="ReplaceFilter",
        result=str,
        body=Body.OWN,
        body_type="Filter",
        client=client,
    )


_FILTERS: Final = (
    model.listing(
        "/2/filters",
        "list the filter rules of the job queue",
        "filter",
        row_parts.FILTER,
        key="uuid",
        client=method(
            "GetFilters",
            about="Return the UUIDs of the filter rules of the job queue, or the"
            " rules.",
            has_reason=False,
        ),
    ),
    _rule(
        "POST",
        "/2/filters",
        "add a filter rule",
        method(
            "AddFilter",
            *_RULE,
            about="Add a filter rule; return its UUID.",
            has_reason=False,
            leave_out=False,
        ),
    ),
    reading(
        _FILTER,
        "return a filter rule",
        "get_filter",
        dict[str, Any],
        luxi="QueryFilters",
        client=method("GetFilter", subject=Parameter("filter_uuid"), has_reason=False),
        fields=row_parts.FILTER,
    ),
    _rule(
        "PUT",
        _FILTER,
        "replace or create a filter rule",
        method(
            "ReplaceFilter",
            *(dataclasses.replace(each, about="") for each in _RULE),
            about="Replace or create a filter rule; see `AddFilter`. Return its UUID.",
            has_reason=False,
            leave_out=False,
        ),
    ),
    acting(
        "DELETE",
        _FILTER,
        "remove a filter rule",
        "call_by_name",
        luxi="DeleteFilter",
        client=method("DeleteFilter", has_reason=False),
    ),
)

_JOBS: Final = (
    model.listing(
        "/2/jobs",
        "list jobs",
        "job",
        row_parts.JOB_IN_BULK,
        key="id",
        client=method(
            "GetJobs",
            has_reason=False,
        ),
    ),
    reading(
        _JOB,
        "return a job",
        "get_job",
        dict[str, Any],
        luxi="QueryJobs",
        client=method(
            "GetJobStatus",
            about="Return a job with its log and results.",
            has_reason=False,
        ),
        fields=row_parts.JOB,
    ),
    acting(
        "DELETE",
        _JOB,
        "cancel a job",
        "cancel_job",
        model.flag("kill", "end it as soon as possible if it runs (not in Ganeti)"),
        luxi="CancelJob",
        result=tuple[bool, str],
        client=method(
            "CancelJob",
            switch("dry_run", in_query=True),
            about="Cancel a job; return whether that was possible, and a text.",
            result=Any,
            has_reason=False,
        ),
    ),
    model.Resource(
        path=f"{_JOB}/wait",
        method="GET",
        about="wait until a job changes, at most ten seconds",
        result=dict[str, Any],
        access=(WRITE,),
        direct="wait_for_job",
        body=Body.OWN,
        body_type="Wait",
        luxi=("WaitForJobChanges",),
        client=method(
            "WaitForJobChange",
            Parameter(
                "fields", Sequence[str], "names of the fields to compare", convert=list
            ),
            Parameter(
                "prev_job_info",
                Sequence[Any] | None,
                "their values that the caller knows",
                member="previous_job_info",
            ),
            Parameter(
                "prev_log_serial",
                int | None,
                "number of the last log entry that the caller knows",
                member="previous_log_serial",
            ),
            about="Wait for a change of a job, at most about ten seconds.",
            answer="``job_info`` and ``log_entries``; None if nothing changed.",
            result=Any,
            has_reason=False,
        ),
    ),
)

_SECONDS: Final = {"type": "number", "minimum": 0}
_COUNT: Final = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
#: Arguments of the journal that are numbers.
_JOURNAL_FORMS: Final = {
    "since": _SECONDS,
    "changed_after": _SECONDS,
    "job": _COUNT,
    "limit": _COUNT,
}
_MAINTENANCE: Final = (
    reading(
        "/2/journal",
        "list rounds of programs that act by themselves, the oldest first (not in"
        " Ganeti)",
        "list_journal",
        list[dict[str, Any]],
        *(
            model.text(name, about, form=_JOURNAL_FORMS.get(name))
            for name, about in (
                ("since", "seconds since 1970: rounds at or after this time"),
                ("changed_after", "entries whose mtime is greater"),
                ("node", "name: entries about this node"),
                ("instance", "name: entries about this instance"),
                ("automaton", "watcher, autorepair, maintd or node-death"),
                ("id", "number of the entry, or the UUID of a round, repair, incident"),
                ("job", "id: entries about this job"),
                ("limit", "most entries; the newest ones are returned"),
            )
        ),
        luxi="QueryJournal",
        access=(WRITE, READ),
    ),
    reading(
        _INCIDENTS,
        "list faults that nodes reported, the newest first (not in Ganeti)",
        "list_incidents",
        list[dict[str, Any]],
        luxi="QueryMaintenance QueryNodes",
        access=(WRITE, READ),
    ),
    reading(
        "/2/maintenance/node-deaths",
        "list nodes that do not answer, and what was done about each (not in Ganeti)",
        "list_node_deaths",
        list[dict[str, Any]],
        luxi="QueryNodeDeaths",
        access=(WRITE, READ),
    ),
    acting(
        "PUT",
        _FREEZE,
        "let programs that act by themselves do nothing (not in Ganeti)",
        "freeze_automation",
        model.text("why", "reason of the freeze, for other people"),
        luxi="FreezeAutomation",
    ),
    acting(
        "DELETE",
        _FREEZE,
        "let programs that act by themselves act again (not in Ganeti)",
        "call_by_name",
        luxi="ThawAutomation",
    ),
    acting(
        "PUT",
        f"{_INCIDENTS}/[incident_uuid]/cancel",
        "have nothing more done about a fault of a node (not in Ganeti)",
        "cancel_incident",
        luxi="CancelIncident",
        result=str,
    ),
)

_SESSIONS: Final = (
    acting(
        "POST",
        _SESSION,
        "sign in: begin a session, and return its token this once (not in Ganeti)",
        "open_session",
        luxi="OpenSession",
        result=dict[str, Any],
        access=(),
        signed_in=True,
    ),
    reading(
        _SESSION,
        "list the user's sessions, with the right root those of all (not in Ganeti)",
        "list_sessions",
        list[dict[str, Any]],
        luxi="QuerySessions",
        signed_in=True,
    ),
    acting(
        "DELETE",
        f"{_SESSION}/[session_id]",
        "sign out: end a session at once (not in Ganeti)",
        "revoke_session",
        luxi="RevokeSessions",
        access=(),
        signed_in=True,
    ),
)

_EVENTS: Final = (
    reading(
        "/2/events",
        "follow what happens, as server-sent events (not in Ganeti)",
        "follow_events",
        str,
        Argument(
            name="kinds",
            kind=Kind.NAMES,
            about="kinds of events with commas between them; all by default",
        ),
        model.text(
            "since",
            "position of the last event that the client has; by default only later"
            " events are sent",
            form={
                "type": "string",
                "pattern": r"^[0-9]{1,18}\.[0-9]{1,18}\.[0-9]{1,9}$",
            },
        ),
        luxi="WaitForEvents",
        access=(WRITE, READ),
        media="text/event-stream",
    ),
)

RESOURCES: Final = (
    *_FIXED,
    *_CLUSTER,
    *tag_resources("/2", "cluster", "Cluster", "the cluster"),
    *_SEARCH,
    *_QUERIES,
    *_FILTERS,
    *_JOBS,
    *_MAINTENANCE,
    *_SESSIONS,
    *_EVENTS,
)
