"""``epo``: emergency power off of nodes, groups or all, and the way back.

Everything that a run does is recorded in the configuration step by step, so a run after
a crash goes on with the rest. The decisions are in
`ganeti.commands.cluster.power.epo_plan`.
"""

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.base.constants import query as q
from ganeti.base.constants.protocols import oob
from ganeti.base.errors import refusal
from ganeti.base.text import nicesort, units
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import error_text, listing
from ganeti.commands.cli.waiting import jobs, submission
from ganeti.commands.cli.waiting.executor import JobExecutor, JobOutcome
from ganeti.commands.cluster.power import epo_handover, epo_plan
from ganeti.commands.cluster.power.epo_plan import Plan, Row

#: Seconds that nodes may take from power on to the first answer of their node daemon.
_BOOT_S: Final = 15 * 60
#: Seconds between two rounds of attempts, at first and at most.
_FIRST_PAUSE_S: Final = 1.0
_PAUSE_S: Final = 30.0
#: Seconds for one attempt to connect to a node daemon.
_PING_S: Final = 1.0
#: Attempts at the same time.
_PINGS_AT_ONCE: Final = 32
#: Seconds of the watcher's pause, so that it does not start what is being stopped.
_WATCHER_PAUSE_S: Final = 3600


def run(ctx: CommandContext) -> int:
    """Switch nodes off, or bring them back."""
    _check_arguments(ctx)
    if not ctx.opts.become_master:
        return _run(ctx)
    with epo_handover.alone(ctx):
        code = epo_handover.take_role(ctx)
        return _run(ctx) if code is None else code


def _run(ctx: CommandContext) -> int:
    nodes = _nodes(ctx)
    names = [node["name"] for node in nodes]
    if ctx.opts.on:
        plan = epo_plan.on(nodes, _went_off(ctx, nodes))
    else:
        plan = epo_plan.off(nodes)
    for note in plan.notes:
        ctx.out(note)
    others = _others(ctx, names) if plan.master and not ctx.opts.on else []
    successor = epo_handover.find(ctx, others, ())
    if successor:
        ctx.out(
            f"The master {plan.master} goes off, so node {successor['name']} takes the"
            " master role first."
        )
    if not ctx.opts.force and not prompts.confirm_operation(
        ctx, names, kind="nodes", operation="epo"
    ):
        return exitcodes.EXIT_FAILURE
    if ctx.opts.on:
        return _on(ctx, plan)
    if successor and not ctx.option("plan"):
        return epo_handover.hand_over(ctx, successor, names)
    return _off(ctx, plan, others, successor)


# Arguments
def _check_arguments(ctx: CommandContext) -> None:
    """Refuse arguments that do not fit the options. Raises OpPrereqError."""
    opts, names = ctx.opts, list(ctx.args)
    problem = ""
    if opts.groups and opts.show_all:
        problem = "--groups and --all exclude each other"
    elif opts.show_all and names:
        problem = "--all takes no names"
    elif not opts.show_all and not names:
        problem = "please name nodes, or groups with --groups, or give --all"
    elif opts.on and opts.become_master:
        problem = "--on and --become-master exclude each other"
    if problem:
        raise refusal(f"epo: {problem}")


def _nodes(ctx: CommandContext) -> list[Row]:
    """Return the nodes that the command names, each once, in the order of names.

    Raises:
        OpPrereqError: a name is unknown.
    """
    names = list(ctx.args)
    if ctx.opts.groups:
        groups = listing.named(ctx, "group", ["name", "node_list"], names)
        names = [name for group in groups for name in group["node_list"]]
        if not names:
            return []
    return _rows(ctx, names)


def _others(ctx: CommandContext, names: Sequence[str]) -> list[Row]:
    """Return the online nodes that the command does not name: they stay on."""
    rows = _rows(ctx, ())
    return [row for row in rows if not (row["name"] in names or row["offline"])]


