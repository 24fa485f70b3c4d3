"""The state table, walked whole."""

import itertools

import pytest

from ganeti.base import errors
from ganeti.decisions.jobs import records
from ganeti.master.jqueue import FINAL, Event, Status


@pytest.mark.parametrize(("status", "event"), list(itertools.product(Status, Event)))
def test_each_pair_leads_where_the_table_says_or_is_refused(status, event):
    if (status, event) in records.TABLE:
        assert records.advance(status, event) is records.TABLE[status, event]
    else:
        with pytest.raises(errors.ProgrammerError, match=status):
            records.advance(status, event)


def test_nothing_leaves_a_final_state_and_each_state_is_reached():
    assert not [pair for pair in records.TABLE if pair[0] in FINAL]
    assert set(records.TABLE.values()) == set(Status)


def test_from_every_state_a_final_one_can_be_reached():
    ends = set(FINAL)
    while more := {a for (a, _), b in records.TABLE.items() if b in ends} - ends:
        ends |= more
    assert ends == set(Status)


@pytest.mark.parametrize(
    ("statuses", "job"),
    [
        ("success queued", "queued"),
        ("success waiting queued", "waiting"),
        ("success running queued", "running"),
        ("success success", "success"),
        ("queued", "queued"),
        ("success error error", "error"),
        ("canceled canceled", "canceled"),
        ("success canceling queued", "canceling"),
        ("success canceled", "canceled"),
    ],
)
def test_job_status_is_computed_from_opcodes(statuses, job):
    assert records.job_status(Status(word) for word in statuses.split()) == job


def test_job_priority_is_the_most_urgent_of_the_unfinished():
    pairs = [(Status.SUCCESS, -20), (Status.WAITING, 5), (Status.QUEUED, -3)]
    assert records.job_priority(pairs) == -3
    assert records.job_priority([(Status.ERROR, 7)]) == 0
