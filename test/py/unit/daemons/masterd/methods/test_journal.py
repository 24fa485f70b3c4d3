"""The decision journal of the master: rows, repetitions, limits, restarts."""

import logging

import pytest

from fakes.clocks import FakeClock
from fakes.master import Master
from fakes.patience import job_status
from ganeti.base import errors
from ganeti.daemons.masterd import journal_state
from ganeti.decisions.repair import journal
from ganeti.decisions.repair.journal import Decision, Item, Round, Selection
from ganeti.store import Document
from ganeti.store.memory import MemoryBackend, open_memory

WAITS = Item(kind="node", name="n1", decision=Decision.WAITING, action="drain")
DOES = Item(kind="node", name="n1", decision=Decision.CHOSEN, action="drain", jobs=(7,))


class Site:
    """A store, and the keeper on it, which may start again."""

    def __init__(self):
        self.clock = FakeClock()
        self.backend = MemoryBackend()
        self.start()

    def start(self):
        self.store = open_memory(self.backend)
        self.keeper = journal_state.Keeper(self.store, self.clock)

    def restart(self):
        self.store.close()
        self.start()

    def record(self, *items, name="r", automaton="maintd", **values):
        self.clock.now += 5
        return self.keeper.record(
            Round(round=name, automaton=automaton, items=items, **values)
        )

    def entries(self, **wanted):
        return self.keeper.entries(Selection(**wanted))

    def counts(self):
        return [(entry.id, entry.count) for entry in self.entries()]

    def rows(self):
        return dict(self.store.scan("journal"))


@pytest.fixture
def site():
    made = Site()
    yield made
    made.store.close()


def test_entries_have_consecutive_numbers_also_after_a_restart(site):
    assert site.record(DOES, name="a") == 1
    assert site.record(DOES, name="b", revision=4) == 2
    before = site.entries()
    site.restart()
    assert site.entries() == before
    assert site.record(name="c") == 3
    assert [entry.round for entry in site.entries()] == ["a", "b", "c"]
    assert site.entries(id="2")[0].revision == 4


@pytest.mark.parametrize("items", [(), (WAITS,)])
def test_idle_rounds_that_repeat_themselves_are_counted_in_one_row(site, items):
    for number in range(5):
        assert site.record(*items, name=f"r{number}", revision=number) == 1
    (entry,) = site.entries()
    assert (entry.count, entry.round, entry.revision) == (5, "r0", 4)
    assert entry.last - entry.ctime == pytest.approx(20)
    assert entry.mtime == entry.ctime


def test_a_count_is_written_once_in_a_while_and_with_another_entry(site):
    site.record()
    written = site.rows()
    for number in range(9):
        site.record(name=f"q{number}")
    assert site.rows() == written
    site.clock.now += 3600
    site.record(name="later")
    assert site.rows() != written
    site.record(name="more")
    site.record(DOES, name="another", automaton="watcher")
    site.restart()
    assert site.counts() == [(1, 12), (2, 1)]


def test_automatons_and_scopes_are_counted_apart(site):
    for _ in range(3):
        for automaton, scope in (("maintd", ""), ("watcher", "g1"), ("watcher", "g2")):
            site.record(name=f"{automaton}{scope}", automaton=automaton, scope=scope)
    assert len(site.entries()) == 3


def test_an_entry_between_two_idle_rounds_begins_a_new_count(site):
    site.record(name="a")
    site.record(DOES, name="b")
    site.record(name="c")
    assert site.counts() == [(1, 1), (2, 1), (3, 1)]


def test_a_later_report_of_a_round_replaces_the_earlier_one(site):
    site.record(DOES, name="a")
    first = site.entries()[0]
    site.record(DOES, WAITS, name="a")
    (entry,) = site.entries()
    assert (entry.id, len(entry.items), entry.ctime) == (1, 2, first.ctime)
    assert entry.mtime > first.mtime
    assert site.entries(changed_after=first.mtime) == [entry]


def test_changes_have_different_times_although_the_clock_stands_still(site):
    for number in range(3):
        site.clock.now -= 5
        site.record(DOES, name=f"r{number}")
    times = [entry.mtime for entry in site.entries()]
    assert times == sorted(set(times))


