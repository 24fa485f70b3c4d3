"""Base of all opcodes: common parameters, summary, redaction."""

from typing import Annotated, Any, ClassVar

import msgspec

from ganeti.base.text import control_chars
from ganeti.model import ht
from ganeti.model.ht import Doc


class Opcode(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="OP_ID",
):
    """One request to the master, as a typed record.

    Class attributes: ``SUMMARY_FIELD`` names the parameter shown in job summaries,
    ``RESULT`` is the type of the result, ``SUBMITS_JOBS`` marks opcodes whose logical
    unit returns further jobs.
    """

    SUMMARY_FIELD: ClassVar[str | None] = None
    RESULT: ClassVar[Any] = Any
    SUBMITS_JOBS: ClassVar[bool] = False

    comment: Annotated[str | None, Doc("free text kept with the opcode")] = None
    debug_level: Annotated[ht.NonNegInt | None, Doc("debug verbosity")] = None
    depends: Annotated[
        ht.Depends | None, Doc("jobs that must end first, and how they may end")
    ] = None
    dry_run: Annotated[bool | None, Doc("stop after the checks")] = None
    priority: Annotated[
        int, Doc("queue priority at submission; smaller runs first")
    ] = 0
    reason: Annotated[
        list[ht.ReasonEntry], Doc("reason trail: source, text, nanoseconds")
    ] = []

    @classmethod
    def op_id(cls) -> str:
        """Return the wire name, such as ``OP_INSTANCE_STARTUP``."""
        return str(cls.__struct_config__.tag)

    def summary(self) -> str:
        """Return the text that job lists show, such as ``INSTANCE_STARTUP(web1)``.

        It is one printable line, whatever the request contains.
        """
        name = self.op_id().removeprefix("OP_")
        if self.SUMMARY_FIELD is None:
            return name
        value = getattr(self, self.SUMMARY_FIELD)
        if isinstance(value, list):
            value = ",".join(str(item) for item in value)
        return f"{name}({control_chars.escape(str(value))})"

    def replace(self, **changes: Any) -> "Opcode":
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)
