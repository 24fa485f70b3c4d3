"""Start of an emulator from a runtime, its user, and the removal of its remains.

Used by start, reboot and incoming migration. After a failure nothing is left running.
Specified in the hypervisor document, section 2.3.

An emulator with a strict system call filter cannot fork, so it cannot become a daemon.
``setsid`` of util-linux starts it in a session of its own. The start is complete when
the emulator answers commands; a pipe that it inherits reports its end before that.
"""

import contextlib
import dataclasses
import io
import os
import pwd
import select
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pycdlib

from ganeti.base import errors
from ganeti.base.constants.parameters import cloud_init, hvparams
from ganeti.base.filesystem import files as file_utils
from ganeti.base.filesystem import pidfile
from ganeti.base.text import hv_syntax
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor import networks
from ganeti.node.hypervisor.base import MIB, NodeEffects, linux_node_info
from ganeti.node.hypervisor.kvm import argv, emulator, files, runtime
from ganeti.node.hypervisor.kvm.devices import (
    disks_and_nics,
    firmware,
    shares,
    taps,
    tpm,
)
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.moving import departure
from ganeti.node.hypervisor.kvm.qmp import Qmp
from ganeti.node.hypervisor.kvm.runtime import Runtime, opened_disks
from ganeti.protocols import uidpool
from ganeti.protocols.ssconf import SimpleStore

_ANSWER_POLL_S: Final = 0.02


def start_detached(
    effects: NodeEffects,
    guest: Files,
    command: Sequence[str],
    fds: Sequence[int],
    timeout_s: float,
) -> None:
    """Start an emulator and wait until it answers.

    Args:
        effects: effect interfaces of this node.
        guest: the guest's files; its log gets the output of the emulator.
        command: the emulator and its arguments, without ``-daemonize``.
        fds: open files that the emulator inherits.
        timeout_s: time limit, in seconds.

    Raises:
        CommandError: ``setsid`` cannot be run.
        HypervisorError: the emulator ended, or does not answer in time.
    """
    with contextlib.suppress(FileNotFoundError):
        # An error shows the end of the log, which is to be of this start.
        os.truncate(guest.log, 0)
    ended, alive = os.pipe()
    try:
        try:
            result = effects.process.run(
                ["setsid", "--fork", *command],
                timeout_s=timeout_s,
                output_file=guest.log,
                pass_fds=[*fds, alive],
            )
        finally:
            # Only the emulator has this end now, so its end shows at the other one.
            os.close(alive)
        if result.failed:
            raise errors.HypervisorError(
                f"instance {guest.name}: the emulator cannot be started: setsid"
                f" {result.reason}: {files.log_end(guest)}"
            )
        _wait_for_emulator(effects, guest, ended, timeout_s)
    finally:
        os.close(ended)


def _wait_for_emulator(
    effects: NodeEffects, guest: Files, ended: int, timeout_s: float
) -> None:
    deadline = effects.clock.monotonic() + timeout_s
    while not select.select([ended], [], [], _ANSWER_POLL_S)[0]:
        try:
            with Qmp(guest.control("qmp"), guest.name) as qmp:
                qmp.execute("query-status")
        except errors.HypervisorError as err:
            if effects.clock.monotonic() >= deadline:
                raise errors.HypervisorError(
                    f"instance {guest.name}: the emulator does not answer within"
                    f" {timeout_s:g} s: {err}"
                ) from err
        else:
            return
    raise errors.HypervisorError(
        f"instance {guest.name}: the emulator ended at its start:"
        f" {files.log_end(guest)}"
    )


@contextlib.contextmanager
def emulator_user(
    effects: NodeEffects, guest: Files, hvparams: Mapping[str, Any]
) -> Iterator[str | None]:
    """Yield the name of the user for one start, None for the daemon's own.

    The guest keeps a user of the pool if the body succeeds; the user is released if the
    body fails.

    Raises:
        HypervisorError: the user does not exist, or the pool has no free user.
    """
    model = hvparams.get("security_model")
    if model == "user":
        yield _known(guest, pwd.getpwnam, hvparams.get("security_domain") or "")
    elif model == "pool":
        with _pooled(effects, guest) as name:
            yield name
    else:
        yield None


