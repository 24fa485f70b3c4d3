"""OP_QUERY and OP_QUERY_FIELDS: queries that LUXI cannot answer without a job."""

from typing import Any, Final

from ganeti.base.constants import query as constants
from ganeti.master import query as answers
from ganeti.model import opcodes, qlang
from ganeti.operations.base import LogicalUnit

#: Resources that these units answer; the others are LUXI queries.
OFFERED: Final = (constants.QR_CLUSTER, constants.QR_EXTSTORAGE, constants.QR_OS)


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
