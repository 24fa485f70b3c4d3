"""The queue over a store in memory."""

import contextlib
import os
import threading
import time
import types

import pytest

from fakes.jobs_run import WAIT_S, Gate, Harness, dummy, running, until
from ganeti.base import errors
from ganeti.decisions.jobs import records
from ganeti.decisions.jobs.entry import Place
from ganeti.master import jqueue
from ganeti.master.jqueue import Canceled, LockTimeout, archiving, core, documents
from ganeti.master.jqueue import running as running_module
from ganeti.master.jqueue.effects import Document
from ganeti.model import objects, opcodes


@pytest.fixture
def live():
    with running() as harness:
        yield harness


def gated(harness, comment, *, start=True):
    gate = Gate()

    def run(op, callbacks, _timeout, _priority):
        if start:
            callbacks.started()
        gate.stop()
        callbacks.check_canceled()
        callbacks.started()
        return op.result

    harness.executor.script[comment] = run
    return gate


def test_each_attempt_knows_when_its_job_was_submitted():
    clk, seen = StepClock(), []

    def run(op, callbacks, timeout_s, _priority):
        seen.append(callbacks.submitted_at)
        clk.now += timeout_s or 1.0
        if len(seen) == 1:
            raise LockTimeout
        callbacks.started()

    with running(clk=clk) as live:
        live.executor.script["twice"] = run
        before = clk.monotonic()
        live.queue.submit([dummy("twice")])
        live.final(1)
    assert seen == [before, before]


def stored_logs(live):
    return [
        records.decode_log(data)[1].payload for _, data in live.store.scan("joblogs")
    ]


def test_a_log_line_is_stored_within_a_second_while_the_opcode_goes_on(
    live, monkeypatch
):
    gate, timers, delays = Gate(), live.queue._core.timers, []
    after = timers.after
    monkeypatch.setattr(
        timers, "after", lambda s, call: delays.append(s) or after(s, call)
    )

    def run(op, callbacks, _timeout, _priority):
        callbacks.started()
        callbacks.log("message", "one")
        callbacks.log("message", "two")
        gate.stop()

    live.executor.script["acting"] = run
    live.queue.submit([dummy("acting")])
    gate.wait()
    until(lambda: stored_logs(live) == ["one", "two"])
    assert set(delays) == {documents.SAVE_LOG_S}
    assert documents.SAVE_LOG_S < 1
    gate.open()
    live.final(1)
    assert stored_logs(live) == ["one", "two"]


def test_the_log_is_on_disk_when_the_executor_asks_for_it(live, monkeypatch):
    monkeypatch.setattr(documents, "SAVE_LOG_S", 1000.0)
    seen = []

    def run(op, callbacks, _timeout, _priority):
        callbacks.started()
        callbacks.log("message", "one")
        callbacks.save_log()
        seen.append(stored_logs(live))
        live.backend.failure = errors.StorageError("full")
        callbacks.log("message", "two")
        callbacks.save_log()  # the act is not prevented
        live.backend.failure = None
        until(lambda: not live.store.exposure())
        callbacks.log("message", "three")
        callbacks.save_log()
        seen.append(stored_logs(live))

    live.executor.script["acting"] = run
    live.queue.submit([dummy("acting")])
    assert live.final(1).status == "success"
    assert seen == [["one"], ["one", "two", "three"]]


def stored_status(live, job_id=1):
    return records.decode_job(live.store.read("jobs", str(job_id))).status


def test_the_start_is_on_disk_before_an_act_at_the_latest(live, monkeypatch):
    monkeypatch.setattr(documents, "START_WAIT_S", 1000.0)
    seen = []

    def run(op, callbacks, _timeout, _priority):
        callbacks.started(durable=False)
        seen.append((live.status(1), stored_status(live)))
        callbacks.save_log()  # before an act on a node
        seen.append((live.status(1), stored_status(live)))

    live.executor.script["acting"] = run
    live.queue.submit([dummy("acting")])
    assert live.final(1).status == "success"
    assert seen == [("running", "queued"), ("running", "running")]


def test_no_opcode_acts_whose_start_could_not_be_stored(live, monkeypatch):
    monkeypatch.setattr(documents, "START_WAIT_S", 1000.0)
    acts = []

    def run(op, callbacks, _timeout, _priority):
        callbacks.started(durable=False)
        live.backend.failure = errors.StorageError("full")
        for _attempt in range(2):
            with pytest.raises(errors.JobQueueError, match="cannot be stored: full"):
                callbacks.save_log()
        with pytest.raises(errors.JobQueueError), callbacks.carry_log():
            acts.append("commit")
        live.backend.failure = None
        until(lambda: not live.store.exposure())
        callbacks.save_log()
        acts.append("act")

    live.executor.script["acting"] = run
    live.queue.submit([dummy("acting")])
    job = live.final(1)
    assert (job.status, acts) == ("error", [])
    assert b"the state of the job cannot be stored: full" in bytes(job.ops[0].result)


def test_the_end_of_an_opcode_is_stored_although_the_next_one_waits(live, monkeypatch):
    monkeypatch.setattr(documents, "START_WAIT_S", 1000.0)

    def second(op, callbacks, _timeout, _priority):
        callbacks.started(durable=False)

        def is_stored():
            job = records.decode_job(live.store.read("jobs", "1"))
            return job.ops[0].status == "success"

        until(is_stored)

    live.executor.script["second"] = second
    live.queue.submit([dummy("first"), dummy("second")])
    assert live.final(1).status == "success"


def test_a_commit_of_the_opcode_takes_the_log_along(live, monkeypatch):
    monkeypatch.setattr(documents, "SAVE_LOG_S", 1000.0)
    seen = []

    def run(op, callbacks, _timeout, _priority):
        callbacks.started()
        callbacks.log("message", "one")
        with callbacks.carry_log() as carried:
            live.store.commit(carried.documents)
            carried.is_stored = True
        before = live.store.snapshot().revision
        callbacks.save_log()
        seen.append((stored_logs(live), live.store.snapshot().revision - before))
        callbacks.log("message", "two")
        with callbacks.carry_log() as carried:
            seen.append(len(carried.documents))
        with contextlib.suppress(ZeroDivisionError), callbacks.carry_log() as carried:
            seen.append(len(carried.documents))
            raise ZeroDivisionError
        callbacks.save_log()
        seen.append(stored_logs(live))
        with callbacks.carry_log() as carried:
            seen.append(carried.documents)

    live.executor.script["acting"] = run
    live.queue.submit([dummy("acting")])
    assert live.final(1).status == "success"
    assert seen == [(["one"], 0), 1, 1, ["one", "two"], ()]


def test_log_lines_that_no_commit_took_are_stored_within_a_second(live):
    gate, ended = Gate(), []

    def run(op, callbacks, _timeout, _priority):
        callbacks.started()
        callbacks.log("message", "one")
        with callbacks.carry_log() as carried:
            assert carried.documents
            # The timer of the line comes first, and finds nothing to save.
            passed = threading.Event()
            live.queue._core.timers.after(documents.SAVE_LOG_S, passed.set)
            assert passed.wait(WAIT_S)
        try:
            gate.stop()
        finally:
            ended.append(True)

    live.executor.script["acting"] = run
    live.queue.submit([dummy("acting")])
    gate.wait()
    until(lambda: stored_logs(live) == ["one"])
    assert not ended
    gate.open()
    live.final(1)


