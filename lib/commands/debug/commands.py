"""Commands of ``gnt-debug``, except the test of the job queue."""

import json
import os
import threading
from typing import Any, Final

from ganeti.base.clock import SystemClock
from ganeti.base.errors import refusal
from ganeti.commands.cli import values
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.waiting import jobs, operation
from ganeti.commands.cli.waiting.executor import JobExecutor


def delay(ctx: CommandContext) -> int:
    """Sleep on the master and on nodes."""
    try:
        duration = values.finite(ctx.args[0])
    except ValueError as err:
        raise refusal(f"delay: wanted seconds, found {ctx.args[0]!r}") from err
    return operation.run(ctx, duration=duration, on_nodes=ctx.opts.on_nodes)


#: Modes for the whole cluster; the argument restricts them to a node group.
_OF_CLUSTER: Final = ("balance", "capacity")
_ALL_GROUPS: Final = "."


def _disks(text: str) -> list[dict[str, Any]]:
    try:
        return [
            {"size": values.parse_size(size), "mode": "w"} for size in text.split(",")
        ]
    except values.BadValueError as err:
        raise refusal(f"--disks: wanted a comma list of sizes, found {text!r}") from err


def _nics(text: str) -> list[dict[str, Any]]:
    """Return the NICs of a comma list of ``MAC[/IP[/BRIDGE]]``."""
    nics = []
    for part in text.split(","):
        fields = [*part.split("/"), "", ""][:3]
        nic = dict(zip(("mac", "ip", "bridge"), fields, strict=True))
        nics.append({key: value for key, value in nic.items() if value})
    return nics


def ask_allocator(ctx: CommandContext) -> None:
    """Print the request or the answer of an allocator."""
    opts = ctx.opts
    of_cluster = opts.mode in _OF_CLUSTER
    group = ctx.args[0] if of_cluster and ctx.args[0] != _ALL_GROUPS else None
    request = operation.fill(
        ctx,
        name=ctx.args[0],
        instances=None if of_cluster else ctx.args,
        group_name=group,
        disks=_disks(opts.disks),
        nics=_nics(opts.nics),
        tags=opts.tags.split(",") if opts.tags else [],
    )
    ctx.out(jobs.run(ctx, request))


def _or_dash(value: Any) -> str:
    return "-" if not value else str(value)


def _owner(value: Any) -> str:
    return ",".join(map(str, value)) if value else "-"


def _held(value: Any) -> str:
    return ",".join(f"{seconds:.1f}s" for seconds in value) if value else "-"


def _pending(value: Any) -> str:
    if not value:
        return "-"
    return ", ".join(f"{mode}:{','.join(map(str, ids))}" for mode, ids in value)


_LISTING = listing.Listing(
    "lock", {"mode": _or_dash, "owner": _owner, "held": _held, "pending": _pending}
)


def list_locks(ctx: CommandContext) -> int:
    """List locks, once or periodically."""
    fields = listing.selected_fields(ctx.opts.output, ctx.command.fields)
    never, clock = threading.Event(), SystemClock()
    while True:
        code = listing.show(ctx, _LISTING, fields, None)
        if not ctx.opts.interval:
            return code
        ctx.out()
        clock.wait(never, ctx.opts.interval)


def _read(path: str) -> list[jobs.Op]:
    try:
        with open(path, encoding="utf-8") as stream:
            ops: Any = json.load(stream)
    except (OSError, ValueError) as err:
        why = err.strerror if isinstance(err, OSError) else err
        raise refusal(f"cannot read opcodes from {path}: {why}") from err
    if not isinstance(ops, list) or not all(isinstance(op, dict) for op in ops):
        raise refusal(f"{path}: wanted a list of opcode objects")
    return ops


def submit_jobs(ctx: CommandContext) -> None:
    """Submit jobs and wait for them."""
    opts = ctx.opts
    executor = JobExecutor(ctx)
    jobs_count = ops_count = 0
    if opts.timing_stats:
        ctx.out("Loading...")
    for path in ctx.args:
        ops = _read(path) * opts.rep_op
        for index in range(opts.rep_job):
            executor.add(f"file {os.path.basename(path)}/{index}", *ops)
            jobs_count += 1
            ops_count += len(ops)
    started = ctx.effects.now()
    if opts.timing_stats:
        ctx.out("Submitting...")
    executor.submit(each=opts.each)
    submitted = ctx.effects.now()
    if opts.timing_stats:
        ctx.out("Executing...")
    executor.finish(quiet=not opts.verbose)
    ended = ctx.effects.now()
    if opts.timing_stats:
        ctx.out(f"C:op     {ops_count:4d}")
        ctx.out(f"C:job    {jobs_count:4d}")
        ctx.out(f"T:submit {submitted - started:.4f}")
        ctx.out(f"T:exec   {ended - submitted:.4f}")
        ctx.out(f"T:total  {ended - started:.4f}")


def test_os_parameters(ctx: CommandContext) -> int:
    """Submit the test opcode."""
    return operation.run(ctx, osparams_secret=ctx.opts.osparams_secret)
