"""Selection of a command's instances: by name, node, tags, or all instances."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.waiting import executor
from ganeti.commands.cli.waiting.executor import JobExecutor, JobOutcome

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
        raise errors.OpPrereqError(f"no {kind} passed", ecodes.ECODE_INVAL)


def expand(ctx: CommandContext, mode: str | None) -> list[str]:
    """Return the names of the selected instances, each once.

    Raises:
        OpPrereqError: the arguments do not fit the mode, or a name is unknown.
    """
    names = ctx.args
    if mode in (None, _BY_NAME):
        _require(names, "instance names")
        return _names(listing.named(ctx, "instance", ["name"], names))
    if mode == _EVERYTHING:
        if names:
            raise errors.OpPrereqError(
                "--all takes no instance names", ecodes.ECODE_INVAL
            )
        return _names(listing.query_objects(ctx, "instance", ["name"]))
    if mode == _BY_INSTANCE_TAGS:
        _require(names, "instance tags")
        rows = listing.query_objects(ctx, "instance", ["name", "tags"])
        return _names(item for item in rows if set(item["tags"]).intersection(names))
    return _by_node(ctx, str(mode), names)


def for_names(
    ctx: CommandContext,
    names: list[str],
    build: Callable[[str], dict[str, Any]],
    show: Callable[[JobOutcome], None] | None = None,
) -> int:
    """Submit one job per name and report each; return 1 if one of them failed.

    Args:
        ctx: the command.
        names: known instances, see `known`.
        build: returns ``OP_ID`` and the parameters other than the instance's name.
        show: prints the result of a job that succeeded.
    """
    all_jobs = JobExecutor(ctx)
    for name in names:
        all_jobs.add(name, {**build(name), "instance_name": name})
    return all_jobs.finish_or_show(show=show)


def for_arguments(ctx: CommandContext, operation: dict[str, Any]) -> int:
    """Explain, plan, submit or run one job per instance that the command names.

    Args:
        ctx: the command; its arguments are names of instances.
        operation: the opcode without the instance's name.

    Raises:
        OpPrereqError: one of several instances does not exist; then nothing is done.
    """
    if ctx.opts.explain:
        from ganeti.commands.cli.output import explain

        names = ctx.args if len(ctx.args) == 1 else known(ctx, ctx.args)
        return max(
            explain.run(ctx, {**operation, "instance_name": name}, name)
            for name in names
        )
    return executor.for_named(ctx, "instance", operation)


def known(ctx: CommandContext, names: list[str]) -> list[str]:
    """Return the full names of instances, each once.

    Raises:
        OpPrereqError: an instance does not exist; then nothing is done with any.
    """
    return _names(listing.named(ctx, "instance", ["name"], names))


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


def _names(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return names, each once."""
    return list(dict.fromkeys(str(item["name"]) for item in rows))


def for_each(
    ctx: CommandContext, operation: str, build: Callable[[str], dict[str, Any]]
) -> int:
    """Ask for confirmation and submit one job per instance; return the exit code.

    Args:
        ctx: the command.
        operation: verb for messages, such as ``shutdown``.
        build: returns ``OP_ID`` and the parameters other than the instance's name.
    """
    mode = ctx.opts.multi_mode
    names = expand(ctx, mode)
    if not names:
        if mode == _EVERYTHING:
            ctx.out(f"Cluster is empty, no instances to {operation}")
            return exitcodes.EXIT_SUCCESS
        raise errors.OpPrereqError(
            "the selection matches no instances", ecodes.ECODE_INVAL
        )
    several = mode not in (None, _BY_NAME) or len(names) > 1
    if several and not ctx.opts.force_multi:
        agreed = prompts.confirm_operation(
            ctx, names, kind="instances", operation=operation
        )
        if not agreed:
            return exitcodes.EXIT_FAILURE
    all_jobs = JobExecutor(ctx)
    for name in names:
        all_jobs.add(name, {**build(name), "instance_name": name})
    return all_jobs.finish_or_show(quiet=not several)
