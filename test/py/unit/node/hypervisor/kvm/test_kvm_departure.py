"""The source of a migration decides: notes of a departure, and what follows of them."""

import contextlib
import errno
import json
import os
import pathlib
import types

import pytest

from fakes.emulators import Effects, Emulator, guest_files
from ganeti.base import errors
from ganeti.node.hypervisor.kvm import files, launch, runtime
from ganeti.node.hypervisor.kvm.moving import arriving, departure, sending
from ganeti.node.hypervisor.kvm.moving.departure import Stage

COMPLETED = {"status": "completed", "ram": {"total": 9, "remaining": 0}}
LIMITS = {
    "migration_port": 8102,
    "migration_bandwidth": 1,
    "migration_downtime": 30,
    "migration_caps": "",
}


@pytest.fixture
def guest():
    with guest_files() as actual:
        yield actual


def use(monkeypatch, emulator, pid=1):
    for end in (arriving, sending):
        monkeypatch.setattr(end, "Qmp", emulator)
    monkeypatch.setattr(files.Files, "alive_pid", lambda _self: pid)
    return emulator


def is_(word):
    return {"status": word}


# Notes
def test_a_departure_goes_forward_only(guest):
    assert departure.stage(guest) is None
    departure.begin(guest, was_paused=False)
    assert departure.is_sending(guest)
    departure.leave(guest, has_all=False)
    assert departure.stage(guest) is Stage.AHEAD
    departure.leave(guest, has_all=True)
    departure.leave(guest, has_all=False)
    assert departure.stage(guest) is Stage.LEFT
    assert not departure.stay(guest)
    assert departure.is_gone(guest)
    departure.forget(guest)
    assert departure.stage(guest) is None


def test_a_departure_is_not_reported_before_it_is_durable(monkeypatch, guest):
    """The first attempt ends between the change and its durability."""
    departure.begin(guest, was_paused=False)
    synced = []

    def fail(_path):
        raise OSError(errno.EIO, "no disk")

    monkeypatch.setattr(departure.files, "sync_dir", fail)
    with pytest.raises(OSError, match="no disk"):
        departure.leave(guest, has_all=True)
    monkeypatch.setattr(departure.files, "sync_dir", synced.append)
    departure.leave(guest, has_all=True)
    assert synced == [departure.firmware.own_directory(guest)]


OWN, EARLIER = (f"0c1d2e3f-4a5b-4c6d-8e7f-{number:012}" for number in (1, 2))


def test_a_note_concerns_only_the_instance_that_left(monkeypatch, guest):
    """The node was down when that one was removed, or got another name."""
    departure.begin(guest, was_paused=False, uuid=EARLIER)
    departure.leave(guest, has_all=True)
    assert departure.is_gone(guest, EARLIER)
    assert departure.is_gone(guest)
    assert not departure.is_gone(guest, OWN)
    use(monkeypatch, Emulator(), pid=None)
    assert sending.status(Effects(), guest, {}, EARLIER).status == "completed"
    assert sending.status(Effects(), guest, {}, OWN).status == "failed"
    with pytest.raises(errors.HypervisorError, match="emulator has ended"):
        sending.finalize_source(Effects(), guest, success=False, uuid=OWN)
    # The next one replaces it.
    departure.begin(guest, was_paused=True, uuid=OWN)
    assert not departure.is_gone(guest)
    departure.leave(guest, has_all=True)
    assert departure.is_gone(guest, OWN)
    departure.forget(guest)
    assert departure.stage(guest) is None


@pytest.mark.parametrize("uuid", ["", "../../x", "short"])
def test_a_note_without_a_uuid_is_of_any_instance(guest, uuid):
    departure.begin(guest, was_paused=False, uuid=uuid)
    assert departure.is_sending(guest)
    departure.leave(guest, has_all=False)
    assert departure.is_gone(guest, OWN)
    assert os.listdir(departure.firmware.own_directory(guest)) == ["migration-ahead"]


def test_a_guest_that_stays_has_no_note(guest):
    departure.begin(guest, was_paused=True)
    assert departure.stage(guest) is Stage.SENDING_PAUSED
    assert departure.stay(guest)
    assert departure.stage(guest) is None


def test_a_full_disk_ends_no_migration_halfway(monkeypatch, guest):
    departure.begin(guest, was_paused=False)

    def full(path, *_data):
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(departure.files, "write_file", full)
    departure.leave(guest, has_all=True)
    assert departure.stage(guest) is Stage.LEFT


def test_other_files_of_the_guest_stay(guest):
    departure.begin(guest, was_paused=False)
    directory = pathlib.Path(departure.firmware.own_directory(guest))
    (directory / "tpm-origin").touch()
    launch.remove_remains(Effects(), guest)
    assert [path.name for path in directory.iterdir()] == ["tpm-origin"]


