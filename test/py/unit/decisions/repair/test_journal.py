"""Entries of the decision journal: bounds, repetitions, selections."""

import itertools

import msgspec
import pytest

from ganeti.decisions.repair import journal
from ganeti.decisions.repair.journal import (
    Decision,
    Entry,
    Item,
    JobEnd,
    Round,
    Selection,
)


def item(name="web1.example.com", decision=Decision.WAITING, **values):
    values = {"kind": "instance", "action": "start", "reason": "down"} | values
    return Item(name=name, decision=decision, **values)


def entry(number=1, **values):
    values = {"round": f"r{number}", "automaton": "watcher"} | values
    return Entry(id=number, ctime=number, mtime=number, last=number, **values)


@pytest.mark.parametrize(
    ("old", "new", "is_repeated"),
    [
        ((), (), True),
        ((item(),), (item(),), True),
        ((item(),), (), False),
        ((item(),), (item(reason="another"),), False),
        ((item(decision=Decision.CHOSEN),), (item(decision=Decision.CHOSEN),), False),
    ],
)
def test_only_idle_rounds_repeat_an_entry(old, new, is_repeated):
    done = Round(round="x", automaton="watcher", items=new)
    assert journal.is_repeated(entry(items=old), done) is is_repeated


def test_a_round_that_learnt_the_end_of_a_job_repeats_nothing():
    ends = (JobEnd(job=7, status="success"),)
    done = Round(round="x", automaton="watcher", results=ends)
    assert not journal.is_repeated(entry(), done)
    assert not journal.is_repeated(entry(results=ends), Round(round="x", automaton=""))


def test_ids_of_jobs_take_the_places_of_zeros_in_order():
    items = (item(jobs=(0,)), item("b"), item("c", jobs=(5, 0)))
    done = Round(round="x", automaton="maintd", items=items).with_jobs([11, 12])
    assert [each.jobs for each in done.items] == [(11,), (), (5, 12)]


def test_texts_and_lists_of_a_round_are_bounded():
    long = item(reason="x" * 9999, ids=("i",) * 999, jobs=tuple(range(999)))
    ends = (JobEnd(job=1, status="error", error="y" * 9999),)
    done = Round(round="x", automaton="watcher", items=(long,), results=ends)
    done = journal.bounded(done)
    assert len(msgspec.json.encode(done)) < 3000
    assert done.items[0].reason.endswith("x...")


def test_a_long_entry_keeps_what_was_done_and_counts_what_it_omits():
    number = itertools.count()

    def many(decision, count):
        reason = "r" * 400
        return [item(f"n{next(number)}", decision, reason=reason) for _ in range(count)]

    items = (*many(Decision.WAITING, 400), *many(Decision.CHOSEN, 300))
    items += tuple(many(Decision.REFUSED, 100))
    data = journal.encode(entry(items=items, results=(JobEnd(job=1, status="x"),)))
    assert len(data) <= journal.MAX_ENTRY
    stored = msgspec.json.decode(data, type=Entry)
    kept = [each.decision for each in stored.items]
    assert kept.count(Decision.CHOSEN) == 300
    assert kept.count(Decision.REFUSED) == 100
    assert 0 < kept.count(Decision.WAITING) < 400
    assert stored.omitted == 400 - kept.count(Decision.WAITING)
    assert [end.job for end in stored.results] == [1]
    # In their order.
    names = [each.name for each in stored.items]
    assert names == sorted(names, key=lambda name: int(name[1:]))


def test_the_oldest_entries_are_too_many(monkeypatch):
    sizes = dict.fromkeys(range(5, 10), 10)
    assert journal.excess(sizes) == []
    monkeypatch.setattr(journal, "MAX_BYTES", 35)
    assert journal.excess(sizes) == [5, 6]
    monkeypatch.setattr(journal, "MAX_ENTRIES", 1)
    assert journal.excess(sizes) == [5, 6, 7, 8]


ENTRIES = [
    entry(1, items=(item(nodes=("node2.example.com",), ids=("tag1",)),)),
    entry(2, automaton="maintd", items=(item("node2", kind="node", jobs=(40,)),)),
    entry(3, results=(JobEnd(job=41, status="error"),), items=(item("web10"),)),
]


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ({}, [1, 2, 3]),
        ({"limit": 2}, [2, 3]),
        ({"limit": 0}, []),
        ({"since": 2.0}, [2, 3]),
        ({"changed_after": 2.0}, [3]),
        ({"automaton": "maintd"}, [2]),
        ({"node": "node2"}, [1, 2]),
        ({"node": "node2.example.com"}, [1]),
        ({"instance": "web1"}, [1]),
        ({"instance": "web"}, []),
        ({"instance": "node2"}, []),
        ({"id": "3"}, [3]),
        ({"id": "r2"}, [2]),
        ({"id": "tag1"}, [1]),
        ({"job": 40}, [2]),
        ({"job": 41}, [3]),
        ({"node": "node2", "since": 2.0}, [2]),
    ],
)
def test_selections(wanted, numbers):
    chosen = journal.select(ENTRIES, Selection(**wanted))
    assert [each.id for each in chosen] == numbers
