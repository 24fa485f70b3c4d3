"""Commands on machines: power and health by helpers, resets, approved commands."""

from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.base.constants import query as q
from ganeti.base.errors import refusal
from ganeti.base.text import nicesort
from ganeti.commands.cli import options as o
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing, table
from ganeti.commands.cli.output.listing import online_nodes
from ganeti.commands.cli.waiting import jobs, operation, submission
from ganeti.commands.lists import warn_of_power

_COMMANDS: Final = {
    "on": "power-on",
    "off": "power-off",
    "cycle": "power-cycle",
    "status": "power-status",
}
#: Actions that interrupt what runs on a machine.
_STOPPING: Final = ("off", "cycle")
#: Seconds for a power status unless ``--oob-timeout`` is given: an answer takes one or
#: two, and one dead controller must not hold up the list of all machines.
_STATUS_S: Final = 9
_FIELDS: Final = (
    *("name", "master", "powered", "offline", "pinst_list", "ndp/oob_program"),
)
#: Status of instances that a loss of power interrupts.
_RUNNING: Final = ("running", "ERROR_up", "ERROR_wrongnode")


def power(ctx: CommandContext) -> int:
    """Switch the power of nodes, or show its state."""
    verb, *names = ctx.args
    if verb not in _COMMANDS:
        raise refusal(f"power: wanted {', '.join(_COMMANDS)}, found {verb!r}")
    if verb == "status":
        return _status(ctx, names)
    nodes = _named(ctx, verb, names) if names else _everybody(ctx, verb)
    if not nodes or not _is_confirmed(ctx, verb, nodes, all_nodes=not names):
        return exitcodes.EXIT_FAILURE
    job = submission.run(ctx, _switching_op(ctx, verb, nodes))
    return _show(ctx, job.result, _invoked) if job.is_done else job.code


def _status(ctx: CommandContext, names: list[str]) -> int:
    """Show the power state of nodes; without names, of all that have a helper."""
    names = names or [node["name"] for node in _capable(ctx)]
    if not names:
        return _nobody(ctx)
    timeout = ctx.opts.oob_timeout
    # The other options are about switching.
    question = jobs.op(
        "OP_OOB_COMMAND",
        node_names=names,
        command=_COMMANDS["status"],
        timeout=_STATUS_S if timeout == o.OOB_TIMEOUT.default else timeout,
    )
    job = submission.run(ctx, question)
    return _show(ctx, job.result, _power_lines) if job.is_done else job.code


def health(ctx: CommandContext) -> int:
    """Show the health reports of the nodes' hardware."""
    names = ctx.args
    if not names:
        nodes = _capable(ctx)
        names = [node["name"] for node in nodes]
        warn_of_power(ctx, nodes)
    if not names:
        return _nobody(ctx)
    question = operation.fill(ctx, command="health", node_names=names)
    return _show(ctx, jobs.run(ctx, question), _health_lines)


# Nodes
def _capable(ctx: CommandContext) -> list[dict[str, Any]]:
    """Return the nodes that have a helper, sorted by name."""
    rows = listing.query_objects(ctx, "node", list(_FIELDS))
    by_name = {row["name"]: row for row in rows if row["powered"] is not None}
    return [by_name[name] for name in nicesort.nice_names(by_name)]


def _nobody(ctx: CommandContext) -> int:
    ctx.err("No node supports OOB commands: the node parameter oob_program is not set")
    return _show(ctx, [], _invoked)


def _everybody(ctx: CommandContext, verb: str) -> list[dict[str, Any]]:
    """Return the nodes that a command without names is for.

    Raises:
        OpPrereqError: all machines would be stopped without a question.
    """
    if verb in _STOPPING and ctx.opts.force:
        raise refusal(f"power {verb}: please name the nodes, or leave out --force")
    nodes = _capable(ctx)
    if verb in _STOPPING:
        nodes = [node for node in nodes if not node["master"]]
    if not nodes:
        ctx.err(f"No node supports OOB commands, so there is none to power {verb}")
    return nodes


def _named(ctx: CommandContext, verb: str, names: list[str]) -> list[dict[str, Any]]:
    """Return the nodes of these names, each once.

    Raises:
        OpPrereqError: a node is unknown, has no helper, or is the master and would be
            stopped; then nothing is done with any.
    """
    rows = listing.named(ctx, "node", list(_FIELDS), names)
    nodes = list({row["name"]: row for row in rows}.values())
    for node in nodes:
        name = node["name"]
        if verb in _STOPPING and node["master"]:
            hint = "; do a master-failover first"
            if node["powered"] is not None:
                by_hand = f"{node['ndp/oob_program']} {_COMMANDS[verb]} {name}"
                hint += f", or run it by hand: {by_hand}"
            raise refusal(f"node {name}: is the master, power-{verb} is refused{hint}")
        if node["powered"] is None:
            raise errors.OpPrereqError(_unsupported(name), ecodes.ECODE_STATE)
    return nodes


