"""Which answers of agents count, and what readers of the status see."""

import contextlib
import json
import socket
import threading
import time

import pytest

from fakes.patience import until
from ganeti.automation.maintenance import diagnoses
from ganeti.automation.maintenance.diagnoses import LATE, Place, Poller, RefusedError
from ganeti.base.clock import SystemClock
from ganeti.base.constants.protocols import confd
from ganeti.daemons.mains.maintd import Application
from ganeti.decisions.repair.incidents import Action, Incident, MaintenanceState
from ganeti.node.collectors import reports
from ganeti.protocols.confd import wire

KEY = b"key\n"
NOW = 1_700_000_000.0
DATA = {"status": "evacuate"}


def answer(*, key=KEY, then=NOW, collected=NOW, data=DATA, name="diagnose", **changes):
    report = reports.report(name, "node", reports.Kind.STATUS, data, collected)
    report |= {"node": "node1.tst", "challenge": "c1"} | changes
    purpose = confd.PURPOSE_REPORT
    return json.dumps(reports.sealed(report, key, then, purpose=purpose)).encode()


def check(data):
    return diagnoses.check(data, KEY, "node1.tst", "c1", NOW)


def test_a_good_answer():
    stamp = int(NOW) * 10**9
    assert check(answer()) == (DATA, stamp, "")
    assert check(answer(then=NOW - 300)) == (DATA, stamp, "")
    assert check(answer(problem="x" * 600)).problem == "x" * 500


def forged():
    sealed = json.loads(answer())
    sealed["msg"] = sealed["msg"].replace("evacuate", "live-repair")
    return json.dumps(sealed).encode()


def without_purpose():
    """Sign an answer as one without a challenge is signed."""
    sealed = json.loads(answer())
    text = (sealed["salt"] + sealed["msg"]).encode()
    sealed["hmac"] = wire.signer(wire.MAGIC_SHA1, KEY)(text)
    return json.dumps(sealed).encode()


def unsigned():
    return json.dumps(
        reports.report("diagnose", "node", reports.Kind.STATUS, DATA, NOW)
    ).encode()


def salted(salt):
    text = json.loads(answer())["msg"]
    mac = wire.signer(wire.MAGIC_SHA1, KEY)(
        confd.PURPOSE_REPORT + (salt + text).encode()
    )
    return json.dumps({"msg": text, "salt": salt, "hmac": mac}).encode()


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def timed(timestamp):
    """Sign a report whose time is no number that a float can be."""
    report = json.loads(json.loads(answer())["msg"])
    text = json.dumps(report | {"timestamp": 0}).replace(
        '"timestamp": 0', f'"timestamp": {timestamp}'
    )
    salt = str(int(NOW))
    mac = wire.signer(wire.MAGIC_SHA1, KEY)(
        confd.PURPOSE_REPORT + (salt + text).encode()
    )
    return json.dumps({"msg": text, "salt": salt, "hmac": mac}).encode()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (unsigned(), "not a signed report"),
        (b"", "not a signed report"),
        (b"[" * 100_000, "not a signed report"),
        (b"\xff", "not a signed report"),
        (forged(), "signature"),
        (answer(key=b"other"), "signature"),
        (answer(then=NOW - 301), "over 300 seconds away"),
        (answer(then=NOW + 302), "over 300 seconds away"),
        (salted("x"), "not a time"),
        (salted("9" * 40), "not a time"),
        (answer(challenge="c0"), "recorded"),
        (answer(node="node2.tst"), "of node 'node2.tst'"),
        (answer(collected=NOW - 1000), "too long ago"),
        (answer(name="lv"), "another report"),
        (without_purpose(), "signature is wrong"),
        (answer(data=[1]), "does not answer"),
        (answer(challenge=7), "does not answer"),
        (answer(data={"status": "evacuate", "details": deep(40)}), "nested"),
        (timed("9" * 400), "too long ago"),
    ],
)
def test_answers_that_are_refused(data, why):
    with pytest.raises(diagnoses.RefusedError, match=why):
        check(data)


@pytest.mark.parametrize("headers", [b"", b"Connection: close\r\n"])
def test_an_answer_byte_by_byte_ends_in_time(monkeypatch, headers):
    monkeypatch.setattr(diagnoses, "_PATIENCE_S", 0.2)
    ends = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            peer, _address = server.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(b"HTTP/1.1 200 OK\r\n" + headers)
                peer.sendall(b"Content-Length: 1000\r\n\r\n")
                try:
                    for _ in range(500):
                        peer.sendall(b"x")
                        time.sleep(0.02)
                    ends.append("sent")
                except OSError:
                    ends.append("cut off")

        thread = threading.Thread(target=serve)
        thread.start()
        place = diagnoses.Place("n1", "127.0.0.1", server.getsockname()[1])
        with contextlib.suppress(diagnoses.RefusedError):
            diagnoses.fetch(place, "c1")
        thread.join()
    assert ends == ["cut off"]