def _rows(ctx: CommandContext, names: Sequence[str]) -> list[Row]:
    rows = listing.named(ctx, "node", list(epo_plan.NODE_FIELDS), list(names))
    by_name = {row["name"]: row for row in rows}
    return [by_name[name] for name in nicesort.nice_names(by_name)]


# Off
def _off(
    ctx: CommandContext, plan: Plan, others: list[Row], successor: Row | None
) -> int:
    opts = ctx.opts
    names = epo_plan.to_stop(_instances(ctx, plan), plan.instances_of)
    stops = {name: epo_plan.stop_job(name, opts.shutdown_timeout) for name in names}
    tags = {node["name"]: epo_plan.tag_job(node["name"]) for node in plan.tag}
    power = _power_jobs(ctx, plan.switch, oob.OOB_POWER_OFF)
    planned = [*stops.values(), *tags.values(), *power]
    code = _planned(ctx, planned, epo_plan.handover_steps(plan.master, successor))
    if code is not None:
        return code
    before = _pause_watcher(ctx) if planned else None
    if stops and not _run_instances(ctx, stops, "shutdown"):
        ctx.err("Nothing was powered off. Solve the problem and run the command again.")
        return exitcodes.EXIT_FAILURE
    code = _tag(ctx, tags, "marked as switched off by this command")
    failed_code, failed = _run_power(ctx, power)
    # A node that stays online is none of this command.
    online = [node["name"] for node in plan.switch if not node["offline"]]
    untags = {n: epo_plan.untag_job(n) for n in online if n in failed}
    code |= failed_code | _tag(ctx, untags, "cleared of the mark of this command")
    successor = _late_successor(ctx, others) if plan.master else None
    if planned and (successor or not (plan.master or code)):
        ctx.call("SetWatcherPause", before)
    if successor:
        return code | epo_handover.hand_over(ctx, successor, [plan.master])
    return code | _report_rest(ctx, plan, others)


def _late_successor(ctx: CommandContext, others: list[Row]) -> Row | None:
    """Return a node that became a candidate in place of one that went off."""
    tried = [node["name"] for node in epo_plan.successors(others)]
    names = [node["name"] for node in others]
    return epo_handover.find(ctx, _rows(ctx, names), tried) if names else None


def _report_rest(ctx: CommandContext, plan: Plan, others: list[Row]) -> int:
    """Print what is left to a person, if anything; return the exit code."""
    if not plan.master:
        return exitcodes.EXIT_SUCCESS
    text = epo_plan.remains(plan.master, others)
    (ctx.err if others else ctx.out)(text)
    return exitcodes.EXIT_FAILURE if others else exitcodes.EXIT_SUCCESS


def _tag(ctx: CommandContext, ops: dict[str, list[jobs.Op]], done: str) -> int:
    """Run a job per node that changes its tags; return the exit code."""
    all_jobs = JobExecutor(ctx)
    for name, job in ops.items():
        all_jobs.add(name, *job)
    failed = [item for item in all_jobs.finish() if not item.success]
    for outcome in failed:
        ctx.err(f"Node {outcome.label} could not be {done}: {outcome.result}")
    return exitcodes.EXIT_FAILURE if failed else exitcodes.EXIT_SUCCESS


def _pause_watcher(ctx: CommandContext) -> float | None:
    """Keep the watcher from starting instances; return the end of its present pause."""
    before: float | None = ctx.call("QueryConfigValues", ["watcher_pause"])[0]
    until = math.floor(ctx.effects.now()) + _WATCHER_PAUSE_S
    if before is None or before < until:
        ctx.call("SetWatcherPause", until)
        ctx.out(f"The watcher is paused until {time.ctime(until)}.")
    return before


# On
def _on(ctx: CommandContext, plan: Plan) -> int:
    start = epo_plan.to_start(_instances(ctx, plan))
    power = _power_jobs(ctx, plan.switch, oob.OOB_POWER_ON)
    planned = [
        *power,
        *(epo_plan.restore_job(node) for node in plan.restore),
        *(epo_plan.start_job(item["name"]) for item in start),
    ]
    if (code := _planned(ctx, planned)) is not None:
        return code
    code, _ = _run_power(ctx, power)
    code |= _Return(ctx, plan, start).run()
    if ctx.opts.show_all and code == exitcodes.EXIT_SUCCESS:
        _continue_watcher(ctx)
    return code


