"""OP_CLUSTER_CONFIG_QUERY: single values of the cluster."""

from typing import Any

from ganeti.base.constants import query as constants
from ganeti.master import query
from ganeti.model import opcodes
from ganeti.operations.base import LogicalUnit


class ClusterConfigQuery(LogicalUnit[opcodes.ClusterConfigQuery]):
    """Unit that returns values in the order of the requested fields."""

    READS_ONLY = True

    def check_arguments(self) -> None:
        """Check the field names."""
        known = query.RESOURCES[constants.QR_CLUSTER].fields
        unknown = sorted(set(self.op.output_fields) - set(known))
        if unknown:
            raise self.prereq(f"unknown fields: {', '.join(unknown)}")

    def execute(self) -> list[Any]:
        """Return the values."""
        answer = query.query(
            self.ctx.query_sources(), constants.QR_CLUSTER, self.op.output_fields, None
        )
        return [value for _status, value in answer.data[0]]
