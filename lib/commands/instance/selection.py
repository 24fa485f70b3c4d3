"""Selection of a command's instances: by name, node, tags, or all instances.

``startup``, ``shutdown`` and ``reboot`` submit one job per selected instance.
"""

from typing import Final

from ganeti.base.constants import exitcodes
from ganeti.base.errors import refusal
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.waiting import executor, operation

_BY_NAME: Final = "instances"
_EVERYTHING: Final = "cluster"
_BY_INSTANCE_TAGS: Final = "instances-by-tags"
#: Node selection mode -> fields with the instances to select.
_NODE_LISTS: Final = {
    "nodes": ("pinst_list", "sinst_list"),
    "nodes-pri": ("pinst_list",),
    "nodes-sec": ("sinst_list",),
}
_BY_TAGS_SUFFIX: Final = "-by-tags"


def _require(names: list[str], kind: str) -> None:
    if not names:
        raise refusal(f"no {kind} passed")


def expand(ctx: CommandContext, mode: str | None) -> list[str]:
    """Return the names of the selected instances, each once.

    Raises:
        OpPrereqError: the arguments do not fit the mode, or a name is unknown.
    """
    names = ctx.args
    if mode in (None, _BY_NAME):
        _require(names, "instance names")
        return listing.full_names(ctx, "instance", names)
    if mode == _EVERYTHING:
        if names:
            raise refusal("--all takes no instance names")
        return listing.full_names(ctx, "instance", [])
    if mode == _BY_INSTANCE_TAGS:
        _require(names, "instance tags")
        rows = listing.query_objects(ctx, "instance", ["name", "tags"])
        return [row["name"] for row in rows if set(row["tags"]).intersection(names)]
    return _by_node(ctx, str(mode), names)


def _by_node(ctx: CommandContext, mode: str, names: list[str]) -> list[str]:
    by_tags = mode.endswith(_BY_TAGS_SUFFIX)
    _require(names, "node tags" if by_tags else "node names")
    lists = _NODE_LISTS[mode.removesuffix(_BY_TAGS_SUFFIX)]
    fields = [*lists, "tags"]
    nodes = listing.named(ctx, "node", fields, [] if by_tags else names)
    chosen: dict[str, None] = {}
    for node in nodes:
        if by_tags and not set(node["tags"]).intersection(names):
            continue
        for key in lists:
            chosen.update(dict.fromkeys(node[key]))
    return list(chosen)


def run(ctx: CommandContext) -> int:
    """Ask for confirmation and submit one job per instance; return the exit code."""
    mode, verb = ctx.opts.multi_mode, ctx.command.name
    names = expand(ctx, mode)
    if not names:
        if mode == _EVERYTHING:
            ctx.out(f"Cluster is empty, no instances to {verb}")
            return exitcodes.EXIT_SUCCESS
        raise refusal("the selection matches no instances")
    several = mode not in (None, _BY_NAME) or len(names) > 1
    if several and not ctx.opts.force_multi:
        agreed = prompts.confirm_operation(ctx, names, kind="instances", operation=verb)
        if not agreed:
            return exitcodes.EXIT_FAILURE
    all_jobs = executor.JobExecutor(ctx)
    for name in names:
        all_jobs.add(name, operation.fill(ctx, instance_name=name))
    return all_jobs.finish_or_show(quiet=not several)