def _continue_watcher(ctx: CommandContext) -> None:
    """End the pause of the watcher that an earlier run began, but no longer one."""
    until: float | None = ctx.call("QueryConfigValues", ["watcher_pause"])[0]
    now = ctx.effects.now()
    if until is not None and now < until <= now + _WATCHER_PAUSE_S:
        ctx.call("SetWatcherPause", None)
        ctx.out("The watcher goes on.")


class _Return:
    """Waits for nodes, and starts each instance as soon as all its nodes answer."""

    def __init__(self, ctx: CommandContext, plan: Plan, start: list[Row]) -> None:
        self._ctx = ctx
        self._missing = {str(node["name"]): node for node in plan.wait}
        self._restore = {str(node["name"]) for node in plan.restore}
        self._start = start
        self._failed = False
        self._count = len(start)

    def run(self) -> int:
        """Wait at most 15 minutes; return the exit code."""
        ctx = self._ctx
        if self._missing:
            ctx.out("Waiting until all nodes are available again")
            ctx.out(f"This ends after {units.format_duration(_BOOT_S)} at the latest.")
        end = ctx.effects.monotonic() + _BOOT_S
        pause_s = _FIRST_PAUSE_S
        self._round()
        while self._missing and ctx.effects.monotonic() < end:
            self._show(end - ctx.effects.monotonic())
            ctx.effects.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S)
            self._round()
        return self._report()

    def _show(self, left_s: float) -> None:
        """Show on a terminal which nodes are waited for."""
        if self._ctx.shows_progress:
            names = ", ".join(sorted(self._missing))
            left = f"at most {units.format_duration(left_s)} left"
            self._ctx.progress(f"waits for the boot of {names}, {left}")

    def _round(self) -> None:
        """Take back the nodes that answer, and start what can be started."""
        came = _answering(self._ctx, list(self._missing.values()))
        all_jobs = JobExecutor(self._ctx)
        for node in came:
            if node["name"] in self._restore:
                all_jobs.add(node["name"], *epo_plan.restore_job(node))
        failed = {item.label for item in all_jobs.finish() if not item.success}
        for node in came:
            # A node daemon that has just begun may refuse; the next round tries again.
            if node["name"] not in failed:
                self._ctx.out(f"Node {node['name']} became available")
                del self._missing[node["name"]]
        ready = epo_plan.ready(self._start, self._missing)
        self._start = [item for item in self._start if item not in ready]
        names = [item["name"] for item in ready]
        if names and not _run_instances(
            self._ctx, {name: epo_plan.start_job(name) for name in names}, "startup"
        ):
            self._failed = True

    def _report(self) -> int:
        ctx = self._ctx
        if self._missing:
            ctx.err(
                "These nodes are not available again, please investigate:"
                f" {', '.join(self._missing)}"
            )
            limit = units.format_duration(_BOOT_S)
            ctx.err(
                f"Their node daemons did not answer for {limit}. A helper can report"
                " success for a machine that stays off: look at the machines, then run"
                " the command again."
            )
        if self._start:
            names = ", ".join(item["name"] for item in self._start)
            ctx.err(f"These instances were not started: {names}")
        if self._missing or self._failed:
            return exitcodes.EXIT_FAILURE
        if self._count:
            ctx.out("All instances have been started successfully")
        return exitcodes.EXIT_SUCCESS


def _answering(ctx: CommandContext, nodes: Sequence[Row]) -> list[Row]:
    """Return the nodes whose node daemon accepts connections."""
    from concurrent import futures

    from ganeti.protocols.rpc import node_port

    port = node_port()

    def answers(node: Row) -> bool:
        return ctx.effects.tcp_ping(node["pip"], port, _PING_S)

    with futures.ThreadPoolExecutor(_PINGS_AT_ONCE) as pool:
        came = list(pool.map(answers, nodes))
    return [node for node, is_there in zip(nodes, came, strict=True) if is_there]