def _unsupported(name: str) -> str:
    return f"Node {name} does not support OOB commands"


# Questions
def _is_confirmed(
    ctx: CommandContext, verb: str, nodes: list[dict[str, Any]], *, all_nodes: bool
) -> bool:
    """Ask before all machines are switched, and before instances are interrupted."""
    if ctx.opts.force or ctx.option("plan"):
        return True
    names = [node["name"] for node in nodes]
    if all_nodes:
        listed = ", ".join(names)
        question = f"Do you really want to power {verb} the following nodes: {listed}?"
        if not prompts.confirm(ctx, question):
            return False
    elif verb in _STOPPING and not prompts.confirm_operation(
        ctx, names, kind="nodes", operation=f"power {verb}"
    ):
        return False
    running = _running(ctx, nodes) if verb in _STOPPING else []
    return not running or prompts.confirm(
        ctx,
        f"WARNING: these instances are running there and lose their power:"
        f" {', '.join(running)}. Do you want to power {verb} the nodes all the same?",
    )


def _running(ctx: CommandContext, nodes: list[dict[str, Any]]) -> list[str]:
    """Return the instances that run on nodes."""
    names = [name for node in nodes for name in node["pinst_list"] or ()]
    if not names:
        return []
    rows = listing.named(ctx, "instance", ["name", "status"], names)
    return [row["name"] for row in rows if row["status"] in _RUNNING]


# Jobs and output
def _switching_op(
    ctx: CommandContext, verb: str, nodes: list[dict[str, Any]]
) -> jobs.Op:
    """Return the opcode that switches nodes.

    Those that go off are marked offline when that is confirmed: before, their instances
    run, and automatic repair would start them elsewhere, too.
    """
    marks = verb == "off" and not ctx.opts.ignore_status
    return operation.fill(
        ctx,
        node_names=[node["name"] for node in nodes],
        command=_COMMANDS[verb],
        mark_offline=True if marks else None,
        auto_promote=ctx.opts.auto_promote if marks else None,
    )


def _power_lines(data: Any) -> list[str]:
    powered = data.get("powered")
    if powered is None:
        return ["unknown"]
    return ["powered" if powered else "unpowered"]


def _invoked(_: Any) -> list[str]:
    return ["invoked"]


def _health_lines(data: Any) -> list[str]:
    return [f"{item}={status}" for item, status in data]


def _status_json(data: Any, status: int) -> Any:
    """Return the JSON form: ``powered`` as a boolean, or the state per component."""
    if status != q.RS_NORMAL or data is None:
        return None
    return dict(data) if isinstance(data, list) else {"powered": data.get("powered")}


def _show(ctx: CommandContext, result: list[Any], lines_of: Any) -> int:
    """Print a table of nodes and their output; fail if a node failed."""
    names, texts, objects = [], [], []
    failed = False
    for (_, node), (status, data) in result:
        objects.append({"node": node, "status": _status_json(data, status)})
        if status != q.RS_NORMAL:
            failed = True
            if status == q.RS_UNAVAIL:
                ctx.err(_unsupported(node))
            verbose, _ = q.RSS_DESCRIPTION[status]
            objects[-1]["_status"] = {"status": verbose.strip("()")}
            lines = [verbose]
        else:
            lines = lines_of(data) or [""]
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


def powercycle(ctx: CommandContext) -> int:
    """Reset a node."""
    node = ctx.args[0]
    if not ctx.opts.confirm:
        listing.named(
            ctx, "node", ["name"], [node]
        )  # refuse a wrong name before the question
        question = f"Are you sure you want to hard powercycle node {node}?"
        if not prompts.confirm(ctx, question):
            return exitcodes.EXIT_DECLINED
    job = submission.submit_or_run(ctx, operation.fill(ctx))
    if job.result:
        ctx.err(job.result)
    return job.code


_RULER: Final = "-" * 48


def restricted_command(ctx: CommandContext) -> int:
    """Run an approved command on nodes; fail if it failed on any node."""
    opts = ctx.opts
    names = ctx.args[1:]
    if not names and not opts.nodegroup:
        raise refusal("restricted-command: nodes or a node group (-g) are missing")
    nodes = [node["name"] for node in online_nodes(ctx, names, group=opts.nodegroup)]
    if not nodes:
        raise errors.OpPrereqError(
            "restricted-command: all selected nodes are offline", ecodes.ECODE_STATE
        )
    job = submission.submit_or_run(ctx, operation.fill(ctx, nodes=nodes))
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
