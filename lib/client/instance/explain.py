"""``--explain``: where a new instance would go, and what speaks against other nodes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.cli import jobs
from ganeti.cli.context import Context
from ganeti.cli.text import safe
from ganeti.client.instance import devices
from ganeti.htools import reasons

Data = Mapping[str, Any]


def run(ctx: Context, operation: jobs.Op) -> None:
    """Have a creation checked, print where it goes and the reasons.

    They are printed too when it cannot be done; the error follows.

    Raises:
        OpPrereqError: without ``--dry-run``, or with ``--submit``.
        GenericError: the error of the job.
    """
    if not ctx.option("dry_run") or ctx.option("submit_only"):
        raise devices.refusal("--explain goes with --dry-run only, without --submit")
    told: list[Data] = []
    show = jobs.print_log(ctx)

    def on_log(entry: list[Any]) -> None:
        if entry[2] == jobs.PLACEMENT:
            told.append(entry[3])
        else:
            show(entry)

    job_id = jobs.submit(ctx, [jobs.with_generic(ctx, operation)])
    nodes: Sequence[str] = ()
    try:
        (nodes,) = jobs.wait(ctx, job_id, on_log)
    finally:
        _print(ctx, operation["instance_name"], nodes, told)


def _print(ctx: Context, name: str, nodes: Sequence[str], told: Sequence[Data]) -> None:
    if ctx.option("json"):
        document = {"instance": name, "nodes": list(nodes), "allocators": list(told)}
        ctx.out(json.dumps(document, indent=1))
        return
    ctx.out(f"Instance {name}: {safe(', '.join(nodes)) or 'no place'}")
    for one in told:
        ctx.out(f"Allocator {one['allocator']}: {safe(one['info'])}")
        found = [
            reasons.Reason(**row)
            for item in one["instances"]
            for row in item["reasons"]
        ]
        for line in reasons.lines(found):
            ctx.out(f"  {safe(line)}")
