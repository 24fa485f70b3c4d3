"""Removal of the remains of a guest that does not run."""

import contextlib
import os
import shutil
from typing import Final

from ganeti.base import errors
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm import files, runtime, security
from ganeti.node.hypervisor.kvm.devices import shares, taps, tpm
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.moving import departure

_SOCKETS: Final = ("monitor", "serial", "qmp", "kvmd", "qga")
_MARKERS: Final = ("shutdown", "frozen", "arrival", "sent", "progress")


def remove(effects: NodeEffects, guest: Files) -> None:
    """Remove all files of a guest, release its user, disconnect its NICs."""
    tpm.end(effects, guest)
    shares.end(effects, guest)
    security.release(guest)
    _disconnect(effects, guest)
    controls = (*map(guest.control, _SOCKETS), *map(guest.marker, _MARKERS))
    for path in (*controls, guest.pid, guest.runtime, guest.seed):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    departure.forget(guest)
    shutil.rmtree(guest.nics, ignore_errors=True)
    _remove_chroot(guest)


def drop(effects: NodeEffects, guest: Files) -> None:
    """End a guest's emulator on this node and remove its remains."""
    files.end_process(effects, guest)
    remove(effects, guest)


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
