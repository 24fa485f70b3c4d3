"""``--explain``: where an allocator puts instances, and why not on other nodes.

The job is only tried (``--dry-run``): it asks its allocators as it would, and its log
has their reasons as data. Here they are printed, for people or as one JSON document.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.cli import jobs, submission
from ganeti.cli.context import CommandContext
from ganeti.constants import ecodes, exitcodes
from ganeti.htools.rules import reasons
from ganeti.utils.control_chars import escape

Data = Mapping[str, Any]
_NOBODY: Final = "No allocator was asked."


def run(ctx: CommandContext, operation: jobs.Op, name: str | None = None) -> int:
    """Have a job checked; print where its instances go, and the reasons.

    They are printed too when it cannot be done; the error follows. Returns the exit
    code; with ``--plan`` the plan is printed instead.

    Args:
        ctx: the command.
        operation: the opcode.
        name: of the instance, of an opcode that is about a single one.

    Raises:
        OpPrereqError: without ``--dry-run``, or with ``--submit``.
        GenericError: the error of the job.
    """
    if not ctx.option("dry_run") or ctx.option("submit_only"):
        raise errors.OpPrereqError(
            "--explain goes with --dry-run only, without --submit", ecodes.ECODE_INVAL
        )
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
        ctx.out(_NOBODY)
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
        ctx.out(_NOBODY)
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
