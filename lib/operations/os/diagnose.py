"""OP_OS_DIAGNOSE and OP_EXT_STORAGE_DIAGNOSE: definitions on the nodes."""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from ganeti.base.constants import query as constants
from ganeti.master import query
from ganeti.model import opcodes
from ganeti.operations.base import LogicalUnit

D = TypeVar("D", opcodes.OsDiagnose, opcodes.ExtStorageDiagnose)

#: A definition with such a value is only shown if the field is requested.
_USUAL: Final = (("hidden", False), ("blacklisted", False), ("valid", True))


class _Diagnose(LogicalUnit[D]):
    """Base of both units."""

    READS_ONLY = True

    def _answer(self, what: str, qfilter: list[Any] | None) -> list[list[Any]]:
        answer = query.query(
            self.ctx.query_sources(), what, self.op.output_fields, qfilter
        )
        return [[value for _status, value in row] for row in answer.data]

    def _check_fields(self, what: str) -> None:
        known = query.RESOURCES[what].fields
        unknown = sorted(set(self.op.output_fields) - set(known))
        if unknown:
            raise self.prereq(f"unknown fields: {', '.join(unknown)}")


class OsDiagnose(_Diagnose[opcodes.OsDiagnose]):
    """Unit that lists OS definitions; unusable ones only if requested."""

    def check_arguments(self) -> None:
        """Check the field names."""
        self._check_fields(constants.QR_OS)

    def execute(self) -> list[list[Any]]:
        """Return one row per definition, values in the order of the fields."""
        return self._answer(
            constants.QR_OS, os_filter(self.op.names, self.op.output_fields)
        )


class ExtStorageDiagnose(_Diagnose[opcodes.ExtStorageDiagnose]):
    """Unit that lists external storage providers."""

    def check_arguments(self) -> None:
        """Check the field names."""
        self._check_fields(constants.QR_EXTSTORAGE)

    def execute(self) -> list[list[Any]]:
        """Return one row per provider, values in the order of the fields."""
        return self._answer(constants.QR_EXTSTORAGE, name_filter(self.op.names))


def name_filter(names: Sequence[str]) -> list[Any] | None:
    """Return the filter for names, None for all."""
    if not names:
        return None
    return ["|", *(["==", "name", name] for name in names)]


def os_filter(names: Sequence[str], fields: Sequence[str]) -> list[Any] | None:
    """Return the filter for names and for definitions that can be used."""
    parts = [item] if (item := name_filter(names)) else []
    for field, value in _USUAL:
        if field not in fields:
            parts.append(["?", field] if value else ["!", ["?", field]])
    if len(parts) < 2:
        return parts[0] if parts else None
    return ["&", *parts]
