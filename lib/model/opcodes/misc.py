"""Opcodes: misc."""

from typing import Annotated, Any, ClassVar

from ganeti.model import ht
from ganeti.model.ht import Doc
from ganeti.model.opcodes import common
from ganeti.model.opcodes.base import Opcode


class ExtStorageDiagnose(
    Opcode, tag="OP_EXT_STORAGE_DIAGNOSE", frozen=True, kw_only=True
):
    """List external storage providers."""

    RESULT: ClassVar[Any] = list[list[Any]]

    names: Annotated[list[ht.NonEmptyStr], Doc("names to look at, empty for all")] = []
    output_fields: common.OutputFields


class OsDiagnose(Opcode, tag="OP_OS_DIAGNOSE", frozen=True, kw_only=True):
    """List OS definitions."""

    RESULT: ClassVar[Any] = list[list[Any]]

    names: Annotated[list[ht.NonEmptyStr], Doc("names to look at, empty for all")] = []
    output_fields: common.OutputFields
