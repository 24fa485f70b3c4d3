"""``balance``: plan the moves that balance the cluster, and apply them."""

import json
from collections.abc import Iterator
from typing import Any

from ganeti.base.constants import exitcodes
from ganeti.base.errors import refusal
from ganeti.base.text.control_chars import escape
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting.executor import JobExecutor, report

_Group = dict[str, Any]


def run(ctx: CommandContext) -> int:
    """Print the plan; with ``--apply``, submit its jobs and wait for them."""
    opts = ctx.opts
    if opts.apply and (opts.plan or opts.json):
        raise refusal("--apply excludes --plan and --json")
    plan = ctx.call("PlanBalance", _wanted(ctx))
    if opts.json:
        ctx.out(json.dumps(plan, indent=2, sort_keys=True))
        return exitcodes.EXIT_SUCCESS
    for line in lines(plan["groups"], explain=bool(opts.explain)):
        ctx.out(line)
    return _apply(ctx, plan) if opts.apply else exitcodes.EXIT_SUCCESS


def _wanted(ctx: CommandContext) -> dict[str, Any]:
    opts = ctx.opts
    given = {
        "group": opts.nodegroup,
        "max_moves": opts.max_moves,
        "min_gain": opts.min_gain,
        "min_gain_limit": opts.min_gain_limit,
        "evacuate": opts.evac_mode,
        "disk_moves": False if opts.no_disk_moves else None,
        "instance_moves": False if opts.no_instance_moves else None,
        "restricted": opts.restricted_migration,
        "ignore_soft_errors": opts.ignore_soft_errors,
        "search": opts.search,
        "explain": opts.explain,
        "allocator": opts.iallocator,
    }
    return {name: value for name, value in given.items() if value is not None}


def lines(groups: list[_Group], *, explain: bool) -> Iterator[str]:
    """Yield the lines of a plan in text form."""
    for group in groups:
        name, moves = escape(group["name"]), group["moves"]
        before, after = group["score_before"], group["score_after"]
        if before is None:
            yield f"Group {name}: {len(moves)} moves by the allocator"
        elif not moves:
            yield f"Group {name}: score {before:.8f}, nothing to do"
        else:
            yield (
                f"Group {name}: score {before:.8f} -> {after:.8f}"
                f" with {len(moves)} {'move' if len(moves) == 1 else 'moves'}"
            )
        for number, move in enumerate(moves, start=1):
            yield from _move_lines(number, move)
        if explain:
            yield f"  No more: {escape(group['stopped'])}"
            for instance, why in group["kept"].items():
                yield f"  {escape(instance)} stays: {escape(why)}"


def _move_lines(number: int, move: dict[str, Any]) -> Iterator[str]:
    score = "" if move["score"] is None else f"{move['score']:.8f}  "
    nodes = (":".join(move["from"]), ":".join(move["to"]))
    yield escape(
        f"  {number:3d}. {move['instance']} {nodes[0]} => {nodes[1]}"
        f"  {score}{move['how']}"
    )
    for name, (before, after) in move.get("components", {}).items():
        yield f"         {escape(name)} {before:.8f} -> {after:.8f}"


def _apply(ctx: CommandContext, plan: dict[str, Any]) -> int:
    """Submit the moves, each after the earlier moves that use its nodes."""
    moves = [move for group in plan["groups"] for move in group["moves"]]
    if not moves:
        return exitcodes.EXIT_SUCCESS
    question = f"Move {len(moves)} times as shown?"
    if not ctx.opts.confirm and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_CONFIRMATION
    executor = JobExecutor(ctx)
    for place, move in enumerate(moves):
        first, *rest = move["opcodes"]
        after = [[earlier - place, ["success"]] for earlier in move["depends"]]
        executor.add(move["instance"], *[{**first, "depends": after}, *rest])
    if ctx.opts.submit_only:
        return executor.finish_or_show()
    return report(
        ctx,
        executor.finish(),
        good="All instances moved successfully.",
        bad="There were {} errors while balancing.",
    )
