"""The rules of histories: each is violated once by a made history, and is noticed."""

import dataclasses

import pytest

from fakes.histories import schedule
from fakes.histories.rules import Copy, History, Point, Submission, violations
from ganeti.decisions.quorum import Term

A, B = Term(3, "a"), Term(4, "b")


def delay(job=7, **changes):
    made = Submission("h-1", "delay", invoked=1.0, acknowledged=2.0, job=job)
    return dataclasses.replace(made, **changes)


def sound():
    """Return a history that keeps all rules, with something for each of them."""
    copy = Copy(20, "d1", serial=5, last_job=10)
    return History(
        submissions=[
            delay(),
            Submission("h-2", "tag", "t2", 1.0, 2.0, 8, 3.0, "success"),
            Submission("h-3", "register", "r3", 1.0, 2.0, 9, 3.0, "success"),
            Submission("h-4", "register", "r4", 4.0, 5.0, 10, 6.0, "success"),
            Submission("h-5", "tag", "t5", 4.0),
        ],
        acts={
            "node1": [(None, A), ("test_delay", A), (None, B), ("store_apply", B)],
            "node2": [(None, B), ("hooks_runner", B)],
        },
        elected=[("node1", A), ("node2", B)],
        before={"node1": Copy(3, "d0", 1, 1), "node2": Copy(3, "d0", 1, 1)},
        after={"node1": copy, "node2": copy},
        chain=[Point(4, 3), Point(6, 3), Point(9, 4)],
        jobs={
            7: ("error", "h-1"),
            8: ("success", "h-2"),
            9: ("success", "h-3"),
            10: ("success", "h-4"),
        },
        tags={"t2"},
        register="r4",
        serving=["node2"],
        answers={"node1": [3, 4, 6], "node2": [3, 5], "node3": []},
        refusals=["node3: most nodes name node2 as the master"],
    )


def test_a_sound_history_has_no_violation():
    assert violations(sound()) == []


def broken(**changes):
    return dataclasses.replace(sound(), **changes)


def without_job(job, **changes):
    jobs = {key: value for key, value in sound().jobs.items() if key != job}
    return broken(jobs=jobs, **changes)


def ended(job, status, mark):
    return broken(jobs=sound().jobs | {job: (status, mark)})


