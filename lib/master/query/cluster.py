"""Query fields of the cluster itself."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import query as constants
from ganeti.base.constants import versions
from ganeti.master.query.model import (
    ClusterFacts,
    Field,
    Getter,
    QueryContext,
    Resource,
    by_name,
    normal,
    optional,
    plain,
)
from ganeti.model.objects import Cluster


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


RESOURCE: Final = Resource(constants.QR_CLUSTER, "", _FIELDS, _rows)