# Submitting and running
def test_a_job_runs_its_opcodes_in_order_and_keeps_results_and_logs(live):
    job_id = live.queue.submit([dummy(result=1, messages=["a"]), dummy(result=[2])])
    assert job_id == 1
    job = live.final(job_id)
    assert job.status == "success"
    assert [op.result_value() for op in job.ops] == [1, [2]]
    assert [(e.serial, e.kind, e.payload) for e in job.ops[0].log] == [
        (1, "message", "a")
    ]
    assert job.received_timestamp <= job.start_timestamp <= job.end_timestamp
    assert job.ops[0].exec_timestamp
    assert job.ops[1].end_timestamp == job.end_timestamp
    assert live.queue.submit([dummy()]) == 2


def test_the_reason_trail_gets_an_entry_per_opcode(live):
    job_id = live.queue.submit([dummy(reason=[("gnt:user", "why", 1)]), dummy()])
    job = live.final(job_id)
    [user, ours] = job.ops[0].input_value()["reason"]
    assert user == ["gnt:user", "why", 1]
    assert ours[:2] == ["gnt:opcode:test_dummy", "job=1;index=0"]
    assert ours[2] // 10**9 == job.received_timestamp[0]
    assert job.ops[1].input_value()["reason"][0][1] == "job=1;index=1"


def test_a_failed_opcode_takes_the_later_ones_along(live):
    failure = errors.OpPrereqError("web1 is up", "wrong_state")
    job = live.final(live.queue.submit([dummy(), dummy(fail=failure), dummy()]))
    assert [op.status for op in job.ops] == ["success", "error", "error"]
    assert job.ops[1].result_value() == ["OpPrereqError", ["web1 is up", "wrong_state"]]
    assert job.ops[2].result_value()[0] == "OpExecError"
    assert job.status == "error"


def test_present_jobs_are_unfinished_ones_and_the_newest_failures(live):
    live.final(live.queue.submit([dummy()]))
    failed = [live.queue.submit([dummy(fail=errors.OpExecError("x"))]) for _ in "abc"]
    for job in failed:
        live.final(job)
    gate = gated(live, "slow")
    slow = live.queue.submit([dummy("slow")])
    gate.wait()
    present = live.queue.present_jobs(0.0, 2)
    gate.open()
    assert [job.id for job in present.unfinished] == [slow]
    assert present.failures == 3
    assert [job.id for job in present.failed] == failed[1:]
    later = live.queue.job(failed[-1]).end_timestamp[0] + 1
    assert live.queue.present_jobs(later, 2)[1:] == (0, [])
    live.final(slow)


def test_an_unexpected_error_and_a_result_without_json_form_fail_the_opcode(live):
    def odd(*_):
        raise ValueError("odd")

    live.executor.script["odd"] = odd
    job = live.final(live.queue.submit([dummy("odd")]))
    assert job.ops[0].result_value() == ["OpExecError", ["odd"]]
    live.executor.script["object"] = lambda *_: object()
    job = live.final(live.queue.submit([dummy("object")]))
    assert job.ops[0].result_value()[0] == "OpResultError"


def test_submit_refuses_what_cannot_be(live):
    with pytest.raises(errors.OpPrereqError, match="needs at least one opcode"):
        live.queue.submit([])
    with pytest.raises(errors.OpPrereqError, match="priority 7"):
        live.queue.submit([dummy(priority=7)])
    assert live.queue.submit([dummy(priority=-10)]) == 1


def test_submit_many_answers_in_order_and_a_bad_job_consumes_an_id(live):
    answers = live.queue.submit_many_later([[dummy()], [], [dummy()]]).result()
    assert answers[0] == (True, 1)
    assert answers[1][0] is False
    assert answers[1][1] == "a job needs at least one opcode"
    assert answers[2] == (True, 3)
    assert live.final(3).status == "success"


def test_a_priority_that_nobody_may_ask_for_refuses_many_jobs_at_once(live):
    with pytest.raises(errors.OpPrereqError, match="priority 19"):
        live.queue.submit_many_later([[dummy()], [dummy(priority=19)]]).result()
    assert live.queue.submit([dummy()]) == 1


def test_a_full_queue_refuses():
    harness = Harness(hard_limit=2)
    try:
        harness.queue.submit([dummy()])
        answers = harness.queue.submit_many_later([[dummy()], [dummy()]]).result()
        assert [ok for ok, _ in answers] == [True, False]
        with pytest.raises(errors.JobQueueFull):
            harness.queue.submit([dummy()])
    finally:
        harness.close()


def test_a_drained_queue_refuses_all_but_the_tools_and_keeps_the_flag(live):
    assert live.queue.set_drain_later(True).result()
    assert live.queue.is_drained
    with pytest.raises(errors.JobQueueDrainError):
        live.queue.submit([dummy()])
    with pytest.raises(errors.JobQueueDrainError):
        live.queue.submit_many_later([[dummy()]]).result()
    assert live.queue.submit([dummy()], to_drained=True) == 1
    again = Harness(backend=live.backend)
    assert again.queue.is_drained
    again.queue.set_drain_later(False).result()
    assert not again.queue.is_drained
    again.close()


def test_no_id_is_given_out_for_a_job_that_is_not_durable(live):
    live.backend.failure = errors.StorageError("disk full")
    with pytest.raises(errors.StorageError, match="disk full"):
        live.queue.submit([dummy()])
    live.backend.failure = None
    until(lambda: not live.store.exposure())
    assert live.queue.submit([dummy()]) == 2
    assert [str(err) for err in live.failures] == ["disk full"]
    assert live.queue.job(1) is None


def test_jobs_that_submit_jobs(live):
    def run(_op, callbacks, _timeout, _priority):
        callbacks.started()
        return {"jobs": callbacks.submit_jobs([[dummy(result="child")]])}

    live.executor.script["parent"] = run
    live.queue.set_drain_later(True).result()
    job = live.final(live.queue.submit([dummy("parent")], to_drained=True))
    assert job.ops[0].result_value() == {"jobs": [[True, 2]]}
    assert live.final(2).ops[0].result_value() == "child"


def test_secrets_stay_in_memory(live):
    seen = []

    def run(op, callbacks, *_):
        callbacks.started()
        seen.append(op.osparams_secret)

    live.executor.script["secret"] = run
    op = opcodes.TestOsParams(osparams_secret={"pw": "hunter2"}, comment="secret")
    job = live.final(live.queue.submit([op]))
    assert seen == [{"pw": "hunter2"}]
    assert job.ops[0].input_value()["osparams_secret"] == {"pw": "<redacted>"}
    stored = b"".join(data for _, data in live.store.scan("jobs"))
    assert b"hunter2" not in stored


def test_what_is_shown_as_final_is_durable(live):
    gate = gated(live, "slow")
    job_id = live.queue.submit([dummy("slow")])
    gate.wait()
    live.backend.failure = errors.StorageError("disk full")
    gate.open()
    until(lambda: live.failures)
    assert live.status(job_id) == "running"
    with pytest.raises(errors.StorageError):
        live.store.commit([("meta", "x", b"1")])
    live.backend.failure = None


def test_an_edit_of_the_configuration_may_log_while_others_submit(live):
    gate = Gate()

    def run(_op, callbacks, *_):
        callbacks.started()
        gate.stop()
        with live.store.writing() as batch:
            for n in range(250):
                callbacks.log("message", str(n))
                os.sched_yield()
            batch.put(("meta", "x", b"1"))

    live.executor.script["edit"] = run
    live.queue.submit([dummy("edit")])
    gate.wait()
    gate.open()
    others = []
    for _ in range(300):
        others.append(live.queue.submit_later([dummy()]))
        os.sched_yield()
    live.final(1)
    assert all(live.final(f.result(WAIT_S)).status == "success" for f in others)
    live.settle()
    assert len(list(live.store.scan("joblogs", "1/"))) == 250


