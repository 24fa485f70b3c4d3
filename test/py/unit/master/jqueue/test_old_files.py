"""A store file of an earlier release: logs of its archived jobs move to the archive."""

import pathlib
import sqlite3

import pytest

from fakes.jobs_run import WAIT_S, ScriptedExecutor, dummy, running, until
from ganeti import store
from ganeti.base.clock import SystemClock
from ganeti.master import jqueue
from ganeti.master.jqueue import queue as queue_module
from ganeti.store import features
from ganeti.store.file import schema
from ganeti.store.file.database import Database

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
        assert old.queue.autoarchive(-1, 9) == (3, 0)
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
    assert features.ARCHIVED_LOGS in again.features()
    assert schema.version_of(again._db) == schema.VERSION
    again.close()
