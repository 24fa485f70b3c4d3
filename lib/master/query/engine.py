"""Answering: names, filter on configuration, live data, filter again, values."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypedDict

from ganeti.base import errors
from ganeti.base.constants import ecodes, versions
from ganeti.base.constants import query as constants
from ganeti.base.text import messages, nicesort
from ganeti.master.query import config, encoded, instance, jobs, node, os_diagnose
from ganeti.master.query.model import (
    UNAVAIL,
    UNKNOWN,
    Cell,
    ClusterFacts,
    Field,
    Getter,
    QueryContext,
    Resource,
    Sources,
    by_name,
    normal,
    optional,
    plain,
    unknown,
)
from ganeti.model import qlang
from ganeti.model.objects import Cluster, lookup

# Query fields of the cluster itself.


def _facts(context: QueryContext) -> ClusterFacts:
    read = context.sources.cluster_facts
    if read is None:
        raise errors.ProgrammerError(
            "query of the cluster: the sources have no cluster_facts"
        )
    return context.once("cluster facts", read)


def _fact(
    name: str, title: str, kind: str, doc: str, get: Callable[[ClusterFacts], Any]
) -> Field:
    def bind(context: QueryContext) -> Getter:
        return lambda _cluster: normal(get(_facts(context)))

    return Field(name, title, kind, doc, bind)


def _bind_master(context: QueryContext) -> Getter:
    return lambda cluster: normal(context.node_name(cluster.master_node))


def _name(field: str) -> Field:
    return plain(
        field,
        "Name",
        constants.QFT_TEXT,
        "Name of the cluster",
        lambda r: r.cluster_name,
        match="hostname",
    )


def _constant(name: str, title: str, kind: str, doc: str, value: Any) -> Field:
    return plain(name, title, kind, doc, lambda _cluster: value)


_FIELDS: Final = by_name(
    (
        _name("cluster_name"),
        _name("name"),
        Field(
            "master_node",
            "Master",
            constants.QFT_TEXT,
            "Name of the master",
            _bind_master,
            match="hostname",
        ),
        plain(
            "ctime", "CTime", constants.QFT_TIMESTAMP, "When created", lambda r: r.ctime
        ),
        plain(
            "mtime", "MTime", constants.QFT_TIMESTAMP, "Last change", lambda r: r.mtime
        ),
        plain("tags", "Tags", constants.QFT_OTHER, "Tags", lambda r: r.tags),
        optional(
            "volume_group_name",
            "VgName",
            constants.QFT_TEXT,
            "Volume group for disks",
            lambda r: r.volume_group_name,
        ),
        _fact(
            "architecture",
            "ArchInfo",
            constants.QFT_OTHER,
            "Word size and machine type",
            lambda facts: facts.architecture,
        ),
        _fact(
            "drain_flag",
            "QueueDrained",
            constants.QFT_BOOL,
            "Whether the queue takes no jobs",
            lambda facts: facts.drain_flag,
        ),
        _fact(
            "watcher_pause",
            "WatcherPause",
            constants.QFT_TIMESTAMP,
            "End of the watcher's pause",
            lambda facts: facts.watcher_pause,
        ),
        _fact(
            "vcs_version",
            "VCSVersion",
            constants.QFT_TEXT,
            "Identifies the build",
            lambda facts: facts.vcs_version,
        ),
        _constant(
            "config_version",
            "ConfigVersion",
            constants.QFT_NUMBER,
            "Version of the configuration",
            versions.CONFIG_VERSION,
        ),
        _constant(
            "export_version",
            "ExportVersion",
            constants.QFT_NUMBER,
            "Version of exports",
            versions.EXPORT_VERSION,
        ),
        _constant(
            "os_api_version",
            "OsApiVersion",
            constants.QFT_NUMBER,
            "Highest OS API",
            max(versions.OS_API_VERSIONS),
        ),
        _constant(
            "protocol_version",
            "ProtocolVersion",
            constants.QFT_NUMBER,
            "Version of RPC",
            versions.PROTOCOL_VERSION,
        ),
        _constant(
            "software_version",
            "SoftwareVersion",
            constants.QFT_TEXT,
            "Release",
            versions.RELEASE_VERSION,
        ),
    )
)


def _rows(context: QueryContext, names: Sequence[Any] | None) -> Sequence[Cluster]:
    del names
    return [context.snapshot.cluster]


CLUSTER: Final = Resource(constants.QR_CLUSTER, "", _FIELDS, _rows)


RESOURCES: Final[Mapping[str, Resource]] = {
    resource.name: resource
    for resource in (
        CLUSTER,
        config.EXPORT,
        os_diagnose.EXTSTORAGE,
        config.FILTER,
        config.GROUP,
        instance.RESOURCE,
        jobs.JOB,
        jobs.LOCK,
        config.NETWORK,
        node.RESOURCE,
        os_diagnose.OS,
    )
}


class FieldDefinition(TypedDict):
    """The public description of a field."""

    name: str
    title: str
    kind: str
    doc: str


class Answer(NamedTuple):
    """The requested fields, and one cell per field and row."""

    fields: list[FieldDefinition]
    data: list[list[Cell]]

    def to_dict(self) -> dict[str, Any]:
        """Return the wire form."""
        return {"fields": self.fields, "data": self.data}


def resource_of(name: str) -> Resource:
    """Return a resource by its wire name.

    Raises:
        OpPrereqError: no resource has that name.
    """
    resource = RESOURCES.get(name)
    if resource is None:
        raise errors.OpPrereqError(
            f"{name!r} is not a resource that can be queried, wanted one of"
            f" {', '.join(sorted(RESOURCES))}",
            ecodes.ECODE_INVAL,
        )
    return resource


def definition(resource: Resource, name: str) -> FieldDefinition:
    """Return the description of a field, also of an unknown one."""
    field = resource.fields.get(name)
    if field is None:
        return {"name": name, "title": name, "kind": constants.QFT_UNKNOWN, "doc": ""}
    return {
        "name": name,
        "title": field.title,
        "kind": field.kind,
        "doc": field.doc,
    }


def describe(what: str, names: Sequence[str] | None) -> list[FieldDefinition]:
    """Return the definitions of the named fields, or of all in natural order."""
    resource = resource_of(what)
    return [
        definition(resource, name)
        for name in names or nicesort.nice_names(resource.fields)
    ]


#: Programs whose ``list-fields`` shows the fields of a resource.
_PROGRAMS: Final = {
    constants.QR_FILTER: "gnt-filter",
    constants.QR_GROUP: "gnt-group",
    constants.QR_INSTANCE: "gnt-instance",
    constants.QR_JOB: "gnt-job",
    constants.QR_NODE: "gnt-node",
}
#: Resources whose rows themselves come from nodes.
_FROM_NODES: Final = frozenset(
    {constants.QR_EXPORT, constants.QR_EXTSTORAGE, constants.QR_OS}
)


def asks_nodes(what: str, names: Iterable[str], qfilter: Any) -> bool:
    """Return whether a query has to wait for nodes."""
    resource = resource_of(what)
    fields = qlang.fields_of(qfilter) | frozenset(names)
    return what in _FROM_NODES or bool(live_needs(resource, fields))


def query(sources: Sources, what: str, names: Sequence[str], qfilter: Any) -> Answer:
    """Answer a query; may take long, as it may call nodes.

    Args:
        sources: data of the answer.
        what: resource.
        names: names of fields; unknown ones give cells of that status.
        qfilter: None or a checked filter.

    Raises:
        ParameterError: the filter does not fit the fields.
        OpPrereqError: unknown_entity, a requested name does not exist.
    """
    resource = resource_of(what)
    context = QueryContext(sources, qlang.fields_of(qfilter) | frozenset(names))
    rows = _select(resource, context, qfilter)
    rows = load(resource, context, rows, names, qfilter)
    return Answer(
        [definition(resource, name) for name in names],
        cells(resource, context, names, rows),
    )


def _select(resource: Resource, context: QueryContext, qfilter: Any) -> Sequence[Any]:
    """Return the rows that may match, by configuration data alone."""
    asked = qlang.requested_names(qfilter, resource.name_field)
    # Checked before any row exists, so a wrong filter is refused on an empty cluster
    # too.
    fits = predicate(resource, context, qfilter, live=False)
    rows = resource.rows(context, asked)
    if qfilter is None:
        return rows
    return [row for row in rows if fits(row) is not False]


def load(
    resource: Resource,
    context: QueryContext,
    rows: Sequence[Any],
    names: Iterable[str],
    qfilter: Any,
) -> Sequence[Any]:
    """Fetch the live data that fields and filter need; return the matching rows."""
    in_filter = live_needs(resource, qlang.fields_of(qfilter))
    for need in sorted(in_filter | live_needs(resource, names)):
        context.live[need] = resource.fetch[need](context, rows)
    if not in_filter:
        return rows
    fits = predicate(resource, context, qfilter, live=True)
    return [row for row in rows if fits(row)]


def live_needs(resource: Resource, names: Iterable[str]) -> set[str]:
    """Return the names of the live data that some fields need."""
    fields = (resource.fields.get(name) for name in names)
    return {field.live for field in fields if field is not None and field.live}


def predicate(
    resource: Resource, context: QueryContext, qfilter: Any, *, live: bool
) -> qlang.Predicate:
    """Return the function of a filter; without live data some results are None.

    Raises:
        ParameterError: the filter does not fit the fields.
    """

    def resolve(name: str) -> qlang.Leaf:
        field = resource.fields.get(name)
        if field is None:
            raise errors.ParameterError(_unknown_field(resource, name))
        skip = bool(field.live) and not live
        get = unknown if skip else _filled(field.bind(context), field.absent)
        return qlang.Leaf(name, field.kind, get, field.match, skip)

    return qlang.compile_(qfilter, resolve)


def _filled(get: Getter, absent: str | float | None) -> Getter:
    """Return a getter that has a value for filters where a field is unavailable."""
    if absent is None:
        return get
    cell = normal(absent)

    def filled(row: Any) -> Cell:
        actual = get(row)
        return cell if actual == UNAVAIL else actual

    return filled


def _unknown_field(resource: Resource, name: str) -> str:
    text = f"filter: unknown field {name} of resource {resource.name}"
    program = _PROGRAMS.get(resource.name)
    if program is None:
        return f"{text}; {messages.known_names(name, resource.fields)}"
    return f"{text}, see {program} list-fields"


def cells(
    resource: Resource, context: QueryContext, names: Sequence[str], rows: Sequence[Any]
) -> list[list[Cell]]:
    """Return a cell per row and name; computed by column, as many columns are cheap."""
    columns = [_column(resource, context, name, rows) for name in names]
    return list(map(list, zip(*columns, strict=True) if columns else [()] * len(rows)))


def _column(
    resource: Resource, context: QueryContext, name: str, rows: Sequence[Any]
) -> Iterable[Cell]:
    field = resource.fields.get(name)
    if field is None:
        return itertools.repeat(UNKNOWN, len(rows))
    if field.column is not None:
        return field.column(context, rows)
    return map(field.bind(context), rows)


def legacy(
    sources: Sources, what: str, identifiers: Sequence[Any], names: Sequence[str]
) -> list[list[Any]]:
    """Answer an older call: plain values, null for missing ones.

    Args:
        sources: data of the answer.
        what: resource.
        identifiers: names, also shortened ones, or uuids; none means all. Unknown
            jobs give a row of nulls, unknown filter rules are left out.
        names: names of fields.

    Raises:
        OpPrereqError: wrong_input, a field is unknown; unknown_entity, an object is.
    """
    resource = _resource_with(what, names)
    context = QueryContext(sources, frozenset(names))
    rows = _legacy_rows(resource, context, identifiers)
    rows = load(resource, context, rows, names, None)
    getters = resource.getters(context, names)
    return [[get(row)[1] for get in getters] for row in rows]


def objects(
    sources: Sources,
    what: str,
    identifiers: Sequence[Any],
    names: Sequence[str],
    lists: encoded.EncodedLists,
) -> bytes:
    """Answer as the remote API does: the JSON text of a list of objects.

    Args:
        sources: data of the answer.
        what: resource.
        identifiers: see `legacy`.
        names: names of fields, each once.
        lists: texts of former answers, of which parts may be used again.

    Raises:
        OpPrereqError: see `legacy`.
    """
    resource = _resource_with(what, names)
    if len(set(names)) != len(names):
        raise errors.OpPrereqError(
            f"fields: wanted each once, found {', '.join(names)}", ecodes.ECODE_INVAL
        )
    if identifiers or not encoded.keeps(resource):
        return encoded.objects_text(names, legacy(sources, what, identifiers, names))
    context = QueryContext(sources, frozenset(names))
    rows = lists.rows(resource, context)
    load(resource, context, rows, names, None)
    return lists.text(resource, context, names, rows)


def _resource_with(what: str, names: Sequence[str]) -> Resource:
    """Return a resource that has all of the given fields.

    Raises:
        OpPrereqError: wrong_input, it has not.
    """
    resource = resource_of(what)
    unknown = [name for name in names if name not in resource.fields]
    if unknown:
        raise errors.OpPrereqError(
            f"Unknown output fields selected: {', '.join(unknown)}", ecodes.ECODE_INVAL
        )
    return resource


def _legacy_rows(
    resource: Resource, context: QueryContext, identifiers: Sequence[Any]
) -> Sequence[Any]:
    """Return all rows, or those of the named objects in the order of the call."""
    if not identifiers:
        return resource.rows(context, None)
    if resource.name == constants.QR_FILTER:
        rows = resource.rows(context, None)
        return [row for row in rows if row.uuid in identifiers]
    if resource.name == constants.QR_EXPORT:
        snapshot = context.snapshot
        nodes = {lookup.expand_node(snapshot, str(name)) for name in identifiers}
        names = {context.node_name(uuid) for uuid in nodes}
        return [row for row in resource.rows(context, None) if row.node in names]
    return resource.rows(context, list(dict.fromkeys(identifiers)))


def field_of(what: str, name: str) -> Field:
    """Return a field; KeyError if there is none."""
    return resource_of(what).fields[name]