# The source
def test_the_departure_is_noted_before_it_is_reported(monkeypatch, guest):
    departure.begin(guest, was_paused=False)
    use(monkeypatch, Emulator(query_migrate=COMPLETED, query_status=is_("postmigrate")))
    assert sending.status(Effects(), guest, {}).status == "completed"
    assert departure.stage(guest) is Stage.LEFT
    # It outlives the emulator, and the machine.
    use(monkeypatch, Emulator(), pid=None)
    assert sending.status(Effects(), guest, {}).status == "completed"
    with pytest.raises(errors.HypervisorError, match="has left for the target"):
        sending.finalize_source(Effects(), guest, success=False)


def test_a_departure_is_noted_before_another_session_of_the_emulator(
    monkeypatch, guest
):
    """The emulator has one at a time; another one may let the guest go on here."""
    departure.begin(guest, was_paused=False)
    emulator = Emulator(query_migrate=COMPLETED, query_status=is_("postmigrate"))
    at_the_end = []

    @contextlib.contextmanager
    def session(_path, _name):
        yield emulator
        at_the_end.append(departure.stage(guest))

    use(monkeypatch, session)
    assert sending.status(Effects(), guest, {}).status == "completed"
    assert at_the_end == [Stage.LEFT]


def test_a_departure_that_cannot_be_noted_is_not_reported(monkeypatch, guest):
    def broken(_guest, *, has_all):
        raise OSError(errno.EIO, "Input/output error", "migration-left")

    monkeypatch.setattr(departure, "leave", broken)
    use(monkeypatch, Emulator(query_migrate=COMPLETED, query_status=is_("postmigrate")))
    actual = sending.status(Effects(), guest, {})
    assert actual.status == "failed"
    assert "Input/output error" in actual.error


@pytest.mark.parametrize("state", ["running", "paused", "prelaunch", "suspended"])
def test_the_report_of_an_earlier_migration_is_none(monkeypatch, guest, state):
    """It has been sent from here, or came here, and has gone on since."""
    departure.begin(guest, was_paused=False)
    use(monkeypatch, Emulator(query_migrate=COMPLETED, query_status=is_(state)))
    assert sending.status(Effects(), guest, {}).status == "failed"
    assert not departure.is_gone(guest)


def test_near_its_end_a_status_waits_for_it(monkeypatch, guest):
    ram = {"total": 1 << 30, "remaining": 1 << 20}
    answers = [{"status": "active", "ram": ram}] * 3 + [COMPLETED]
    use(monkeypatch, Emulator(query_migrate=answers, query_status=is_("postmigrate")))
    effects = Effects()
    begin = effects.clock.now
    assert sending.status(effects, guest, LIMITS).status == "completed"
    assert effects.clock.now - begin < 0.1
    # Neither long, nor far from it.
    use(monkeypatch, Emulator(query_migrate={"status": "active", "ram": ram}))
    begin = effects.clock.now
    assert sending.status(effects, guest, LIMITS).status == "active"
    assert 1.0 <= effects.clock.now - begin < 1.1
    ram["remaining"] = 1 << 29
    begin = effects.clock.now
    assert sending.status(effects, guest, LIMITS).status == "active"
    assert effects.clock.now == begin


def test_a_switch_to_postcopy_is_reported_at_once_and_noted(monkeypatch, guest):
    departure.begin(guest, was_paused=False)
    ram = {"dirty-sync-count": 3, "remaining": 1 << 30}
    answers = [{"status": "active", "ram": ram}] * 2 + [is_("postcopy-active")]
    use(monkeypatch, Emulator(query_migrate=answers, migrate_start_postcopy={}))
    limits = LIMITS | {"migration_caps": "postcopy-ram"}
    actual = sending.status(Effects(), guest, limits)
    assert (actual.status, actual.postcopy_status) == ("active", "postcopy-active")
    assert departure.stage(guest) is Stage.AHEAD
    # With the emulator, the rest of its memory is lost.
    use(monkeypatch, Emulator(), pid=None)
    assert sending.status(Effects(), guest, limits).status == "failed"


def test_a_broken_postcopy_names_what_can_be_done(monkeypatch, guest):
    use(monkeypatch, Emulator(query_migrate=is_("postcopy-paused")))
    actual = sending.status(Effects(), guest, {})
    assert "gnt-instance failover" in actual.error
    assert "reboot -t hard" in actual.error


@pytest.mark.parametrize("state", ["paused", "postmigrate"])
def test_a_guest_that_was_paused_is_paused_after_a_failure(monkeypatch, guest, state):
    """A migration leaves it in a state that looks as if it had left."""
    departure.begin(guest, was_paused=True)
    emulator = use(
        monkeypatch,
        Emulator(
            query_migrate=is_("failed"), query_status=is_(state), cont={}, stop={}
        ),
    )
    sending.finalize_source(Effects(), guest, success=False)
    changes = [name for name in emulator.names() if not name.startswith("query")]
    assert changes == ([] if state == "paused" else ["cont", "stop"])


