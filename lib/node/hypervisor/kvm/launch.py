"""Start of an emulator from a runtime: taps, user, process, settings, continue.

Used by start, reboot and incoming migration. After a failure nothing is left running.
Specified in the hypervisor document, section 2.3.
"""

import dataclasses
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.filesystem import files as file_utils
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor import networks
from ganeti.node.hypervisor.base import MIB, NodeEffects, linux_node_info
from ganeti.node.hypervisor.kvm import argv, cpu, detached, emulator, files, security
from ganeti.node.hypervisor.kvm.devices import (
    disk_files,
    firmware,
    seed,
    shares,
    taps,
    tpm,
)
from ganeti.node.hypervisor.kvm.devices import disks_and_nics as devices
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.qmp import Qmp
from ganeti.node.hypervisor.kvm.runtime import Runtime

#: Seconds that the emulator may take to open its devices and become a daemon.
_START_TIMEOUT_S: Final = 60.0
#: Bytes of a password file, whose first line counts.
_MAX_PASSWORD_FILE: Final = 64 * 1024
#: Displays -> the parameter with the address that a guest needs to have one.
_DISPLAYS: Final = {"vnc": "vnc_bind_address", "spice": "spice_bind"}


@dataclasses.dataclass(frozen=True)
class Launch:
    """Options of one start.

    Attributes:
        paused: leave the guest's processors stopped.
        incoming: address on which to receive a migration, None to boot the guest.
    """

    paused: bool = False
    incoming: str | None = None


@dataclasses.dataclass(frozen=True)
class _Start:
    """Parts of one start: NICs, user, sockets to the emulator's helpers, files."""

    nics: Sequence[tuple[str, taps.Tap]]
    how: Launch
    user: str | None
    tpm_fd: int | None
    share_ends: Sequence[shares.End]
    disk_fds: Mapping[str, int]


def launch(
    effects: NodeEffects, instance: InstanceX, runtime: Runtime, how: Launch
) -> None:
    """Start a guest's emulator.

    Args:
        effects: effect interfaces of this node.
        instance: the instance's record, for network scripts and memory.
        runtime: permanent command, parameters and devices.
        how: paused, or waiting for a migration.

    Raises:
        HypervisorError: names the failed step; nothing is left running.
    """
    guest = Files(effects.paths, instance.name)
    opened: dict[int, tuple[str, taps.Tap]] = {}
    firmware.prepare(guest, instance, runtime.hvparams)
    if argv.has_seed(runtime.argv):
        seed.write(guest, instance.cloud_init)
    try:
        for index, nic in enumerate(runtime.nics):
            tap = taps.open_nic(effects, nic, runtime.hvparams, instance.name)
            opened[index] = (nic.uuid, tap)
        # Whoever cleans up after a failure knows them by these names.
        taps.write_names(guest, opened)
        connect_nics(effects, instance, runtime, opened, how)
        with (
            security.user(effects, guest, runtime.hvparams) as user,
            tpm.started(effects, guest, instance, runtime.hvparams, user) as end,
            shares.started(effects, guest, runtime.hvparams) as ends,
            disk_files.of_start(effects, guest, runtime) as disk_fds,
        ):
            start = _Start(list(opened.values()), how, user, end, ends, disk_fds)
            _execute(effects, guest, runtime, start)
    except errors.GenericError:
        files.end_process(effects, guest)
        raise
    finally:
        for _, tap in opened.values():
            tap.close()
    try:
        _set_up(guest, instance, runtime, how)
    except errors.GenericError:
        files.end_process(effects, guest)
        raise


def connect_nics(
    effects: NodeEffects,
    instance: InstanceX,
    runtime: Runtime,
    opened: dict[int, tuple[str, taps.Tap]],
    how: Launch,
) -> None:
    """Connect taps; routed taps of a migration are connected when it has ended."""
    for index, nic in enumerate(runtime.nics):
        if how.incoming and nic.nicparams.get("mode") == "routed":
            continue
        env = networks.environment(instance, nic, index, opened[index][1].name)
        taps.connect(effects, env)


