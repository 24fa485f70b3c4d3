"""``info``: parameters and policy of node groups."""

from typing import Any, Final

from ganeti.commands.cli import ipolicy
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import info_tree, listing

FIELDS: Final = [
    "name",
    "ndparams",
    "custom_ndparams",
    "diskparams",
    "custom_diskparams",
    "ipolicy",
    "custom_ipolicy",
]


def run(ctx: CommandContext) -> None:
    """Show node groups."""
    groups = listing.named(ctx, "group", FIELDS, ctx.args)
    if ctx.opts.json:
        listing.print_json(ctx, groups)
        return
    if groups:
        ctx.out(info_tree.render([_group(group) for group in groups]))


def _group(group: dict[str, Any]) -> info_tree.Pairs:
    own_disk = group["custom_diskparams"] or {}
    disk_parameters = {
        template: info_tree.with_defaults(filled, own_disk.get(template, {}))
        or "default ({})"
        for template, filled in (group["diskparams"] or {}).items()
    }
    return info_tree.Pairs(
        [
            ("Node group", group["name"]),
            (
                "Node parameters",
                info_tree.with_defaults(
                    group["ndparams"] or {}, group["custom_ndparams"] or {}
                ),
            ),
            ("Disk parameters", disk_parameters),
            (
                "Instance policy",
                ipolicy.to_tree(group["ipolicy"], group["custom_ipolicy"] or {}),
            ),
        ]
    )
