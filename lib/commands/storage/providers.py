"""Providers of external storage as the nodes report them."""

from typing import Any

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs


def diagnose(ctx: CommandContext, fields: list[str]) -> list[dict[str, Any]]:
    """Return all providers as field -> value; the generic options apply to the job.

    Args:
        ctx: the command.
        fields: of the resource ``extstorage``.
    """
    operation = jobs.op("OP_EXT_STORAGE_DIAGNOSE", output_fields=fields, names=[])
    rows = jobs.run(ctx, operation, generic=True)
    return [dict(zip(fields, row, strict=True)) for row in rows]
