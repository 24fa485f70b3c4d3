"""The source of a live migration: it sends a guest, and decides whether it has left.

Specified in the hypervisor document, section 2.4.
"""

import os
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.filesystem import files as file_utils
from ganeti.node.hypervisor.base import MIB, MigrationStatus, NodeEffects
from ganeti.node.hypervisor.kvm import files, launch
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.moving import departure, migration
from ganeti.node.hypervisor.kvm.qmp import Qmp, checked, run_state

#: Consecutive bad answers after which a migration counts as failed, and the interval.
_STATUS_RETRIES: Final = 5
_STATUS_RETRY_S: Final = 2.0
#: Passes over memory before the switch to postcopy, where it is enabled.
_POSTCOPY_AFTER_SYNCS: Final = 2
_POSTCOPY: Final = "postcopy-ram"
#: Seconds from the end within which a request for the status waits for it, since the
#: guest stands still then; how long it waits, and the interval.
_NEAR_S: Final = 2.0
_NEAR_WAIT_S: Final = 1.0
_NEAR_POLL_S: Final = 0.02
#: Capability that slows a guest that writes faster than the network transfers, so that
#: each migration ends; set on the sending side only.
_AUTO_CONVERGE: Final = "auto-converge"
#: Per cent of CPU time that such a guest loses at first, and further per pass.
_THROTTLE: Final = {"cpu-throttle-initial": 40, "cpu-throttle-increment": 20}
_QUIT_WAIT_S: Final = 10.0
_COMPLETED: Final = "completed"
_CANCELLING: Final = "cancelling"
_POSTCOPY_BROKEN: Final = "postcopy-paused"
#: Status words of a guest that runs at the target, which lacks memory.
_AHEAD: Final = frozenset({"postcopy-active", _POSTCOPY_BROKEN, "postcopy-recover"})
#: Status words of the emulator for a migration in progress.
_UNDER_WAY: Final = frozenset(
    {
        "setup",
        "active",
        "device",
        "pre-switchover",
        "wait-unplug",
        *_AHEAD,
        _CANCELLING,
        "colo",
    }
)
_ENDED: Final = frozenset({"failed", "cancelled"})
_BROKEN_TEXT: Final = (
    "the connection broke while the guest ran at the target without all of its memory"
    " (postcopy-paused); to boot it there, use gnt-instance failover and then"
    " gnt-instance reboot -t hard; QEMU can also go on: see postcopy in the"
    " administrator's guide"
)


def begin(
    guest: Files,
    hvparams: Mapping[str, Any],
    target: str,
    *,
    live: bool,
    uuid: str = "",
) -> None:
    """Start sending a guest; pause it first unless the migration is live.

    A guest without hardware acceleration is always paused. QEMU looks for changed
    memory while an emulated processor writes, and misses some of the changes on busy
    machines: the guest arrives with old memory, and its kernel dies or spins there.

    Args:
        guest: files of the guest on this node.
        hvparams: present parameters of the record, with which the target listens.
        target: address of the target node.
        live: whether the guest continues while it is sent, if it is accelerated.
        uuid: of the instance.

    Raises:
        HypervisorError: the emulator refuses.
    """
    with files.turn(guest), Qmp(guest.control("qmp"), guest.name) as qmp:
        # Not one of an earlier migration: this guest runs since.
        file_utils.remove_file(guest.sent_marker)
        was_paused = run_state(qmp) in migration.PAUSED
        try:
            departure.begin(guest, was_paused=was_paused, uuid=uuid)
            continues = live and qmp.execute("query-kvm")["enabled"]
            if not continues and not was_paused:
                # First: a guest that nobody knows to be stopped would stay so.
                file_utils.write_file(guest.sent_marker, b"")
                qmp.execute("stop")
        except OSError as err:
            raise migration.cannot_write(guest, err) from err
        words = {
            _AUTO_CONVERGE,
            migration.RETURN_PATH,
            *migration.capabilities(hvparams),
        }
        migration.set_capabilities(qmp, words)
        qmp.execute(
            "migrate-set-parameters",
            {
                "max-bandwidth": int(hvparams["migration_bandwidth"]) * MIB,
                "downtime-limit": int(hvparams["migration_downtime"]),
                **_THROTTLE,
            },
        )
        qmp.execute("migrate", {"uri": migration.address(target, hvparams)})


def is_paused(guest: Files) -> bool:
    """Return whether an administrator has paused a guest, or has started it so.

    Raises:
        HypervisorError: the emulator does not answer.
    """
    with Qmp(guest.control("qmp"), guest.name) as qmp:
        return run_state(qmp) in migration.PAUSED