LOW = Copy(2, "d1", serial=5, last_job=10)
CASES = {
    "a term that is won twice": (
        broken(elected=[("node1", A), ("node1", A)]),
        "term 3:a was won more than once: by node1, node1",
    ),
    "two masters of a number": (
        broken(elected=[("node1", A), ("node3", Term(3, "c"))]),
        "term 3 has 2 masters: a, c",
    ),
    "two acting masters of a number": (
        broken(acts={"node1": [("x", A)], "node3": [("x", Term(3, "c"))]}, elected=[]),
        "term 3 has 2 masters: a, c",
    ),
    "an act of a deposed master": (
        broken(acts={"node1": [(None, A), *[(None, B)] * 4, ("hooks_runner", A)]}),
        "node1 carried out hooks_runner for term 3:a after it had seen term 4:b",
    ),
    "an act of another owner of the number": (
        broken(acts={"node1": [*[("x", B)] * 4, ("y", Term(4, "c"))]}, elected=[]),
        "node1 carried out y for term 4:c after it had seen term 4:b",
    ),
    "a commit of a deposed master": (
        broken(chain=[Point(4, 3), Point(6, 4), Point(9, 3)]),
        "revision 9 of term 3 follows revision 6 of term 4",
    ),
    "a revision that is used again": (
        broken(chain=[Point(4, 3), Point(4, 4)]),
        "revision 4 of term 4 follows revision 4 of term 3",
    ),
    "an id for two jobs": (
        broken(submissions=[delay(), delay(mark="h-9")]),
        "job id 7 was given to h-1, h-9",
    ),
    "a lost job": (without_job(7), "job 7 (h-1) was acknowledged and is lost"),
    "a lost job that no forced failover lists": (
        without_job(7, is_forced=True, lost_jobs={6}),
        "job 7 (h-1) was acknowledged and is lost",
    ),
    "a listed job that was lost without consent": (
        without_job(7, lost_jobs={7}),
        "job 7 (h-1) was acknowledged and is lost",
    ),
    "an id that is another job's": (
        ended(7, "success", "h-8"),
        "job 7 was given to h-1 and is h-8's now",
    ),
    "an end that changed": (
        ended(8, "error", "h-2"),
        "job 8 (h-2) had ended as success, now error",
    ),
    "a job that does not end": (
        ended(7, "running", "h-1"),
        "job 7 (h-1) does not end: it is running",
    ),
    "a lost tag": (broken(tags=set()), "job 8 (h-2) set tag t2, which is lost"),
    "a value that was overwritten": (
        broken(register="r3"),
        "the register is r3 of job 9, which had ended before job 10 set r4",
    ),
    "a value of nobody": (
        broken(register="r9"),
        "the register is 'r9', which nobody has written",
    ),
    "copies that differ": (
        broken(after={"node1": Copy(20, "d1", 5, 10), "node2": Copy(20, "d2", 5, 10)}),
        "the copies differ: node1: 20 d1, node2: 20 d2",
    ),
    "a revision that went back": (
        broken(after={"node1": LOW}),
        "node1: revision went back from 3 to 2",
    ),
    "a serial below that of a lost copy": (
        broken(is_forced=True, lost=[Copy(9, "x", serial=6, last_job=1)]),
        "node1: serial went back from 6 to 5",
    ),
    "a job id that may be given again": (
        broken(after={"node1": Copy(20, "d1", 5, last_job=9)}),
        "node1: the last job id is 9, 10 was given",
    ),
    "an answer of confd that is older than one before": (
        broken(answers={"node1": [3, 4], "node2": [3, 7, 6, 8]}),
        "confd on node2: serial 6 after 7",
    ),
    "no master": (broken(serving=[]), "masters at the end: none"),
    "two masters": (
        broken(serving=["node1", "node2"]),
        "masters at the end: node1, node2",
    ),
    "a silent failure": (broken(refusals=[" \n"]), "a command failed without a word"),
    "a traceback": (
        broken(refusals=["Traceback (most recent call last)"]),
        "a command failed with a traceback: Traceback (most recent call last)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_violation_is_noticed(name):
    history, text = CASES[name]
    assert text in violations(history)


def test_an_operator_may_lose_what_is_listed():
    history = without_job(8, is_forced=True, lost_jobs={8}, tags=set())
    assert violations(history) == []


def test_two_masters_of_a_number_are_possible_when_loss_is_accepted():
    terms = [("node1", A), ("node3", Term(3, "c"))]
    assert violations(broken(elected=terms, is_forced=True)) == []


def test_a_value_that_was_written_at_the_same_time_may_stay():
    history = sound()
    for item in history.submissions:
        if item.kind == "register":
            item.invoked, item.ended = 1.0, 9.0
    assert violations(dataclasses.replace(history, register="r3")) == []


def test_a_seed_makes_the_same_schedule_again():
    assert schedule.make(5, 3, 3) == schedule.make(5, 3, 3)
    assert schedule.make(5, 3, 3) != schedule.make(6, 3, 3)


def test_schedules_have_all_kinds_and_a_failover_or_a_restart():
    made = [schedule.make(seed, 5, 5) for seed in range(60)]
    assert {fault.kind for faults in made for fault in faults} == set(schedule.KINDS)
    for faults in made:
        assert {fault.kind for fault in faults} & {"failover", "restart"}
        assert [fault.at_s for fault in faults] == sorted(f.at_s for f in faults)
    words = {fault.words for faults in made for fault in faults}
    assert set(schedule.FAILOVER_WORDS) <= words


def test_with_etcd_servers_fail_and_nobody_accepts_loss():
    made = [schedule.make(seed, 5, 5, 3) for seed in range(60)]
    faults = [fault for faults in made for fault in faults]
    kinds = {*schedule.KINDS, *schedule.SERVER_KINDS}
    assert {fault.kind for fault in faults} == kinds
    assert not any(fault.is_forced for fault in faults)
    assert {len(fault.servers) for fault in faults} == {0, 1, 2, 3}
    assert {fault.daemon for fault in faults} >= {"masterd", "noded", "standby"}
    cuts = [fault.nodes for fault in faults if fault.kind == "server_cut"]
    # From the other servers, from the master, from some nodes.
    assert () in cuts
    assert (schedule.MASTER,) in cuts
    assert any(len(nodes) > 1 for nodes in cuts)


def test_copies_that_a_forced_failover_left_behind_may_answer_with_lower_numbers():
    history = broken(is_forced=True, answers={"node1": [3, 9, 4]})
    assert violations(history) == []
