"""Rounds about deaths of nodes over LUXI: when to probe, what is committed, repairs."""

import logging

import msgspec
import pytest

from fakes.clocks import FakeClock
from ganeti.automation.maintenance.instances import Recovery
from ganeti.automation.maintenance.node_deaths import Heartbeats, NodeDeaths
from ganeti.base import errors
from ganeti.decisions.repair import node_death
from ganeti.decisions.repair.journal import NODE_DEATH, Round
from ganeti.decisions.repair.node_lives import (
    DeathJob,
    DeathState,
    Facts,
    JobSeen,
    NodeView,
    Phase,
)


class SmallMaster:
    """Answers about one node, n2, which is silent; its jobs succeed at once."""

    def __init__(self):
        self.clock = FakeClock()
        self.state = DeathState()
        self.view = NodeView(
            uuid="u2", name="n2", daemon=False, ssh=False, helper="/x", asked=("n3",)
        )
        self.is_enabled = True
        self.refusal = None
        self.watched = 3
        self.probes = []
        self.submitted = []
        self.rounds = []
        self.repairs = []
        self.pending = 0
        self.failed = ()
        self.deaths = NodeDeaths(self.call, self.repair, self.clock)

    def call(self, method, args):
        if self.refusal is not None:
            raise self.refusal
        return getattr(self, f"on_{method}")(*args)

    def repair(self, node, since):
        assert since
        self.repairs.append(node)
        return Recovery(self.pending, self.failed)

    def on_QueryNodeDeaths(self, probe):
        self.probes.append(probe)
        view = self.view
        if not probe:
            view = msgspec.structs.replace(view, daemon=None, ssh=None, asked=())
        is_known = bool(self.state.deaths) or (probe and view.is_silent)
        ended = [JobSeen(n, True, is_off=True) for n in range(1, 9)]
        facts = Facts(
            is_enabled=self.is_enabled,
            is_probed=probe and self.is_enabled,
            state=self.state,
            nodes=(view,) if is_known else (),
            watched=self.watched,
            candidates=3,
            answered=2,
            ended=tuple(end for end in ended if end.job <= len(self.submitted)),
        )
        return msgspec.to_builtins(facts)

    def on_RecordRound(self, entry):
        self.rounds.append(msgspec.convert(entry, Round))

    def on_ChangeNodeDeaths(self, serial, state, jobs, entry):
        assert serial == self.state.serial_no
        self.on_RecordRound(entry)
        jobs = msgspec.convert(jobs, tuple[DeathJob, ...])
        first = len(self.submitted) + 1
        ids = tuple(range(first, first + len(jobs)))
        new = msgspec.convert(state, DeathState)
        new = msgspec.structs.replace(new, serial_no=serial + 1)
        self.state = node_death.with_jobs(new, jobs, ids)
        self.submitted += jobs
        if jobs and jobs[0].ops[0]["OP_ID"] == "OP_NODE_SET_PARAMS":
            self.view = msgspec.structs.replace(self.view, offline=True)
        return msgspec.to_builtins(self.state)

    @property
    def phase(self):
        return self.state.deaths[0].phase if self.state.deaths else None

    def play(self, until=None, most=100):
        """Play rounds with their pauses until a phase; return how many."""
        for number in range(1, most + 1):
            self.clock.now += self.deaths.round()
            if self.phase is until:
                return number
        raise AssertionError(f"{most} rounds, and it is {self.phase}")