def end_cut(guest: Files, qmp: Qmp, word: str) -> str:
    """Let a guest go on that was stopped to be sent, if that failed and nobody came.

    Args:
        guest: files of the guest on this node.
        qmp: a session of its emulator.
        word: status of the emulator.

    Returns:
        The status afterwards.

    Raises:
        HypervisorError: the emulator does not answer, or is being changed.
    """
    if word not in migration.ARRIVED or not os.path.exists(guest.sent_marker):
        return word
    # A look at the guest does not wait for a change of it.
    with files.turn(guest, waits=False):
        sent = state_of(qmp).get("status")
        if departure.is_gone(guest) or sent == _COMPLETED or sent in _UNDER_WAY:
            return word
        departure.stay(guest)
        migration.go_on(qmp, guest)
    return "running"


def status(
    effects: NodeEffects,
    guest: Files,
    hvparams: Mapping[str, Any],
    uuid: str | None = None,
) -> MigrationStatus:
    """Return the progress; several attempts without a usable answer mean failed.

    Near the end it waits for a moment, so that the target hears of it at once. That the
    guest has left is noted before it is reported.

    Args:
        effects: effect interfaces of this node.
        guest: files of the guest on this node.
        hvparams: present parameters of the record.
        uuid: of the instance, see `departure.stage`.
    """
    reason = "QEMU reports no migration"
    for attempt in range(_STATUS_RETRIES):
        if attempt:
            effects.sleep(_STATUS_RETRY_S)
        if guest.alive_pid() is None:
            reason = "QEMU of the source node has ended"
            break
        try:
            with Qmp(guest.control("qmp"), guest.name) as qmp:
                answer = _progress(effects, guest, qmp, hvparams)
                word = answer.get("status")
                has_left = _has_all(qmp, word)
                if has_left or word in _AHEAD:
                    # Before the monitor is closed: others could let the guest go on.
                    departure.leave(guest, has_all=has_left)
        except errors.HypervisorError as err:
            reason = str(err)
            continue
        except OSError as err:
            reason = str(migration.cannot_write(guest, err))
            continue
        if has_left or word in _ENDED or word in _UNDER_WAY:
            return _translate(answer)
    if departure.stage(guest, uuid) is departure.Stage.LEFT:
        return MigrationStatus(_COMPLETED)
    has_been_stopped = os.path.exists(guest.sent_marker)
    return MigrationStatus("failed", error=reason, is_stopped=has_been_stopped)


