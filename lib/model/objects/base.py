"""Base of all configuration records."""

from typing import Any, ClassVar, Self

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False, gc=False):
    """An immutable configuration record.

    Fields named in ``SPARSE`` are left out of the stored form while they have
    their default. Containers inside a record are never changed in place: make a
    new record with `replace`.
    """

    SPARSE: ClassVar[frozenset[str]] = frozenset()

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)
