"""Waiting for jobs: what it shows; test/data/client has jobs that end at once."""

import itertools
import re

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors


@pytest.fixture
def master():
    fake = FakeMaster()
    fake.objects["instance"] = [
        {"name": f"web{n}.tst", "uuid": f"u{n}"} for n in (1, 2)
    ]
    return fake


class Slow(FakeMaster):
    """Jobs go through states; a state may be seen several times without change."""

    def __init__(self, *states):
        super().__init__()
        self.states = itertools.chain(states, itertools.repeat("success"))
        self.timeouts = []
        self.waits = []

    def _QueryJobWaits(self, _job_id):
        return self.waits

    def _WaitForJobChange(self, job_id, fields, previous, serial, timeout):
        self.timeouts.append(timeout)
        return [[next(self.states)], []]


def test_a_waiting_job_is_explained_once_per_state():
    master = Slow(*["queued"] * 3, *["waiting"] * 3, "running", "running")
    done = commands.run("gnt-debug delay 0", master)
    assert done.code == 0
    assert done.err == (
        "Job 1 is waiting in queue\nJob 1 is trying to acquire all necessary locks\n"
    )
    assert set(master.timeouts) == {60}


def test_a_job_that_moves_on_needs_no_explanation():
    done = commands.run("gnt-debug delay 0", Slow("queued", "waiting", "running"))
    assert (done.code, done.out, done.err) == (0, "", "")


def test_a_terminal_shows_progress_and_is_left_clean():
    clock = itertools.count(0, 5)
    master = Slow("running", "running")
    done = commands.run(
        "gnt-debug delay 0", master, tty=True, now=lambda: float(next(clock))
    )
    assert "job 1: running, " in done.err
    assert done.err.split("\r")[-1] == ""


def test_a_terminal_shows_what_a_job_waits_for_and_a_pipe_does_not():
    def show(**options):
        clock = itertools.count(0, 5)
        master = Slow("running", "running", "running")
        master.waits = [["the shutdown of the guest on n1", 8.0, 112.0]]
        return commands.run(
            "gnt-debug delay 0", master, now=lambda: float(next(clock)), **options
        )

    text = (
        "job 1: waits for the shutdown of the guest on n1, since 8 s, at most 1:52 min"
    )
    assert text in show(tty=True).err
    assert (show().out, show().err) == ("", "")


class Silent(Slow):
    """A master of an earlier release, which does not know what a job waits for."""

    asked = 0

    def _QueryJobWaits(self, _job_id):
        self.asked += 1
        raise errors.RequestError("Failed to parse request: unknown method")


def test_a_master_that_explains_nothing_fails_no_command():
    clock = itertools.count(0, 5)
    master = Silent(*["running"] * 5)
    done = commands.run(
        "gnt-debug delay 0", master, now=lambda: float(next(clock)), tty=True
    )
    assert (done.code, master.asked) == (0, 1)
    assert "job 1: running, " in done.err


class Telling(Slow):
    """A job that logs a line, then how far it has come, then another line."""

    KINDS = ("message", "progress", "message")

    def _WaitForJobChange(self, job_id, fields, previous, serial, timeout):
        [info], _ = super()._WaitForJobChange(job_id, fields, previous, serial, timeout)
        number = (serial or 0) + 1
        if number > len(self.KINDS):
            return [["success"], []]
        kind = self.KINDS[number - 1]
        return [[info], [[number, [0, 0], kind, f"{kind} {number}"]]]


def test_how_far_a_job_has_come_is_for_terminals_alone():
    master = Telling(*["running"] * 9)
    piped = commands.run("gnt-debug delay 0", master)
    assert [line.split(" 1970 ")[1] for line in piped.out.splitlines()] == [
        "message 1",
        "message 3",
    ]
    assert piped.err == ""
    clock = itertools.count(0, 5)
    shown = commands.run(
        "gnt-debug delay 0",
        Telling(*["running"] * 9),
        tty=True,
        now=lambda: float(next(clock)),
    )
    assert shown.out == piped.out
    assert "job 1: progress 2, " in shown.err
    assert "job 1: running, " in shown.err.split("progress 2")[-1]


