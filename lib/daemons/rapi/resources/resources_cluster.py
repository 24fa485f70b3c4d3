"""Resources of the cluster: version, settings, queries, filter rules and jobs."""

from typing import Any, Final

from ganeti.daemons.rapi import bodies, fields, model
from ganeti.daemons.rapi.model import (
    BULK,
    REASON,
    Argument,
    Body,
    Job,
    Kind,
    Resource,
    reading,
)
from ganeti.daemons.rapi.resources.tags import tag_resources

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


_FIXED: Final = (
    reading("/", "answer nothing", "constant", None, value=None),
    reading("/2", "answer nothing", "constant", None, value=None),
    reading("/version", "return the version of the API", "constant", int, value=2),
    reading(
        "/2/features",
        "list the features of this server",
        "constant",
        list[str],
        value=list(FEATURES),
    ),
)

_CLUSTER: Final = (
    reading(
        "/2/info",
        "return the settings of the cluster",
        "cluster_info",
        dict[str, Any],
        copies={"vg_name": "volume_group_name", "drbd_helper": "drbd_usermode_helper"},
    ),
    Resource(
        path="/2/modify",
        method="PUT",
        about="modify the settings of the cluster",
        result=int,
        access=(model.WRITE,),
        job=Job(
            op_id="OP_CLUSTER_SET_PARAMS",
            forbidden=("compression_tools", "rapi_require_authentication"),
        ),
        arguments=(REASON,),
        body=Body.PARAMETERS,
    ),
    Resource(
        path="/2/redistribute-config",
        method="PUT",
        about="send the configuration to all nodes again",
        result=int,
        access=(model.WRITE,),
        job=Job(op_id="OP_CLUSTER_REDIST_CONF"),
        arguments=(REASON,),
    ),
    reading(
        "/2/os", "list operating systems with their variants", "list_os", list[str]
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
        access=(model.WRITE, model.READ),
    ),
    Resource(
        path=_QUERY,
        method="PUT",
        about="query a kind of object with a filter",
        result=dict[str, Any],
        access=(model.WRITE, model.READ),
        direct="query",
        arguments=(
            Argument(
                name="fields",
                kind=Kind.NAMES,
                about="names of fields with commas between them, if not in the body",
            ),
        ),
        body=Body.OWN,
        body_type=bodies.Query,
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
    ),
)

_FILTERS: Final = (
    reading(
        "/2/filters",
        "list the filter rules of the job queue",
        "list_objects",
        list[dict[str, Any]],
        BULK,
        kind="filter",
        fields=fields.FILTER,
        key="uuid",
        shown="uuid",
    ),
    Resource(
        path="/2/filters",
        method="POST",
        about="add a filter rule",
        result=str,
        access=(model.WRITE,),
        direct="replace_filter",
        arguments=(REASON,),
        body=Body.OWN,
        body_type=bodies.Filter,
    ),
    reading(
        _FILTER,
        "return a filter rule",
        "get_filter",
        dict[str, Any],
        fields=fields.FILTER,
    ),
    Resource(
        path=_FILTER,
        method="PUT",
        about="replace or create a filter rule",
        result=str,
        access=(model.WRITE,),
        direct="replace_filter",
        arguments=(REASON,),
        body=Body.OWN,
        body_type=bodies.Filter,
    ),
    Resource(
        path=_FILTER,
        method="DELETE",
        about="remove a filter rule",
        result=None,
        access=(model.WRITE,),
        direct="delete_filter",
    ),
)

_JOBS: Final = (
    reading(
        "/2/jobs",
        "list jobs",
        "list_objects",
        list[dict[str, Any]],
        BULK,
        kind="job",
        fields=fields.JOB_IN_BULK,
        key="id",
        shown="id",
    ),
    reading(_JOB, "return a job", "get_job", dict[str, Any], fields=fields.JOB),
    Resource(
        path=_JOB,
        method="DELETE",
        about="cancel a job",
        result=tuple[bool, str],
        access=(model.WRITE,),
        direct="cancel_job",
        arguments=(
            model.flag("kill", "end it as soon as possible if it runs (not in Ganeti)"),
        ),
    ),
    Resource(
        path=f"{_JOB}/wait",
        method="GET",
        about="wait until a job changes, at most ten seconds",
        result=dict[str, Any],
        access=(model.WRITE,),
        direct="wait_for_job",
        body=Body.OWN,
        body_type=bodies.Wait,
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
            model.Argument(
                name=name,
                kind=model.Kind.TEXT,
                about=about,
                form=_JOURNAL_FORMS.get(name),
            )
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
        access=(model.WRITE, model.READ),
    ),
    reading(
        _INCIDENTS,
        "list faults that nodes reported, the newest first (not in Ganeti)",
        "list_incidents",
        list[dict[str, Any]],
        access=(model.WRITE, model.READ),
    ),
    reading(
        "/2/maintenance/node-deaths",
        "list nodes that do not answer, and what was done about each (not in Ganeti)",
        "list_node_deaths",
        list[dict[str, Any]],
        access=(model.WRITE, model.READ),
    ),
    Resource(
        path=_FREEZE,
        method="PUT",
        about="let programs that act by themselves do nothing (not in Ganeti)",
        result=None,
        access=(model.WRITE,),
        direct="freeze_automation",
        arguments=(model.text("why", "reason of the freeze, for other people"),),
    ),
    Resource(
        path=_FREEZE,
        method="DELETE",
        about="let programs that act by themselves act again (not in Ganeti)",
        result=None,
        access=(model.WRITE,),
        direct="thaw_automation",
    ),
    Resource(
        path=f"{_INCIDENTS}/[incident_uuid]/cancel",
        method="PUT",
        about="have nothing more done about a fault of a node (not in Ganeti)",
        result=str,
        access=(model.WRITE,),
        direct="cancel_incident",
    ),
)

RESOURCES: Final = (
    *_FIXED,
    *_CLUSTER,
    *tag_resources("/2", "cluster"),
    *_QUERIES,
    *_FILTERS,
    *_JOBS,
    *_MAINTENANCE,
)
