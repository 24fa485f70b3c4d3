"""The row of one parameter in the tables."""

from typing import Any, NamedTuple


class HvParam(NamedTuple):
    """One hypervisor parameter.

    ``allowed`` is a text or a list of values; None means any value of the type.
    ``required`` parameters may not be empty; ``cluster_only`` ones cannot be set
    on an instance.
    """

    type: str
    default: Any
    required: bool
    allowed: Any
    cluster_only: bool
    meaning: str
