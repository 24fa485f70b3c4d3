"""Opcodes: query."""

from typing import Annotated, Any, ClassVar

from ganeti.model import ht
from ganeti.model.ht import Doc
from ganeti.model.opcodes import common
from ganeti.model.opcodes.base import Opcode


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
