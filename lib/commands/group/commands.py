"""Commands of ``gnt-group``: add, info and modify."""

from typing import Any, Final

from ganeti.commands.cli import ipolicy
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import info_tree, listing
from ganeti.commands.cli.waiting import executor, operation, submission

FIELDS: Final = [
    "name",
    "ndparams",
    "custom_ndparams",
    "diskparams",
    "custom_diskparams",
    "ipolicy",
    "custom_ipolicy",
]


def info(ctx: CommandContext) -> None:
    """Show node groups."""
    listing.show_named(ctx, "group", FIELDS, _group)


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


def add(ctx: CommandContext) -> int:
    """Create a node group."""
    policy = ipolicy.from_options(ctx, group=True) or None
    job = submission.submit_or_run(ctx, operation.fill(ctx, ipolicy=policy))
    if isinstance(job.result, dict):
        executor.wait_for_jobs(ctx, job.result)
    return job.code


def modify(ctx: CommandContext) -> int:
    """Change a node group."""
    return operation.run(ctx, ipolicy=ipolicy.from_options(ctx, group=True) or None)