def _went_off(ctx: CommandContext, nodes: Iterable[Row]) -> set[str]:
    """Return the nodes that an earlier run switched off without living to record it.

    They are silent, and their helpers report that they are off.
    """
    asked = [node for node in nodes if epo_plan.is_tagged(node) and node["powered"]]
    there = _answering(ctx, asked)
    silent = [node for node in asked if node not in there]
    if not silent or ctx.option("plan"):
        return {node["name"] for node in silent}
    (ops,) = _power_jobs(ctx, silent, oob.OOB_POWER_STATUS)
    return {
        name
        for (_, name), (status, payload) in jobs.run(ctx, ops[0])
        if status == q.RS_NORMAL and payload.get(oob.OOB_POWER_STATUS_POWERED) is False
    }


# Both ways
def _instances(ctx: CommandContext, plan: Plan) -> list[Row]:
    """Return the instances of the plan's nodes."""
    names = epo_plan.instance_names(plan.instances_of)
    if not names:
        return []
    rows = listing.named(ctx, "instance", list(epo_plan.INSTANCE_FIELDS), names)
    return list(rows)


def _planned(
    ctx: CommandContext, job_list: list[list[jobs.Op]], steps: Sequence[str] = ()
) -> int | None:
    """Print the plan with ``--plan``; return the exit code, None without it."""
    full = [[jobs.with_generic(ctx, op) for op in ops] for ops in job_list]
    if not ctx.option("plan"):
        return submission.planned(ctx, full)
    from ganeti.commands.cli.waiting import plans

    return plans.show(ctx, full, before=steps[:1], after=steps[1:])


def _run_instances(
    ctx: CommandContext, job_of: dict[str, list[jobs.Op]], operation: str
) -> bool:
    """Run one job per instance; return whether all succeeded."""
    all_jobs = JobExecutor(ctx)
    for name, ops in job_of.items():
        ctx.out(f"Submit {operation} of instance {name}")
        all_jobs.add(name, *ops)
    outcomes: list[JobOutcome] = all_jobs.finish()
    failed = [item for item in outcomes if not item.success]
    doing, done = {"shutdown": ("stopping", "stopped")}.get(
        operation, ("starting", "started")
    )
    if failed:
        ctx.err(f"There were errors while {doing} instances:")
        ctx.err(f"{len(failed)} error(s) out of {len(outcomes)} instance(s)")
    elif operation == "shutdown":
        ctx.out(f"All instances have been {done} successfully")
    return not failed


def _power_jobs(
    ctx: CommandContext, nodes: Sequence[Row], command: str
) -> list[list[jobs.Op]]:
    """Return the job that runs the helpers of nodes, none without nodes."""
    if not nodes:
        return []
    timeout_s, delay_s = ctx.opts.oob_timeout, ctx.opts.power_delay
    return [epo_plan.power_job(nodes, command, timeout_s=timeout_s, delay_s=delay_s)]


def _run_power(
    ctx: CommandContext, power: list[list[jobs.Op]]
) -> tuple[int, frozenset[str]]:
    """Switch nodes; return the exit code, and the nodes whose helper failed."""
    if not power:
        return exitcodes.EXIT_SUCCESS, frozenset()
    (ops,) = power
    verb = ops[0]["command"].replace("-", " ")
    try:
        result: list[Any] = jobs.run(ctx, ops[0])
    except errors.LuxiError:
        raise
    except errors.GenericError as err:
        text, _ = error_text.describe(err)
        ctx.err(f"The job to {verb} the nodes failed: {text}")
        return exitcodes.EXIT_FAILURE, frozenset()
    failed = [node for (_, node), (status, _) in result if status != q.RS_NORMAL]
    for node in failed:
        ctx.err(f"Node {node}: could not {verb}, see the job's messages")
    code = exitcodes.EXIT_FAILURE if failed else exitcodes.EXIT_SUCCESS
    return code, frozenset(failed)
