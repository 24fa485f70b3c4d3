"""Zeroing of the free space of disks before an export, by a helper machine.

The helper machine boots from an image of the cluster, with the disks of the stopped
instance after its own, writes zeros to what their file systems do not use, and powers
itself off. Each step can be repeated, also after a restart of the master daemon.
"""

import math
import threading
from typing import Any, Final

from ganeti import errors, objects, opcodes
from ganeti.cmdlib import base
from ganeti.cmdlib.instance import capacity, checks, common, transfer_watch
from ganeti.constants import ecodes
from ganeti.objects import params
from ganeti.rpc import encode

#: Seconds that a helper machine gets besides those for the disks: to boot and to end.
FIXED_S: Final = 300
#: Seconds that it gets per MiB of the disks.
PER_MIB_S: Final = 0.05
#: Seconds between two questions whether it runs.
_POLL_S: Final = 2.0
#: Longest time that may be requested, in seconds: 30 days.
_MAX_S: Final = 30 * 86400.0
_KVM: Final[dict[str, Any]] = {
    "boot_order": "disk",
    "cdrom_image_path": "",
    "cdrom2_image_path": "",
    "firmware": "bios",
    "floppy_image_path": "",
    "initrd_path": "",
    "kernel_path": "",
    # An image that does not boot must not make the firmware boot the instance's disks.
    "kvm_extra": "-boot strict=on",
    "reboot_behavior": "exit",
    "shared_directories": "",
    "spice_bind": "",
    "tpm": False,
    "usb_devices": "",
    "use_guest_agent": False,
    "user_shutdown": False,
    "vnc_bind_address": "",
}
_XEN: Final[dict[str, Any]] = {
    "boot_order": "c",
    "cdrom_image_path": "",
    "pci_pass": "",
    "reboot_behavior": "exit",
}
#: Hypervisors that boot a helper machine -> parameters, besides those of the cluster.
PARAMETERS: Final = {"kvm": _KVM, "xen-hvm": _XEN}


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
        if not (math.isfinite(value) and 0 <= value <= _MAX_S):
            raise errors.OpPrereqError(
                f"{what}: wanted 0 to {_MAX_S:g} seconds, found {value:g}",
                ecodes.ECODE_INVAL,
            )


def limit_s(op: opcodes.BackupExport, size_mib: int) -> float:
    """Return the seconds that the helper machine may run for disks of a size."""
    fixed, per_mib = op.zeroing_timeout_fixed, op.zeroing_timeout_per_mib
    total = (FIXED_S if fixed is None else fixed) + size_mib * (
        PER_MIB_S if per_mib is None else per_mib
    )
    return min(float(total), _MAX_S)


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
    what = f"instance {instance.name}: zeroing the free space of its disks"
    if not ctx.snapshot.cluster.zeroing_image:
        raise errors.OpPrereqError(
            f"{what} needs an image for the helper machine, and the cluster has none;"
            " set it with gnt-cluster modify --zeroing-image",
            ecodes.ECODE_STATE,
        )
    if instance.hypervisor not in PARAMETERS:
        raise errors.OpPrereqError(
            f"{what}: wanted a hypervisor that boots images, which are"
            f" {', '.join(PARAMETERS)}; found {instance.hypervisor}",
            ecodes.ECODE_INVAL,
        )
    if is_running:
        if not stops:
            raise errors.OpPrereqError(
                f"{what} needs it to be stopped; leave out --noshutdown",
                ecodes.ECODE_STATE,
            )
        return
    backend = params.fill_beparams(ctx.snapshot, instance)
    checks.require_memory(
        ctx,
        instance.primary_node,
        instance.name,
        backend["maxmem"],
        hypervisor=instance.hypervisor,
        hv=_hvparams(ctx, instance),
        rule=capacity.MemoryRule(most_mib=backend["maxmem"]),
    )


def _hvparams(ctx: base.Context, instance: objects.Instance) -> dict[str, Any]:
    filled: dict[str, Any] = params.fill_hvparams(ctx.snapshot, _bare(instance))
    return filled | PARAMETERS[instance.hypervisor]


def _bare(instance: objects.Instance) -> objects.Instance:
    """Return the record without what belongs to the guest alone."""
    return instance.replace(
        os="", osparams={}, osparams_private={}, hvparams={}, nics=()
    )


def _wire(ctx: base.Context, instance: objects.Instance) -> dict[str, Any]:
    wire: dict[str, Any] = encode.instance(
        ctx.snapshot, _bare(instance), hvparams=PARAMETERS[instance.hypervisor]
    )
    return wire


def add_image(ctx: base.Context, instance: objects.Instance) -> None:
    """Make the boot disk of the helper machine on the primary node.

    Raises:
        OpExecError: the node cannot use the image.
    """
    ctx.log.message("* copying the image of the helper machine")
    ctx.rpc.call_one(
        "helper_image_add",
        instance.primary_node,
        _wire(ctx, instance),
        ctx.snapshot.cluster.zeroing_image,
    ).unwrap(f"instance {instance.name}: cannot zero the free space of its disks")


def run(
    ctx: base.Context, instance: objects.Instance, op: opcodes.BackupExport
) -> None:
    """Let the helper machine work until it powers itself off.

    Raises:
        OpExecError: it could not be started, or did not end in time.
    """
    size_mib = sum(disk.size for disk in ctx.snapshot.instance_disks(instance))
    limit = limit_s(op, size_mib)
    what = f"instance {instance.name}: zeroing the free space of its disks"
    ctx.log.message(
        f"* zeroing the free space of the disks ({size_mib} MiB, at most {limit:.0f} s)"
    )
    begun = ctx.clock.monotonic()
    ctx.rpc.call_one(
        "helper_start", instance.primary_node, _wire(ctx, instance), op.reason
    ).unwrap(f"{what}: the helper machine could not be started")
    silent_since: float | None = None
    reported = begun
    while True:
        now = ctx.clock.monotonic()
        answer = _is_running(ctx, instance)
        if answer is False:
            break
        silent_since = (silent_since or now) if answer is None else None
        if silent_since is not None and now - silent_since > transfer_watch.SILENCE_S:
            raise errors.OpExecError(
                f"{what}: its primary node has not answered for"
                f" {transfer_watch.SILENCE_S:g} s"
            )
        if now - begun >= limit:
            raise errors.OpExecError(
                f"{what}: the helper machine did not power itself off in {limit:.0f} s;"
                " allow more time with --zeroing-timeout-fixed, or look at its console"
            )
        if now - reported >= transfer_watch.REPORT_S:
            reported = now
            ctx.log.message(f" - the helper machine runs for {now - begun:.0f} s")
        ctx.clock.wait(threading.Event(), _POLL_S)
    ctx.log.message(f" - zeroed in {ctx.clock.monotonic() - begun:.0f} s")


def _is_running(ctx: base.Context, instance: objects.Instance) -> bool | None:
    """Return whether a guest runs, None if the node does not answer."""
    try:
        info = common.query_runtime(ctx, instance)
    except errors.GenericError:
        return None
    # State 1: a guest that shut itself down and waits for its clean-up.
    return bool(info) and info.get("state") != 1


def end(ctx: base.Context, instance: objects.Instance) -> None:
    """End the helper machine if it runs, and remove its boot disk.

    Raises:
        OpExecError: it may still run, so the instance must not be started.
    """
    ctx.rpc.call_one("helper_end", instance.primary_node, _wire(ctx, instance)).unwrap(
        f"instance {instance.name}: cannot end its helper machine"
    )
