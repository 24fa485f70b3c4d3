"""``restricted-command``: run an approved command on nodes."""

from typing import Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.node_selection import online_nodes
from ganeti.commands.cli.waiting import jobs, submission

_RULER: Final = "-" * 48


def run(ctx: CommandContext) -> int:
    """Run an approved command on nodes; fail if it failed on any node."""
    opts = ctx.opts
    command, *names = ctx.args
    if not names and not opts.nodegroup:
        raise errors.OpPrereqError(
            "restricted-command: nodes or a node group (-g) are missing",
            ecodes.ECODE_INVAL,
        )
    nodes = [node["name"] for node in online_nodes(ctx, names, group=opts.nodegroup)]
    if not nodes:
        raise errors.OpPrereqError(
            "restricted-command: all selected nodes are offline", ecodes.ECODE_STATE
        )
    operation = jobs.op(
        "OP_RESTRICTED_COMMAND",
        command=command,
        nodes=nodes,
        use_locking=opts.do_locking,
    )
    job = submission.submit_or_run(ctx, operation)
    if not job.is_done:
        return job.code
    code = exitcodes.EXIT_SUCCESS
    for node, (success, text) in zip(nodes, job.result, strict=True):
        ctx.out(_RULER)
        if not success:
            code = exitcodes.EXIT_FAILURE
            ctx.out(text)
        elif opts.show_machine_names:
            for line in text.splitlines():
                ctx.out(f"{node}: {line}")
        else:
            ctx.out(f"Node: {node}")
            ctx.out(text)
    return code
