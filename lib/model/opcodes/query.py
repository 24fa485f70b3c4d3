"""Opcodes of queries, OS definitions, storage providers and tags."""

from typing import Annotated, Any, ClassVar

from ganeti.model import ht
from ganeti.model.ht import Doc
from ganeti.model.opcodes import common
from ganeti.model.opcodes.common import Opcode


class Query(Opcode, tag="OP_QUERY", frozen=True, kw_only=True):
    """Query through a job (os, cluster, extstorage and the luxi ones)."""

    SUMMARY_FIELD: ClassVar[str | None] = "what"
    RESULT: ClassVar[Any] = ht.QueryResponse

    fields: Annotated[list[ht.NonEmptyStr], Doc("wanted fields")]
    qfilter: Annotated[list[Any] | None, Doc("query2 filter")] = None
    use_locking: common.UseLocking = False
    what: Annotated[ht.QueryResource, Doc("resource to query")]


class QueryFields(Opcode, tag="OP_QUERY_FIELDS", frozen=True, kw_only=True):
    """Field definitions through a job."""

    SUMMARY_FIELD: ClassVar[str | None] = "what"
    RESULT: ClassVar[Any] = ht.QueryFieldsResponse

    fields: Annotated[
        list[ht.NonEmptyStr] | None, Doc("wanted fields, null for all")
    ] = None
    what: Annotated[ht.QueryResource, Doc("resource to query")]


class ExtStorageDiagnose(
    Opcode, tag="OP_EXT_STORAGE_DIAGNOSE", frozen=True, kw_only=True
):
    """List external storage providers."""

    RESULT: ClassVar[Any] = list[list[Any]]

    names: Annotated[list[ht.NonEmptyStr], Doc("names to look at, empty for all")] = []
    output_fields: common.OutputFields


class OsDiagnose(Opcode, tag="OP_OS_DIAGNOSE", frozen=True, kw_only=True):
    """List OS definitions."""

    RESULT: ClassVar[Any] = list[list[Any]]

    names: Annotated[list[ht.NonEmptyStr], Doc("names to look at, empty for all")] = []
    output_fields: common.OutputFields


class TagsDel(Opcode, tag="OP_TAGS_DEL", frozen=True, kw_only=True):
    """Remove tags."""

    RESULT: ClassVar[Any] = None

    kind: common.Kind
    name: common.Name = None
    tags: Annotated[list[str], Doc("tags to add or remove")]


class TagsGet(Opcode, tag="OP_TAGS_GET", frozen=True, kw_only=True):
    """List tags."""

    SUMMARY_FIELD: ClassVar[str | None] = "name"
    RESULT: ClassVar[Any] = list[ht.NonEmptyStr]

    kind: common.Kind
    name: common.Name = None
    use_locking: common.UseLocking = False


class TagsSearch(Opcode, tag="OP_TAGS_SEARCH", frozen=True, kw_only=True):
    """Find tags; result rows [object path, tag]."""

    SUMMARY_FIELD: ClassVar[str | None] = "pattern"
    RESULT: ClassVar[Any] = list[tuple[ht.NonEmptyStr, ht.NonEmptyStr]]

    pattern: Annotated[ht.NonEmptyStr, Doc("regular expression searched in tags")]


class TagsSet(Opcode, tag="OP_TAGS_SET", frozen=True, kw_only=True):
    """Add tags."""

    RESULT: ClassVar[Any] = None

    kind: common.Kind
    name: common.Name = None
    tags: Annotated[list[str], Doc("tags to add or remove")]
