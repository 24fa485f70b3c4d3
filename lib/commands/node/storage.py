"""``volumes``, ``list-storage``, ``modify-storage`` and ``repair-storage``."""

from typing import Any, Final

from ganeti.base.constants import exitcodes
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing, table
from ganeti.commands.cli.waiting import jobs, submission

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
    cells = [[show(row[index]) for row in rows] for index, show in enumerate(formats)]
    text = table.render(
        columns,
        cells,
        separator=ctx.opts.separator,
        headers=not ctx.opts.no_headers,
        pad_header=True,
    )
    if text:
        ctx.out(text)


def volumes(ctx: CommandContext) -> None:
    """List logical volumes."""
    fields = listing.selected_fields(ctx.opts.output, ctx.command.fields)
    operation = jobs.op("OP_NODE_QUERYVOLS", nodes=ctx.args, output_fields=fields)
    rows = jobs.run(ctx, operation)
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
    operation = jobs.op(
        "OP_NODE_QUERY_STORAGE",
        nodes=ctx.args,
        storage_type=ctx.opts.user_storage_type,
        output_fields=fields,
    )
    _show(ctx, _STORAGE_TITLES, fields, jobs.run(ctx, operation))


def modify_storage(ctx: CommandContext) -> int:
    """Change a storage unit."""
    node, storage_type, name = ctx.args
    if ctx.opts.allocatable is None:
        ctx.err("No changes to perform, exiting.")
        return exitcodes.EXIT_SUCCESS
    operation = jobs.op(
        "OP_NODE_MODIFY_STORAGE",
        node_name=node,
        storage_type=storage_type,
        name=name,
        changes={"allocatable": ctx.opts.allocatable},
    )
    return submission.submit_or_run(ctx, operation).code


def repair_storage(ctx: CommandContext) -> int:
    """Repair a storage unit."""
    node, storage_type, name = ctx.args
    operation = jobs.op(
        "OP_REPAIR_NODE_STORAGE",
        node_name=node,
        storage_type=storage_type,
        name=name,
        ignore_consistency=ctx.opts.ignore_consistency,
    )
    return submission.submit_or_run(ctx, operation).code
