"""Short commands of ``gnt-cluster``."""

import math
import os
import sys
import time
from typing import Final, NoReturn

import ganeti
from ganeti.base.constants import exitcodes
from ganeti.base.errors import refusal
from ganeti.base.text.units import parse_duration
from ganeti.commands.cli import prompts
from ganeti.commands.cli.app import CliError
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing, table
from ganeti.commands.cli.waiting import jobs, operation, plans, submission

_LINES: Final = (
    ("Software version", "software_version"),
    ("Internode protocol", "protocol_version"),
    ("Configuration format", "config_version"),
    ("OS api version", "os_api_version"),
    ("Export interface", "export_version"),
    ("VCS version", "vcs_version"),
)


def version(ctx: CommandContext) -> None:
    """Print the versions of the master."""
    info = ctx.call("QueryClusterInfo")
    if ctx.opts.json:
        listing.print_json(ctx, {key: info[key] for _, key in _LINES})
        return
    for title, key in _LINES:
        ctx.out(f"{title}: {info[key]}")


def ping(ctx: CommandContext) -> None:
    """Fail unless the master answers."""
    ctx.call("QueryClusterInfo")


def destroy(ctx: CommandContext) -> int:
    """Destroy the cluster and remove its configuration from this node."""
    from ganeti.base import process
    from ganeti.bootstrap.init import initialise

    destruction = operation.fill(ctx)
    if plans.wanted(ctx):
        return plans.show(
            ctx, [[destruction]], after=initialise.destruction_steps(ctx.paths)
        )
    if not ctx.opts.yes_do_it:
        raise CliError(
            "Destroying a cluster is irreversible. If you really want to destroy this"
            " cluster, add the option --yes-do-it."
        )
    jobs.run(ctx, destruction)
    initialise.finalize_destroy(ctx.paths, process.SystemRunner(), feedback=ctx.err)
    return exitcodes.EXIT_SUCCESS


def rename(ctx: CommandContext) -> int:
    """Rename the cluster."""
    (old,) = ctx.call("QueryConfigValues", ["cluster_name"])
    new = ctx.args[0]
    question = (
        f"This will rename the cluster from '{old}' to '{new}'. If you are connected"
        " over the network to the cluster name, the operation is very dangerous as the"
        " IP address will be removed from the node and the change may not go through."
        " Continue?"
    )
    if not ctx.opts.force and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_FAILURE
    job = submission.run(ctx, operation.fill(ctx))
    if job.result:
        ctx.out(f"Cluster renamed from '{old}' to '{job.result}'")
    return job.code


_FAILOVER_QUESTION = (
    "This will perform the failover even if most other nodes are down, or if this node"
    " is outdated. This is dangerous as it can lead to a non-consistent cluster. Check"
    " the gnt-cluster(8) man page before proceeding. Continue?"
)


def fail_over(ctx: CommandContext) -> int:
    """Make this node the master."""
    opts = ctx.opts
    from ganeti.base import clock, process
    from ganeti.bootstrap import failover

    options = failover.FailoverOptions(
        no_voting=bool(opts.no_voting),
        ignore_offline_nodes=bool(opts.ignore_offline_nodes),
        accept_loss=bool(opts.accept_loss),
    )
    if plans.wanted(ctx):
        steps = failover.plan(ctx.paths, options, feedback=ctx.err)
        return plans.show(ctx, [], before=steps)
    if (
        opts.no_voting
        and not opts.yes_do_it
        and not prompts.confirm(ctx, _FAILOVER_QUESTION)
    ):
        return exitcodes.EXIT_FAILURE
    effects = (ctx.paths, process.SystemRunner(), clock.SystemClock())
    is_clean = failover.fail_over(*effects, options, feedback=ctx.err)
    return exitcodes.EXIT_SUCCESS if is_clean else exitcodes.EXIT_FAILURE


def activate_ip(ctx: CommandContext) -> int:
    """Set up the master IP address."""
    return submission.run(ctx, operation.fill(ctx), generic=False).code


def deactivate_ip(ctx: CommandContext) -> int:
    """Remove the master IP address."""
    question = (
        "This will take down the master IP. It ends all connections to it, such as"
        " those of remote API clients. Continue?"
    )
    if not ctx.opts.confirm and not prompts.confirm(ctx, question):
        return exitcodes.EXIT_FAILURE
    return submission.run(ctx, operation.fill(ctx), generic=False).code


