"""Names of operating systems, with variants."""

from typing import Any

from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs


def diagnose(
    ctx: CommandContext, fields: list[str], *, generic: bool
) -> list[dict[str, Any]]:
    """Return the OS definitions of nodes as field -> value.

    Args:
        ctx: the command.
        fields: of the resource ``os``.
        generic: apply the generic options to the job.
    """
    operation = jobs.op("OP_OS_DIAGNOSE", output_fields=fields, names=[])
    rows = jobs.run(ctx, operation, generic=generic)
    return [dict(zip(fields, row, strict=True)) for row in rows]


def with_variants(name: str, variants: list[str] | None) -> list[str]:
    """Return the names with variants that instances use, such as ``deb+min``."""
    return [f"{name}+{variant}" for variant in variants] if variants else [name]


def usable_names(ctx: CommandContext, *, generic: bool) -> list[str]:
    """Return the names of all usable operating systems."""
    systems = diagnose(ctx, ["name", "variants"], generic=generic)
    return [
        name for os in systems for name in with_variants(os["name"], os["variants"])
    ]
