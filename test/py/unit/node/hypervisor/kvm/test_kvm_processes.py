"""Which process is a guest, and the ends of migrations, which must leave one guest."""

import errno
import os
import pathlib
import signal
import subprocess
import sys
import tracemalloc
import types

import pytest

from fakes.emulators import Effects, Emulator, guest_files
from ganeti.base import errors
from ganeti.node.hypervisor.base import Arrival
from ganeti.node.hypervisor.kvm import files, launch
from ganeti.node.hypervisor.kvm.moving import arriving, departure, sending
from ganeti.node.hypervisor.kvm.moving.departure import Stage


@pytest.fixture
def guest():
    with guest_files() as actual:
        yield actual


@pytest.fixture
def process(guest):
    """Start a process with a command line, and record it as the guest's."""
    children = []

    def start(*words):
        code = "import signal, sys; print(flush=True); signal.pause()"
        child = subprocess.Popen(
            [sys.executable, "-c", code, *words], stdout=subprocess.PIPE
        )
        child.stdout.readline()  # it runs
        children.append(child)
        with open(guest.pid, "w") as out:
            out.write(f"{child.pid}\n")
        return child

    yield start
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.fixture
def dropped(monkeypatch):
    """Replace the end of an emulator; return the names of those that were ended."""
    names = []
    monkeypatch.setattr(launch, "drop", lambda _effects, g: names.append(g.name))
    return names


def use(monkeypatch, emulator, pid=1):
    for end in (arriving, sending):
        monkeypatch.setattr(end, "Qmp", emulator)
    monkeypatch.setattr(files.Files, "alive_pid", lambda _self: pid)
    return emulator


def test_a_guest_is_the_process_with_its_name(guest, process):
    child = process("-name", "web1", "-m", "128")
    assert guest.alive_pid() == guest.written_pid() == child.pid


@pytest.mark.parametrize(
    "words", [(), ("-name", "web2"), ("web1",), ("-name",), ("-name", "web1.example")]
)
def test_a_stranger_with_the_recorded_id_is_never_ended(guest, process, words):
    child = process(*words)
    assert guest.written_pid() == child.pid
    assert guest.alive_pid() is None
    files.end_process(Effects(), guest)
    assert child.poll() is None


@pytest.mark.parametrize("text", ["", "x", "12 13"])
def test_a_damaged_file_names_no_process(guest, text):
    with open(guest.pid, "w") as out:
        out.write(text)
    assert guest.alive_pid() is None
    os.unlink(guest.pid)
    assert guest.alive_pid() is None


class PatientEffects(Effects):
    """Effects whose first sleep lasts until a process has ended."""

    def __init__(self, child):
        super().__init__()
        self._child = child

    def sleep(self, seconds):
        os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
        super().sleep(seconds)


def test_a_guest_is_ended_by_the_first_signal_that_works(guest, process):
    child = process("-name", "web1")
    files.end_process(PatientEffects(child), guest)
    assert child.wait() == -signal.SIGTERM


def test_a_process_that_cannot_be_ended_is_named(guest, process, monkeypatch):
    child = process("-name", "web1")
    sent = []
    monkeypatch.setattr(files.os, "kill", lambda pid, number: sent.append(number))
    with pytest.raises(errors.HypervisorError, match=f"process {child.pid} cannot"):
        files.end_process(Effects(), guest)
    assert sent == [signal.SIGTERM, signal.SIGKILL]


# The source
LEFT = {"status": "completed", "ram": {"transferred": 5}}
STOPPED = {"status": "paused", "running": False}
RUNS = {"status": "running", "running": True}
#: Since QEMU 8.2: it runs, and has suspended itself.
SLEEPS = {"status": "suspended", "running": False}