# Order
def test_urgent_jobs_first_then_in_order_of_arrival():
    with running(workers=1) as live:
        gate = gated(live, "first")
        live.queue.submit([dummy("first")])
        gate.wait()
        for priority in (0, 10, -10, 0):
            live.queue.submit([dummy(priority=priority)])
        gate.open()
        for job_id in range(1, 6):
            live.final(job_id)
        assert [owner for _, owner, _, _ in live.executor.runs] == [
            "1/0", "4/0", "2/0", "5/0", "3/0",
        ]  # fmt: skip


def test_a_changed_priority_counts_and_the_input_keeps_its_own():
    with running(workers=1) as live:
        gate = gated(live, "first")
        live.queue.submit([dummy("first")])
        gate.wait()
        for _ in range(2):
            live.queue.submit([dummy()])
        ok, text = live.queue.change_priority_later(3, -5).result()
        assert ok
        assert "-5" in text
        assert live.queue.job(3).priority == -5
        assert live.queue.job(3).ops[0].input_value()["priority"] == 0
        gate.open()
        live.final(2)
        assert [owner for _, owner, _, _ in live.executor.runs][1:] == ["3/0", "2/0"]
        assert live.queue.change_priority_later(3, 0).result() == (
            False,
            "Job 3 is finished",
        )
        assert live.queue.change_priority_later(99, 0).result() == (
            False,
            "Job 99 not found",
        )
        with pytest.raises(errors.OpPrereqError):
            live.queue.change_priority_later(3, 20).result()


def test_no_more_jobs_run_than_the_cluster_says_and_threads_come_on_demand():
    harness = Harness(workers=2)
    gate = Gate()
    both = threading.Barrier(2)

    def run(_op, callbacks, *_):
        callbacks.started()
        both.wait(WAIT_S)
        gate.stop()

    harness.executor.script["slow"] = run
    harness.queue.start()
    try:
        for _ in range(20):
            harness.queue.submit([dummy("slow")])
        gate.wait()
        actual = harness.queue.statistics()
        assert (actual.unfinished, actual.running, actual.workers) == (20, 2, 2)
        gate.open()
        for job_id in range(1, 21):
            harness.final(job_id)
    finally:
        harness.close()


def test_a_job_that_waits_for_a_frozen_node_gives_its_slot_back():
    harness = Harness(workers=1)
    gate, both = Gate(), threading.Event()
    workers = []

    def frozen(_op, callbacks, *_):
        callbacks.started()
        workers.append(threading.current_thread())
        gate.stop()

    def other(_op, callbacks, *_):
        callbacks.started()
        both.wait(WAIT_S)

    harness.executor.script.update(frozen=frozen, other=other)
    harness.queue.start()
    try:
        first = harness.queue.submit([dummy("frozen")])
        gate.wait()
        second, third = (harness.queue.submit([dummy("other")]) for _ in range(2))
        harness.queue.note_silence(threading.current_thread(), True)  # no worker
        assert harness.queue.statistics().running == 1
        harness.queue.note_silence(workers[0], True)
        until(lambda: harness.status(second) == "running")
        harness.queue.note_silence(workers[0], False)  # it answers again
        both.set()
        harness.final(second)
        # Its slot is taken again, so the third must wait for it.
        harness.settle()
        assert harness.status(third) == "queued"
        gate.open()
        assert harness.final(first).status == "success"
        assert harness.final(third).status == "success"
    finally:
        harness.close()


# Dependencies
def test_a_job_waits_for_the_jobs_it_depends_on(live):
    gate = gated(live, "slow")
    answers = live.queue.submit_many_later(
        [[dummy("slow")], [dummy(depends=[(-1, ["success"])])]]
    ).result()
    assert answers == [(True, 1), (True, 2)]
    gate.wait()
    assert live.status(2) == "queued"
    assert live.queue.dependencies() == [(1, [2])]
    assert live.queue.job(2).ops[0].input_value()["depends"] == [[1, ["success"]]]
    gate.open()
    assert live.final(2).status == "success"
    assert live.queue.dependencies() == []


@pytest.mark.parametrize(
    ("ends", "allowed", "becomes"),
    [
        ("success", [], "success"),
        ("success", ["error"], "error"),
        ("error", ["error", "success"], "success"),
        ("error", ["success"], "error"),
        ("error", [], "success"),
        ("canceled", [], "canceled"),
        ("canceled", ["success"], "canceled"),
        ("canceled", ["canceled"], "success"),
    ],
)
@pytest.mark.parametrize("archived", [False, True])
def test_how_a_dependency_ended_decides(live, ends, allowed, becomes, archived):
    if ends == "canceled":
        gate = gated(live, "slow")
        live.queue.submit([dummy("slow")])
        gate.wait()
        live.queue.submit([dummy(depends=[(1, [])])])
        live.queue.cancel_later(2).result()
        gate.open()
        live.final(1)
        target = 2
    else:
        fail = errors.OpExecError("no") if ends == "error" else None
        target = live.queue.submit([dummy(fail=fail)])
    assert live.final(target).status == ends
    if archived:
        assert live.queue.archive_later(target).result()
    job_id = live.queue.submit([dummy(depends=[(target, allowed)])])
    assert live.final(job_id).status == becomes


def test_dependencies_on_itself_later_or_unknown_jobs_are_errors(live):
    live.queue.submit_many_later(
        [[dummy(depends=[(target, [])])] for target in (1, 9)]
        + [[], [dummy(depends=[(3, [])])]]
    ).result()
    for job_id in (1, 2, 4):
        job = live.final(job_id)
        assert job.status == "error"
        assert job.ops[0].result_value()[0] == "OpPrereqError"
    with pytest.raises(errors.OpPrereqError, match="no such job"):
        live.queue.submit([dummy(depends=[(-9, [])])])


# Cancel
def test_canceling_a_queued_job():
    harness = Harness()
    harness.queue.submit([dummy(), dummy()])
    assert harness.queue.cancel_later(1).result() == (True, "Job 1 canceled")
    job = harness.queue.job(1)
    assert [op.status for op in job.ops] == ["canceled", "canceled"]
    assert job.end_timestamp
    assert harness.queue.cancel_later(1).result()[0] is False
    assert harness.queue.cancel_later(9).result() == (False, "Job 9 not found")
    harness.queue.start()
    harness.close()
    assert harness.executor.runs == []


def test_canceling_a_job_that_waits_for_locks(live):
    gate = gated(live, "locks", start=False)
    live.queue.submit([dummy("locks"), dummy()])
    gate.wait()
    assert live.status(1) == "waiting"
    assert live.queue.cancel_later(1).result() == (True, "Job 1 will be canceled")
    assert live.status(1) == "canceling"
    assert live.queue.cancel_later(1).result()[0] is True
    assert live.queue.change_priority_later(1, 0).result()[0] is False
    gate.open()
    assert [op.status for op in live.final(1).ops] == ["canceled", "canceled"]


