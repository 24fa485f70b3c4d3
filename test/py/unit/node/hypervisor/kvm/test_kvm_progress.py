"""Guests that spin after a live migration are noticed, and those that compute are not."""

import os
import pathlib

import pytest

from fakes import emulators
from fakes.emulators import GuestAgent
from ganeti.base import errors
from ganeti.node.hypervisor.kvm import agent, files
from ganeti.node.hypervisor.kvm.moving import progress

MINUTE_S = 60.0


class Guest:
    """A guest that has arrived: what it does between two looks at it."""

    def __init__(self, own, monkeypatch):
        self.own, self.effects = own, emulators.Effects()
        self.cpu_s, self.operations, self.has_agent = 5.0, 40, False
        monkeypatch.setattr(files.Files, "alive_pid", lambda _self: os.getpid())
        monkeypatch.setattr(files, "wanted_time_s", lambda _pid: self.cpu_s)
        self.qmp = emulators.Emulator(
            query_blockstats=lambda _arguments: [
                {
                    "stats": {
                        "rd_operations": self.operations,
                        "wr_operations": 1,
                        "flush_operations": 0,
                    }
                }
            ],
            query_chardev=lambda _arguments: [
                {"label": "qga0", "frontend-open": self.has_agent}
            ],
        )
        progress.begin(self.effects, own)

    def look(self, minutes=0.0, *, busy=1.0, operations=0, pid=None):
        """Let time pass; return the seconds for which the guest is stuck then."""
        self.effects.clock.now += minutes * MINUTE_S
        self.cpu_s += minutes * MINUTE_S * busy
        self.operations += operations
        return progress.stuck_s(self.effects, self.own, pid or os.getpid(), self.qmp)

    @property
    def is_observed(self):
        return os.path.exists(self.own.progress_note)


@pytest.fixture
def guest(monkeypatch):
    monkeypatch.setattr(agent, "ANSWER_S", 0.2)
    with emulators.guest_files() as own:
        yield Guest(own, monkeypatch)


def test_a_guest_whose_agent_fell_silent_is_stuck_after_minutes(guest):
    guest.has_agent = True
    assert guest.look() == 0
    assert guest.look(2) == 0
    assert guest.look(2) == 4 * MINUTE_S
    # The agent is not asked at each look.
    guest.qmp.executed.clear()
    assert guest.look(0.5) == 4.5 * MINUTE_S
    assert guest.qmp.names() == ["query-blockstats"]
    assert guest.look(60) == 64.5 * MINUTE_S


def test_an_agent_that_missed_one_answer_is_asked_again(guest):
    guest.has_agent = True
    guest.look()
    assert guest.look(4) == 4 * MINUTE_S
    with GuestAgent(guest.own.control("qga")):
        assert guest.look(1) == 0
        assert guest.look(4) == 0


def test_a_guest_whose_agent_answers_computes(guest):
    guest.has_agent = True
    guest.look()
    with GuestAgent(guest.own.control("qga")):
        assert [guest.look(5) for _ in range(4)] == [0.0] * 4
    assert not guest.is_observed


def test_the_agent_of_a_frozen_guest_is_not_asked(guest):
    """Its channel serves the program that keeps the guest frozen."""
    guest.has_agent = True
    guest.look()
    pathlib.Path(agent.marker(guest.own)).touch()
    assert guest.look(4) == 0


def test_a_guest_without_an_agent_gets_more_time(guest):
    guest.look()
    assert guest.look(4) == 0
    assert guest.look(1) == 5 * MINUTE_S


@pytest.mark.parametrize(
    "does", [{"operations": 1}, {"busy": 0.5}], ids=["writes", "rests"]
)
def test_a_guest_that_does_something_is_never_stuck(guest, does):
    guest.has_agent = True
    guest.look()
    assert [guest.look(4, **does) for _ in range(5)] == [0.0] * 5
    assert not guest.is_observed
    # The next hours are of a guest like any other.
    assert guest.look(600) == 0


def test_a_guest_that_goes_on_is_not_stuck_any_more(guest):
    guest.look()
    assert guest.look(20) > 0
    assert guest.look(1, operations=1) == 0
    assert not guest.is_observed


def test_frames_that_a_guest_sends_are_progress(guest, monkeypatch, tmp_path):
    monkeypatch.setattr(progress, "_FRAMES", str(tmp_path / "{tap}"))
    nics = pathlib.Path(guest.own.nics)
    nics.mkdir(parents=True)
    (nics / "0").write_text("gnt0")
    (tmp_path / "gnt0").write_text("7\n")
    guest.look()
    (tmp_path / "gnt0").write_text("8\n")
    assert guest.look(14) == 0
    assert guest.look(14) == 14 * MINUTE_S


def test_another_emulator_has_not_arrived(guest):
    guest.look()
    assert guest.look(20, pid=1) == 0
    assert not guest.is_observed


def test_a_damaged_note_observes_nobody(guest):
    pathlib.Path(guest.own.progress_note).write_text("{")
    assert guest.look(20) == 0


def test_wanted_time_grows_and_ends_with_the_process():
    before = files.wanted_time_s(os.getpid())
    sum(range(1_000_000))
    assert files.wanted_time_s(os.getpid()) > before > 0
    assert files.wanted_time_s(2**22 + 1) == 0


@pytest.mark.parametrize(
    "answer", [[{"device": "disk0"}], [{"stats": {"rd_operations": 1}}], {}, [None]]
)
def test_an_odd_answer_is_an_error_of_the_guest(guest, answer):
    guest.qmp.answers["query-blockstats"] = [answer]
    with pytest.raises(errors.HypervisorError, match="query-blockstats: odd answer"):
        guest.look()