def test_a_guest_that_has_left_is_not_continued_here(monkeypatch, guest, dropped):
    emulator = use(
        monkeypatch,
        Emulator(query_migrate=LEFT, query_status={"status": "postmigrate"}),
    )
    with pytest.raises(errors.HypervisorError, match="has left for the target"):
        sending.finalize_source(Effects(), guest, success=False)
    assert "cont" not in emulator.names()
    assert dropped == []
    assert departure.stage(guest) is Stage.LEFT


def test_a_guest_that_left_while_it_was_cancelled_is_not_continued(
    monkeypatch, guest, dropped
):
    departure.begin(guest, was_paused=False)
    emulator = use(
        monkeypatch,
        Emulator(
            query_migrate=[{"status": "active"}, LEFT],
            migrate_cancel={},
            query_status=[{"status": "finish-migrate"}, {"status": "postmigrate"}],
        ),
    )
    with pytest.raises(errors.HypervisorError, match="has left for the target"):
        sending.finalize_source(Effects(), guest, success=False)
    assert "migrate_cancel" in emulator.names()
    assert departure.stage(guest) is Stage.LEFT


def test_a_failed_migration_is_cancelled_and_the_guest_continues(
    monkeypatch, guest, dropped
):
    """Also at its last moment: what has arrived waits for the master, which hears it."""
    departure.begin(guest, was_paused=False)
    emulator = use(
        monkeypatch,
        Emulator(
            query_migrate=[
                *({"status": word} for word in ("active", "cancelling", "cancelled"))
            ],
            migrate_cancel={},
            query_status=[{"status": "finish-migrate"}, STOPPED],
            cont={},
        ),
    )
    sending.finalize_source(Effects(), guest, success=False)
    # The emulator lets it go on; it is never stopped for this.
    changes = [name for name in emulator.names() if not name.startswith("query")]
    assert changes == ["migrate_cancel", "cont"]
    assert dropped == []
    assert departure.stage(guest) is None


@pytest.mark.parametrize("end", ["completed", "failed"])
def test_the_emulators_decide_where_the_target_goes_on_by_itself(
    monkeypatch, guest, dropped, end
):
    """An earlier release has begun the migration, and its last data is being sent."""
    last = {"status": end, "ram": {}}
    states = [{"status": "finish-migrate"}, {"status": "postmigrate"}]
    emulator = use(
        monkeypatch,
        Emulator(
            query_migrate=[{"status": "device"}, {"status": "device"}, last],
            stop={},
            query_status=states,
            cont={},
        ),
    )
    if end == "completed":
        with pytest.raises(errors.HypervisorError, match="has left for the target"):
            sending.finalize_source(Effects(), guest, success=False)
    else:
        sending.finalize_source(Effects(), guest, success=False)
    assert ("cont" in emulator.names()) is (end == "failed")
    assert "migrate_cancel" not in emulator.names()


def test_a_guest_that_runs_at_the_target_before_its_end_has_left(
    monkeypatch, guest, dropped
):
    use(monkeypatch, Emulator(query_migrate={"status": "postcopy-paused"}))
    with pytest.raises(errors.HypervisorError, match="has left for the target"):
        sending.finalize_source(Effects(), guest, success=False)


def test_a_migration_that_does_not_end_is_an_error(monkeypatch, guest, dropped):
    emulator = use(
        monkeypatch,
        Emulator(
            query_migrate={"status": "device"},
            stop={},
            query_status={"status": "finish-migrate", "running": False},
        ),
    )
    # One that an earlier release has begun.
    with pytest.raises(errors.HypervisorError, match="found it device"):
        sending.finalize_source(Effects(), guest, success=False)
    assert "migrate_cancel" not in emulator.names()


def test_a_guest_does_not_wait_for_the_end_of_a_connection(monkeypatch, guest, dropped):
    """QEMU tries to connect to a silent node for two minutes, although canceled."""
    departure.begin(guest, was_paused=False)
    emulator = use(
        monkeypatch,
        Emulator(
            query_migrate=[{"status": "setup"}, {"status": "cancelling"}],
            migrate_cancel={},
            cont={},
            query_status=STOPPED,
        ),
    )
    sending.finalize_source(Effects(), guest, success=False)
    assert emulator.names().count("migrate_cancel") == 1
    assert emulator.names()[-1] == "cont"