def test_a_job_that_reports_nothing_says_since_when():
    clock = itertools.count(0, 5)
    done = commands.run(
        "gnt-debug delay 0",
        Slow(*["running"] * 4),
        tty=True,
        now=lambda: float(next(clock)),
    )
    assert re.search(r"job 1: running, nothing new for \d+ s, \d+ s", done.err)


def test_the_line_of_progress_fits_the_terminal():
    def show(width):
        clock = itertools.count(0, 5)
        return commands.run(
            "gnt-debug delay 0",
            Telling(*["running"] * 9),
            tty=True,
            now=lambda: float(next(clock)),
            columns=lambda _stream: width,
        ).err

    lines = [part for part in show(20).split("\r") if part.strip()]
    assert lines
    assert {len(part) for part in lines if part.endswith("...")} == {19}
    assert all(len(part) < 20 for part in lines)
    assert "..." not in show(0)


def test_of_several_jobs_the_line_says_how_many_ended(master):
    clock = itertools.count(0, 5)
    wait, seen = master._WaitForJobChange, []

    def slowly(job_id, *rest):
        seen.append(job_id)
        if seen.count(job_id) < 3:
            return [["running"], []]
        return wait(job_id, *rest)

    master._WaitForJobChange = slowly
    done = commands.run(
        "gnt-instance start --force-multiple web1 web2",
        master,
        tty=True,
        now=lambda: float(next(clock)),
    )
    assert "0 of 2 jobs ended; job 1: running" in done.err
    assert "1 of 2 jobs ended; job 2: running" in done.err


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    ("line", "op_id"),
    [
        ("gnt-instance start --force-multiple", "OP_INSTANCE_STARTUP"),
        ("gnt-instance remove -f", "OP_INSTANCE_REMOVE"),
    ],
)
def test_a_failing_one_of_several_jobs(master, line, op_id, number):
    def outcome(op):
        if op.instance_name == f"web{number}.tst":
            return errors.OpExecError("broken")
        return None

    master.results[op_id] = outcome
    done = commands.run(f"{line} web1 web2", master)
    assert (done.code, len(master.jobs)) == (1, 2)
    assert done.err == (
        f"Job {number} for web{number}.tst has failed: "
        "Failure: command execution error:\nbroken\n"
    )


def test_jobs_that_run_are_watched_before_those_that_wait(master):
    executor_order = []
    master.still[1] = "queued"
    wait = master._WaitForJobChange

    def watch(job_id, *rest):
        executor_order.append(job_id)
        master.still.pop(1, None)
        return wait(job_id, *rest)

    master._WaitForJobChange = watch
    commands.run("gnt-instance start --force-multiple web1 web2", master)
    assert executor_order == [2, 1]


def test_verify_waits_for_the_jobs_that_its_job_submits(master):
    verified = []

    def outer(op):
        verified.append(op)
        ids = [master._SubmitJob([{"OP_ID": "OP_CLUSTER_VERIFY_CONFIG"}])]
        return {"jobs": [[True, ids[0]]]}

    master.results["OP_CLUSTER_VERIFY"] = outer
    master.results["OP_CLUSTER_VERIFY_CONFIG"] = True
    master._next = 41
    done = commands.run("gnt-cluster verify --error-codes -I ENODESSH", master)
    assert done.code == 0
    assert done.out == "Submitted jobs 42\nWaiting for job 42 ...\n"
    assert verified[0].ignore_errors == ["ENODESSH"]
    master.results["OP_CLUSTER_VERIFY_CONFIG"] = False
    assert commands.run("gnt-cluster verify", master).code == 1
    master.results["OP_CLUSTER_VERIFY_CONFIG"] = errors.OpExecError("x")
    done = commands.run("gnt-cluster verify", master)
    assert done.code == 1
    assert "1 job(s) failed while verifying the cluster.\n" in done.out