@pytest.mark.parametrize("size", [b"-1", b"-5", b"5"])
def test_an_answer_in_chunks_is_refused_before_it_is_read(size):
    """A chunk of a negative size would be read to its end, however long it is."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            peer, _address = server.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                with contextlib.suppress(OSError):
                    peer.sendall(size + b"\r\n" + b"x" * (2 * diagnoses.MAX_ANSWER))

        thread = threading.Thread(target=serve)
        thread.start()
        place = diagnoses.Place("n1", "127.0.0.1", server.getsockname()[1])
        with pytest.raises(diagnoses.RefusedError, match="wanted an answer with its"):
            diagnoses.fetch(place, "c1")
        thread.join()


def test_status():
    item = Incident(uuid="i1", node="u1", original=DATA, action=Action.EVACUATE)
    state = MaintenanceState(jobs=(7,), evacuated=("web1",), incidents=(item,))
    app = Application(lambda: state, lambda accept: (f"text {accept}", b"m 1"))

    def ask(path, method="GET"):
        seen = []
        (body,) = app(
            {"PATH_INFO": path, "REQUEST_METHOD": method}, lambda *w: seen.append(w[0])
        )
        return seen[0], body

    assert ask("/") == ("200 OK", b"[1]")
    assert ask("/1") == ask("/1/") == ("200 OK", b"null")
    assert ask("/1/jobs")[1] == b"[7]"
    assert ask("/1/evacuated")[1] == b'["web1"]'
    (shown,) = json.loads(ask("/1/status")[1])
    assert shown["id"] == "i1"
    assert shown["repair-status"] == "noted"
    assert ask("/metrics") == ("200 OK", b"m 1")
    assert ask("/2") == ("404 Not Found", b"Resource not found\n")
    assert ask("/1/status", "POST")[0].startswith("405")


# Runs that print the same
OK = {"status": "Ok"}
OTHER = {"status": "evacuate", "details": 2}


def sifted(steady, data, timestamp, problem=""):
    """Return the data of n1 that may be used, and why it is not."""
    answers = {"n1": diagnoses.Diagnosis(data, timestamp, problem)}
    usable, unused = steady.sift(answers, {"n2": "no answer"})
    assert unused.pop("n2") == "no answer"
    return usable.get("n1"), unused.get("n1")


def test_a_fault_counts_when_another_run_of_the_command_reports_it_again():
    steady = diagnoses.Steady()
    assert sifted(steady, DATA, 1) == (None, diagnoses.NOT_REPEATED)
    # Asked again within the interval of the collector: the same run.
    assert sifted(steady, DATA, 1) == (None, diagnoses.NOT_REPEATED)
    assert sifted(steady, DATA, 2) == (DATA, None)
    assert sifted(steady, DATA, 2) == (DATA, None)
    assert sifted(steady, OTHER, 3) == (None, diagnoses.NOT_REPEATED)
    assert sifted(steady, DATA, 4) == (None, diagnoses.NOT_REPEATED)


def test_a_command_that_prints_something_else_each_time_never_counts():
    steady = diagnoses.Steady()
    for number in range(20):
        data = {"status": "evacuate", "details": number % 3}
        assert sifted(steady, data, number) == (None, diagnoses.NOT_REPEATED)


def test_a_node_in_order_counts_at_once():
    steady = diagnoses.Steady()
    assert sifted(steady, OK, 1) == (OK, None)
    broken = OK | {"details": "no such command"}
    assert sifted(steady, broken, 2, "no such command") == (broken, "no such command")


def test_a_node_without_an_answer_keeps_its_runs_and_one_that_left_does_not():
    steady = diagnoses.Steady()
    sifted(steady, DATA, 1)
    assert steady.sift({}, {"n1": "no answer", "n2": ""})[0] == {}
    assert sifted(steady, DATA, 2) == (DATA, None)
    steady.sift({}, {"n2": ""})
    assert sifted(steady, DATA, 3) == (None, diagnoses.NOT_REPEATED)


def test_a_problem_does_not_hide_a_fault():
    """Only the agent of the node adds a problem, and then it reports Ok."""
    steady = diagnoses.Steady()
    assert sifted(steady, DATA, 1, "odd") == (None, "odd")


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
    monkeypatch.setattr(diagnoses, "_AT_ONCE", 2)
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
    monkeypatch.setattr(diagnoses, "_KEPT_S", 0.0)
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