def test_canceling_between_two_attempts():
    # The second attempt comes when the clock is moved.
    with running(clk=StepClock()) as live:

        def run(*_):
            raise LockTimeout

        live.executor.script["busy"] = run
        live.queue.submit([dummy("busy")])
        until(lambda: live.executor.runs and not live.queue.statistics().running)
        assert live.status(1) == "waiting"
        assert live.queue.cancel_later(1).result() == (True, "Job 1 canceled")
        assert live.status(1) == "canceled"


def interruptible(harness, comment):
    """An opcode that waits for locks until it is interrupted."""
    waits = threading.Event()

    def run(_op, callbacks, _timeout, priority):
        ended = threading.Event()
        callbacks.on_interrupt(ended.set)
        if priority < 0:
            callbacks.started()
            return
        waits.set()
        assert ended.wait(WAIT_S)
        raise LockTimeout

    harness.executor.script[comment] = run
    return waits


def test_canceling_ends_the_waiting_for_locks(live):
    waits = interruptible(live, "locks")
    live.queue.submit([dummy("locks")])
    assert waits.wait(WAIT_S)
    assert live.queue.cancel_later(1).result()[0]
    assert live.final(1).status == "canceled"


def test_a_new_priority_begins_a_new_attempt_at_once(live):
    waits = interruptible(live, "locks")
    live.queue.submit([dummy("locks")])
    assert waits.wait(WAIT_S)
    assert live.queue.change_priority_later(1, -10).result()[0]
    assert live.final(1).status == "success"
    assert [run[3] for run in live.executor.runs] == [0, -10]
    assert [run[2] for run in live.executor.runs] == [5, 5]


def test_stopping_ends_the_waiting_for_locks():
    harness = Harness()
    waits = interruptible(harness, "locks")
    harness.queue.start()
    harness.queue.submit([dummy("locks")])
    assert waits.wait(WAIT_S)
    harness.queue.stop()
    assert harness.status(1) == "queued"
    harness.store.close()


def test_a_running_job_cannot_be_canceled_but_killed_it_stops_early(live):
    gate = gated(live, "slow")
    live.queue.submit([dummy("slow"), dummy()])
    gate.wait()
    assert live.queue.cancel_later(1).result()[0] is False
    assert live.queue.cancel_later(1, kill=True).result()[0] is True
    gate.open()
    job = live.final(1)
    assert [op.status for op in job.ops] == ["error", "error"]
    assert job.ops[0].result_value() == ["OpExecError", ["killed on request"]]


@pytest.mark.parametrize(
    "look",
    [
        lambda callbacks: callbacks.log("message", "next step"),
        lambda callbacks: callbacks.check_canceled(),
    ],
    ids=["logs", "pauses"],
)
def test_a_killed_job_ends_when_it_looks_and_may_log_while_it_cleans_up(live, look):
    gate = Gate()

    def run(_op, callbacks, *_):
        callbacks.started()
        gate.stop()
        try:
            look(callbacks)
        finally:
            callbacks.log("message", "cleaning up")

    live.executor.script["chatty"] = run
    live.queue.submit([dummy("chatty")])
    gate.wait()
    live.queue.cancel_later(1, kill=True).result()
    gate.open()
    job = live.final(1)
    assert job.ops[0].result_value() == ["OpExecError", ["killed on request"]]
    assert [entry.payload for entry in job.ops[0].log] == ["cleaning up"]


def test_a_killed_job_that_does_not_look_ends_after_the_present_opcode(live):
    gate = Gate()

    def run(_op, callbacks, *_):
        callbacks.started()
        gate.stop()

    live.executor.script["deaf"] = run
    live.queue.submit([dummy("deaf"), dummy()])
    gate.wait()
    live.queue.cancel_later(1, kill=True).result()
    gate.open()
    assert [op.status for op in live.final(1).ops] == ["success", "canceled"]


# Lock timeouts
class StepClock:
    """Real waiting, but elapsed time moves only when a test moves it."""

    def __init__(self):
        self.now = 0.0

    def time(self):
        return 1_700_000_000 + self.now

    def monotonic(self):
        return self.now

    def wait(self, event, timeout_s):
        return event.wait(None if timeout_s is None or timeout_s > 0 else 0)


def test_a_job_without_its_locks_gives_its_worker_back_and_tries_longer():
    clk = StepClock()
    with running(workers=1, clk=clk) as live:

        def run(_op, callbacks, timeout_s, _priority):
            if len(live.executor.runs) < 4:
                clk.now += timeout_s + 0.001
                raise LockTimeout
            callbacks.started()

        live.executor.script["busy"] = run
        live.queue.submit([dummy("busy")])
        assert live.final(1).status == "success"
        assert [round(run[2], 2) for run in live.executor.runs] == [
            5, 7.95, 14.18, 29.25,
        ]  # fmt: skip
        job = live.queue.job(1)
        assert job.start_timestamp < job.ops[0].exec_timestamp


def test_a_used_up_table_makes_the_opcode_more_urgent_also_on_disk():
    clk = StepClock()
    with running(workers=1, clk=clk) as live:
        stored = []

        def run(_op, callbacks, timeout_s, priority):
            if priority == 0:
                clk.now += timeout_s + 0.001
                raise LockTimeout
            stored.append(live.store.read("jobs", "1"))
            callbacks.started()

        live.executor.script["busy"] = run
        live.queue.submit([dummy("busy")])
        live.final(1)
        assert [run[3] for run in live.executor.runs] == [0] * 28 + [-1]
        live.settle()
        assert live.queue.job(1).ops[0].priority == -1


def test_an_attempt_that_fails_at_once_is_not_repeated_before_its_time():
    clk = StepClock()
    with running(workers=1, clk=clk) as live:

        def run(_op, callbacks, _timeout, _priority):
            if len(live.executor.runs) == 1:
                raise LockTimeout
            callbacks.started()

        live.executor.script["nores"] = run
        live.queue.submit([dummy("nores")])
        until(lambda: live.executor.runs and not live.queue.statistics().running)
        # During the wait, the worker is free for others.
        assert live.final(live.queue.submit([dummy()])).status == "success"
        assert live.status(1) == "waiting"
        clk.now = 5.0
        live.queue._core.timers.run_due()
        assert live.final(1).status == "success"


def test_jobs_that_wait_for_locks_make_room_for_fresh_ones():
    clk = StepClock()
    with running(workers=4, clk=clk) as live:
        waiting = threading.Semaphore(0)

        def run(_op, callbacks, *_):
            ended = threading.Event()
            callbacks.on_interrupt(ended.set)
            waiting.release()
            assert ended.wait(WAIT_S)
            raise LockTimeout

        live.executor.script["locks"] = run
        for _ in range(4):
            live.queue.submit([dummy("locks")])
            assert waiting.acquire(timeout=WAIT_S)
        # In its first moments nobody has to give up.
        live.queue.submit([dummy()])
        assert live.status(5) == "queued"
        clk.now = 0.2
        live.queue._core.timers.run_due()
        assert live.final(5).status == "success"
        # The older ones go on waiting.
        owners = [run[1] for run in live.executor.runs]
        assert sorted(set(owners) - {"4/0"}) == ["1/0", "2/0", "3/0", "5/0"]
        assert len(owners) - owners.count("4/0") == 4
        assert live.queue.statistics().workers == 4
        for job_id in range(1, 5):
            live.queue.cancel_later(job_id).result()
            live.final(job_id)


