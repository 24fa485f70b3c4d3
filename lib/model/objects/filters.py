"""The job filter record."""

from typing import Any, ClassVar

from ganeti.model.objects.base import Record


class FilterRule(Record, frozen=True, kw_only=True):
    """One job filter rule."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(())

    watermark: int
    priority: int
    #: Name is jobid, opcode or reason.
    predicates: tuple[Any, ...]
    #: Case matters.
    action: Any
    reason_trail: tuple[Any, ...]
    #: Equals the key of the containing map.
    uuid: str