def test_a_clock_that_was_ahead_stamps_only_the_entries_of_that_time(site):
    site.record(DOES, name="before")
    site.clock.now += 86400
    site.record(DOES, name="ahead")
    site.clock.now -= 86400
    site.restart()
    now = site.clock.now + 5
    site.record(DOES, name="after")
    entries = site.entries()
    assert (entries[-1].ctime, entries[-1].last) == (now, now)
    # A reader that has seen the entry before gets this one.
    assert site.entries(changed_after=entries[-2].mtime) == entries[-1:]


def test_the_oldest_rows_are_removed_from_the_store_too(site, monkeypatch):
    monkeypatch.setattr(journal, "MAX_ENTRIES", 3)
    for number in range(5):
        site.record(DOES, name=f"r{number}")
    assert sorted(site.rows()) == [f"{number:012}" for number in (3, 4, 5)]
    site.restart()
    assert [entry.id for entry in site.entries()] == [3, 4, 5]


def test_a_round_that_could_not_be_stored_is_not_shown(site):
    site.record(DOES, name="a")
    site.backend.failure = errors.StorageError("disk full")
    with pytest.raises(errors.StorageError):
        site.record(DOES, name="b")
    site.backend.failure = None
    assert [entry.round for entry in site.entries()] == ["a"]
    site.restart()
    assert site.record(DOES, name="c") == 2


def test_a_damaged_row_is_left_out_and_logged(site, caplog):
    site.record(DOES)
    site.store.commit([Document("journal", "000000000000", b"{")])
    site.restart()
    with caplog.at_level(logging.ERROR):
        assert [entry.id for entry in site.entries()] == [1]
    assert "entry 000000000000 cannot be read" in caplog.text


def test_a_long_idle_round_is_counted_although_its_row_omits_items(site):
    many = [
        Item(kind="node", name=f"n{n}", decision=Decision.WAITING, action="a" * 400)
        for n in range(900)
    ]
    for number in range(3):
        site.record(*many, name=f"r{number}")
    (entry,) = site.entries()
    assert entry.count == 3
    assert entry.omitted > 0


def test_a_watcher_every_five_minutes_writes_no_row_per_round(site):
    site.record(automaton="watcher", scope="g1")
    written = site.rows()
    for number in range(10):
        site.clock.now += 300
        site.record(name=f"q{number}", automaton="watcher", scope="g1")
    assert site.rows() == written


def test_places_whose_entries_were_removed_take_no_memory(site, monkeypatch):
    monkeypatch.setattr(journal, "MAX_ENTRIES", 3)
    for number in range(9):
        site.record(DOES, name=f"r{number}", scope=f"g{number}")
    assert len(site.keeper.last) == len(site.keeper.counted) == 3


def test_a_forged_round_takes_no_more_than_its_room(site):
    wild = "\x01" * 100_000
    item = Item(
        kind=wild,
        name=wild,
        decision=Decision.REFUSED,
        action=wild,
        reason=wild,
        limit=wild,
    )
    site.record(*[item] * 100, name=wild, automaton=wild, scope=wild)
    (row,) = site.rows().values()
    assert 0 < len(row) <= journal.MAX_ENTRY
    (entry,) = site.entries()
    assert 0 < entry.omitted < 100


# Over LUXI
@pytest.fixture
def client(tmp_path):
    with Master.connected(tmp_path / "node1.example.com") as made:
        yield made


def test_a_round_of_the_maintenance_daemon_is_stored_with_the_ids_of_its_jobs(client):
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": True}
    job = {"ops": [delay], "incident": "i1"}
    items = [
        {"kind": "node", "name": "n1", "decision": "chosen", "action": action}
        | {"jobs": [0]}
        for action in ("a", "b")
    ]
    entry = {"round": "r1", "automaton": "maintd", "items": items}
    answer = client.call("ChangeMaintenance", [1, {}, [job, job], entry])
    (stored,) = client.call("QueryJournal", [{}])
    assert [item["jobs"] for item in stored["items"]] == [[j] for j in answer["jobs"]]
    assert stored["round"] == "r1"


def test_a_refused_round_of_the_maintenance_daemon_leaves_no_entry(client):
    entry = {"round": "r1", "automaton": "maintd"}
    job = {"ops": [{"OP_ID": "OP_NO_SUCH"}], "incident": "i1"}
    for serial, jobs in ((9, []), (1, [job])):
        with pytest.raises(errors.GenericError):
            client.call("ChangeMaintenance", [serial, {}, jobs, entry])
    assert client.call("QueryJournal", [{}]) == []