def test_each_fresh_job_makes_another_one_give_up():
    clk = StepClock()
    with running(workers=6, clk=clk) as live:
        waiting, gate, asked = threading.Semaphore(0), threading.Event(), []

        def run(op, callbacks, *_):
            ended = threading.Event()
            callbacks.on_interrupt(lambda: (asked.append(op.comment), ended.set()))
            waiting.release()
            assert ended.wait(WAIT_S)
            # Slow to notice it: its worker is not free yet.
            assert gate.wait(WAIT_S)
            raise LockTimeout

        for name in "abcdef":
            clk.now = 0.2 * (name == "f")
            live.executor.script[name] = run
            live.queue.submit([dummy(name)])
            assert waiting.acquire(timeout=WAIT_S)
        # The youngest has just begun.
        for wanted in (["e"], ["e", "d"]):
            live.queue.submit([dummy()])
            until(lambda wanted=wanted: asked == wanted)
        live.queue.submit([dummy()])
        clk.now = 0.4
        live.queue._core.timers.run_due()
        until(lambda: asked == ["e", "d", "f"])
        # The older half goes on waiting.
        live.queue.submit([dummy()])
        clk.now = 0.6
        live.queue._core.timers.run_due()
        assert asked == ["e", "d", "f"]
        gate.set()
        assert [live.final(job).status for job in range(7, 11)] == ["success"] * 4
        for job in range(1, 7):
            live.queue.cancel_later(job).result()
            live.final(job)


def test_less_urgent_jobs_do_not_make_the_waiting_ones_give_up():
    clk = StepClock()
    with running(workers=2, clk=clk) as live:
        waits = interruptible(live, "locks")
        live.queue.submit([dummy("locks")])
        assert waits.wait(WAIT_S)
        waits.clear()
        live.queue.submit([dummy("locks")])
        assert waits.wait(WAIT_S)
        clk.now = 1.0
        live.queue.submit([dummy(priority=10)])
        live.queue._core.timers.run_due()
        live.settle()
        assert live.status(3) == "queued"
        live.queue.submit([dummy(priority=-10)])
        assert live.final(4).status == "success"
        live.queue.cancel_later(1).result()
        live.queue.cancel_later(2).result()
        assert live.final(3).status == "success"


def test_a_kill_ends_the_wait_for_a_node_each_time(live):
    called, ended = threading.Semaphore(0), Gate()

    def run(_op, callbacks, *_):
        callbacks.started()
        callbacks.on_kill(called.release)
        ended.stop()
        callbacks.check_canceled()

    live.executor.script["hangs"] = run
    live.queue.submit([dummy("hangs")])
    ended.wait()
    assert live.queue.cancel_later(1).result() == (
        False,
        "Job 1 is running, it cannot be canceled",
    )
    for _ in range(2):
        assert live.queue.cancel_later(1, kill=True).result()[0]
        assert called.acquire(timeout=WAIT_S)
    assert not called.acquire(blocking=False)
    ended.open()
    assert live.final(1).status == "error"
    assert live.queue.cancel_later(1, kill=True).result()[0] is False


def test_a_job_whose_locks_are_held_rests_until_the_holder_finishes():
    clk, gate, holder = StepClock(), Gate(), []

    def hold(_op, callbacks, *_):
        callbacks.started()
        holder.append(threading.current_thread())
        gate.stop()

    def want(_op, callbacks, timeout_s, _priority):
        if not gate.opened.is_set():
            clk.now += timeout_s
            raise LockTimeout("BGL", frozenset(holder))
        callbacks.started()

    with running(workers=2, clk=clk) as live:
        live.executor.script.update(hold=hold, want=want)
        live.queue.submit([dummy("hold")])
        gate.wait()
        live.queue.submit([dummy("want")])
        resting = live.queue._core.live[2]
        until(lambda: resting.place is Place.RESTING)
        assert live.final(live.queue.submit([dummy()])).status == "success"
        for looks in (1, 2):
            # The job looks whether the locks are free, and does not queue for them.
            clk.now += 2.0
            live.queue._core.timers.run_due()
            until(
                lambda looks=looks: (
                    len(live.executor.runs) == 3 + looks
                    and resting.place is Place.RESTING
                )
            )
        limits = [run[2] for run in live.executor.runs if run[1] == "2/0"]
        assert limits[0] > 4
        assert limits[1:] == [0.0, 0.0]
        # No time passes: the end of the holder wakes the job.
        gate.open()
        assert live.final(2).status == "success"
        assert live.executor.runs[-1][2] > limits[0]
        assert live.queue._core.dispatcher.blocked == {}


def test_a_look_finds_other_holders_and_the_job_queues_again():
    clk, first, second, holder = StepClock(), Gate(), Gate(), []

    def hold(gate):
        def run(_op, callbacks, *_):
            callbacks.started()
            holder[:] = [threading.current_thread()]
            gate.stop()

        return run

    def want(_op, callbacks, timeout_s, _priority):
        if second.reached.is_set() and timeout_s > 0:
            callbacks.started()
            return
        clk.now += timeout_s
        raise LockTimeout("BGL", frozenset(holder))

    with running(workers=3, clk=clk) as live:
        live.executor.script.update(one=hold(first), two=hold(second), want=want)
        live.queue.submit([dummy("one")])
        first.wait()
        live.queue.submit([dummy("want")])
        until(lambda: live.queue._core.live[2].place is Place.RESTING)
        # The first job has given the locks away early, and another one has them.
        live.queue.submit([dummy("two")])
        second.wait()
        clk.now += 2.0
        live.queue._core.timers.run_due()
        assert live.final(2).status == "success"
        first.open()
        second.open()


# Waiting for changes
def test_waiting_answers_at_once_when_there_is_a_change(live):
    live.queue.submit([dummy(messages=["a", "b"])])
    live.final(1)
    wait = live.queue.wait_for_change
    values, log = wait(
        1, lambda job: [job.status], previous=["success"], serial=2, timeout_s=WAIT_S
    ).result(WAIT_S)
    assert (values, log) == (["success"], ())
    _, log = wait(1, lambda job: [job.status], serial=1, timeout_s=WAIT_S).result(
        WAIT_S
    )
    assert [entry.payload for entry in log] == ["b"]


def test_waiting_sees_logs_and_the_end(live):
    gate = gated(live, "slow")
    live.queue.submit([dummy("slow"), dummy(messages=["x"])])
    gate.wait()
    status = lambda job: [job.status]  # noqa: E731
    first = live.queue.wait_for_change(1, status, timeout_s=WAIT_S).result(WAIT_S)
    assert first == (["running"], ())
    future = live.queue.wait_for_change(
        1, status, previous=["running"], timeout_s=WAIT_S
    )
    assert not future.done()
    gate.open()
    live.final(1)
    values, logs = future.result(WAIT_S)
    if values == ["running"]:
        # The line was reported before the end, which is the next change.
        (line,) = logs
        values, _ = live.queue.wait_for_change(
            1, status, previous=values, serial=line.serial, timeout_s=WAIT_S
        ).result(WAIT_S)
    assert values != ["running"]


def test_a_burst_of_lines_is_reported_together():
    clk, gate, second = StepClock(), Gate(), Gate()

    def run(_op, callbacks, *_):
        callbacks.started()
        gate.stop()
        for n in range(5):
            callbacks.log("message", str(n))
        second.stop()

    with running(clk=clk) as live:
        live.executor.script["chatty"] = run
        live.queue.submit([dummy("chatty")])
        gate.wait()
        future = live.queue.wait_for_change(
            1, lambda job: [job.status], previous=["running"], serial=0, timeout_s=60
        )
        until(lambda: live.queue._core.live[1].watches)
        gate.open()
        second.wait()
        assert not future.done()
        clk.now = 0.1
        live.queue._core.timers.run_due()
        _, log = future.result(WAIT_S)
        assert [entry.payload for entry in log] == list("01234")
        second.open()