def _known(guest: Files, look_up: Any, what: str | int) -> str:
    try:
        return str(look_up(what).pw_name)
    except KeyError:
        raise errors.HypervisorError(
            f"instance {guest.name}: user {what!r} of the emulator does not exist on"
            " this node"
        ) from None


@contextlib.contextmanager
def _pooled(effects: NodeEffects, guest: Files) -> Iterator[str]:
    try:
        text = SimpleStore(effects.paths).GetUidPool()
        pool = uidpool.ExpandUidPool(uidpool.ParseUidPool(text, "\n"))
        locked = uidpool.RequestUnusedUid(
            pool, paths=effects.paths, runner=effects.process
        )
    except errors.GenericError as err:
        raise errors.HypervisorError(
            f"instance {guest.name}: cannot get a user of the pool: {err}"
        ) from err
    try:
        yield _known(guest, pwd.getpwuid, locked.GetUid())
        with open(guest.uid, "w", encoding="ascii") as out:
            out.write(str(locked))
    except BaseException:
        uidpool.ReleaseUid(locked, paths=effects.paths)
        raise
    locked.Unlock()


def release_user(guest: Files) -> None:
    """Release a guest's user of the pool, if it has one."""
    uid = pidfile.pid_in(guest.uid)
    if uid is None:
        return
    with contextlib.suppress(errors.LockError):
        uidpool.ReleaseUid(uid, paths=guest.paths)
    os.unlink(guest.uid)


# The cloud-init seed of a guest: a small read-only disk that NoCloud finds.
#
# It is written at each start, from the master's record, and removed with the other
# files of the guest. Only root reads it: the emulator opens it before it changes its
# user.

#: Name on the ISO 9660 level; guests read the long names of Rock Ridge or Joliet.
_SHORT_NAMES: Final = {
    cloud_init.USER_DATA: "/USERDATA.;1",
    cloud_init.META_DATA: "/METADATA.;1",
    cloud_init.NETWORK_CONFIG: "/NETCONF.;1",
}


def seed_image(contents: Mapping[str, str]) -> bytes:
    """Return the image of a seed.

    Args:
        contents: file -> content; other files than those of cloud-init are left out.

    Raises:
        HypervisorError: the files are too large.
    """
    iso = pycdlib.PyCdlib()
    iso.new(joliet=3, rock_ridge="1.09", vol_ident=cloud_init.LABEL)
    for name, short_name in _SHORT_NAMES.items():
        if name not in contents:
            continue
        data = contents[name].encode()
        iso.add_fp(
            io.BytesIO(data),
            len(data),
            short_name,
            rr_name=name,
            joliet_path=f"/{name}",
        )
    out = io.BytesIO()
    iso.write_fp(out)
    iso.close()
    data = out.getvalue()
    if len(data) > cloud_init.SEED_BYTES:
        raise errors.HypervisorError(
            f"cloud-init seed: wanted at most {cloud_init.SEED_BYTES} bytes, found"
            f" {len(data)}"
        )
    return data.ljust(cloud_init.SEED_BYTES, b"\0")


def write_seed(guest: Files, contents: Mapping[str, str]) -> None:
    """Write the seed of a guest, readable by root only.

    Raises:
        HypervisorError: the files are too large.
    """
    os.makedirs(os.path.dirname(guest.seed), mode=0o750, exist_ok=True)
    file_utils.write_file(guest.seed, seed_image(contents), mode=0o600)


# Pinning of a guest's virtual processors.

_ALL: Final = hvparams.CPU_PINNING_ALL


def assign_cpus(mask: str, vcpus: int) -> list[frozenset[int] | None]:
    """Return the processors of each virtual processor; a single part applies to all.

    Raises:
        HypervisorError: the mask has a wrong number of parts.
    """
    try:
        return hv_syntax.masks("kvm", mask, vcpus)
    except errors.ParseError as err:
        raise errors.HypervisorError(str(err)) from err


