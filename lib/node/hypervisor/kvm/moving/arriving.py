"""The target of a live migration: it receives a guest, and takes it over.

A guest that has arrived waits until the master lets it go on, which it does when the
source has given the guest up (`departure`). So a connection that breaks at the last
moment leaves one guest, whatever each emulator believes.

Specified in the hypervisor document, section 2.4.
"""

import os
from typing import Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor import networks
from ganeti.node.hypervisor.base import Arrival, NodeEffects
from ganeti.node.hypervisor.kvm import launch, runtime
from ganeti.node.hypervisor.kvm.devices import taps
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.moving import departure, migration, progress
from ganeti.node.hypervisor.kvm.qmp import Qmp, run_state

#: Capability by which a target leaves the disks alone until its guest goes on.
_LATE_DISKS: Final = "late-block-activate"
#: Content of the marker of an arrival, for a guest that was paused before.
_WAS_PAUSED: Final = b"paused"


def accept(
    effects: NodeEffects,
    guest: Files,
    instance: InstanceX,
    plan: runtime.Runtime,
    target: str,
    *,
    is_paused: bool = False,
) -> None:
    """Start an emulator that waits for a guest, which does not run here.

    Args:
        effects: effect interfaces of this node.
        guest: files of the guest on this node.
        instance: the instance's record.
        plan: start of the guest on this node.
        target: own address to listen on.
        is_paused: whether the guest is paused at its source, and stays so.

    Raises:
        HypervisorError: the emulator does not start.
    """
    launch.remove_remains(effects, guest)
    how = launch.Launch(incoming=migration.address(target, plan.hvparams))
    try:
        guest.make_directories()
        content = _WAS_PAUSED if is_paused else b""
        # Before the emulator exists: nobody may take it for a running guest.
        files.write_file(guest.arrival_marker, content)
        runtime.save(guest, plan)
        launch.launch(effects, instance, plan, how)
        with Qmp(guest.control("qmp"), guest.name) as qmp:
            words = {
                migration.RETURN_PATH,
                _LATE_DISKS,
                *migration.capabilities(plan.hvparams),
            }
            migration.set_capabilities(qmp, words)
    except errors.GenericError:
        launch.drop(effects, guest)
        raise
    except OSError as err:
        launch.drop(effects, guest)
        raise migration.cannot_write(guest, err) from err


def arrival(guest: Files, word: str) -> Arrival | None:
    """Return the state of a guest that waits to be taken over, None of another one.

    Args:
        guest: files of the guest on this node, where it has an emulator.
        word: status of the emulator.
    """
    if not os.path.exists(guest.arrival_marker):
        return None
    if word == migration.INCOMING:
        return Arrival.INCOMPLETE
    if word in migration.ARRIVED:
        return Arrival.COMPLETE
    # It has gone on, so whatever stops it later is another reason.
    files.remove_file(guest.arrival_marker)
    return None


def finalize_destination(
    effects: NodeEffects, guest: Files, instance: InstanceX, info: str, *, success: bool
) -> None:
    """Take over a guest that has arrived, or end the waiting emulator.

    Raises:
        HypervisorError: the guest has not arrived or does not run; or it runs, though
            the migration failed.
    """
    del info  # `accept` has saved the runtime in its form for this node
    if not success:
        _refuse_running(guest)
        launch.drop(effects, guest)
        return
    if guest.alive_pid() is None:
        raise errors.HypervisorError(f"instance {guest.name}: did not arrive")
    _go_on(effects, guest)
    progress.begin(effects, guest)
    plan = runtime.load(guest)
    for index, nic in enumerate(plan.nics):
        tap = taps.read_name(guest, nic.uuid)
        if nic.nicparams.get("mode") == "routed" and tap is not None:
            taps.connect(effects, networks.environment(instance, nic, index, tap))


def _refuse_running(guest: Files) -> None:
    """Raise HypervisorError if the guest runs here, or may run.

    A dead emulator has no guest, and a silent one only if its guest waits here.
    """
    pid = guest.alive_pid()
    if pid is None:
        return
    try:
        with Qmp(guest.control("qmp"), guest.name) as qmp:
            word = run_state(qmp)
    except errors.HypervisorError as err:
        if os.path.exists(guest.arrival_marker):
            return
        raise errors.HypervisorError(
            f"instance {guest.name}: its emulator on this node does not answer ({err}),"
            " so its guest may run, and is not killed; repeat the command when it"
            f" answers, or end process {pid} on this node if the guest runs elsewhere"
        ) from err
    if arrival(guest, word) is None and word not in migration.WITHOUT_GUEST:
        raise errors.HypervisorError(
            f"instance {guest.name}: has arrived and runs on this node, so it is not"
            " killed"
        )


def _claim(guest: Files) -> bool:
    """Keep a guest that was sent from here; return false if its memory may be old.

    It is the newest while the guest waits for the master, or until the source decides,
    which it cannot do any more afterwards.
    """
    if os.path.exists(guest.arrival_marker):
        return True
    if departure.is_gone(guest):
        return False
    return departure.stay(guest) or os.path.exists(guest.sent_marker)


def _go_on(effects: NodeEffects, guest: Files) -> None:
    """Wait for the guest's last data, and let the guest go on unless it was paused.

    Raises:
        HypervisorError: it does not run; or it has left this node and may have run
            since, so that its memory here would not fit its disks.
    """
    end = effects.clock.monotonic() + migration.ARRIVAL_S
    while True:
        with Qmp(guest.control("qmp"), guest.name) as qmp:
            word = run_state(qmp)
            is_here = word in migration.ALIVE or word in migration.HALTED
            if is_here or (word in migration.PAUSED and _stays_paused(guest)):
                files.remove_file(guest.arrival_marker)
                # A switch to postcopy has failed after it was reported.
                departure.forget(guest)
                return
            if word == migration.LEFT and not _claim(guest):
                raise errors.HypervisorError(
                    f"instance {guest.name}: has left this node in a migration, so its"
                    " memory here may be older than its disks; if it runs nowhere, boot"
                    " it with gnt-instance shutdown and startup"
                )
            if word in migration.ARRIVED:
                migration.go_on(qmp, guest)
                files.remove_file(guest.arrival_marker)
                return
        if effects.clock.monotonic() >= end:
            raise errors.HypervisorError(
                f"instance {guest.name}: wanted a running guest, found it {word}"
            )
        effects.sleep(migration.POLL_S)


def _stays_paused(guest: Files) -> bool:
    """Return whether an administrator has paused a guest, here or at its source."""
    try:
        return files.read_start(guest.arrival_marker, 32) == _WAS_PAUSED
    except FileNotFoundError:
        return not os.path.exists(guest.sent_marker)
