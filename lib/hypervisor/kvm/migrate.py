"""Live migration over the control socket, on source and target node.

Specified in the hypervisor document, section 2.4.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ganeti import errors
from ganeti.hypervisor import networks
from ganeti.hypervisor.base import MIB, Arrival, MigrationStatus, NodeEffects
from ganeti.hypervisor.kvm import cleanup, files, launch, runtime, taps
from ganeti.hypervisor.kvm.files import Files
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.objects.filled import InstanceX
from ganeti.utils import files as file_utils

#: Consecutive bad answers after which a migration counts as failed, and the interval.
_STATUS_RETRIES: Final = 5
_STATUS_RETRY_S: Final = 2.0
#: Passes over memory before the switch to postcopy, where it is enabled.
_POSTCOPY_AFTER_SYNCS: Final = 2
_POSTCOPY: Final = "postcopy-ram"
#: Capability that slows a guest that writes faster than the network transfers, so that
#: each migration ends; set on the sending side only.
_AUTO_CONVERGE: Final = "auto-converge"
#: Per cent of CPU time that such a guest loses at first, and further per pass.
_THROTTLE: Final = {"cpu-throttle-initial": 40, "cpu-throttle-increment": 20}
#: Seconds that the guest may take to continue after the last byte, and the interval.
_ARRIVAL_S: Final = 10.0
_POLL_S: Final = 0.1
_QUIT_WAIT_S: Final = 10.0
#: Status words of the emulator for a guest that is being received, for one that has
#: arrived and waits (before that it may have been started paused, and has not run
#: yet), and for one whose last data is being sent.
_INCOMING: Final = "inmigrate"
_LEFT: Final = "postmigrate"
_ARRIVED: Final = frozenset({"paused", "prelaunch", _LEFT})
_LAST_DATA: Final = "finish-migrate"
_COMPLETED: Final = "completed"
_CANCELLING: Final = "cancelling"
#: Status words of the emulator for a migration in progress.
_UNDER_WAY: Final = frozenset(
    {
        "setup",
        "active",
        "device",
        "pre-switchover",
        "wait-unplug",
        "postcopy-active",
        "postcopy-paused",
        "postcopy-recover",
        _CANCELLING,
        "colo",
    }
)


def _capabilities(hvparams: Mapping[str, Any]) -> list[str]:
    return [word for word in (hvparams.get("migration_caps") or "").split(":") if word]


def _set_capabilities(qmp: Qmp, words: Iterable[str]) -> None:
    rows = [{"capability": word, "state": True} for word in words]
    if rows:
        qmp.execute("migrate-set-capabilities", {"capabilities": rows})


def _address(target: str, hvparams: Mapping[str, Any]) -> str:
    host = f"[{target}]" if ":" in target else target
    return f"tcp:{host}:{hvparams['migration_port']}"


def accept(
    effects: NodeEffects,
    guest: Files,
    instance: InstanceX,
    plan: runtime.Runtime,
    target: str,
) -> None:
    """Start an emulator that waits for a guest, which does not run here.

    Args:
        effects: effect interfaces of this node.
        guest: files of the guest on this node.
        instance: the instance's record.
        plan: start of the guest on this node.
        target: own address to listen on.

    Raises:
        HypervisorError: the emulator does not start.
    """
    cleanup.remove(effects, guest)
    how = launch.Launch(incoming=_address(target, plan.hvparams))
    try:
        guest.make_directories()
        file_utils.write_file(guest.arrival_marker, b"")
        runtime.save(guest, plan)
        launch.launch(effects, instance, plan, how)
        with Qmp(guest.control("qmp"), guest.name) as qmp:
            _set_capabilities(qmp, _capabilities(plan.hvparams))
    except errors.GenericError:
        drop(effects, guest)
        raise
    except OSError as err:
        drop(effects, guest)
        raise errors.HypervisorError(
            f"instance {guest.name}: cannot write its files: {err}"
        ) from err


def arrival(guest: Files, word: str) -> Arrival | None:
    """Return the state of a guest that waits to be taken over, None of another one.

    Args:
        guest: files of the guest on this node, where it has an emulator.
        word: status of the emulator.
    """
    if not os.path.exists(guest.arrival_marker):
        return None
    if word == _INCOMING:
        return Arrival.INCOMPLETE
    if word in _ARRIVED:
        return Arrival.COMPLETE
    # It has gone on, so whatever stops it later is another reason.
    file_utils.remove_file(guest.arrival_marker)
    return None


def drop(effects: NodeEffects, guest: Files) -> None:
    """End a guest's emulator on this node and remove its remains."""
    files.end_process(effects, guest)
    cleanup.remove(effects, guest)


