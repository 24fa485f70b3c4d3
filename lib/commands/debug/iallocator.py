"""``iallocator``: print the request to an allocator, or its answer."""

from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.commands.cli import values
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.waiting import jobs

#: Modes for the whole cluster; the argument restricts them to a node group.
_OF_CLUSTER: Final = ("balance", "capacity")
_ALL_GROUPS: Final = "."


def _disks(text: str) -> list[dict[str, Any]]:
    try:
        return [
            {"size": values.parse_size(size), "mode": "w"} for size in text.split(",")
        ]
    except values.BadValueError as err:
        raise errors.OpPrereqError(
            f"--disks: wanted a comma list of sizes, found {text!r}", ecodes.ECODE_INVAL
        ) from err


def _nics(text: str) -> list[dict[str, Any]]:
    """Return the NICs of a comma list of ``MAC[/IP[/BRIDGE]]``."""
    nics = []
    for part in text.split(","):
        fields = [*part.split("/"), "", ""][:3]
        nic = dict(zip(("mac", "ip", "bridge"), fields, strict=True))
        nics.append({key: value for key, value in nic.items() if value})
    return nics


def run(ctx: CommandContext) -> None:
    """Print the request or the answer of an allocator."""
    opts = ctx.opts
    of_cluster = opts.mode in _OF_CLUSTER
    group = ctx.args[0] if of_cluster and ctx.args[0] != _ALL_GROUPS else None
    operation = jobs.op(
        "OP_TEST_ALLOCATOR",
        mode=opts.mode,
        name=ctx.args[0],
        instances=None if of_cluster else ctx.args,
        group_name=group,
        disks=_disks(opts.disks),
        disk_template=opts.disk_template,
        nics=_nics(opts.nics),
        os=opts.os,
        vcpus=opts.vcpus,
        tags=opts.tags.split(",") if opts.tags else [],
        direction=opts.direction,
        iallocator=opts.iallocator,
        evac_mode=opts.evac_mode,
        target_groups=opts.target_groups or None,
        memory=opts.memory,
        spindle_use=opts.spindle_use,
        count=opts.count,
    )
    ctx.out(jobs.run(ctx, operation))
