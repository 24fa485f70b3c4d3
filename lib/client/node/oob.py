"""``power`` and ``health``: through the out-of-band helper of each node."""

from typing import Any, Final

from ganeti import errors
from ganeti.cli import jobs, listing, prompts, submission, table
from ganeti.cli.context import CommandContext
from ganeti.constants import ecodes, exitcodes
from ganeti.constants import query as q

_COMMANDS: Final = {
    "on": "power-on",
    "off": "power-off",
    "cycle": "power-cycle",
    "status": "power-status",
}
_NEED_NODES: Final = ("off", "cycle")


def power(ctx: CommandContext) -> int:
    """Switch the power of nodes, or show its state."""
    opts = ctx.opts
    verb, *nodes = ctx.args
    if verb not in _COMMANDS:
        raise errors.OpPrereqError(
            f"power: wanted {', '.join(_COMMANDS)}, found {verb!r}", ecodes.ECODE_INVAL
        )
    if verb in _NEED_NODES:
        if not nodes:
            raise errors.OpPrereqError(
                f"power {verb}: please name the nodes", ecodes.ECODE_INVAL
            )
        if not opts.force and not prompts.confirm_operation(
            ctx, nodes, kind="nodes", operation=f"power {verb}"
        ):
            return exitcodes.EXIT_FAILURE
    ops = []
    if verb == "off" and not opts.ignore_status:
        ops = [
            jobs.op(
                "OP_NODE_SET_PARAMS",
                node_name=node,
                offline=True,
                auto_promote=opts.auto_promote,
            )
            for node in nodes
        ]
    ops.append(
        jobs.op(
            "OP_OOB_COMMAND",
            node_names=nodes,
            command=_COMMANDS[verb],
            ignore_status=opts.ignore_status,
            timeout=opts.oob_timeout,
            power_delay=opts.power_delay,
        )
    )
    job = submission.run_job(ctx, [jobs.with_generic(ctx, op) for op in ops])
    if not job.is_done:
        return job.code
    return _show(ctx, job.result, _power_lines if verb == "status" else _invoked)


def health(ctx: CommandContext) -> int:
    """Show the health reports of the nodes' hardware."""
    operation = jobs.op(
        "OP_OOB_COMMAND",
        node_names=ctx.args,
        command="health",
        timeout=ctx.opts.oob_timeout,
    )
    return _show(ctx, jobs.run(ctx, operation), _health_lines)


def _power_lines(data: Any) -> list[str]:
    return ["powered" if data["powered"] else "unpowered"]


def _invoked(_: Any) -> list[str]:
    return ["invoked"]


def _health_lines(data: Any) -> list[str]:
    return [f"{item}={status}" for item, status in data]


def _status_json(data: Any, status: int) -> Any:
    """Return the JSON form: ``powered`` as a boolean, or the state per component."""
    if status != q.RS_NORMAL:
        return None
    return dict(data) if isinstance(data, list) else data


def _show(ctx: CommandContext, result: list[Any], lines_of: Any) -> int:
    """Print a table of nodes and their output; fail if a node failed."""
    names, texts, objects = [], [], []
    failed = False
    for (_, node), (status, data) in result:
        objects.append({"node": node, "status": _status_json(data, status)})
        if status != q.RS_NORMAL:
            failed = True
            verbose, _ = q.RSS_DESCRIPTION[status]
            objects[-1]["_status"] = {"status": verbose.strip("()")}
            lines = [verbose]
        else:
            lines = lines_of(data)
        names += [node] + [""] * (len(lines) - 1)
        texts += lines
    if ctx.opts.json:
        listing.print_json(ctx, objects)
    else:
        ctx.out(
            table.render(
                [table.Column("Node"), table.Column("Status")],
                [names, texts],
                separator=ctx.opts.separator,
                headers=not ctx.opts.no_headers,
                pad_header=True,
            )
        )
    return exitcodes.EXIT_FAILURE if failed else exitcodes.EXIT_SUCCESS