def begin(
    guest: Files, hvparams: Mapping[str, Any], target: str, *, live: bool
) -> None:
    """Start sending a guest; pause it first unless the migration is live.

    Args:
        guest: files of the guest on this node.
        hvparams: present parameters of the record, with which the target listens.
        target: address of the target node.
        live: whether the guest continues while it is sent.

    Raises:
        HypervisorError: the emulator refuses.
    """
    with Qmp(guest.control("qmp"), guest.name) as qmp:
        # Not one of an earlier migration: this guest runs since.
        file_utils.remove_file(guest.sent_marker)
        if not live:
            _stop_to_send(qmp, guest)
        _set_capabilities(qmp, {_AUTO_CONVERGE, *_capabilities(hvparams)})
        qmp.execute(
            "migrate-set-parameters",
            {
                "max-bandwidth": int(hvparams["migration_bandwidth"]) * MIB,
                "downtime-limit": int(hvparams["migration_downtime"]),
                **_THROTTLE,
            },
        )
        qmp.execute("migrate", {"uri": _address(target, hvparams)})


def _stop_to_send(qmp: Qmp, guest: Files) -> None:
    """Stop a guest, and note this, since its emulator may end.

    Raises:
        HypervisorError: this cannot be noted; the guest continues.
    """
    qmp.execute("stop")
    try:
        file_utils.write_file(guest.sent_marker, b"")
    except OSError as err:
        _continue(qmp, guest)
        raise errors.HypervisorError(
            f"instance {guest.name}: cannot write its files: {err}"
        ) from err


def _continue(qmp: Qmp, guest: Files) -> None:
    # First: a guest that runs must not count as one that has been stopped since.
    file_utils.remove_file(guest.sent_marker)
    qmp.execute("cont")


def status(
    effects: NodeEffects, guest: Files, hvparams: Mapping[str, Any]
) -> MigrationStatus:
    """Return the progress; several attempts without a usable answer mean failed."""
    reason = "QEMU reports no migration"
    for attempt in range(_STATUS_RETRIES):
        if attempt:
            effects.sleep(_STATUS_RETRY_S)
        if guest.alive_pid() is None:
            reason = "QEMU of the source node has ended"
            break
        try:
            with Qmp(guest.control("qmp"), guest.name) as qmp:
                answer = sending(qmp)
                _switch_to_postcopy(hvparams, qmp, answer)
        except errors.HypervisorError as err:
            reason = str(err)
            continue
        word = answer.get("status")
        if word in {"completed", "failed", "cancelled"} or word in _UNDER_WAY:
            return _translate(answer)
    has_been_stopped = os.path.exists(guest.sent_marker)
    return MigrationStatus("failed", error=reason, is_stopped=has_been_stopped)


def sending(qmp: Qmp) -> dict[str, Any]:
    """Return the state of a migration from here, empty without one.

    A guest that came here by a migration reports that one until it is sent itself; only
    of a guest that it sends does the emulator report the memory.
    """
    answer: dict[str, Any] = qmp.execute("query-migrate")
    is_old = answer.get("status") == _COMPLETED and "ram" not in answer
    return {} if is_old else answer


def _translate(answer: dict[str, Any]) -> MigrationStatus:
    word: str = answer["status"]
    ram = answer.get("ram", {})
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
) -> None:
    syncs = answer.get("ram", {}).get("dirty-sync-count", 0)
    if answer.get("status") != "active" or syncs < _POSTCOPY_AFTER_SYNCS:
        return
    if _POSTCOPY in _capabilities(hvparams):
        qmp.execute("migrate-start-postcopy")


def check_idle(guest: Files) -> None:
    """Refuse a guest that an earlier migration has not left.

    A master that ended in a migration leaves the guest so: it is being sent, or paused
    after it was sent, and may run at the target.

    Raises:
        HypervisorError: this is so, or the emulator does not answer.
    """
    with Qmp(guest.control("qmp"), guest.name) as qmp:
        sending = qmp.execute("query-migrate").get("status", "none")
        state = qmp.execute("query-status")
    has_left = sending == "completed" and not state["running"]
    if sending in _UNDER_WAY or has_left or state["status"] == "postmigrate":
        raise errors.HypervisorError(
            f"instance {guest.name}: an earlier migration was not finished (migration"
            f" {sending}, guest {state['status']}); run gnt-instance migrate --cleanup"
            f" {guest.name}"
        )