def pin_cpus(qmp: Qmp, name: str, mask: str) -> None:
    """Bind a guest's virtual processors to processors of the node.

    Raises:
        HypervisorError: the mask does not fit guest or node.
    """
    if mask == _ALL:
        return
    rows = sorted(qmp.execute("query-cpus-fast"), key=lambda row: row["cpu-index"])
    for row, cpus in zip(rows, assign_cpus(mask, len(rows)), strict=True):
        if cpus is None:
            continue
        try:
            os.sched_setaffinity(row["thread-id"], cpus)
        except OSError as err:
            raise errors.HypervisorError(
                f"instance {name}: cannot pin virtual processor {row['cpu-index']} to"
                f" {sorted(cpus)}: {err.strerror}"
            ) from err


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
        write_seed(guest, instance.cloud_init)
    try:
        for index, nic in enumerate(runtime.nics):
            tap = taps.open_nic(effects, nic, runtime.hvparams, instance.name)
            opened[index] = (nic.uuid, tap)
        # Whoever cleans up after a failure knows them by these names.
        taps.write_names(guest, opened)
        connect_nics(effects, instance, runtime, opened, how)
        with (
            emulator_user(effects, guest, runtime.hvparams) as user,
            tpm.started(effects, guest, instance, runtime.hvparams, user) as end,
            shares.started(effects, guest, runtime.hvparams) as ends,
            opened_disks(effects, guest, runtime) as disk_fds,
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
            disks_and_nics.nic_args(
                nic,
                tap_fds=tap.fds,
                vhost_fds=tap.vhost_fds,
                bootindex=disks_and_nics.nic_bootindex(hvp, index),
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
            start_detached(effects, guest, command, fds, _START_TIMEOUT_S)
            return
        result = effects.process.run(command, timeout_s=_START_TIMEOUT_S, pass_fds=fds)
    except errors.CommandError as err:
        raise errors.HypervisorError(f"instance {guest.name}: {err}") from err
    if result.failed or guest.alive_pid() is None:
        raise errors.HypervisorError(
            f"instance {guest.name}: the emulator {result.reason}:"
            f" {result.output.strip() or files.log_end(guest)}"
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
        pin_cpus(qmp, guest.name, hvp.get("cpu_mask") or "all")
        # Memory and state come with the guest.
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


_CONTROLS: Final = ("monitor", "serial", "qmp", "kvmd", "qga")
_MARKERS: Final = ("shutdown", "frozen", "arrival", "sent", "progress")


def remove_remains(effects: NodeEffects, guest: Files) -> None:
    """Remove all files of a guest, release its user, disconnect its NICs."""
    tpm.end(effects, guest)
    shares.end(effects, guest)
    release_user(guest)
    # It reads the runtime file and the names of taps, which go below.
    _disconnect(effects, guest)
    controls = (*map(guest.control, _CONTROLS), *map(guest.marker, _MARKERS))
    for path in (*controls, guest.pid, guest.runtime, guest.seed):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    departure.forget(guest)
    shutil.rmtree(guest.nics, ignore_errors=True)
    _remove_chroot(guest)


def drop(effects: NodeEffects, guest: Files) -> None:
    """End a guest's emulator on this node and remove its remains."""
    files.end_process(effects, guest)
    remove_remains(effects, guest)


def _disconnect(effects: NodeEffects, guest: Files) -> None:
    """Remove taps from switches; the kernel removes them from bridges and routes."""
    try:
        nics = runtime.load(guest).nics
    except errors.HypervisorError:
        return
    for nic in nics:
        taps.leave_switch(effects, guest, nic)


def _remove_chroot(guest: Files) -> None:
    """Remove the chroot; a chroot that has files is moved aside."""
    try:
        os.rmdir(guest.chroot)
    except FileNotFoundError:
        return
    except OSError:
        quarantine = f"{guest.root}/chroot-quarantine"
        os.makedirs(quarantine, mode=0o700, exist_ok=True)
        stamp = os.stat(guest.chroot).st_mtime_ns
        os.rename(guest.chroot, f"{quarantine}/{guest.name}-{stamp}")
