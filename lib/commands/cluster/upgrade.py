"""``upgrade``: change to another installed release of this software, on all nodes."""

import os
import sys
from typing import TYPE_CHECKING, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes, versions
from ganeti.base.filesystem import files, releases
from ganeti.commands.cli import local
from ganeti.commands.cli.app import CliError
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.local import alone
from ganeti.commands.cli.waiting import plans

if TYPE_CHECKING:
    from ganeti.bootstrap.upgrade.access import Node
    from ganeti.bootstrap.upgrade.preparation import Plan

_LOCK: Final = "upgrade.lock"
_WATCHER_LOCK: Final = "ganeti-watcher.lock"
#: Seconds to wait for the end of a watcher that is running.
_WATCHER_S: Final = 60.0
_PROGRAM: Final = "sbin/gnt-cluster"


def run(ctx: CommandContext) -> int:
    """Begin an upgrade, or continue one."""
    from ganeti.bootstrap.upgrade import journal as record

    if bool(ctx.opts.to) == bool(ctx.opts.resume):
        raise CliError("upgrade: wanted exactly one of --to VERSION and --resume")
    intent = record.read_intent(ctx.paths)
    if ctx.opts.resume and intent is None:
        # Also at each start of a node, by cron: no output.
        return exitcodes.EXIT_SUCCESS
    local.check_is_master(ctx.paths)
    if ctx.paths.is_virtual:
        raise errors.OpPrereqError(
            f"node {ctx.paths.hostname}: virtual nodes use the programs of this machine"
            " and have no releases of their own",
            ecodes.ECODE_ENVIRON,
        )
    with alone(ctx, _LOCK, "another gnt-cluster upgrade runs on this node"):
        plan, nodes = _plan(ctx)
        if plans.wanted(ctx):
            return plans.show(ctx, [], before=plan.steps)
        return _upgrade(ctx, plan, nodes)


def _plan(ctx: CommandContext) -> "tuple[Plan, list[Node]]":
    from ganeti.base import process
    from ganeti.bootstrap.upgrade import access, preparation

    layout = releases.Layout.of_build()
    nodes = access.nodes_of(ctx.paths, process.SystemRunner(), layout)
    if ctx.opts.resume:
        return preparation.resume(ctx.paths, nodes), nodes
    new = preparation.resolve(layout, ctx.opts.to)
    return preparation.prepare(ctx.paths, layout, new, nodes, ctx.out), nodes


def _upgrade(ctx: CommandContext, plan: "Plan", nodes: "list[Node]") -> int:
    from ganeti.base import clock, process
    from ganeti.bootstrap.upgrade import steps

    effects = (
        process.SystemRunner(),
        clock.SystemClock(),
        steps.Master(ctx.paths),
    )
    upgrade = steps.Upgrade(ctx.paths, effects, plan.journal, nodes, ctx.out)
    with files.locked(f"{ctx.paths.lock_dir}/{_WATCHER_LOCK}", timeout_s=_WATCHER_S):
        outcome = upgrade.run(versions.RELEASE_VERSION)
    if outcome is steps.Outcome.HANDED_OVER:
        _hand_over(plan.journal.new)
    if outcome is steps.Outcome.PARTLY:
        return exitcodes.EXIT_FAILURE
    ctx.out(f"All nodes run version {plan.journal.new}.")
    return exitcodes.EXIT_SUCCESS


def _hand_over(version: str) -> None:
    """Become the same command of another release; the locks of this one end."""
    program = releases.Layout.of_build().program(version, _PROGRAM)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, [program, "upgrade", "--resume"])  # noqa: S606
