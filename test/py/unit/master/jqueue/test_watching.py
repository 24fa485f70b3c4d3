"""Many waiters of one job share one reading of it, and hold up nobody."""

import threading

from fakes.jobs_run import WAIT_S, Gate, dummy, running, until
from ganeti.base import clock
from ganeti.master.jqueue import Known
from ganeti.master.jqueue.effects import LOGS


class SteppedClock(clock.SystemClock):
    """Elapsed time moves only when a test moves it."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


class Fields:
    """Returns the status, and records each use and its thread."""

    def __init__(self):
        self.threads = []

    def __call__(self, job):
        self.threads.append(threading.current_thread().name)
        return [job.status]


def wait(live, fields, **known):
    return live.queue.wait_for_change(1, fields, timeout_s=WAIT_S, **known)


def count_log_scans(live, monkeypatch):
    scans = []
    scan = live.store.scan

    def counted(table, prefix=""):
        if table == LOGS:
            scans.append(prefix)
        return scan(table, prefix)

    monkeypatch.setattr(live.store, "scan", counted)
    return scans


def test_the_end_of_a_long_log_is_read_once_for_all_waiters(monkeypatch):
    gate, fields = Gate(), Fields()
    lines = 1500

    def run(_op, callbacks, *_):
        callbacks.started()
        for number in range(lines):
            callbacks.log("message", str(number))
        gate.stop()

    with running() as live:
        live.executor.script["chatty"] = run
        live.queue.submit([dummy("chatty")])
        gate.wait()
        waits = [
            wait(live, fields, previous=["running"], serial=lines) for _ in range(50)
        ]
        late = [wait(live, fields, previous=["running"], serial=7) for _ in range(50)]
        assert all(len(each.result(WAIT_S)[1]) == lines - 7 for each in late)
        until(lambda: len(live.queue._core.live[1].watches) == len(waits))
        before = len(fields.threads)
        scans = count_log_scans(live, monkeypatch)
        gate.open()
        assert all(each.result(WAIT_S) == (["success"], ()) for each in waits)
        again = [wait(live, fields) for _ in range(50)]
        assert all(len(each.result(WAIT_S)[1]) == lines for each in again)
        assert len(scans) == 1
        # Neither the worker nor the store's thread compares.
        assert set(fields.threads) == {"jq-watch"}
        assert len(fields.threads) - before < 50


def test_a_waiter_that_comes_back_at_once_waits_for_the_end_of_the_burst():
    first, second, fields, clk = Gate(), Gate(), Fields(), SteppedClock()

    def run(_op, callbacks, *_):
        callbacks.started()
        callbacks.log("message", "one")
        first.stop()
        callbacks.log("message", "two")
        second.stop()

    with running(clk=clk) as live:
        live.executor.script["chatty"] = run
        live.queue.submit([dummy("chatty")])
        first.wait()
        values, [line] = wait(live, fields).result(WAIT_S)
        assert (values, line.payload) == (["running"], "one")
        clk.now += 5
        live.queue._core.live[1].reported = clk.now
        first.open()
        second.wait()
        back = wait(live, fields, previous=["running"], serial=1)
        until(lambda: live.queue._core.live[1].watches)
        assert not back.done()
        clk.now += 0.11
        live.queue._core.timers.run_due()
        assert [line.payload for line in back.result(WAIT_S)[1]] == ["two"]
        second.open()


def test_one_wait_serves_many_jobs():
    gates = {name: Gate() for name in ("slow", "slower")}

    def stop(op, callbacks, *_):
        callbacks.started()
        gates[op.comment].stop()

    with running() as live:
        live.executor.script.update(dict.fromkeys(gates, stop))
        for name, gate in gates.items():
            live.queue.submit([dummy(name)])
            gate.wait()
        status = lambda job: [job.status]  # noqa: E731
        first = live.queue.wait_for_changes(
            [Known(1), Known(2), Known(7)], status, timeout_s=WAIT_S
        ).result(WAIT_S)
        assert first == [(1, (["running"], ())), (2, (["running"], ())), (7, None)]
        known = [Known(1, ["running"], 0), Known(2, ["running"], 0)]
        following = live.queue.wait_for_changes(known, status, timeout_s=WAIT_S)
        until(lambda: live.queue._core.live[1].watches)
        assert not following.done()
        gates["slower"].open()
        assert following.result(WAIT_S) == [(2, (["success"], ()))]
        # The other wait has left nothing behind.
        until(lambda: not live.queue._core.live[1].watches)
        gone = live.queue.wait_for_changes(known[:1], status, timeout_s=WAIT_S)
        until(lambda: live.queue._core.live[1].watches)
        assert gone.cancel()
        assert not live.queue._core.live[1].watches
        late = live.queue.wait_for_changes(known[:1], status, timeout_s=0.0)
        assert late.result(WAIT_S) == []
        gates["slow"].open()
