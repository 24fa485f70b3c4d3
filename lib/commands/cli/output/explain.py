"""``--explain``: the nodes that an allocator chooses, and why not others.

The job is only checked (``--dry-run``). It calls its allocators as usual, and its log
has their reasons as data. This module prints them, as text or as one JSON document.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base.constants import exitcodes
from ganeti.base.errors import refusal
from ganeti.base.text.control_chars import escape
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs, submission
from ganeti.decisions.htools.rules import reasons

Data = Mapping[str, Any]
_NO_ALLOCATOR: Final = "No allocator was used."


def run(ctx: CommandContext, operation: jobs.Op, name: str | None = None) -> int:
    """Have a job checked; print the chosen nodes of its instances, and the reasons.

    Both are printed even if the check fails; the error follows. With ``--plan``, the
    plan is printed instead. Returns the exit code.

    Args:
        ctx: the command.
        operation: the opcode.
        name: the instance's name, for an opcode on a single instance.

    Raises:
        OpPrereqError: without ``--dry-run``, or with ``--submit``.
        GenericError: the error of the job.
    """
    if not ctx.option("dry_run") or ctx.option("submit_only"):
        raise refusal("--explain needs --dry-run and excludes --submit")
    placements: list[Data] = []
    show = jobs.print_log(ctx)

    def on_log(entry: list[Any]) -> None:
        if entry[2] == jobs.PLACEMENT:
            placements.append(entry[3])
        else:
            show(entry)

    ops = [jobs.with_generic(ctx, operation)]
    if (code := submission.planned(ctx, [ops])) is not None:
        return code
    job_id = jobs.submit(ctx, ops)
    result: Any = None
    try:
        (result,) = jobs.wait(ctx, job_id, on_log)
    finally:
        if name is None:
            _print_all(ctx, placements)
        else:
            nodes = result if isinstance(result, list) else _chosen(placements)
            _print(ctx, name, nodes, placements)
    if name is not None and not (nodes or placements or ctx.option("json")):
        ctx.out(_NO_ALLOCATOR)
    return exitcodes.EXIT_SUCCESS


def _chosen(placements: Sequence[Data]) -> Sequence[str]:
    """Return the nodes that the last allocator chose for a single instance."""
    node_lists = [item["nodes"] for one in placements[-1:] for item in one["instances"]]
    return node_lists[0] if node_lists else ()


def _print(
    ctx: CommandContext, name: str, nodes: Sequence[str], placements: Sequence[Data]
) -> None:
    if ctx.option("json"):
        document = {
            "instance": name,
            "nodes": list(nodes),
            "allocators": list(placements),
        }
        ctx.out(json.dumps(document, indent=1))
        return
    if nodes or placements:
        ctx.out(f"Instance {name}: {escape(', '.join(nodes)) or 'no place'}")
    for one in placements:
        ctx.out(f"Allocator {one['allocator']}: {escape(one['info'])}")
        for item in one["instances"]:
            for line in _explanation(item).lines()[1:]:
                ctx.out(escape(line))


def _print_all(ctx: CommandContext, placements: Sequence[Data]) -> None:
    if ctx.option("json"):
        ctx.out(json.dumps({"allocators": list(placements)}, indent=1))
        return
    if not placements:
        ctx.out(_NO_ALLOCATOR)
    for one in placements:
        ctx.out(f"Allocator {one['allocator']}: {escape(one['info'])}")
        for item in one["instances"]:
            for line in _explanation(item).lines():
                ctx.out(f"  {escape(line)}")


def _explanation(item: Data) -> reasons.Explanation:
    against, choice = (
        tuple(reasons.Reason.from_data(row) for row in item.get(key, ()))
        for key in ("reasons", "choice")
    )
    return reasons.Explanation(item["instance"], tuple(item["nodes"]), against, choice)
