"""Job histories cut off after each commit, as by a power failure, and taken up again.

What was acknowledged is still there; what had ended stays as it was; what was under
way has failed; what had not begun runs; nothing is executed twice; no id comes again.
"""

import pathlib
import sqlite3

import pytest

from fakes.jobs_run import (
    WAIT_S,
    Gate,
    Harness,
    ScriptedExecutor,
    dummy,
    running,
    until,
)
from fakes.store import StepStore, backend_with
from ganeti import store
from ganeti.base import clock, errors
from ganeti.base.clock import SystemClock
from ganeti.decisions.jobs import records
from ganeti.master import jqueue
from ganeti.master.jqueue import LockTimeout
from ganeti.master.jqueue import queue as queue_module
from ganeti.store import features, schema
from ganeti.store.database import Database


class Scenario:
    """Runs a story on a queue over a `StepStore`."""

    def __init__(self):
        self.store = StepStore()
        self.executor = ScriptedExecutor()
        self.queue = jqueue.JobQueue(
            self.store,
            self,
            clock.SystemClock(),
            jqueue.Settings(workers=3),
            chance=lambda: 0.5,
        )
        self.queue.recover()

    def execute(self, op, callbacks, *, timeout_s, priority):
        began = callbacks.started

        def started():
            began()
            self.store.mark(("begun", callbacks.owner))

        callbacks.started = started
        return self.executor.execute(
            op, callbacks, timeout_s=timeout_s, priority=priority
        )

    def submit(self, *ops):
        job_id = self.queue.submit(list(ops))
        self.store.mark(("job", job_id))
        return job_id

    def end(self, job_id):
        Harness.final(self, job_id)
        self.store.mark(("end", job_id))

    def close(self):
        self.queue.stop(WAIT_S)
        self.store.close()


def simple(s):
    s.queue.start()
    for job_id in [s.submit(dummy(), dummy(messages=["x"])), s.submit(dummy())]:
        s.end(job_id)


def failing(s):
    s.queue.start()
    s.end(s.submit(dummy(), dummy(fail=errors.OpExecError("no")), dummy()))


def dependent(s):
    s.queue.start()
    gate = Gate()

    def run(_op, callbacks, *_):
        callbacks.started()
        gate.stop()

    s.executor.script["slow"] = run
    s.submit(dummy("slow"))
    gate.wait()
    s.submit(dummy(depends=[(-1, ["success"])]))
    s.submit(dummy(depends=[(-2, ["error"])]))
    gate.open()
    for job_id in (1, 2, 3):
        s.end(job_id)


def canceled(s):
    s.submit(dummy(), dummy())
    s.queue.cancel_later(1).result()
    s.store.mark(("end", 1))
    gate = Gate()

    def run(_op, callbacks, *_):
        gate.stop()
        callbacks.started()

    s.executor.script["locks"] = run
    s.queue.start()
    s.submit(dummy("locks"), dummy())
    gate.wait()
    s.queue.cancel_later(2).result()
    gate.open()
    s.end(2)


def waiting(s):
    def run(_op, callbacks, *_):
        if len(s.executor.runs) == 1:
            raise LockTimeout
        callbacks.started()

    s.executor.script["busy"] = run
    s.queue.start()
    s.submit(dummy("busy"))
    s.queue.change_priority_later(1, -10).result()
    s.queue.cancel_later(1).result()
    s.end(1)


def archived(s):
    s.queue.start()
    for _ in range(3):
        s.end(s.submit(dummy(messages=["x"])))
    s.queue.archive_later(2).result()
    s.queue.autoarchive_later(-1, 9).result()
    s.end(s.submit(dummy()))


def drained(s):
    s.queue.set_drain_later(True).result()
    s.queue.submit([dummy()], to_drained=True)
    s.store.mark(("job", 1))
    s.queue.set_drain_later(False).result()
    s.queue.start()
    s.end(1)


def parents(s):
    def run(_op, callbacks, *_):
        callbacks.started()
        return {"jobs": callbacks.submit_jobs([[dummy()], [dummy()]])}

    s.executor.script["parent"] = run
    s.queue.start()
    s.end(s.submit(dummy("parent"), dummy()))
    s.end(2)
    s.end(3)


