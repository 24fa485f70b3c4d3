"""``volumes``, ``list-storage`` and ``modify-storage``: storage units of nodes."""

from typing import Any, Final

from ganeti.base.constants import exitcodes
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing, table
from ganeti.commands.cli.waiting import jobs, operation

_VOLUME_TITLES: Final = {
    "node": "Node",
    "phys": "PhysDev",
    "vg": "VG",
    "name": "Name",
    "size": "Size",
    "instance": "Instance",
}
_STORAGE_TITLES: Final = {
    "node": "Node",
    "type": "Type",
    "name": "Name",
    "size": "Size",
    "used": "Used",
    "free": "Free",
    "allocatable": "Allocatable",
}
_SIZES: Final = frozenset(("size", "used", "free"))


def _show(
    ctx: CommandContext,
    titles: dict[str, str],
    fields: list[str],
    rows: list[list[Any]],
) -> None:
    if ctx.opts.json:
        objects = [dict(zip(fields, row, strict=True)) for row in rows]
        listing.print_json(ctx, objects)
        return
    columns = [
        table.Column(
            titles.get(field, field),
            "unit" if field in _SIZES else "text",
            table.format_bool if field == "allocatable" else None,
        )
        for field in fields
    ]
    unit = table.default_unit(ctx.opts.units, ctx.opts.separator)
    formats = [table.format_of(column, unit) for column in columns]
    texts = [
        [show(cell) for show, cell in zip(formats, row, strict=True)] for row in rows
    ]
    listing.print_table(ctx, columns, texts)


def volumes(ctx: CommandContext) -> None:
    """List logical volumes."""
    fields = listing.selected_fields(ctx.opts.output, ctx.command.fields)
    rows = jobs.run(ctx, operation.fill(ctx, output_fields=fields))
    # All values in the job's result are texts.
    shown = [
        [
            int(value) if field == "size" else value
            for field, value in zip(fields, row, strict=True)
        ]
        for row in rows
    ]
    _show(ctx, _VOLUME_TITLES, fields, shown)


def list_storage(ctx: CommandContext) -> None:
    """List storage units."""
    fields = listing.selected_fields(ctx.opts.output, ctx.command.fields)
    rows = jobs.run(ctx, operation.fill(ctx, output_fields=fields))
    _show(ctx, _STORAGE_TITLES, fields, rows)


def modify_storage(ctx: CommandContext) -> int:
    """Change a storage unit."""
    if ctx.opts.allocatable is None:
        ctx.err("No changes to perform, exiting.")
        return exitcodes.EXIT_SUCCESS
    return operation.run(ctx, changes={"allocatable": ctx.opts.allocatable})