def test_waiting_ends_with_its_time_and_gives_the_present_values():
    clk = StepClock()
    with running(clk=clk) as live:
        gate = gated(live, "slow")
        live.queue.submit([dummy("slow")])
        gate.wait()
        future = live.queue.wait_for_change(
            1, lambda job: [job.status], previous=["running"], timeout_s=500
        )
        until(lambda: live.queue._core.live[1].watches)
        clk.now = 88.9
        live.queue._core.timers.run_due()
        assert not future.done()
        clk.now = 89.0
        live.queue._core.timers.run_due()
        assert future.result(WAIT_S) == (["running"], ())
        gate.open()


def test_a_waiting_client_that_goes_away_leaves_nothing_behind(live):
    gate = gated(live, "slow")
    live.queue.submit([dummy("slow")])
    gate.wait()
    future = live.queue.wait_for_change(
        1, lambda job: [job.status], previous=["running"], timeout_s=50
    )
    until(lambda: len(live.queue._core.live[1].watches) == 1)
    assert future.cancel()
    assert not live.queue._core.live[1].watches
    gate.open()
    live.final(1)


def test_waiting_for_an_unknown_or_archived_job_fails(live):
    live.queue.submit([dummy()])
    live.final(1)
    live.queue.archive_later(1).result()
    for job_id in (1, 7):
        future = live.queue.wait_for_change(job_id, lambda job: [], timeout_s=WAIT_S)
        with pytest.raises(errors.JobLost):
            future.result(WAIT_S)


# Archive
def test_archiving(live):
    gate = gated(live, "slow")
    live.queue.submit([dummy(messages=["x"])])
    live.queue.submit([dummy("slow")])
    live.final(1)
    gate.wait()
    assert live.queue.archive_later(2).result() is False
    assert live.queue.archive_later(9).result() is False
    assert live.queue.archive_later(1).result() is True
    assert live.queue.archive_later(1).result() is False
    gate.open()
    live.final(2)
    assert [job.id for job in live.queue.jobs()] == [2]
    job = live.queue.job(1)
    assert job.is_archived
    assert job.ops[0].log[0].payload == "x"
    assert live.queue.archived_ids() == [1]
    assert keys(live, "archive") == ["1", "1/0000000001"]
    assert keys(live, "joblogs", "1/") == []


def keys(live, table, prefix=""):
    return [key for key, _data in live.store.scan(table, prefix)]


def lines(job):
    return [line.payload for line in job.ops[0].log]


def test_a_long_log_is_archived_in_several_rows(monkeypatch):
    monkeypatch.setattr(archiving, "_LOGS_BYTES", 1000)
    with running() as live:
        live.final(live.queue.submit([dummy(messages=[str(n) for n in range(100)])]))
        assert live.queue.archive_later(1).result()
        assert lines(live.queue.job(1)) == [str(n) for n in range(100)]
        rows = list(live.store.scan("archive", "1/"))
        assert len(rows) > 3
        assert all(len(data) < 1100 for _key, data in rows)
        assert keys(live, "joblogs") == []


def test_logs_stay_while_a_candidate_cannot_read_them_in_the_archive(monkeypatch):
    clk = StepClock()
    with running(clk=clk) as live:
        monkeypatch.setattr(live.store, "may_use", lambda _feature: False)
        for _ in range(3):
            live.final(live.queue.submit([dummy(messages=["a", "b"])]))
        assert live.queue.autoarchive_later(-1, 9).result() == (3, 0)
        assert keys(live, "archive") == ["1", "2", "3"]
        assert lines(live.queue.job(2)) == ["a", "b"]
        clk.now = 100
        live.final(live.queue.submit([dummy(messages=["c"])]))
        monkeypatch.undo()
        # Logs that the earlier release left behind follow; live jobs keep their logs.
        archiving.move_old_logs(live.queue._core)
        until(lambda: keys(live, "joblogs") == ["4/0000000001"])
        assert keys(live, "archive")[:4] == ["1", "1/0000000001", "2", "2/0000000001"]
        assert [lines(live.queue.job(n)) for n in (1, 2, 3)] == [["a", "b"]] * 3
        assert archiving.purge(live.queue._core, 50).result() == 3
        assert keys(live, "archive") == []


def test_autoarchive_by_age_and_in_batches():
    clk = StepClock()
    with running(clk=clk) as live:
        for _ in range(120):
            last = live.queue.submit_later([dummy()])
        assert last.result(WAIT_S) == 120
        for job_id in range(1, 121):
            live.final(job_id)
        clk.now = 100
        live.final(live.queue.submit([dummy()]))
        assert live.queue.autoarchive_later(200, 89).result() == (0, 0)
        assert live.queue.autoarchive_later(50, -1).result() == (0, 120)
        assert live.queue.autoarchive_later(50, 89).result() == (120, 0)
        assert live.queue.autoarchive_later(-1, 89).result() == (1, 0)
        assert live.queue.jobs() == []


def test_purging_deletes_old_archived_jobs_for_good():
    clk = StepClock()
    with running(clk=clk) as live:
        live.final(live.queue.submit([dummy(messages=["x"])]))
        clk.now = 100
        live.final(live.queue.submit([dummy(messages=["y"])]))
        live.queue.autoarchive_later(-1, 9).result()
        assert archiving.purge(live.queue._core, 50).result() == 1
        assert live.queue.archived_ids() == [2]
        assert keys(live, "archive") == ["2", "2/0000000001"]
        assert keys(live, "joblogs") == []
        assert live.queue.job(1) is None
        assert live.queue.job(2).ops[0].log[0].payload == "y"


def test_purging_a_large_archive_lets_other_timers_run_in_between():
    with running() as live:
        core = live.queue._core
        record = live.final(live.queue.submit([dummy()]))
        data = records.encode_job(record)
        live.store.commit([Document("archive", str(n), data) for n in range(2, 1002)])
        steps = []
        scan = core.store.scan

        def counted(table, prefix=""):
            for row in scan(table, prefix):
                if table == "archive":
                    steps.append(threading.current_thread().name)
                yield row

        core.store = types.SimpleNamespace(
            scan=counted,
            **{
                name: getattr(live.store, name)
                for name in ("snapshot", "read", "commit_soon")
            },
        )
        seen = []
        for _ in range(5):
            core.timers.after(0.0, lambda: seen.append(len(steps)))
        future = archiving.purge(core, -1.0)
        assert future.result(WAIT_S) == 1000
        assert live.queue.archived_ids() == []
        # The first slice ran here, the others in the timers' thread, between others.
        assert steps.count("jq-timers") == 900
        assert max(seen) < 1000


def test_old_archived_jobs_are_deleted_once_a_day():
    clk = StepClock()
    with running(clk=clk, archive_age_s=2 * 86400) as live:
        live.final(live.queue.submit([dummy()]))
        live.queue.autoarchive_later(-1, 9).result()
        for hours, left in ((1, [1]), (25, [1]), (48.5, [1]), (49, [])):
            clk.now = hours * 3600.0
            live.queue._core.timers.run_due()
            live.settle()
            assert live.queue.archived_ids() == left, hours


