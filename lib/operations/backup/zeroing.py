"""Zeroing of the free space of disks before an export, by a helper machine.

The helper machine has the disks of the stopped instance after its own, and writes zeros
to what their file systems do not use.
"""

import math
import threading
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.model import objects, opcodes
from ganeti.operations import base
from ganeti.operations.instance.create import helper_machine
from ganeti.operations.instance.move import transfer_watch

#: Seconds that a helper machine gets besides those for the disks: to boot and to end.
FIXED_S: Final = 300
#: Seconds that it gets per MiB of the disks.
PER_MIB_S: Final = 0.05
_WORK: Final = "zeroing the free space of its disks"


def check_arguments(op: opcodes.BackupExport) -> None:
    """Refuse time limits that are wrong, or without a helper machine.

    Raises:
        OpPrereqError: names the option, wanted and found.
    """
    for option, value in (
        ("zeroing_timeout_fixed", op.zeroing_timeout_fixed),
        ("zeroing_timeout_per_mib", op.zeroing_timeout_per_mib),
    ):
        if value is None:
            continue
        what = f"instance {op.instance_name}: --{option.replace('_', '-')}"
        if not op.zero_free_space:
            raise errors.OpPrereqError(
                f"{what}: needs --zero-free-space", ecodes.ECODE_INVAL
            )
        if not (math.isfinite(value) and 0 <= value <= helper_machine.MAX_S):
            raise errors.OpPrereqError(
                f"{what}: wanted 0 to {helper_machine.MAX_S:g} seconds,"
                f" found {value:g}",
                ecodes.ECODE_INVAL,
            )


def limit_s(op: opcodes.BackupExport, size_mib: int) -> float:
    """Return the seconds that the helper machine may run for disks of a size."""
    fixed, per_mib = op.zeroing_timeout_fixed, op.zeroing_timeout_per_mib
    total = (FIXED_S if fixed is None else fixed) + size_mib * (
        PER_MIB_S if per_mib is None else per_mib
    )
    return min(float(total), helper_machine.MAX_S)


def check(
    ctx: base.Context, instance: objects.Instance, *, is_running: bool, stops: bool
) -> None:
    """Refuse an instance whose disks cannot be given to a helper machine.

    Args:
        ctx: dependencies of the opcode.
        instance: the instance.
        is_running: whether its guest runs.
        stops: whether the guest is stopped for the export.

    Raises:
        OpPrereqError: names what is missing, and who can mend it.
    """
    what = f"instance {instance.name}: {_WORK}"
    helper_machine.require_image(
        what,
        ctx.snapshot.cluster.zeroing_image,
        instance.hypervisor,
        option="gnt-cluster modify --zeroing-image",
        parameter="an image",
    )
    if is_running:
        if not stops:
            raise errors.OpPrereqError(
                f"{what} needs it to be stopped; leave out --noshutdown",
                ecodes.ECODE_STATE,
            )
        return
    helper_machine.require_memory(ctx, instance)


def add_image(ctx: base.Context, instance: objects.Instance) -> None:
    """Make the boot disk of the helper machine on the primary node.

    Raises:
        OpExecError: the node cannot use the image.
    """
    helper_machine.add_image(
        ctx,
        instance,
        ctx.snapshot.cluster.zeroing_image,
        f"instance {instance.name}: cannot zero the free space of its disks",
    )


def run(
    ctx: base.Context, instance: objects.Instance, op: opcodes.BackupExport
) -> None:
    """Let the helper machine work until it powers itself off.

    Raises:
        OpExecError: it could not be started, or did not end in time.
    """
    size_mib = sum(disk.size for disk in ctx.snapshot.instance_disks(instance))
    limit = limit_s(op, size_mib)
    what = f"instance {instance.name}: {_WORK}"
    ctx.log.message(
        f"* zeroing the free space of the disks ({size_mib} MiB, at most {limit:.0f} s)"
    )
    begun = ctx.clock.monotonic()
    ctx.rpc.call_one(
        "helper_start",
        instance.primary_node,
        helper_machine.wire(ctx, instance),
        False,
        op.reason,
    ).unwrap(f"{what}: the helper machine could not be started")
    watch = helper_machine.Watch(ctx, instance, what)
    reported = begun
    while watch.is_running():
        now = ctx.clock.monotonic()
        if now - begun >= limit:
            raise errors.OpExecError(
                f"{what}: the helper machine did not power itself off in {limit:.0f} s;"
                " allow more time with --zeroing-timeout-fixed, or look at its console"
            )
        if now - reported >= transfer_watch.REPORT_S:
            reported = now
            ctx.log.message(f" - the helper machine runs for {now - begun:.0f} s")
        ctx.clock.wait(threading.Event(), helper_machine.POLL_S)
    ctx.log.message(f" - zeroed in {ctx.clock.monotonic() - begun:.0f} s")
