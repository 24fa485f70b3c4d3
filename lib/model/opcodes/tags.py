"""Opcodes: tags."""

from typing import Annotated, Any, ClassVar

from ganeti.model import ht
from ganeti.model.ht import Doc
from ganeti.model.opcodes import common
from ganeti.model.opcodes.base import Opcode


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