def queue(ctx: CommandContext) -> None:
    """Set, clear or show the drain flag of the job queue."""
    verb = ctx.args[0]
    if ctx.opts.json and verb != "info":
        raise CliError(f"queue {verb}: --json is an option of queue info")
    if verb in ("drain", "undrain"):
        ctx.call("SetDrainFlag", verb == "drain")
    elif verb == "info":
        (flag,) = ctx.call("QueryConfigValues", ["drain_flag"])
        if ctx.opts.json:
            from ganeti.commands.cli.output import listing

            listing.print_json(ctx, {"drained": bool(flag)})
            return
        ctx.out(f"The drain flag is {'set' if flag else 'unset'}")
    else:
        raise refusal(f"queue: wanted drain, undrain or info, found {verb!r}")


def redist_conf(ctx: CommandContext) -> int:
    """Push configuration and ssconf files to all nodes."""
    request = operation.fill(ctx)
    if ctx.opts.yes_do_it:
        ops = [jobs.with_generic(ctx, request)]
        return submission.run_job(ctx, ops, drained=True).code
    return submission.submit_or_run(ctx, request).code


_MATCH: Final = ("kind", "name", "match", "field", "value")


def search(ctx: CommandContext) -> int:
    """Print the objects that match a text, the best first, and why they do."""
    rows = ctx.call("Search", ctx.args[0], ctx.opts.limit)
    if ctx.opts.json:
        listing.print_json(ctx, rows)
    elif rows:
        listing.print_table(
            ctx,
            [table.Column(key.capitalize()) for key in _MATCH],
            [[row[key] for key in _MATCH] for row in rows],
            pad_header=False,
        )
    return exitcodes.EXIT_SUCCESS if rows else exitcodes.EXIT_FAILURE


def search_tags(ctx: CommandContext) -> int:
    """Print path and tag for every tag that matches a regular expression."""
    tags = jobs.run(ctx, operation.fill(ctx))
    tags = sorted([path, tag] for path, tag in tags)
    if ctx.opts.json:
        listing.print_json(ctx, [{"path": path, "tag": tag} for path, tag in tags])
    else:
        for path, tag in tags:
            ctx.out(f"{path} {tag}")
    return exitcodes.EXIT_SUCCESS if tags else exitcodes.EXIT_FAILURE


def watcher(ctx: CommandContext) -> None:
    """Pause the watcher, end the pause, or show it."""
    verb, *rest = ctx.args
    if ctx.opts.json and verb != "info":
        raise CliError(f"watcher {verb}: --json is an option of watcher info")
    if verb == "pause":
        if not rest:
            raise refusal("watcher pause: the duration is missing, such as 30m or 2h")
        _set(ctx, math.floor(ctx.effects.now()) + parse_duration(rest[0]))
    elif verb == "continue":
        _set(ctx, None)
    elif verb == "info":
        (until,) = ctx.call("QueryConfigValues", ["watcher_pause"])
        if ctx.opts.json:
            listing.print_json(ctx, {"paused_until": until})
            return
        ctx.out(_until(until) or "The watcher is not paused.")
    else:
        raise refusal(f"watcher: wanted pause, continue or info, found {verb!r}")


def _until(until: float | None) -> str:
    return f"The watcher is paused until {time.ctime(until)}." if until else ""


def _set(ctx: CommandContext, until: float | None) -> None:
    result = ctx.call("SetWatcherPause", until)
    ctx.out(_until(result) or "The watcher is no longer paused.")


#: Largest seed that Python takes for its hashes.
_MAX_SEED: Final = 4_294_967_295
_PROGRAM: Final = """\
import sys
sys.path.insert(0, sys.argv.pop(1))
try:
    from ganeti.devel.sim.command import main
except KeyboardInterrupt:
    sys.exit("Aborted.")
sys.exit(main())
"""


def simulate(ctx: CommandContext) -> NoReturn:
    """Replace this program by the simulator, which gets the same words.

    The order of sets decides between nodes that are equally good, so a run is
    repeatable only in a process whose hashes have a seed.
    """
    seed = ctx.opts.seed
    if not 0 <= seed <= _MAX_SEED:
        raise refusal(f"--seed: wanted 0 to {_MAX_SEED}, found {seed}")
    library = os.path.dirname(next(iter(ganeti.__path__)))
    words = [sys.executable, "-s", "-P", "-c", _PROGRAM, library, *sys.argv[1:]]
    # As launchers do, which let no other variable change the interpreter.
    environ = {
        name: value
        for name, value in ctx.effects.environ.items()
        if not name.startswith("PYTHON")
    }
    environ["PYTHONHASHSEED"] = str(seed)
    os.execve(sys.executable, words, environ)  # noqa: S606 - words without a shell