def test_rounds_are_recorded_and_selected_over_luxi(client):
    revision = client.call("QueryAutomation", [])["revision"]
    entry = {"round": "r1", "automaton": "watcher", "revision": revision}
    assert client.call("RecordRound", [entry]) == 1
    (stored,) = client.call("QueryJournal", [{"id": "r1"}])
    assert stored["revision"] == revision
    assert client.call("QueryJournal", [{"automaton": "maintd"}]) == []
    with pytest.raises(errors.GenericError, match="unknown field"):
        client.call("QueryJournal", [{"nod": "n1"}])


def test_limits_and_a_freeze_are_in_the_answer_until_they_are_removed(client):
    known = client.call("QueryAutomation", [])
    assert (known["limits"], known["freeze"], known["moving"]) == ({}, None, [])
    client.call("FreezeAutomation", ["work"])
    frozen = client.call("QueryAutomation", [])
    assert frozen["freeze"]["reason"] == "work"
    assert frozen["revision"] > known["revision"]
    client.call("ThawAutomation", [])
    assert client.call("QueryAutomation", [])["freeze"] is None
    with pytest.raises(errors.OpPrereqError, match="at most 500 characters, found 501"):
        client.call("FreezeAutomation", ["x" * 501])


def test_moves_under_way_and_refused_ones_are_known_to_the_next_round(client):
    limits = {"moved-share": 50.0, "quiet-time": 600.0}
    op = {"OP_ID": "OP_CLUSTER_SET_PARAMS", "automation_limits": limits}
    assert job_status(client, client.call("SubmitJob", [[op]])) == "success"
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 300.0, "on_master": True}
    running, ended = client.call("SubmitJob", [[delay]]), 1
    item = {"kind": "instance", "decision": "chosen", "action": "move", "moves": True}
    items = [
        item | {"name": "web1", "jobs": [running]},
        item | {"name": "web2", "jobs": [ended]},
        item | {"name": "web3", "jobs": [running], "moves": False},
    ]
    entry = {"round": "r1", "automaton": "autorepair", "items": items}
    client.call("RecordRound", [entry])
    known = client.call("QueryAutomation", [])
    assert (known["limits"], known["moving"]) == (limits, ["web1"])
    assert known["mass_event"] is None
    refused = item | {"name": "web4", "decision": "refused", "limit": "moved-share"}
    entry = {"round": "r2", "automaton": "autorepair", "items": [refused]}
    client.call("RecordRound", [entry])
    (stored,) = client.call("QueryJournal", [{"id": "r2"}])
    assert client.call("QueryAutomation", [])["mass_event"] == stored["last"]
    client.call("CancelJob", [running, True])


def test_a_round_that_began_before_a_freeze_submits_nothing_after_it(client):
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": True}
    job = {"ops": [delay], "incident": "i1"}
    client.call("FreezeAutomation", ["work"])
    with pytest.raises(errors.OpPrereqError, match="automation is frozen"):
        client.call("ChangeMaintenance", [1, {}, [job]])
    client.call("ChangeMaintenance", [1, {}, []])
    client.call("ThawAutomation", [])
    assert client.call("ChangeMaintenance", [2, {}, [job]])["jobs"]


def test_a_submission_succeeds_after_an_unknown_method(client):
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": True}
    with pytest.raises(errors.RequestError, match="unknown method"):
        client.call("NoSuchMethod", [])
    assert client.call("SubmitJob", [[delay]])


def test_changing_refusals_displace_no_acts_and_acts_not_all_refusals(
    site, monkeypatch
):
    monkeypatch.setattr(journal, "MAX_ENTRIES", 40)
    for number in range(30):
        site.record(DOES, name=f"act{number}")
    for number in range(100):
        # A text that contains the stored form of an act is a text.
        why = f'{number} "decision":"chosen"'
        item = Item(
            kind="node", name="n1", decision=Decision.REFUSED, action="x", reason=why
        )
        site.record(item, name=f"lie{number}")
    kept = [entry.round for entry in site.entries()]
    assert kept[:30] == [f"act{number}" for number in range(30)]
    assert kept[30:] == [f"lie{number}" for number in range(90, 100)]
    for number in range(50):
        site.record(DOES, name=f"more{number}")
    kept = [entry.round for entry in site.entries()]
    assert (len(kept), kept[-1]) == (40, "more49")
    site.restart()
    assert [entry.round for entry in site.entries()] == kept