def test_a_dead_node_is_fenced_marked_and_repaired_in_order():
    master = SmallMaster()
    master.pending = 1
    began = master.clock.now
    master.play(Phase.FENCING)
    assert master.clock.now - began >= node_death.SILENCE_S - 1
    assert master.probes.count(True) >= node_death.SILENT_PROBES
    (job,) = master.submitted
    assert [op["command"] for op in job.ops] == ["power-off"]
    assert {op["priority"] for op in job.ops} == {-10}
    assert job.ops[0]["reason"][0][:2] == ["gnt:daemon:maintd", "death of n2"]
    assert master.rounds[-1].round in job.ops[0]["reason"][1][1]
    master.play(Phase.OFFLINE)
    assert [op["OP_ID"] for op in master.submitted[1].ops] == ["OP_NODE_SET_PARAMS"]
    master.play(Phase.OFFLINE)
    assert set(master.repairs) == {"n2"}
    master.pending = 0
    master.play(None)
    assert len(master.submitted) == 2
    assert {entry.automaton for entry in master.rounds} == {NODE_DEATH}


def test_a_death_is_not_dealt_with_while_a_repair_has_failed():
    """A person sees the failed one, and is waited for without haste."""
    master = SmallMaster()
    master.failed = ("web1",)
    master.play(Phase.OFFLINE)
    began = master.clock.now
    while master.clock.now < began + 600:
        master.clock.now += master.deaths.round()
    assert len(master.repairs) <= 600 / 30 + 10
    (death,) = master.state.deaths
    assert (death.phase, death.limit) == (Phase.OFFLINE, node_death.NOT_REPAIRED)
    assert "the repair of web1 has failed" in node_death.notice(death)
    master.failed = ()
    master.play(None)


def test_repairs_that_wait_are_looked_at_less_and_less():
    master = SmallMaster()
    master.pending = 1
    master.play(Phase.OFFLINE)
    began = master.clock.now
    while master.clock.now < began + 600:
        master.clock.now += master.deaths.round()
    assert 600 / 30 <= len(master.repairs) <= 600 / 30 + 10


@pytest.mark.parametrize("stop", [Phase.SUSPECTED, Phase.FENCING, Phase.OFFLINE])
def test_another_process_goes_on_and_does_nothing_twice(stop):
    master = SmallMaster()
    master.play(stop)
    master.deaths = NodeDeaths(master.call, master.repair, master.clock)
    master.play(None)
    kinds = [job.ops[0]["OP_ID"] for job in master.submitted]
    assert kinds == ["OP_OOB_COMMAND", "OP_NODE_SET_PARAMS"]
    assert master.view.offline


def test_a_new_process_measures_the_silence_again():
    master = SmallMaster()
    for _ in range(10):
        master.deaths = NodeDeaths(master.call, master.repair, master.clock)
        master.play(Phase.SUSPECTED)
        master.clock.now += 60
    assert not master.submitted


def test_a_new_process_keeps_earlier_fences_for_an_hour_of_its_own():
    """However far the clock of its machine is ahead."""
    site = SmallMaster()
    site.state = DeathState(fenced=((site.clock.time() - 86400, "n9"),))
    site.play(until=Phase.SUSPECTED)
    deadline = site.clock.now + node_death.HOUR_S
    while site.phase is Phase.SUSPECTED:
        site.clock.now += site.deaths.round()
        is_old = site.clock.now >= deadline
        assert is_old or site.state.deaths[0].limit in ("", "fenced-per-hour")
    assert is_old
    assert site.phase is Phase.FENCING
    assert [name for _when, name in site.state.fenced] == ["n2"]


def test_a_round_that_failed_begins_the_silence_again(caplog):
    master = SmallMaster()
    master.play(Phase.SUSPECTED)
    master.clock.now += 60
    master.refusal = errors.NoMasterError("/nowhere")
    for _ in range(2):
        with caplog.at_level(logging.WARNING), pytest.raises(errors.NoMasterError):
            master.deaths.round()
        master.deaths._failed("no master")
    assert caplog.text.count("no master") == 1
    master.refusal = None
    master.play(Phase.SUSPECTED)
    assert not master.submitted


def test_nobody_is_asked_often_while_it_is_off():
    master = SmallMaster()
    master.is_enabled = False
    assert master.deaths.round() >= 10
    assert not master.rounds