def finalize_source(effects: NodeEffects, guest: Files, *, success: bool) -> None:
    """End the emulator that a guest has left, or continue the guest.

    Raises:
        HypervisorError: the emulator cannot be ended, or the guest does not continue,
            perhaps because it has left: it must never run on both nodes.
    """
    if success:
        pid = guest.alive_pid()
        if pid is not None:
            _quit(effects, guest, pid)
        drop(effects, guest)
        return
    if guest.alive_pid() is None:
        raise errors.HypervisorError(
            f"instance {guest.name}: its emulator has ended; the guest may have left"
            " for the target node before"
        )
    with Qmp(guest.control("qmp"), guest.name) as qmp:
        word = _end_sending(effects, guest, qmp)
        is_running = qmp.execute("query-status")["running"]
        if word == _COMPLETED and not is_running:
            raise _has_left(guest)
        file_utils.remove_file(guest.sent_marker)
        if not is_running:
            _continue(qmp, guest)


def _end_sending(effects: NodeEffects, guest: Files, qmp: Qmp) -> str | None:
    """End a migration; return its last status.

    The guest is stopped before: so an emulator that has all of it at the target does
    not let it go on there while this node does. Once the last data is being sent, only
    the emulators decide. A migration that is being cancelled never completes, but it
    may last as long as QEMU tries to connect to a silent node: that is not waited for.

    Raises:
        HypervisorError: it does not end, or the guest runs at the target already.
    """
    is_asked, end = False, effects.clock.monotonic() + _ARRIVAL_S
    while True:
        word: str | None = sending(qmp).get("status")
        if word not in _UNDER_WAY:
            return word
        if word.startswith("postcopy"):
            raise _has_left(guest)
        if not is_asked:
            is_asked = True
            qmp.execute("stop")
            if qmp.execute("query-status")["status"] != _LAST_DATA:
                qmp.execute("migrate_cancel")
                continue
        if effects.clock.monotonic() >= end:
            if word == _CANCELLING:
                return word
            raise errors.HypervisorError(
                f"instance {guest.name}: its migration does not end, found it {word}"
            )
        effects.sleep(_POLL_S)


def _has_left(guest: Files) -> errors.HypervisorError:
    return errors.HypervisorError(
        f"instance {guest.name}: has left for the target node"
    )


def _quit(effects: NodeEffects, guest: Files, pid: int) -> None:
    try:
        with Qmp(guest.control("qmp"), guest.name) as qmp:
            qmp.execute("quit")
    except errors.HypervisorError:
        return  # `drop` ends it with signals
    files.wait_gone(effects, pid, _QUIT_WAIT_S)


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
        drop(effects, guest)
        return
    if guest.alive_pid() is None:
        raise errors.HypervisorError(f"instance {guest.name}: did not arrive")
    _go_on(effects, guest)
    plan = runtime.load(guest)
    for index, nic in enumerate(plan.nics):
        tap = taps.read_name(guest, nic.uuid)
        if nic.nicparams.get("mode") == "routed" and tap is not None:
            taps.connect(effects, networks.environment(instance, nic, index, tap))


def _refuse_running(guest: Files) -> None:
    """Raise HypervisorError if the guest runs here; a dead emulator does not count."""
    if guest.alive_pid() is None:
        return
    try:
        with Qmp(guest.control("qmp"), guest.name) as qmp:
            is_running = qmp.execute("query-status")["running"]
    except errors.HypervisorError:
        return  # it does not answer: no guest that could be lost
    if is_running:
        raise errors.HypervisorError(
            f"instance {guest.name}: has arrived and runs on this node, so it is not"
            " killed"
        )


def _may_go_on(guest: Files) -> bool:
    """Return whether a guest waits here, or has been stopped since it was sent."""
    return any(map(os.path.exists, (guest.arrival_marker, guest.sent_marker)))


def _go_on(effects: NodeEffects, guest: Files) -> None:
    """Wait for the guest's last data, and continue the guest if it was paused.

    Raises:
        HypervisorError: it does not run; or it has left this node and may have run
            since, so that its memory here would not fit its disks.
    """
    end = effects.clock.monotonic() + _ARRIVAL_S
    while True:
        with Qmp(guest.control("qmp"), guest.name) as qmp:
            word = qmp.execute("query-status")["status"]
            if word == _LEFT and not _may_go_on(guest):
                raise errors.HypervisorError(
                    f"instance {guest.name}: has left this node in a migration, so its"
                    " memory here may be older than its disks; if it runs nowhere, boot"
                    " it with gnt-instance shutdown and startup"
                )
            if word in _ARRIVED:
                _continue(qmp, guest)
                word = "running"
            if word == "running":
                file_utils.remove_file(guest.arrival_marker)
                return
        if effects.clock.monotonic() >= end:
            raise errors.HypervisorError(
                f"instance {guest.name}: wanted a running guest, found it {word}"
            )
        effects.sleep(_POLL_S)
