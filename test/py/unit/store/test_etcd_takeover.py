"""Takeover between processes, with a real server: nothing acknowledged is lost."""

import os
import pathlib
import subprocess
import sys
import threading

import pytest

import ganeti
from fakes import patience
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.decisions.quorum import Term
from ganeti.store import Document
from ganeti.store.etcd import (
    Candidacy,
    Claim,
    Gateway,
    layout,
    messages,
    open_etcd,
    parse,
)

CLOCK = SystemClock()
#: Seconds of a lease: none ends before a test ends it.
TTL_S = 3600

#: A master that acknowledges commits on its standard output until it is killed.
MASTER = """
import sys
from ganeti.base.clock import SystemClock
from ganeti.store import Document
from ganeti.store.etcd import open_etcd, parse
db = open_etcd(parse(sys.argv[1]), clock=SystemClock(), node="first", ttl_s=int(sys.argv[2]))
for number in range(1_000_000):
    db.commit_soon(
        [Document("jobs", str(number), b"{}")],
        lambda revision, error, number=number: error or print(number, flush=True),
    )
    if number % 8 == 0:
        db.commit([])
"""


@pytest.fixture
def servers(etcd):
    return etcd.servers()


@pytest.fixture
def master(servers):
    process = subprocess.Popen(
        [sys.executable, "-c", MASTER, str(servers), str(TTL_S)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(ganeti.__file__).parents[1])},
    )
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def begin(servers, node):
    return lambda: open_etcd(servers, clock=CLOCK, node=node, ttl_s=TTL_S)


def end_lease(servers):
    """Have the lease of the leader end on the servers, as they do it by themselves."""
    gateway = Gateway(servers)
    key = messages.get(layout.Keys(servers.prefix).leader)
    [leader] = gateway.fetch("kv/range", key, messages.RangeAnswer).kvs
    gateway.call("lease/revoke", {"ID": leader.lease}, messages.TxnAnswer)
    gateway.close()


def test_another_candidate_takes_over_with_all_that_was_acknowledged(servers, master):
    acknowledged = [int(master.stdout.readline()) for _ in range(100)]
    candidacies = [Candidacy(servers, f"node{i}", CLOCK) for i in range(3)]
    stop, won = threading.Event(), []

    def work(number, candidacy):
        opened = candidacy.take_over(begin(servers, f"node{number}"), stop)
        if opened is not None:
            won.append(opened)

    threads = [
        threading.Thread(target=work, args=item) for item in enumerate(candidacies)
    ]
    for thread in threads:
        thread.start()
    assert not won
    master.kill()
    acknowledged += [int(line) for line in master.communicate()[0].split()]
    end_lease(servers)
    patience.until("one has taken over", lambda: won)
    stop.set()
    for thread in threads:
        thread.join(patience.PATIENCE_S)
    for candidacy in candidacies:
        candidacy.close()
    [db] = won
    assert db.term.number == 2
    assert {str(number) for number in acknowledged} <= {k for k, _v in db.scan("jobs")}
    assert db.commit([Document("jobs", "next", b"{}")])
    db.close()


def test_a_paused_master_that_goes_on_writes_nothing(servers, etcd):
    """The lease of a master that does not run ends; it is refused afterwards."""
    deposed = threading.Event()
    old = open_etcd(servers, clock=CLOCK, node="old", on_deposed=deposed.set, ttl_s=60)
    old.commit([Document("jobs", "1", b"{}")])
    # As if it were paused: its lease ends on the servers, and it does not notice.
    gateway = Gateway(servers)
    number = old._backend._lease.number
    gateway.call("lease/revoke", {"ID": number}, messages.TxnAnswer)
    stop = threading.Event()
    candidacy = Candidacy(servers, "new", CLOCK)
    new = candidacy.take_over(begin(servers, "new"), stop)
    new.commit([Document("jobs", "2", b"{}")])
    with pytest.raises(errors.TermError, match="term 1:old is over: now is term 2:new"):
        old.commit([Document("jobs", "1", None)])
    assert deposed.is_set()
    assert [key for key, _data in new.scan("jobs")] == ["1", "2"]
    candidacy.close()
    new.close()
    old.close()