def test_lists_have_the_logs_of_ended_jobs_that_are_no_longer_in_memory(live):
    for text in "ab":
        live.final(live.queue.submit([dummy(messages=[text])]))
    live.queue._core.recent.clear()
    jobs = live.queue.jobs()
    assert [job.ops[0].log[0].payload for job in jobs] == ["a", "b"]
    live.queue._core.recent.clear()
    assert [job.ops[0].log for job in live.queue.jobs(with_logs=False)] == [(), ()]


# Filters and rates
def rule(action, predicates=(), *, uuid="f1", priority=0, watermark=0):
    return objects.Update(
        "filters",
        uuid,
        objects.FilterRule(
            uuid=uuid,
            watermark=watermark,
            priority=priority,
            predicates=tuple(predicates),
            action=action,
            reason_trail=(),
        ),
    )


def test_paused_jobs_run_when_the_rule_goes(live):
    live.store.commit([rule("PAUSE", [["opcode", ["==", "result", "hold"]]])])
    live.queue.submit([dummy(result="hold")])
    assert live.final(live.queue.submit([dummy(result="other")])).status == "success"
    assert live.status(1) == "queued"
    live.store.commit([objects.Update("filters", "f1", None)])
    live.queue.poke()
    assert live.final(1).status == "success"


def test_rejected_jobs_are_canceled_also_those_that_wait_for_locks(live):
    gate = gated(live, "locks", start=False)
    live.queue.submit([dummy("locks")])
    gate.wait()
    live.store.commit(
        [rule("REJECT", [["jobid", ["<=", "id", "watermark"]]], watermark=2)]
    )
    assert live.final(live.queue.submit([dummy()])).status == "canceled"
    live.queue.poke()
    assert live.status(1) == "canceling"
    gate.open()
    assert live.final(1).status == "canceled"
    text = "rejected by filter rule f1; 'gnt-filter info f1' shows it"
    for job_id in (1, 2):
        assert [op.result for op in live.final(job_id).ops] == [
            records.encode_value(text)
        ]
    assert live.final(live.queue.submit([dummy()])).status == "success"


def test_ad_hoc_rate_limits_count_jobs_per_bucket(live):
    gate = gated(live, "slow")
    reason = [("gnt:user", "rate-limit:1:tests", 0)]
    live.queue.submit([dummy("slow", reason=reason), dummy(reason=reason)])
    gate.wait()
    live.queue.submit([dummy(reason=reason)])
    live.queue.submit([dummy(reason=reason)])
    other = [("gnt:user", "rate-limit:2:tests", 0)]
    assert live.final(live.queue.submit([dummy(reason=other)])).status == "success"
    assert [live.status(2), live.status(3)] == ["queued", "queued"]
    live.queue.cancel_later(2).result()
    gate.open()
    assert live.final(3).status == "success"


def test_a_rule_can_limit_the_rate(live):
    live.store.commit(
        [rule(("RATE_LIMIT", 1), [["reason", ["==", "source", "gnt:user"]]])]
    )
    gate = gated(live, "slow")
    reason = [("gnt:user", "x", 0)]
    live.queue.submit([dummy("slow", reason=reason)])
    gate.wait()
    live.queue.submit([dummy(reason=reason)])
    assert live.final(live.queue.submit([dummy()])).status == "success"
    assert live.status(2) == "queued"
    gate.open()
    assert live.final(2).status == "success"


# Stopping and starting
def test_stopping_gives_waiting_jobs_back_and_the_next_life_runs_them():
    first = Harness()
    gate = gated(first, "locks", start=False)
    first.queue.start()
    first.queue.submit([dummy("locks"), dummy()])
    gate.wait()
    stopper = threading.Thread(target=first.queue.stop)
    stopper.start()
    until(lambda: first.queue._core.is_stopping)
    with pytest.raises(errors.JobQueueError, match="shutting down"):
        first.queue.submit([dummy()])
    gate.open()
    stopper.join()
    assert first.status(1) == "queued"
    first.store.close()
    with running(backend=first.backend) as second:
        assert second.final(1).status == "success"
        assert second.queue.last_id == 1


def test_lost_secrets_fail_a_job_with_a_clear_text():
    first = Harness()
    first.queue.submit([opcodes.TestOsParams(osparams_secret={"pw": "x"})])
    first.close()
    with running(backend=first.backend) as second:
        job = second.queue.job(1)
        assert job.status == "error"
        assert "submit the job again" in job.ops[0].result_value()[1][0]


def test_unreadable_records_move_to_the_archive():
    first = Harness()
    first.store.commit([("jobs", "7", b"not json"), ("meta", "serial", b"3")])
    first.close()
    second = Harness(backend=first.backend)
    assert second.queue.jobs() == []
    assert second.queue.archived_ids() == [7]
    assert second.queue.submit([dummy()]) == 8
    second.close()


def test_canceled_before_execution_by_the_executor_itself(live):
    def run(*_):
        raise Canceled

    live.executor.script["odd"] = run
    job = live.final(live.queue.submit([dummy("odd")]))
    assert job.status == "error"


def test_public_names():
    assert issubclass(jqueue.LockTimeout, Exception)
    assert {"JobQueue", "SubmitJobs", "Executor"} <= set(jqueue.__all__)


def test_stopping_waits_a_limited_time_and_keeps_the_log_of_what_runs():
    first = Harness()
    gate, logged = threading.Event(), threading.Event()

    def slow(_op, callbacks, *_args):
        callbacks.started()
        callbacks.log("message", "half done")
        logged.set()
        gate.wait(WAIT_S)

    first.executor.script["slow"] = slow
    first.queue.start()
    first.queue.submit([dummy("slow"), dummy()])
    assert logged.wait(WAIT_S)
    assert not first.queue.stop(0.0)
    first.store.close()
    with running(backend=first.backend) as second:
        job = second.queue.job(1)
        assert job.status == "error"
        assert [line.payload for line in job.ops[0].log] == ["half done"]
    gate.set()


# Opcodes that a restarted master continues
def resumable(harness, seen, gate=None):
    """Let the opcodes ``long`` store a state, and end in the daemon that resumes."""

    def run(_op, callbacks, timeout_s, _priority):
        seen.append((callbacks.resumption, timeout_s is None))
        if gate is not None:
            gate.stop()  # waits for its locks
        callbacks.started()
        if callbacks.resumption is None:
            callbacks.save_resumption({"phase": 1})
            callbacks.save_resumption({"phase": 2})
            callbacks.log("message", "begun")
            until(lambda: harness.queue._core.is_stopping)
            callbacks.save_log()  # before an act on a node: never returns
            seen.append("acted")
        return "done"

    harness.executor.script["long"] = run


def test_a_stop_leaves_a_resumable_opcode_to_the_next_daemon():
    seen, began = [], time.monotonic()
    first = Harness()
    resumable(first, seen)
    first.queue.start()
    job_id = first.queue.submit([dummy("long"), dummy(result="last")])
    until(lambda: first.queue.job(job_id).ops[0].log)
    assert first.queue.stop(WAIT_S) is False
    first.store.close()
    assert time.monotonic() - began < WAIT_S / 2
    gate = Gate()
    again = Harness(backend=first.backend)
    resumable(again, seen, gate)
    try:
        assert again.status(job_id) == "running"
        other = again.queue.submit([dummy()])
        again.queue.start()
        gate.wait()
        # It might take locks that the resumed job has had all the time.
        again.settle()
        assert again.status(other) == "queued"
        assert again.status(job_id) == "running"
        gate.open()
        job = again.final(job_id)
        assert again.final(other).status == "success"
    finally:
        again.close()
    assert [op.result_value() for op in job.ops] == ["done", "last"]
    assert [entry.payload for entry in job.ops[0].log] == ["begun"]
    assert seen == [(None, False), ({"phase": 2}, True)]
    assert job.ops[0].resumption_value() is None