@pytest.mark.parametrize(
    "story",
    [simple, failing, dependent, canceled, waiting, archived, drained, parents],
    ids=lambda story: story.__name__,
)
def test_a_history_cut_off_anywhere_is_taken_up_again(story):
    scenario = Scenario()
    story(scenario)
    scenario.close()
    for count, state in enumerate(scenario.store.states):
        known = {what for when, what in scenario.store.marks if when <= count}
        check_cut(state, known)


def check_cut(state, known):
    before = {
        int(key): records.decode_job(data)
        for (table, key), data in state.items()
        if table in ("jobs", "archive") and "/" not in key
    }
    # Every answer that a client received is there.
    assert {job_id for what, job_id in known if what == "job"} <= set(before)
    for what, job_id in known:
        assert what != "end" or before[job_id].is_final
    harness = Harness(backend=backend_with(state))
    try:
        taken_up = {job_id: harness.queue.job(job_id) for job_id in before}
        for job_id, old in before.items():
            check_taken_up(old, taken_up[job_id])
        harness.queue.set_drain_later(False).result()
        new = harness.queue.submit([dummy()])
        assert new > max(before, default=0)
        harness.queue.start()
        for job_id in [*before, new]:
            if not harness.queue.job(job_id).is_archived:
                assert harness.final(job_id).is_final
        again = {owner for _, owner, _, _ in harness.executor.runs}
        assert not again & {owner for what, owner in known if what == "begun"}
    finally:
        harness.close()


def check_taken_up(old, new):
    if old.is_final:
        assert [op.result_value() for op in new.ops] == [
            op.result_value() for op in old.ops
        ]
        assert new.status == old.status
        assert new.end_timestamp == old.end_timestamp
    elif old.status in ("running", "canceling"):
        assert new.status == "error"
        assert new.end_timestamp
        ended = [op for op in old.ops if op.status.is_final]
        assert "nclean" in new.ops[len(ended)].result_value()
    else:
        assert new.status == "queued"
        assert new.priority == old.priority


# A store file of an earlier release: logs of its archived jobs move to the archive.

STORED = pathlib.Path(__file__).parents[4] / "data" / "store"


def lines(job):
    return [line.payload for line in job.ops[0].log]


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A file of version 1 with three archived jobs, whose logs are beside the archive."""
    path = str(tmp_path / "store.db")
    db = sqlite3.connect(path)
    db.executescript((STORED / "version-1.sql").read_text())
    with running() as old:
        monkeypatch.setattr(old.store, "may_use", lambda _feature: False)
        for number in (1, 2, 3):
            old.final(old.queue.submit([dummy(messages=[f"a{number}", f"b{number}"])]))
        assert old.queue.autoarchive_later(-1, 9).result() == (3, 0)
        for table in ("archive", "jobs", "joblogs"):
            db.execute(f"DELETE FROM {table}")
            db.executemany(
                f"INSERT INTO {table} VALUES (?, ?)", list(old.store.scan(table))
            )
        serial = old.store.read("meta", "serial")
        db.execute("INSERT OR REPLACE INTO meta VALUES ('serial', ?)", (serial,))
    db.commit()
    assert db.execute("SELECT count(*) FROM joblogs").fetchone() == (6,)
    assert schema.version_of(db) == 1
    db.close()
    return path


def test_logs_of_archived_jobs_move_after_the_upgrade(path, monkeypatch):
    monkeypatch.setattr(queue_module, "_FIRST_LOGS_S", 0)
    opened = store.open_master(path, replicate=None, clock=SystemClock())
    queue = jqueue.JobQueue(
        opened, ScriptedExecutor(), SystemClock(), jqueue.Settings()
    )
    try:
        queue.recover()
        assert lines(queue.job(2)) == ["a2", "b2"]  # before they move
        queue.start()
        until(lambda: not list(opened.scan("joblogs")))
        assert [lines(queue.job(n)) for n in (1, 2, 3)] == [
            [f"a{n}", f"b{n}"] for n in (1, 2, 3)
        ]
        keys = [key for key, _data in opened.scan("archive")]
        assert keys[:2] == ["1", "1/0000000001"]
    finally:
        queue.stop(WAIT_S)
        opened.close()
    again = Database(path, create=False)
    assert features.ARCHIVED_LOGS in again.tables.features()
    assert schema.version_of(again.file.sql) == schema.VERSION
    again.close()