def test_a_candidate_waits_as_long_as_the_master_lives(servers):
    db = begin(servers, "node1")()
    candidacy, stop, ended = Candidacy(servers, "node2", CLOCK), threading.Event(), []
    thread = threading.Thread(target=lambda: ended.append(candidacy.wait(stop)))
    thread.start()
    terms = []
    for number in range(20):
        db.commit([Document("jobs", str(number), b"{}")])
        terms.append(db._backend.promised())
    assert not ended
    stop.set()
    thread.join(patience.PATIENCE_S)
    assert ended == [False]
    assert set(terms) == {Term(1, "node1")}
    candidacy.close()
    db.close()


def test_a_master_that_ends_in_order_is_followed_at_once(servers):
    db = open_etcd(servers, clock=CLOCK, node="node1", ttl_s=3600)
    candidacy, opened = Candidacy(servers, "node2", CLOCK), []
    thread = threading.Thread(
        target=lambda: opened.append(
            candidacy.take_over(begin(servers, "node2"), threading.Event())
        )
    )
    thread.start()
    db.close()  # gives the lease of an hour back
    thread.join(patience.PATIENCE_S)
    assert opened[0].term == Term(2, "node2")
    opened[0].close()
    candidacy.close()


def test_own_leadership_is_not_waited_for(servers):
    db = begin(servers, "node1")()
    candidacy = Candidacy(servers, "node1", CLOCK)
    assert candidacy.wait(threading.Event())
    candidacy.close()
    db.close()


def test_a_candidate_that_was_slower_waits_again(servers):
    """``begin`` is refused once, as by a candidate that was faster."""
    attempts = []

    def slow():
        attempts.append(1)
        if len(attempts) < 3:
            raise (errors.TermError if len(attempts) == 1 else errors.StorageError)("x")
        return "opened"

    candidacy = Candidacy(servers, "node1", CLOCK)
    assert candidacy.take_over(slow, threading.Event()) == "opened"
    assert len(attempts) == 3
    candidacy.close()


def test_without_servers_a_candidate_waits(caplog):
    candidacy = Candidacy(parse("etcd://127.0.0.1:1"), "node1", CLOCK)
    stop, ended = threading.Event(), []
    thread = threading.Thread(target=lambda: ended.append(candidacy.wait(stop)))
    thread.start()
    patience.until("a warning", lambda: "leader is not known" in caplog.text)
    stop.set()
    thread.join(patience.PATIENCE_S)
    assert ended == [False]
    candidacy.close()


def claimed(servers, node, **claim):
    return open_etcd(servers, clock=CLOCK, node=node, ttl_s=TTL_S, claim=Claim(**claim))


def test_an_administrator_takes_the_leadership_from_a_living_master(servers):
    deposed = threading.Event()
    old = open_etcd(servers, clock=CLOCK, node="old", on_deposed=deposed.set, ttl_s=4)
    old.commit([Document("jobs", "1", b"{}")])
    with pytest.raises(errors.TermError, match="old is master"):
        begin(servers, "new")()
    new = claimed(servers, "new", is_forced=True)
    # It finds out without a write of its own.
    assert deposed.wait(patience.PATIENCE_S)
    with pytest.raises(errors.TermError):
        old.require_leading()
    with pytest.raises(errors.TermError):
        old.commit([Document("jobs", "2", b"{}")])
    new.require_leading()
    assert [key for key, _data in new.scan("jobs")] == ["1"]
    old.close()
    new.commit([Document("jobs", "3", b"{}")])
    new.close()


def test_a_candidacy_that_needs_a_vacancy_spares_its_own_master(servers):
    own = begin(servers, "node1")()
    with pytest.raises(errors.TermError, match="node1 is master"):
        claimed(servers, "node1", needs_vacancy=True)
    own.commit([Document("jobs", "1", b"{}")])
    own.close()


def test_a_lease_that_is_not_given_back_is_taken_by_the_same_node_alone(servers):
    claimed(servers, "node1", gives_back=False).close()
    with pytest.raises(errors.TermError, match="node1 is master"):
        begin(servers, "node2")()
    again = begin(servers, "node1")()
    again.commit([Document("jobs", "1", b"{}")])
    again.close()
    begin(servers, "node2")().close()
