"""Hot-plug of changed devices into a running guest, where it is supported.

A guest releases a removed or changed device before the configuration and the disks
change (`release`); it gets added devices afterwards (`add`). If it does not release a
device, the operation fails with guest, configuration and disks as before.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.model import objects
from ganeti.operations import base
from ganeti.operations.instance.devices.modify_nics import NicStep
from ganeti.protocols.rpc import calls, encode

Kind = Literal["disk", "nic"]
_ADDED: Final = ("add", "attach")
_REMOVED: Final = ("remove", "detach")
#: Hypervisors without a process that holds the disks of a guest.
_WITHOUT_PROCESS: Final = frozenset({"fake"})


@dataclasses.dataclass(frozen=True)
class Change:
    """One device to change in the guest.

    Attributes:
        kind: ``disk`` or ``nic``.
        step: the change.
        before: the present record of a NIC to be modified, else None.
    """

    kind: Kind
    step: NicStep
    before: objects.Nic | None = None

    @property
    def label(self) -> str:
        """The name of the device in messages and results."""
        return f"{self.kind}/{self.step.index}"

    @property
    def is_addition(self) -> bool:
        """Whether the guest gets a device that it does not have."""
        return self.step.action in _ADDED


def changes(
    instance: objects.Instance,
    disk_steps: Sequence[NicStep],
    nic_steps: Sequence[NicStep],
) -> list[Change]:
    """Return the changes that concern the guest, disks first."""
    present = {nic.uuid: nic for nic in instance.nics}
    disks = [Change("disk", step) for step in disk_steps if step.action != "modify"]
    nics = []
    for step in nic_steps:
        before = present.get(step.device.uuid)
        if step.action in ("add", "remove"):
            nics.append(Change("nic", step))
        elif before is not None:
            nics.append(Change("nic", step, before))
    return disks + nics


def check(
    ctx: base.Context,
    instance: objects.Instance,
    wanted: Sequence[Change],
    *,
    hotplug: bool,
    force: bool,
) -> bool:
    """Return whether the running guest can get the changes now; changes nothing.

    Args:
        ctx: dependencies of the opcode.
        instance: a running instance.
        wanted: result of `changes`.
        hotplug: whether the user wants the guest to be changed.
        force: whether disks may be removed though the guest keeps them.

    Raises:
        OpPrereqError: a disk is removed or detached, and the guest would keep it.
    """
    why = "hotplug is switched off for this request"
    if hotplug:
        result = ctx.rpc.call_node(
            instance.primary_node,
            calls.hotplug_supported(encode.instance(ctx.snapshot, instance)),
        )
        if not result.failed:
            return True
        why = f"node {result.node}: {result.fail_msg}"
        ctx.log.warn(f"the running guest keeps its devices until its next start: {why}")
    if instance.hypervisor not in _WITHOUT_PROCESS:
        for change in wanted:
            if change.kind == "disk" and change.step.action in _REMOVED:
                _refuse_kept(ctx, instance, change, why, force=force)
    return False


def _refuse_kept(
    ctx: base.Context,
    instance: objects.Instance,
    change: Change,
    why: str,
    *,
    force: bool,
) -> None:
    text = f"instance {instance.name}: the running guest keeps {change.label}"
    if not force:
        raise errors.OpPrereqError(
            f"{text}, which therefore cannot be {_past(change)} ({why}); stop the"
            " instance first, or use force",
            ecodes.ECODE_STATE,
        )
    ctx.log.warn(f"{text} until its next start, though it is {_past(change)}")


def _past(change: Change) -> str:
    return "removed" if change.step.action == "remove" else "detached"


class Released:
    """Devices that the guest has released or changed, to be undone after a failure."""

    def __init__(self, ctx: base.Context, instance: objects.Instance) -> None:
        self._ctx = ctx
        self._instance = instance
        self._done: list[Change] = []

    def release(self, wanted: Sequence[Change]) -> None:
        """Let the guest release removed devices, and change modified NICs.

        Raises:
            OpExecError: the guest refused; earlier devices were given back.
        """
        for change in wanted:
            if change.step.action in _ADDED:
                continue
            action = "hotmod" if change.before else "hotremove"
            device = _wire(self._ctx, self._instance, change.kind, change.step.device)
            result = _call(self._ctx, self._instance, change, action, device)
            if result.failed:
                self.undo()
                verb = "changed" if change.before else _past(change)
                raise errors.OpExecError(
                    result.describe(
                        f"instance {self._instance.name}: {change.label} is not {verb},"
                        " and nothing else was changed"
                    )
                )
            self._done.append(change)

    def assume(self, wanted: Sequence[Change]) -> None:
        """Take all changes for done: which ones were is not known after a restart."""
        self._done = [c for c in wanted if c.step.action not in _ADDED]

    def undo(self) -> list[str]:
        """Give devices back to the guest; return the names of those that it lacks.

        Failures are logged as warnings.
        """
        ctx, instance = self._ctx, self._instance
        lacking: list[str] = []
        while self._done:
            change = self._done.pop()
            if change.before:
                device = _wire(ctx, instance, "nic", change.before)
                result = _call(ctx, instance, change, "hotmod", device)
            else:
                result = _plug(ctx, instance, change)
            if result.failed:
                what = f"the guest has no {change.label} until its next start"
                ctx.log.warn(result.describe(what))
                lacking.append(change.label)
        return lacking


def add(
    ctx: base.Context, instance: objects.Instance, wanted: Sequence[Change]
) -> Iterator[tuple[str, str]]:
    """Plug added devices; yield the ``hotplug`` row of each change for the result.

    A device that the guest does not accept applies at its next start.
    """
    for change in wanted:
        outcome = "done"
        if change.step.action in _ADDED:
            result = _plug(ctx, instance, change)
            if result.failed:
                ctx.log.warn(result.describe(f"cannot hot-plug {change.label}"))
                outcome = "failed"
        yield change.label, f"hotplug:{outcome}"


def _plug(ctx: base.Context, instance: objects.Instance, change: Change) -> Any:
    device = _wire(ctx, instance, change.kind, change.step.device)
    extra = None
    if change.kind == "disk":
        assembled = ctx.rpc.call_node(
            instance.primary_node,
            calls.blockdev_assemble(
                device, encode.instance(ctx.snapshot, instance), True, change.step.index
            ),
        )
        if assembled.failed:
            return assembled
        _device_path, *extra = assembled.payload
    return _call(ctx, instance, change, "hotadd", device, extra=extra)


def _call(
    ctx: base.Context,
    instance: objects.Instance,
    change: Change,
    action: str,
    device: dict[str, Any],
    *,
    extra: Any = None,
) -> Any:
    return ctx.rpc.call_node(
        instance.primary_node,
        calls.hotplug_device(
            encode.instance(ctx.snapshot, instance),
            action,
            change.kind,
            device,
            extra,
            change.step.index,
        ),
    )


def _wire(
    ctx: base.Context, instance: objects.Instance, kind: Kind, device: Any
) -> dict[str, Any]:
    if kind == "nic":
        wire: dict[str, Any] = msgspec.to_builtins(encode.nic(ctx.snapshot, device))
        return wire
    return dict(encode.disk(ctx.snapshot, device, instance))