def test_a_large_cluster_is_asked_less_often():
    master = SmallMaster()
    master.view = msgspec.structs.replace(master.view, daemon=True)
    assert master.deaths.round() == pytest.approx(3, abs=0.1)
    master.watched = 200
    master.clock.now += 3
    assert master.deaths.round() == pytest.approx(6, abs=0.1)
    assert not master.rounds


def test_a_node_that_is_left_alone_is_not_asked_more_often_for_ever():
    master = SmallMaster()
    master.view = msgspec.structs.replace(master.view, helper="")
    assert master.deaths.round() <= 0.5
    for _ in range(30):
        master.clock.now += master.deaths.round()
    assert master.state.deaths[0].limit == node_death.NO_HELPER
    assert master.deaths.round() == pytest.approx(3, abs=0.1)


def test_an_answer_of_another_form_ends_the_round():
    master = SmallMaster()
    master.on_QueryNodeDeaths = lambda _probe: {"state": 1}
    with pytest.raises(errors.ProtocolError, match="QueryNodeDeaths"):
        master.deaths.round()


def test_decisions_are_logged_when_they_change(caplog):
    master = SmallMaster()
    master.view = msgspec.structs.replace(master.view, helper="")
    with caplog.at_level(logging.WARNING):
        for _ in range(30):
            master.clock.now += master.deaths.round()
    assert caplog.text.count("has no out-of-band helper") == 1
    assert master.state.deaths[0].limit == node_death.NO_HELPER
    # The journal counts rounds that repeat themselves.
    assert master.rounds[-1].items == master.rounds[-2].items


# Heartbeats on shared storage
RUN, COPY = "0" * 32, "1" * 32


def seen(*beats, node="u2"):
    return [NodeView(uuid=node, name="n2", heartbeats=beats)]


def test_only_a_number_that_grows_is_a_sign_of_life():
    beats = Heartbeats()
    beats.add(seen((RUN, 7)), 1.0)
    beats.add(seen((RUN, 7)), 2.0)
    beats.add(seen((RUN, 6)), 3.0)
    beats.add(seen(), 4.0)
    beats.add(seen((COPY, 99)), 5.0)
    assert beats.ages_s(5.0) == {}
    beats.add(seen((RUN, 7), (COPY, 100)), 6.0)
    assert beats.ages_s(8.0) == {"u2": 2.0}
    beats.add(seen((RUN, 8), (COPY, 100)), 8.0)
    assert beats.ages_s(9.0) == {"u2": 1.0}
    # The one of a reader whose storage is slow.
    beats.add(seen((COPY, 99)), 10.0)
    assert beats.ages_s(10.0) == {"u2": 2.0}


def test_heartbeats_are_forgotten_with_the_node_and_runs_are_limited():
    beats = Heartbeats()
    beats.add(seen((RUN, 1)), 1.0)
    for number in range(20):
        beats.add(seen((f"2{number:031x}", 5)), 2.0)
    beats.add(seen((RUN, 2)), 3.0)
    assert beats.ages_s(3.0) == {}
    beats.add(seen((RUN, 3)), 4.0)
    assert beats.ages_s(4.0) == {"u2": 0.0}
    beats.add(seen(node="u9"), 5.0)
    assert beats.ages_s(5.0) == {}


def test_a_node_that_lives_is_fenced_later_and_one_that_is_off_is_marked():
    master = SmallMaster()
    began = master.clock.now
    number = 0

    def beat():
        nonlocal number
        number += 1
        master.view = msgspec.structs.replace(master.view, heartbeats=((RUN, number),))

    while master.phase is not Phase.FENCING:
        beat()
        master.clock.now += master.deaths.round()
    assert node_death.HEARTBEAT_S <= master.clock.now - began < 45
    assert master.rounds[-2].items[0].limit == node_death.HEARTBEAT
    stopped = master.clock.now
    master.play(Phase.OFFLINE)
    assert node_death.STOPPED_S - 5 <= master.clock.now - stopped < 30
