"""Logs of archived jobs that an earlier release left behind: slices, pauses, failures."""

import contextlib

import pytest

from ganeti.base import errors
from ganeti.master.jqueue import archiving

PAUSE_S, LATER_S = 0.01, 60.0


class Core:
    """A queue's store and timers; changes apply at once, or fail as a test says."""

    def __init__(self, logs, archived):
        self.tables = {
            "joblogs": {
                f"{job}/{serial:010d}": b"%d" % serial
                for job, count in logs.items()
                for serial in range(count)
            },
            "archive": {str(job): b"job" for job in archived},
        }
        self.store = self.timers = self.documents = self
        self.is_allowed, self.failures, self.reads = True, [], []
        self.waits, self.commits = [], []
        self.broken = None

    # The store
    def may_use(self, _feature):
        return self.is_allowed

    def scan(self, table, prefix=""):
        if self.broken:
            raise self.broken
        rows = sorted(self.tables[self.name_of(table)].items())
        return iter([row for row in rows if row[0].startswith(prefix)])

    @staticmethod
    def name_of(table):
        return {archiving.LOGS: "joblogs", archiving.ARCHIVE: "archive"}[table]

    def read(self, table, key):
        self.reads.append(key)
        return self.tables[self.name_of(table)].get(key)

    def commit_locked(self, documents, done):
        error = self.failures.pop(0) if self.failures else None
        self.commits.append(len(documents))
        if error is None:
            for each in documents:
                table = self.tables[self.name_of(each.table)]
                if each.data is None:
                    del table[each.key]
                else:
                    table[each.key] = each.data
        done(error)

    @contextlib.contextmanager
    def transaction(self):
        yield

    # The timers
    def after(self, delay_s, step):
        self.waits.append((delay_s, step))

    def run(self):
        """Let timers go on until none is left; return their delays."""
        delays = []
        while self.waits:
            delay_s, step = self.waits.pop(0)
            delays.append(delay_s)
            step()
        return delays

    def jobs(self):
        return sorted({int(key.partition("/")[0]) for key in self.tables["joblogs"]})

    def packed(self):
        return {k: v for k, v in self.tables["archive"].items() if "/" in k}


def test_logs_of_archived_jobs_move_and_others_stay():
    core = Core({1: 2, 2: 1, 3: 3}, archived=[1, 3])
    archiving.move_old_logs(core)
    assert core.run() == [PAUSE_S]
    assert core.jobs() == [2]
    assert core.packed() == {"1/0000000000": b"[0,1]", "3/0000000000": b"[0,1,2]"}
    assert core.commits == [7]


def test_a_step_looks_at_a_hundred_entries():
    core = Core({1: 100, 2: 100, 3: 50}, archived=[1, 2, 3])
    archiving.move_old_logs(core)
    assert core.jobs() == [2, 3]
    assert core.run() == [PAUSE_S] * 3
    assert core.jobs() == []
    assert core.commits == [101, 101, 51]


def test_entries_of_jobs_that_are_not_archived_are_passed_over():
    core = Core({1: 250, 2: 1}, archived=[2])
    archiving.move_old_logs(core)
    assert core.run() == [PAUSE_S] * 3
    assert (core.jobs(), core.commits) == ([1], [2])
    # Job 1 has entries in three slices, and is looked up once.
    assert core.reads == ["1", "2"]


def test_a_large_log_is_packed_in_several_documents():
    core = Core({7: 3}, archived=[7])
    half = b'"%b"' % (b"x" * (128 * 1024 - 2))
    core.tables["joblogs"] = dict.fromkeys(core.tables["joblogs"], half)
    archiving.move_old_logs(core)
    assert core.packed() == {
        "7/0000000000": b"[" + half + b"," + half + b"]",
        "7/0000000002": b"[" + half + b"]",
    }


def test_without_anything_left_no_timer_is_set():
    core = Core({}, archived=[1])
    archiving.move_old_logs(core)
    assert (core.waits, core.commits) == ([], [])


def test_a_cluster_with_an_older_release_is_looked_at_again_each_minute():
    core = Core({1: 1}, archived=[1])
    core.is_allowed = False
    archiving.move_old_logs(core)
    ((delay_s, step),) = core.waits
    assert (delay_s, core.jobs()) == (LATER_S, [1])
    core.waits.clear()
    step()
    ((delay_s, step),) = core.waits
    assert delay_s == LATER_S
    core.is_allowed = True
    step()
    assert core.jobs() == []


def test_a_failed_commit_is_tried_again_from_the_beginning():
    core = Core({1: 1, 2: 1}, archived=[1, 2])
    core.failures = [errors.StorageError("disk full")]
    archiving.move_old_logs(core)
    assert core.jobs() == [1, 2]
    assert core.run() == [LATER_S, PAUSE_S]
    assert (core.jobs(), core.commits) == ([], [4, 4])


def test_a_master_that_was_replaced_moves_nothing_more():
    core = Core({1: 1}, archived=[1])
    core.failures = [errors.TermError("term 5 by now")]
    archiving.move_old_logs(core)
    assert (core.waits, core.jobs()) == ([], [1])


@pytest.mark.parametrize("place", ["joblogs", "archive"])
def test_an_unreadable_store_ends_it_with_a_line_in_the_log(caplog, place):
    core = Core({1: 1}, archived=[1])

    def broken(*_words):
        raise errors.StorageError("damaged")

    if place == "archive":
        core.read = broken
    else:
        core.scan = lambda *_words: (broken() for _each in range(1))
    archiving.move_old_logs(core)
    assert (core.waits, core.commits) == ([], [])
    assert caplog.messages == ["logs of archived jobs: damaged"]
