"""The row of one parameter in the tables."""

from typing import Any, NamedTuple

from ganeti.base.constants.parameters.forms import Form, Root


class HvParam(NamedTuple):
    """One hypervisor parameter.

    ``allowed`` is a text or a list of values; None means any value of the type.
    ``required`` parameters may not be empty; ``cluster_only`` ones cannot be set
    on an instance. ``form`` is that of any text, which a list of values makes needless;
    ``root`` are the values that need the right to control nodes.
    """

    type: str
    default: Any
    required: bool
    allowed: Any
    cluster_only: bool
    meaning: str
    form: Form | None = None
    root: Root | None = None