@pytest.mark.parametrize("is_running", [True, False])
def test_the_migration_that_brought_a_guest_is_not_one_that_takes_it_away(
    monkeypatch, guest, dropped, is_running
):
    state = {"status": "running" if is_running else "paused", "running": is_running}
    emulator = use(
        monkeypatch,
        Emulator(query_migrate={"status": "completed"}, query_status=state, cont={}),
    )
    assert sending.status(Effects(), guest, {}).status == "failed"
    sending.finalize_source(Effects(), guest, success=False)
    assert ("cont" in emulator.names()) is not is_running


def test_a_running_guest_is_left_alone(monkeypatch, guest, dropped):
    emulator = use(
        monkeypatch,
        Emulator(query_migrate={"status": "failed"}, query_status=[RUNS, SLEEPS]),
    )
    sending.finalize_source(Effects(), guest, success=False)
    sending.finalize_source(Effects(), guest, success=False)
    assert emulator.names() == ["query-migrate", "query-status"] * 2
    assert dropped == []


def test_a_guest_without_an_emulator_may_have_left(monkeypatch, guest, dropped):
    use(monkeypatch, Emulator(), pid=None)
    with pytest.raises(errors.HypervisorError, match="may have left for the target"):
        sending.finalize_source(Effects(), guest, success=False)
    assert dropped == []


SENDING = {
    "migrate_set_capabilities": {},
    "migrate_set_parameters": {},
    "migrate": {},
    "query_kvm": {"enabled": True, "present": True},
}


@pytest.mark.parametrize("live", [True, False])
def test_a_guest_that_was_stopped_to_be_sent_is_known_without_its_emulator(
    monkeypatch, guest, live
):
    emulator = Emulator(
        stop={}, cont={}, query_migrate={}, query_status=RUNS, **SENDING
    )
    use(monkeypatch, emulator)
    sending.begin(guest, PARAMETERS, "192.0.2.2", live=live)
    monkeypatch.setattr(files.Files, "alive_pid", lambda _self: None)
    ended = sending.status(Effects(), guest, {})
    assert (ended.status, ended.is_stopped) == ("failed", not live)
    emulator.answers["query-status"] = STOPPED
    monkeypatch.setattr(files.Files, "alive_pid", lambda _self: 1)
    sending.finalize_source(Effects(), guest, success=False)
    monkeypatch.setattr(files.Files, "alive_pid", lambda _self: None)
    assert not sending.status(Effects(), guest, {}).is_stopped


def test_a_guest_that_runs_again_has_not_been_stopped_since(monkeypatch, guest):
    """Somebody let it go on by its monitor."""
    pathlib.Path(guest.sent_marker).touch()
    use(monkeypatch, Emulator(query_migrate={}, query_status=RUNS))
    sending.finalize_source(Effects(), guest, success=False)
    use(monkeypatch, Emulator(), pid=None)
    assert not sending.status(Effects(), guest, {}).is_stopped


def test_a_guest_whose_stop_cannot_be_noted_goes_on(monkeypatch, guest):
    emulator = use(monkeypatch, Emulator(stop={}, cont={}, query_status=RUNS))

    def full(path, _data):
        if "sent" in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(sending.file_utils, "write_file", full)
    with pytest.raises(errors.HypervisorError, match=r"No space left .*web1\.sent"):
        sending.begin(guest, PARAMETERS, "192.0.2.2", live=False)
    assert emulator.names() == ["query-status"]


@pytest.mark.parametrize("quit_answer", [{}, errors.HypervisorError("no answer")])
def test_a_source_ends_after_a_success(monkeypatch, guest, dropped, quit_answer):
    waited = []
    monkeypatch.setattr(
        sending.files, "wait_gone", lambda _effects, pid, _s: waited.append(pid)
    )
    emulator = use(monkeypatch, Emulator(quit=quit_answer), pid=77)
    sending.finalize_source(Effects(), guest, success=True)
    assert emulator.names() == ["quit"]
    assert waited == ([77] if quit_answer == {} else [])
    assert dropped == ["web1"]


