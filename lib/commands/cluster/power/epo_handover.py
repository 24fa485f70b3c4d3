"""Move of the master role by ``epo``: from a node that goes off to one that stays on.

The other node does both, over SSH: it takes the role and goes on with the command. So
the command outlives the old master. Nothing is changed before that; every later step is
one that the same command, on the new master, does or finds done.
"""

import contextlib
from collections.abc import Collection, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.base.errors import refusal
from ganeti.commands.cli import local as only
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import plans
from ganeti.commands.cluster import remote
from ganeti.commands.cluster.power import epo_plan
from ganeti.commands.cluster.power.epo_plan import Row

#: Longest silence of a node that checks whether it can take the role: it asks others.
_CHECK_S: Final = 180.0
_LOCK: Final = "epo.lock"
_QUESTION: Final = "This node is not the master, and becomes it first. Continue?"
_REST: Final = "as the master, go on with the named nodes"
#: Keeps a copy of the output, and lets the command go on when its reader is gone.
_FOLLOWED: Final = 'log=$1; shift; "$@" </dev/null 2>&1 | tee -a -p "$log"'


def alone(ctx: CommandContext) -> contextlib.AbstractContextManager[None]:
    """Keep other commands that take the role out. Raises OpPrereqError if one runs."""
    problem = (
        "another gnt-cluster epo --become-master runs on this node; its output is in"
    )
    return only.alone(ctx, _LOCK, f"{problem} {_log(ctx)}")


def take_role(ctx: CommandContext) -> int | None:
    """Make this node the master if it is not.

    With ``--plan`` the steps are printed; what follows them only the master can plan.

    Returns:
        The exit code if the command ends here, else None.

    Raises:
        OpPrereqError: this node cannot become the master; nothing was changed.
        OpExecError: the role was not moved; the command can be repeated.
    """
    from ganeti.base import clock, process
    from ganeti.bootstrap import failover

    if failover.is_serving(ctx.paths):
        return None
    _check_names(ctx)
    options = failover.FailoverOptions()
    if plans.wanted(ctx):
        steps = failover.plan(ctx.paths, options, feedback=ctx.err)
        return plans.show(ctx, [], before=[*steps, _REST])
    if not ctx.opts.force and not prompts.confirm(ctx, _QUESTION):
        return exitcodes.EXIT_FAILURE
    effects = (ctx.paths, process.SystemRunner(), clock.SystemClock())
    failover.fail_over(*effects, options, feedback=ctx.err)
    return None


def _check_names(ctx: CommandContext) -> None:
    """Refuse unknown names and this node, which would be too late as the master.

    Raises:
        OpPrereqError: this node's copy of the configuration says so. One that cannot be
            read is refused with the role.
    """
    from ganeti import store
    from ganeti.model.objects import lookup

    try:
        snapshot = store.read_snapshot(ctx.paths.store_db)
    except errors.GenericError:
        return
    if ctx.opts.groups:
        groups = {lookup.expand_group(snapshot, name) for name in ctx.args}
        chosen = {u for u, node in snapshot.nodes.items() if node.group in groups}
    else:
        chosen = {lookup.expand_node(snapshot, name) for name in ctx.args}
    if snapshot.uuid_of("nodes", ctx.paths.hostname) in chosen:
        raise refusal(
            f"epo: {ctx.paths.hostname} becomes the master and stays on: wanted other"
            " nodes, found this one among them"
        )


def _log(ctx: CommandContext) -> str:
    return f"{ctx.paths.log_dir}/epo.log"


def find(
    ctx: CommandContext, others: Sequence[Row], tried: Collection[str]
) -> Row | None:
    """Return the first of some nodes that can take the role; None if none can.

    Each one is asked to check that, and what stops it is printed.

    Args:
        ctx: the command.
        others: nodes that stay on, with `epo_plan.NODE_FIELDS`.
        tried: names of nodes to leave out.
    """
    for node in epo_plan.successors(others):
        if node["name"] in tried:
            continue
        try:
            with _connect(ctx, node) as shell:
                words = [_program(ctx), "master-failover", "--plan"]
                result = shell.run(words, timeout_s=_CHECK_S)
        except errors.SshError as err:
            problem = str(err)
        else:
            if not result.failed:
                return node
            lines = result.stderr.strip().splitlines()
            problem = lines[-1] if lines else result.reason
        ctx.err(f"Node {node['name']} cannot take the master role: {problem}")
    return None


def hand_over(ctx: CommandContext, node: Row, names: Sequence[str]) -> int:
    """Have a node take the role and switch nodes off; return the exit code.

    Args:
        ctx: the command.
        node: the new master.
        names: the nodes that go off.
    """
    from ganeti.protocols.ssh import account

    opts, name = ctx.opts, node["name"]
    log = account.path_on(ctx.paths, name, _log(ctx))
    ctx.out(
        f"Node {name} takes the master role and goes on; its output is kept there in"
        f" {log}."
    )
    words = [
        *(_program(ctx), "epo", "--force", "--become-master"),
        f"--oob-timeout={opts.oob_timeout}",
        f"--power-delay={opts.power_delay}",
        f"--shutdown-timeout={opts.shutdown_timeout}",
        *names,
    ]
    try:
        with _connect(ctx, node) as shell:
            script = ["bash", "-o", "pipefail", "-c", _FOLLOWED, "epo", log, *words]
            result = shell.run(script, on_line=ctx.out)
    except errors.SshError as err:
        ctx.err(f"Node {name}: {err}")
    else:
        if not result.failed:
            return exitcodes.EXIT_SUCCESS
    ctx.err(f"See {log} on node {name}. To go on, type there: {again(names)}")
    return exitcodes.EXIT_FAILURE


def again(names: Sequence[str]) -> str:
    """Return the command that goes on, for any candidate that stays on."""
    return f"gnt-cluster epo --become-master {' '.join(names)}"


def _program(ctx: CommandContext) -> str:
    return f"{ctx.paths.daemons_dir}/gnt-cluster"


def _connect(ctx: CommandContext, node: Row) -> Any:
    (cluster,) = ctx.call("QueryConfigValues", ["cluster_name"])
    return remote.connect(ctx, node, cluster, node["pip"])