# A guest that was stopped to be sent
@pytest.mark.parametrize("sent", ["failed", "cancelled", "none"])
@pytest.mark.parametrize("word", ["paused", "postmigrate"])
def test_a_cut_abort_is_ended_by_the_next_look(monkeypatch, guest, sent, word):
    departure.begin(guest, was_paused=False)
    pathlib.Path(guest.sent_marker).touch()
    emulator = Emulator(query_migrate=is_(sent), cont={})
    assert sending.end_cut(guest, emulator, word) == "running"
    assert emulator.names()[-1] == "cont"
    assert departure.stage(guest) is None
    # Once: a later pause is not of a migration.
    assert sending.end_cut(guest, Emulator(), "paused") == "paused"


@pytest.mark.parametrize("sent", ["setup", "active", "cancelling", "completed"])
def test_a_look_ends_nothing_that_is_under_way(guest, sent):
    pathlib.Path(guest.sent_marker).touch()
    answer = {"status": sent, "ram": {}}
    emulator = Emulator(query_migrate=answer)
    assert sending.end_cut(guest, emulator, "paused") == "paused"
    departure.leave(guest, has_all=True)
    emulator = Emulator(query_migrate=is_("none"))
    assert sending.end_cut(guest, emulator, "paused") == "paused"


def test_a_look_does_not_come_between_the_steps_of_sending(guest):
    pathlib.Path(guest.sent_marker).touch()
    with (
        files.turn(guest),
        pytest.raises(errors.HypervisorError, match="is changed"),
    ):
        sending.end_cut(guest, Emulator(), "paused")


# The target
def finalize_destination(guest):
    arriving.finalize_destination(
        Effects(), guest, types.SimpleNamespace(), "", success=True
    )


@pytest.fixture
def no_nics(monkeypatch):
    monkeypatch.setattr(
        arriving.runtime, "load", lambda _guest: types.SimpleNamespace(nics=())
    )


@pytest.mark.usefixtures("no_nics")
@pytest.mark.parametrize("word", ["paused", "prelaunch"])
@pytest.mark.parametrize("content", [b"paused", b""])
def test_a_guest_that_was_paused_stays_so_at_the_target(
    monkeypatch, guest, word, content
):
    pathlib.Path(guest.arrival_marker).write_bytes(content)
    emulator = use(monkeypatch, Emulator(query_status=is_(word), cont={}))
    finalize_destination(guest)
    assert emulator.names().count("cont") == (not content)
    # It does not wait any more, and a repeated call changes nothing.
    assert not os.path.exists(guest.arrival_marker)
    finalize_destination(guest)
    assert emulator.names().count("cont") == (not content)


@pytest.mark.usefixtures("no_nics")
@pytest.mark.parametrize("was_reported", [True, False])
def test_the_memory_of_a_guest_that_was_reported_as_gone_is_never_used(
    monkeypatch, guest, was_reported
):
    """A clean-up asks the source, on which the only emulator is."""
    departure.begin(guest, was_paused=False)
    if was_reported:
        departure.leave(guest, has_all=True)
    emulator = use(monkeypatch, Emulator(query_status=is_("postmigrate"), cont={}))
    if was_reported:
        with pytest.raises(errors.HypervisorError, match="shutdown and startup"):
            finalize_destination(guest)
    else:
        finalize_destination(guest)
        # Nobody can report it afterwards.
        assert departure.stage(guest) is None
    assert ("cont" in emulator.names()) is not was_reported


@pytest.mark.usefixtures("no_nics")
@pytest.mark.parametrize("word", ["running", "paused"])
def test_a_clean_up_removes_the_note_of_a_guest_that_has_gone_on_here(
    monkeypatch, guest, word
):
    """The emulator failed to switch to postcopy after it had reported the switch."""
    departure.begin(guest, was_paused=False)
    departure.leave(guest, has_all=False)
    answers = {"query_migrate": is_("failed"), "query_status": is_(word)}
    use(monkeypatch, Emulator(**answers))
    with pytest.raises(errors.HypervisorError, match="was not finished"):
        sending.check_idle(guest)
    finalize_destination(guest)
    sending.check_idle(guest)
    assert not departure.is_gone(guest)


@pytest.mark.usefixtures("no_nics")
@pytest.mark.parametrize("word", ["io-error", "guest-panicked", "shutdown"])
def test_a_guest_that_had_halted_before_arrives_so(monkeypatch, guest, word):
    pathlib.Path(guest.arrival_marker).touch()
    emulator = use(monkeypatch, Emulator(query_status=is_(word)))
    finalize_destination(guest)
    assert set(emulator.names()) == {"query-status"}
    assert not os.path.exists(guest.arrival_marker)


def test_a_paused_guest_is_described_as_such(guest):
    plan = runtime.Runtime(("kvm",), (), {}, ())
    assert json.loads(runtime.export(guest, plan)) == [["kvm"], [], {}, []]
    text = runtime.export(guest, plan, "paused")
    assert json.loads(text) == [["kvm"], [], {}, [], "paused"]
    # Earlier releases ignore it.
    assert runtime.parse("web1", text) == plan