# The target
@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("inmigrate", Arrival.INCOMPLETE),
        ("paused", Arrival.COMPLETE),
        ("prelaunch", Arrival.COMPLETE),
        ("running", None),
        ("io-error", None),
    ],
)
def test_a_guest_waits_until_it_has_gone_on_once(guest, word, expected):
    pathlib.Path(guest.arrival_marker).touch()
    assert arriving.arrival(guest, word) is expected
    still = None if expected is None else Arrival.COMPLETE
    assert arriving.arrival(guest, "paused") is still


def test_a_guest_that_was_started_here_does_not_wait(guest):
    assert arriving.arrival(guest, "paused") is None


def finalize_destination(guest, *, success):
    arriving.finalize_destination(
        Effects(), guest, types.SimpleNamespace(), "", success=success
    )


@pytest.mark.parametrize(
    ("state", "has_waited"),
    [
        (RUNS, True),
        (SLEEPS, True),
        ({"status": "io-error"}, True),
        # An administrator has paused it since.
        (STOPPED, False),
    ],
)
def test_a_guest_that_runs_at_the_target_is_not_ended_there(
    monkeypatch, guest, dropped, state, has_waited
):
    use(monkeypatch, Emulator(query_status=state))
    if has_waited:
        pathlib.Path(guest.arrival_marker).touch()
    with pytest.raises(errors.HypervisorError, match="has arrived and runs on this"):
        finalize_destination(guest, success=False)
    assert dropped == []


@pytest.mark.parametrize(
    ("answer", "pid"),
    [
        (STOPPED, 1),
        ({"status": "inmigrate"}, 1),
        (errors.HypervisorError("no answer"), 1),
        (RUNS, None),
    ],
)
def test_a_waiting_emulator_ends_after_a_failure(
    monkeypatch, guest, dropped, answer, pid
):
    use(monkeypatch, Emulator(query_status=answer), pid)
    pathlib.Path(guest.arrival_marker).touch()
    finalize_destination(guest, success=False)
    assert dropped == ["web1"]


def test_a_silent_emulator_is_not_ended_where_no_guest_waits(
    monkeypatch, guest, dropped
):
    """Its guest may run: it came here by a migration, or was started here."""
    silent = Emulator(query_status=errors.HypervisorError("no answer within 5 s"))
    use(monkeypatch, silent, pid=77)
    text = r"does not answer \(no answer within 5 s\), .* not killed; .* process 77"
    with pytest.raises(errors.HypervisorError, match=text):
        finalize_destination(guest, success=False)
    assert dropped == []


def test_a_guest_that_is_not_there_has_not_arrived(monkeypatch, guest):
    use(monkeypatch, Emulator(), pid=None)
    with pytest.raises(errors.HypervisorError, match="did not arrive"):
        finalize_destination(guest, success=True)


@pytest.mark.parametrize(
    ("words", "commands"),
    [
        (["running"], ["query-status"]),
        (["suspended"], ["query-status"]),
        (["inmigrate", "running"], ["query-status"] * 2),
        (["inmigrate", "paused"], ["query-status", "query-status", "cont"]),
        (["prelaunch"], ["query-status", "cont"]),
        (["postmigrate"], ["query-status", "cont"]),
    ],
)
def test_an_arrived_guest_runs_in_the_end(monkeypatch, guest, words, commands):
    states = [{"status": word} for word in words]
    emulator = use(monkeypatch, Emulator(query_status=states, cont={}))
    monkeypatch.setattr(
        arriving.runtime, "load", lambda _guest: types.SimpleNamespace(nics=())
    )
    pathlib.Path(guest.arrival_marker).touch()
    finalize_destination(guest, success=True)
    assert emulator.names() == commands
    assert arriving.arrival(guest, "paused") is None