def test_an_opcode_that_lost_its_secrets_fails_after_one_that_was_resumed():
    seen = []
    first = Harness()
    resumable(first, seen)
    first.queue.start()
    secret = opcodes.TestOsParams(osparams_secret={"pw": "x"})
    job_id = first.queue.submit([dummy("long"), secret])
    until(lambda: first.queue.job(job_id).ops[0].log)
    assert first.queue.stop(WAIT_S) is False
    first.store.close()
    again = Harness(backend=first.backend)
    resumable(again, seen)
    try:
        again.queue.start()
        job = again.final(job_id)
    finally:
        again.close()
    assert [op.status for op in job.ops] == ["success", "error"]
    assert "submit the job again" in job.ops[1].result_value()[1][0]


def test_a_resumed_opcode_that_has_no_locks_yet_waits_for_the_next_daemon():
    seen = []
    first = Harness()
    resumable(first, seen)
    first.queue.start()
    job_id = first.queue.submit([dummy("long")])
    until(lambda: first.queue.job(job_id).ops[0].log)
    first.queue.stop(WAIT_S)
    first.store.close()
    second = Harness(backend=first.backend)

    def interrupted(_op, callbacks, *_):
        woken = threading.Event()
        callbacks.on_interrupt(woken.set)
        assert woken.wait(WAIT_S)
        raise LockTimeout

    second.executor.script["long"] = interrupted
    second.queue.start()
    assert second.queue.stop(WAIT_S) is True
    second.store.close()
    third = Harness(backend=first.backend)
    resumable(third, seen)
    third.queue.start()
    assert third.final(job_id).status == "success"
    third.close()


def let_workers_wait_for_commits(store):
    """End each commit of a worker before the worker goes on: the fastest disk."""
    commit_soon = store.commit_soon

    def commit(changes, done=None, **options):
        ended = threading.Event()

        def note(*answer):
            if done is not None:
                done(*answer)
            ended.set()

        commit_soon(changes, note, **options)
        if threading.current_thread().name.startswith("Jq"):
            assert ended.wait(WAIT_S)

    store.commit_soon = commit


def test_a_resumed_opcode_that_fails_lets_the_others_run():
    first = Harness()
    resumable(first, [])
    first.queue.start()
    job_id = first.queue.submit([dummy("long")])
    until(lambda: first.queue.job(job_id).ops[0].log)
    first.queue.stop(WAIT_S)
    first.store.close()
    again = Harness(backend=first.backend)
    let_workers_wait_for_commits(again.store)

    def refused(*_):
        raise errors.OpPrereqError("instance web1: not found", "unknown_entity")

    again.executor.script["long"] = refused
    other = again.queue.submit([dummy()])
    again.queue.start()
    assert again.final(job_id).status == "error"
    assert again.final(other).status == "success"
    again.close()


def test_a_finished_opcode_is_stored_before_the_next_one_begins(live):
    gate = gated(live, "second", start=False)
    live.queue.submit([dummy("first", result="made"), dummy("second")])
    gate.wait()
    # The second has stored nothing yet: what is durable now, the first has stored.
    live.settle()
    stored = records.decode_job(live.store.read("jobs", "1"))
    gate.open()
    live.final(1)
    assert [str(op.status) for op in stored.ops] == ["success", "queued"]
    assert bytes(stored.ops[0].result) == b'"made"'


def test_job_ids_that_are_left_out_are_not_given_even_after_a_restart(live):
    assert live.queue.submit([dummy()]) == 1
    live.queue.leave_out(40)
    again = Harness(backend=live.backend)
    assert again.queue.submit([dummy()]) == 41
    again.queue.leave_out(7)
    assert again.queue.submit([dummy()]) == 42
    again.close()


def ends_of(live, job_id=1):
    """Return the states of the opcodes that clients see, and those on disk."""
    stored = records.decode_job(live.store.read("jobs", str(job_id)))
    return [
        [str(op.status) for op in job.ops] for job in (live.queue.job(job_id), stored)
    ]


def test_the_end_of_an_opcode_is_shown_once_it_is_durable(live, monkeypatch):
    monkeypatch.setattr(documents, "NEXT_WAIT_S", 1000.0)
    seen = []

    def second(op, callbacks, _timeout, _priority):
        seen.append(ends_of(live))
        callbacks.started(durable=False)
        seen.append(ends_of(live))
        callbacks.save_log()  # before an act on a node
        until(lambda: ends_of(live)[0][:2] == ["success", "running"])
        seen.append(ends_of(live))

    live.executor.script["second"] = second
    live.queue.submit([dummy("first"), dummy("second"), dummy("third")])
    until(lambda: ends_of(live)[0][0] == "success")
    live.settle()
    assert live.final(1).status == "success"
    early = [["running", "queued"], ["running", "queued"]]
    assert [[states[:2] for states in each] for each in seen] == [
        early,
        early,
        [["success", "running"]] * 2,
    ]


def test_the_end_of_an_opcode_and_the_start_of_the_next_are_one_group(
    live, monkeypatch
):
    monkeypatch.setattr(documents, "NEXT_WAIT_S", 1000.0)
    counts = []

    def first(op, callbacks, _timeout, _priority):
        callbacks.started()
        counts.append(len(live.backend.changes_since(0, None)))

    def second(op, callbacks, _timeout, _priority):
        callbacks.started(durable=False)
        callbacks.save_log()
        counts.append(len(live.backend.changes_since(0, None)))

    live.executor.script |= {"first": first, "second": second}
    live.queue.submit([dummy("first"), dummy("second")])
    assert live.final(1).status == "success"
    assert counts[1] == counts[0] + 1


def test_the_end_of_an_opcode_that_cannot_be_stored_is_not_shown(live, monkeypatch):
    monkeypatch.setattr(core, "_RETRY_S", 0.01)
    monkeypatch.setattr(documents, "NEXT_WAIT_S", 0.0)
    gate = Gate()

    def first(op, callbacks, _timeout, _priority):
        callbacks.started()
        live.backend.failure = errors.StorageError("full")

    def second(op, callbacks, _timeout, _priority):
        gate.stop()
        callbacks.started()

    live.executor.script |= {"first": first, "second": second}
    live.queue.submit([dummy("first"), dummy("second")])
    gate.wait()
    until(lambda: len(live.failures) > 2)
    assert ends_of(live)[0] == ["running", "queued"]
    live.backend.failure = None
    until(lambda: ends_of(live)[0][0] == "success")
    assert ends_of(live)[1][0] == "success"
    gate.open()
    assert live.final(1).status == "success"


def test_a_failure_of_the_queue_itself_ends_the_job_and_spares_the_worker(
    monkeypatch, caplog
):
    def broken(*_words):
        raise ZeroDivisionError("bug")

    with running(workers=1) as live:
        live.queue.submit([dummy("first")])
        live.final(1)
        monkeypatch.setattr(running_module.schedule, "check_dependencies", broken)
        live.queue.submit([dummy("second", depends=[(1, ["success"])])])
        job = live.final(2)
        assert str(job.status) == "error"
        assert (
            "job queue failure: ZeroDivisionError(" in bytes(job.ops[0].result).decode()
        )
        assert "job 2: queue failure" in caplog.messages
        live.queue.submit([dummy("third")])
        assert str(live.final(3).status) == "success"
