"""Polls: a slow node delays no other, and its answer counts when it comes."""

import json
import threading

import pytest

from fakes.patience import until
from ganeti.automation.maintenance import polls
from ganeti.automation.maintenance.diagnoses import Place, RefusedError
from ganeti.automation.maintenance.polls import LATE, Poller
from ganeti.base.clock import SystemClock
from ganeti.base.constants.protocols import confd
from ganeti.node.collectors import reports

KEY = b"key\n"
DATA = {"status": "evacuate"}


class Agents:
    """Agents of nodes; the ones in `gates` wait before they answer."""

    def __init__(self):
        self.clock = SystemClock()
        self.gates = {}
        self.sent = []
        self.bad = set()
        self.bugs = {}

    def fetch(self, place, challenge, _path):
        self.sent.append((place.name, challenge))
        gate = self.gates.get(place.name)
        if gate is not None:
            gate.wait()
        if place.name in self.bad:
            raise RefusedError("there is no answer")
        if place.name in self.bugs:
            raise self.bugs[place.name]
        now = self.clock.time()
        report = reports.report("diagnose", "node", reports.Kind.STATUS, DATA, now)
        report |= {"node": place.name, "challenge": challenge}
        purpose = confd.PURPOSE_REPORT
        return json.dumps(reports.sealed(report, KEY, now, purpose=purpose)).encode()

    def asked(self, name):
        return [each for each, _challenge in self.sent].count(name)

    def poller(self, prompt_s):
        return Poller(lambda: KEY, self.clock, fetch=self.fetch, prompt_s=prompt_s)


@pytest.fixture
def agents():
    made = Agents()
    yield made
    for gate in made.gates.values():
        gate.set()


def places(*names):
    return {name: Place(name, "", 0) for name in names}


def test_a_poll_sends_a_new_challenge_to_each_node(agents):
    agents.bad = {"bad"}
    poller = agents.poller(3600)
    data, problems = poller.poll(places("n1", "n2", "bad"))
    assert {name: each.data for name, each in data.items()} == {"n1": DATA, "n2": DATA}
    assert problems == {"bad": "there is no answer"}
    assert len({challenge for _name, challenge in agents.sent}) == 3
    assert not poller.is_waiting


def test_a_node_whose_command_hangs_delays_no_other(agents):
    agents.gates["slow"] = threading.Event()
    poller = agents.poller(0.2)

    def answered():
        """Return the problems of a poll in which the other node was in time."""
        data, problems = poller.poll(places("slow", "n2"))
        assert "slow" not in data
        return problems if "n2" in data else None

    assert until("the other node answers", answered) == {"slow": LATE}
    assert poller.is_waiting
    until("it does again", answered)
    assert agents.asked("slow") == 1
    agents.gates["slow"].set()

    def has_come():
        data, _problems = poller.poll(places("slow", "n2"))
        return data.get("slow")

    assert until("the late answer counts", has_come).data == DATA
    assert agents.asked("slow") == 1
    assert not poller.is_waiting


def test_more_late_nodes_than_are_asked_at_once_delay_no_other(agents, monkeypatch):
    monkeypatch.setattr(polls, "_AT_ONCE", 2)
    slow = [f"slow{number}" for number in range(5)]
    agents.gates = dict.fromkeys(slow, threading.Event())
    poller = agents.poller(0.1)

    def answered():
        data, problems = poller.poll(places(*slow, "n2"))
        assert problems.keys() - {"n2"} == set(slow)
        return data.get("n2")

    until("the last node answers", answered)


def test_while_an_answer_is_late_the_one_before_counts_for_some_time(
    agents, monkeypatch
):
    poller = agents.poller(0.2)
    first = until("it answers", lambda: poller.poll(places("slow"))[0].get("slow"))
    agents.gates["slow"] = threading.Event()
    assert poller.poll(places("slow")) == ({"slow": first}, {})
    assert poller.is_waiting
    monkeypatch.setattr(polls, "_KEPT_S", 0.0)
    assert poller.poll(places("slow")) == ({}, {"slow": LATE})


def test_a_node_with_another_address_is_asked_there(agents):
    agents.gates["slow"] = threading.Event()
    poller = agents.poller(0.05)
    poller.poll(places("slow"))
    agents.gates["slow"].set()
    del agents.gates["slow"]
    moved = {"slow": Place("slow", "192.0.2.7", 0)}
    until("it answers", lambda: poller.poll(moved)[0])
    assert agents.asked("slow") >= 2
    assert poller.poll({}) == ({}, {})


def test_an_error_that_nobody_foresaw_is_no_end_of_the_questions_to_a_node(agents):
    """Its thread would otherwise end without an answer, and it would stay late."""
    agents.bugs = {"n1": ValueError("read length must be non-negative")}
    poller = agents.poller(3600)
    data, problems = poller.poll(places("n1", "n2"))
    assert data.keys() == {"n2"}
    assert problems == {"n1": "its answer cannot be read: ValueError"}
    assert not poller.is_waiting
    agents.bugs = {}
    assert poller.poll(places("n1", "n2"))[0].keys() == {"n1", "n2"}