def test_a_guest_that_has_left_does_not_go_on_with_its_old_memory(monkeypatch, guest):
    """It may have run at the target, and changed its disks, before it ended there."""
    emulator = use(monkeypatch, Emulator(query_status={"status": "postmigrate"}))
    with pytest.raises(errors.HypervisorError, match="shutdown and startup"):
        finalize_destination(guest, success=True)
    assert emulator.names() == ["query-status"]


def test_a_guest_that_was_stopped_to_be_sent_goes_on_if_nothing_else_is_left(
    monkeypatch, guest
):
    use(monkeypatch, Emulator(query_status={"status": "postmigrate"}, cont={}))
    monkeypatch.setattr(
        arriving.runtime, "load", lambda _guest: types.SimpleNamespace(nics=())
    )
    pathlib.Path(guest.sent_marker).touch()
    finalize_destination(guest, success=True)
    # It runs from now on, so a later copy of it is not up to date any more.
    use(monkeypatch, Emulator(), pid=None)
    assert not sending.status(Effects(), guest, {}).is_stopped


def test_a_live_migration_forgets_the_stop_of_an_earlier_one(monkeypatch, guest):
    pathlib.Path(guest.sent_marker).touch()
    use(monkeypatch, Emulator(stop={}, query_status=RUNS, **SENDING))
    sending.begin(guest, PARAMETERS, "192.0.2.2", live=True)
    use(monkeypatch, Emulator(), pid=None)
    assert not sending.status(Effects(), guest, {}).is_stopped


def test_a_guest_that_never_continues_is_an_error(monkeypatch, guest):
    use(monkeypatch, Emulator(query_status={"status": "inmigrate"}))
    with pytest.raises(errors.HypervisorError, match="found it inmigrate"):
        finalize_destination(guest, success=True)


# Sending
PARAMETERS = {
    "migration_port": 8102,
    "migration_bandwidth": 32,
    "migration_downtime": 30,
    "migration_caps": "",
}


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("accelerated", [True, False])
def test_sending_sets_limits_and_pauses_unless_live(
    monkeypatch, guest, live, accelerated
):
    """QEMU misses changes of memory by emulated processors."""
    emulator = Emulator(stop={}, query_status=RUNS, **SENDING)
    emulator.answers["query-kvm"] = {"enabled": accelerated, "present": True}
    use(monkeypatch, emulator)
    sending.begin(guest, PARAMETERS, "2001:db8::2", live=live)
    assert ("stop" in emulator.names()) is not (live and accelerated)
    executed = dict(emulator.executed)
    assert executed["migrate-set-parameters"] == {
        "max-bandwidth": 32 * 1024 * 1024,
        "downtime-limit": 30,
        "cpu-throttle-initial": 40,
        "cpu-throttle-increment": 20,
    }
    assert executed["migrate"] == {"uri": "tcp:[2001:db8::2]:8102"}
    rows = executed["migrate-set-capabilities"]["capabilities"]
    # The second: the end is the end at the target.
    words = {"auto-converge", "return-path"}
    assert {row["capability"] for row in rows if row["state"]} == words
    assert emulator.names()[-1] == "migrate"
    assert departure.stage(guest) is Stage.SENDING


@pytest.mark.parametrize(
    ("syncs", "caps", "status", "switches"),
    [
        (2, "postcopy-ram", "active", True),
        (1, "postcopy-ram", "active", False),
        (2, "xbzrle", "active", False),
        (9, "postcopy-ram", "completed", False),
    ],
)
def test_the_switch_to_postcopy(monkeypatch, guest, syncs, caps, status, switches):
    ram = {"dirty-sync-count": syncs, "transferred": 5, "total": 9, "remaining": 4}
    emulator = use(
        monkeypatch,
        Emulator(
            query_migrate={"status": status, "ram": ram},
            query_status={"status": "postmigrate"},
            migrate_start_postcopy={},
        ),
    )
    actual = sending.status(Effects(), guest, {"migration_caps": caps})
    assert ("migrate-start-postcopy" in emulator.names()) is switches
    assert actual.status == status
    ram_of = (actual.transferred_ram, actual.total_ram, actual.remaining_ram)
    assert ram_of == (5, 9, 4)


