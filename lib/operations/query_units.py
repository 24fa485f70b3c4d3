"""Units that answer queries: of the cluster, of OS definitions, of providers."""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from ganeti.base.constants import query
from ganeti.base.constants import query as constants
from ganeti.master import query as answers
from ganeti.master.query import cluster_info
from ganeti.model import opcodes, qlang
from ganeti.operations.base import LogicalUnit

#: Resources that these units answer; the others are LUXI queries.
OFFERED: Final = (query.QR_CLUSTER, query.QR_EXTSTORAGE, query.QR_OS)


class Query(LogicalUnit[opcodes.Query]):
    """Unit that answers queries of cluster, OS definitions and storage providers."""

    READS_ONLY = True

    def check_arguments(self) -> None:
        """Check resource and filter."""
        if self.op.what not in OFFERED:
            raise self.prereq(
                f"query of {self.op.what}: wanted one of {', '.join(OFFERED)} in a job;"
                " the others are LUXI queries"
            )
        qlang.check(self.op.qfilter)

    def execute(self) -> dict[str, Any]:
        """Return the wire form of the answer."""
        return answers.query(
            self.ctx.query_sources(), self.op.what, self.op.fields, self.op.qfilter
        ).to_dict()


class QueryFields(LogicalUnit[opcodes.QueryFields]):
    """Unit that describes the named fields, or all."""

    READS_ONLY = True

    def execute(self) -> dict[str, Any]:
        """Return the wire form of the definitions."""
        return {"fields": answers.describe(self.op.what, self.op.fields)}


class ClusterConfigQuery(LogicalUnit[opcodes.ClusterConfigQuery]):
    """Unit that returns values in the order of the requested fields."""

    READS_ONLY = True

    def check_arguments(self) -> None:
        """Check the field names."""
        known = answers.RESOURCES[query.QR_CLUSTER].fields
        unknown = sorted(set(self.op.output_fields) - set(known))
        if unknown:
            raise self.prereq(f"unknown fields: {', '.join(unknown)}")

    def execute(self) -> list[Any]:
        """Return the values."""
        answer = answers.query(
            self.ctx.query_sources(), query.QR_CLUSTER, self.op.output_fields, None
        )
        return [value for _status, value in answer.data[0]]


class ClusterQuery(LogicalUnit[opcodes.ClusterQuery]):
    """Unit that returns the cluster information dictionary."""

    READS_ONLY = True

    def execute(self) -> dict[str, Any]:
        """Return the dictionary."""
        return cluster_info.cluster_info(self.ctx.snapshot)


D = TypeVar("D", opcodes.OsDiagnose, opcodes.ExtStorageDiagnose)

#: A definition with such a value is only shown if the field is requested.
_USUAL: Final = (("hidden", False), ("blacklisted", False), ("valid", True))


class _Diagnose(LogicalUnit[D]):
    """Base of both units."""

    READS_ONLY = True

    def _answer(self, what: str, qfilter: list[Any] | None) -> list[list[Any]]:
        answer = answers.query(
            self.ctx.query_sources(), what, self.op.output_fields, qfilter
        )
        return [[value for _status, value in row] for row in answer.data]

    def _check_fields(self, what: str) -> None:
        known = answers.RESOURCES[what].fields
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