def _execute(
    effects: NodeEffects,
    guest: Files,
    runtime: Runtime,
    start: _Start,
) -> None:
    nics, user = start.nics, start.user
    hvp = runtime.hvparams
    extras = argv.Extras(
        accel=emulator.acceleration(
            effects, runtime.argv[0], hvp.get("kvm_flag") or ""
        ),
        nics=[
            devices.nic_args(
                nic,
                tap_fds=tap.fds,
                vhost_fds=tap.vhost_fds,
                bootindex=devices.nic_bootindex(hvp, index),
            )
            for index, (nic, (_, tap)) in enumerate(
                zip(runtime.nics, nics, strict=True)
            )
        ],
        block_paths=frozenset(
            path
            for _, path, _ in runtime.disks
            if path not in start.disk_fds and _is_block(path)
        ),
        disk_fds=start.disk_fds,
        user=user,
        chroot=_chroot(guest, hvp),
        incoming=start.how.incoming,
        tpm_fd=start.tpm_fd,
        share_ends=start.share_ends,
        sandbox=(
            argv.sandbox(hvp, has_user=user is not None)
            if emulator.has_sandbox(effects, runtime.argv[0])
            else None
        ),
    )
    fds = [fd for _, tap in nics for fd in (*tap.fds, *tap.vhost_fds)]
    if start.tpm_fd is not None:
        fds.append(start.tpm_fd)
    fds += [fd for _, fd in start.share_ends]
    fds += start.disk_fds.values()
    command = argv.complete(runtime, extras)
    try:
        if extras.sandbox:
            detached.start(effects, guest, command, fds, _START_TIMEOUT_S)
            return
        result = effects.process.run(command, timeout_s=_START_TIMEOUT_S, pass_fds=fds)
    except errors.CommandError as err:
        raise errors.HypervisorError(f"instance {guest.name}: {err}") from err
    if result.failed or guest.alive_pid() is None:
        raise errors.HypervisorError(
            f"instance {guest.name}: the emulator {result.reason}:"
            f" {result.output.strip() or detached.log_end(guest)}"
        )


def _is_block(path: str) -> bool:
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError:
        return False


def _chroot(guest: Files, hvp: dict[str, Any]) -> str | None:
    if not hvp.get("use_chroot"):
        return None
    os.makedirs(guest.chroot, mode=0o700, exist_ok=True)
    return guest.chroot


def _set_up(guest: Files, instance: InstanceX, runtime: Runtime, how: Launch) -> None:
    hvp = runtime.hvparams
    with Qmp(guest.control("qmp"), guest.name) as qmp:
        for protocol, address in _DISPLAYS.items():
            # QEMU refuses a password for a display that a guest does not have.
            if hvp.get(address):
                path = hvp.get(f"{protocol}_password_file")
                _set_password(qmp, guest.name, protocol, path)
        cpu.pin(qmp, guest.name, hvp.get("cpu_mask") or "all")
        if how.incoming:
            return
        wanted = start_memory_mib(instance)
        if wanted < instance.beparams["maxmem"]:
            qmp.execute("balloon", {"value": wanted * MIB})
        if not how.paused:
            qmp.execute("cont")


def start_memory_mib(instance: InstanceX) -> int:
    """Return the memory at start: the free memory, between minimum and maximum."""
    low, high = instance.beparams["minmem"], instance.beparams["maxmem"]
    free: int = linux_node_info()["memory_free"]
    return int(max(low, min(high, free)))


def _set_password(qmp: Qmp, name: str, protocol: str, path: str | None) -> None:
    if not path:
        return
    try:
        text = file_utils.read_file(path, max_size=_MAX_PASSWORD_FILE).decode()
    except (OSError, errors.GenericError, UnicodeDecodeError) as err:
        reason = getattr(err, "strerror", None) or str(err)
        raise errors.HypervisorError(
            f"instance {name}: {protocol} password file {path}: {reason}"
        ) from err
    password = text.partition("\n")[0]
    qmp.execute("set_password", {"protocol": protocol, "password": password})