@pytest.mark.parametrize("by", ["sending", "an administrator"])
def test_a_paused_guest_is_never_switched_to_postcopy(monkeypatch, guest, by):
    """It changes no memory, and could not go on here if the connection broke."""
    was_paused = by != "sending"
    departure.begin(guest, was_paused=was_paused)
    if not was_paused:
        pathlib.Path(guest.sent_marker).touch()
    answer = {"status": "active", "ram": {"dirty-sync-count": 2}}
    emulator = Emulator(query_migrate=answer, migrate_start_postcopy={})
    use(monkeypatch, emulator)
    sending.status(Effects(), guest, {"migration_caps": "postcopy-ram"})
    assert "migrate-start-postcopy" not in emulator.names()


@pytest.mark.parametrize(
    ("word", "shown", "postcopy"),
    [
        ("setup", "active", None),
        ("postcopy-active", "active", "postcopy-active"),
        ("postcopy-paused", "failed", "postcopy-paused"),
        ("failed", "failed", None),
        ("cancelled", "cancelled", None),
    ],
)
def test_status_words(monkeypatch, guest, word, shown, postcopy):
    use(monkeypatch, Emulator(query_migrate={"status": word}))
    actual = sending.status(Effects(), guest, {})
    assert (actual.status, actual.postcopy_status) == (shown, postcopy)


def test_bad_answers_are_tried_again_and_then_a_failure(monkeypatch, guest):
    broken = errors.HypervisorError("no answer")
    answers = [broken, {"status": "odd"}, {}, broken, {"status": "active"}]
    emulator = use(monkeypatch, Emulator(query_migrate=answers))
    effects = Effects()
    begin = effects.clock.now
    assert sending.status(effects, guest, {}).status == "active"
    assert effects.clock.now - begin == 8.0
    emulator.answers["query-migrate"] = broken
    assert sending.status(effects, guest, {}).status == "failed"
    use(monkeypatch, Emulator(), pid=None)
    assert sending.status(effects, guest, {}).status == "failed"


GONE = 2**22 + 1


def test_a_process_that_does_not_exist_has_nothing():
    assert files.command_line(GONE) == []
    assert files.guest_names(GONE) == []
    assert files.cpu_time_s(GONE) == 0.0
    assert files.wait_gone(Effects(), GONE, 5.0)


def test_the_time_of_a_process_is_its_own():
    mine = os.times()
    assert files.cpu_time_s(os.getpid()) >= mine.user + mine.system - 0.02


def test_a_process_that_stays_is_waited_for_until_the_limit(guest, process):
    child, effects = process("-name", "web1"), Effects()
    begin = effects.clock.now
    assert not files.wait_gone(effects, child.pid, 5.0)
    assert 5.0 <= effects.clock.now - begin < 5.1


def test_a_process_that_only_waits_to_be_reaped_has_ended(guest, process):
    child, effects = process("-name", "web1"), Effects()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert files.wait_gone(effects, child.pid, 0.0)


def test_what_an_emulator_writes_is_read_up_to_a_bound(guest, process):
    """Its descriptors of pid file and log stay open, so it can write without end."""
    child = process("-name", guest.name)
    with open(guest.log, "w") as log:
        log.write("x\n" * 5000)
    for path in (guest.pid, guest.log):
        os.truncate(path, 1_500_000_000)
    with open(guest.log, "a") as log:
        log.write("the reason")
    tracemalloc.start()
    try:
        assert guest.alive_pid() == child.pid
        assert files.log_end(guest).endswith("the reason")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