def _progress(
    effects: NodeEffects, guest: Files, qmp: Qmp, hvparams: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the state of a migration from here; wait for its end if that is near."""
    answer = state_of(qmp)
    # A paused guest changes no memory, so each migration of it ends without postcopy,
    # and until then the guest can go on here if the connection breaks.
    is_paused = (
        os.path.exists(guest.sent_marker)
        or departure.stage(guest) is departure.Stage.SENDING_PAUSED
    )
    has_switched = not is_paused and _switch_to_postcopy(hvparams, qmp, answer)
    end = effects.clock.monotonic() + _NEAR_WAIT_S
    near = _NEAR_S * int(hvparams.get("migration_bandwidth") or 0) * MIB
    while answer.get("status") in ("active", "device"):
        left = answer.get("ram", {}).get("remaining")
        is_near = has_switched or (left is not None and left <= near)
        if not is_near or effects.clock.monotonic() >= end:
            break
        effects.sleep(_NEAR_POLL_S)
        answer = state_of(qmp)
    return answer


def _has_all(qmp: Qmp, word: str | None) -> bool:
    """Return whether the target has all of the guest, which has stopped here.

    A guest that runs or is paused has gone on since the migration that is reported.
    """
    if word != _COMPLETED:
        return False
    return run_state(qmp) in migration.STOPPED


def state_of(qmp: Qmp) -> dict[str, Any]:
    """Return the state of a migration from here, empty without one.

    A guest that came here by a migration reports that one until it is sent itself; only
    of a guest that it sends does the emulator report the memory.
    """
    answer = checked(qmp, "query-migrate", dict[str, Any])
    is_old = answer.get("status") == _COMPLETED and "ram" not in answer
    return {} if is_old else answer


def _translate(answer: dict[str, Any]) -> MigrationStatus:
    word: str = answer["status"]
    ram = answer.get("ram", {})
    if word == _POSTCOPY_BROKEN:
        return MigrationStatus("failed", postcopy_status=word, error=_BROKEN_TEXT)
    return MigrationStatus(
        "active" if word in _UNDER_WAY else word,
        transferred_ram=ram.get("transferred"),
        total_ram=ram.get("total"),
        postcopy_status=word if word.startswith("postcopy") else None,
        remaining_ram=ram.get("remaining"),
        error=answer.get("error-desc"),
    )


def _switch_to_postcopy(
    hvparams: Mapping[str, Any], qmp: Qmp, answer: dict[str, Any]
) -> bool:
    """Switch when it is time; return whether this was done."""
    syncs = answer.get("ram", {}).get("dirty-sync-count", 0)
    if answer.get("status") != "active" or syncs < _POSTCOPY_AFTER_SYNCS:
        return False
    if _POSTCOPY not in migration.capabilities(hvparams):
        return False
    qmp.execute("migrate-start-postcopy")
    return True


def check_idle(guest: Files) -> None:
    """Refuse a guest that an earlier migration has not left.

    A master that ended in a migration leaves the guest so: it is being sent, or paused
    after it was sent, and may run at the target.

    Raises:
        HypervisorError: this is so, or the emulator does not answer.
    """
    with Qmp(guest.control("qmp"), guest.name) as qmp:
        sent = state_of(qmp).get("status", "none")
        state = run_state(qmp)
    has_left = departure.is_gone(guest) or state in migration.STOPPED
    if sent in _UNDER_WAY or has_left:
        raise errors.HypervisorError(
            f"instance {guest.name}: an earlier migration was not finished (migration"
            f" {sent}, guest {state}); run gnt-instance migrate --cleanup {guest.name}"
        )


def has_departed(guest: Files, word: str) -> bool:
    """Return whether a guest's emulator is only left of it, and has never to answer.

    Args:
        guest: files of the guest on this node, where it has an emulator.
        word: status of the emulator.
    """
    return word == migration.LEFT and departure.stage(guest) is departure.Stage.LEFT


def finalize_source(
    effects: NodeEffects, guest: Files, *, success: bool, uuid: str | None = None
) -> None:
    """End the emulator that a guest has left, or continue the guest.

    Args:
        effects: effect interfaces of this node.
        guest: files of the guest on this node.
        success: whether the guest goes on at the target.
        uuid: of the instance, see `departure.stage`.

    Raises:
        HypervisorError: the emulator cannot be ended, or the guest does not continue,
            perhaps because it has left: it must never run on both nodes.
    """
    if success:
        pid = guest.alive_pid()
        if pid is not None:
            _quit(effects, guest, pid)
        launch.drop(effects, guest)
        return
    if departure.is_gone(guest, uuid):
        raise _has_left(guest)
    if guest.alive_pid() is None:
        raise errors.HypervisorError(
            f"instance {guest.name}: its emulator has ended; the guest may have left"
            " for the target node before"
        )
    with Qmp(guest.control("qmp"), guest.name) as qmp:
        word = _end_sending(effects, guest, qmp)
        state = _settled(effects, qmp)
        if word == _COMPLETED and state in migration.STOPPED:
            try:
                departure.leave(guest, has_all=True)
            except OSError as err:
                raise migration.cannot_write(guest, err) from err
            raise _has_left(guest)
        stays_paused = departure.stage(guest) is departure.Stage.SENDING_PAUSED
        departure.stay(guest)
        file_utils.remove_file(guest.sent_marker)
        if state in migration.ALIVE or (stays_paused and state in migration.PAUSED):
            return
        migration.go_on(qmp, guest)
        if stays_paused:
            # The emulator has no other way back from the end of a migration.
            qmp.execute("stop")


def _settled(effects: NodeEffects, qmp: Qmp) -> str:
    """Return the state of a guest after the end of its migration."""
    end = effects.clock.monotonic() + migration.ARRIVAL_S
    while True:
        word = run_state(qmp)
        if word != migration.LAST_DATA or effects.clock.monotonic() >= end:
            return word
        effects.sleep(migration.POLL_S)


def _end_sending(effects: NodeEffects, guest: Files, qmp: Qmp) -> str | None:
    """Cancel a migration; return its last status.

    A guest that is complete at the target waits there, so the migration can be canceled
    at any moment before the source has completed it. Not one that an earlier release
    has begun, once its last data is being sent: it goes on at the target by itself.
    A migration that is being canceled never completes, but it may last as long as
    QEMU tries to connect to a silent node: that is not waited for.

    Raises:
        HypervisorError: it does not end, or the guest runs at the target already.
    """
    is_asked, end = False, effects.clock.monotonic() + migration.ARRIVAL_S
    while True:
        word: str | None = state_of(qmp).get("status")
        if word not in _UNDER_WAY:
            return word
        if word in _AHEAD:
            raise _has_left(guest)
        if not is_asked:
            is_asked = True
            if departure.is_sending(guest) or not _sends_last_data(qmp):
                qmp.execute("migrate_cancel")
                continue
        if effects.clock.monotonic() >= end:
            if word == _CANCELLING:
                return word
            raise errors.HypervisorError(
                f"instance {guest.name}: its migration does not end, found it {word}"
            )
        effects.sleep(migration.POLL_S)


def _sends_last_data(qmp: Qmp) -> bool:
    """Stop a guest; return whether its last data is being sent already."""
    qmp.execute("stop")
    return run_state(qmp) == migration.LAST_DATA


def _has_left(guest: Files) -> errors.HypervisorError:
    return errors.HypervisorError(
        f"instance {guest.name}: has left for the target node"
    )


def _quit(effects: NodeEffects, guest: Files, pid: int) -> None:
    try:
        with Qmp(guest.control("qmp"), guest.name) as qmp:
            qmp.execute("quit")
    except errors.HypervisorError:
        return  # `launch.drop` ends it with signals
    files.wait_gone(effects, pid, _QUIT_WAIT_S)
