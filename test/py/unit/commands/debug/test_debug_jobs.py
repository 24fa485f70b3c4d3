"""gnt-debug submit-job and test-jobqueue: submitted jobs, their waits, their faults."""

import json
import socket
import threading

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.commands.debug import test_jobqueue as jobqueue

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 1.5}
STARTUP = {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "web1"}


def submitted(master, method):
    """Return the opcodes of all jobs of a method, as their ids."""
    actual = []
    for name, args in master.calls:
        if name == method:
            jobs = args[0] if method == "SubmitManyJobs" else [args[0]]
            actual += [[op["OP_ID"] for op in job] for job in jobs]
    return actual


@pytest.fixture
def files(tmp_path):
    (tmp_path / "one").write_text(json.dumps([DELAY, STARTUP]))
    (tmp_path / "two").write_text(json.dumps([DELAY]))
    return str(tmp_path / "one"), str(tmp_path / "two")


def test_each_file_is_a_job(files):
    master = FakeMaster()
    done = commands.run(["gnt-debug", "submit-job", *files], master)
    assert (done.code, done.err) == (0, "")
    assert submitted(master, "SubmitManyJobs") == [
        ["OP_TEST_DELAY", "OP_INSTANCE_STARTUP"],
        ["OP_TEST_DELAY"],
    ]
    assert done.out == (
        "Waiting for job 1 for file one/0 ...\nWaiting for job 2 for file two/0 ...\n"
    )


def test_jobs_and_opcodes_are_repeated_and_submitted_one_by_one(files):
    master = FakeMaster()
    words = ["gnt-debug", "submit-job", "--op-repeat", "2", "--job-repeat", "3"]
    done = commands.run([*words, "--each", "--verbose", files[1]], master)
    assert done.code == 0
    assert submitted(master, "SubmitJob") == [["OP_TEST_DELAY"] * 2] * 3
    assert submitted(master, "SubmitManyJobs") == []
    assert done.out.splitlines()[0] == "Submitted jobs 1, 2, 3"
    waits = [line.split(" for ")[-1] for line in done.out.splitlines()[1:]]
    assert waits == [f"file two/{number} ..." for number in range(3)]


class Slow(FakeMaster):
    """A master that takes a quarter of a second per submission and one per job."""

    time = 10.0

    def _SubmitManyJobs(self, jobs):
        self.time += 0.25
        return super()._SubmitManyJobs(jobs)

    def _WaitForJobChange(self, *args):
        self.time += 1.0
        return super()._WaitForJobChange(*args)


def test_times_are_measured_between_the_steps(files):
    master = Slow()
    words = ["gnt-debug", "submit-job", "--timing-stats", "--job-repeat", "2", files[0]]
    done = commands.run(words, master, now=lambda: master.time)
    lines = [line for line in done.out.splitlines() if "Waiting" not in line]
    assert lines == [
        "Loading...",
        "Submitting...",
        "Executing...",
        "C:op        4",
        "C:job       2",
        "T:submit 0.2500",
        "T:exec   2.0000",
        "T:total  2.2500",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "cannot read opcodes from"),
        ("{}", "wanted a list of opcode objects"),
        ("[1]", "wanted a list of opcode objects"),
        ('[{"OP_ID": "OP_TEST_DELAY"}, 2]', "wanted a list of opcode objects"),
    ],
)
def test_a_file_without_opcodes_is_refused(tmp_path, text, problem):
    (tmp_path / "bad").write_text(text)
    master = FakeMaster()
    done = commands.run(["gnt-debug", "submit-job", str(tmp_path / "bad")], master)
    assert done.code == 1
    assert problem in done.err
    assert str(tmp_path / "bad") in done.err
    assert master.calls == []


POINTS = ["expandnames", "exec", "startmsg", "logmsg", "logmsg", "logmsg"]
TEXTS = ["first message", "second message", "a third, with\ttab"]


class Queue(FakeMaster):
    """A job queue that works; tests change what it does.

    Attributes:
        points: of the first job, with the status of the job at each.
        texts: messages of the first job.
        result: of the first job.
        states: of the opcodes of a job whose second opcode fails.
        is_canceled: whether a job that waits can be canceled.
        id_step: from one job id to the next.
    """

    def __init__(self):
        super().__init__()
        self.points = [
            ("expandnames", "waiting"),
            *((p, "running") for p in POINTS[1:]),
        ]
        self.texts = [f"TESTMSG={text}" for text in TEXTS]
        self.result = True
        self.states = ["success", "error", "error"]
        self.is_canceled = True
        self.id_step = 1
        self._asked = []

    def _SubmitJob(self, ops):
        job_id = super()._SubmitJob(ops)
        self._next = job_id + self.id_step
        first = self.jobs[job_id][0]
        failing = any(getattr(op, "fail", False) for op in self.jobs[job_id])
        if failing:
            error = errors.encode(errors.OpExecError("wanted to fail"))
            self._outcomes[job_id] = [(status, error) for status in self.states]
        elif first.op_id() == "OP_TEST_JQUEUE":
            self._outcomes[job_id] = [("success", self.result)]
        if first.depends and self.is_canceled:
            self.still[job_id] = "canceled"
        return job_id

    _outcome = staticmethod(lambda _op: ("success", None))

    def _WaitForJobChange(self, job_id, fields, previous, serial, timeout):
        values, _ = super()._WaitForJobChange(job_id, fields, previous, serial, timeout)
        first = self.jobs[job_id][0]
        entries = []
        if getattr(first, "notify_waitlock", False) and serial is None:
            points = self.points if first.notify_exec else self.points[:1]
            self._asked = [status for _, status in points]
            entries = [("jqueue-test", [f"/{p}", p, None]) for p, _ in points]
            if first.notify_exec:
                entries += [("message", text) for text in self.texts]
        log = [[n, [1, 0], *entry] for n, entry in enumerate(entries, 1)]
        return [values, log]

    def _QueryJobs(self, ids, fields):
        if fields == ["status"] and self._asked:
            return [[self._asked.pop(0)]]
        return super()._QueryJobs(ids, fields)

    def _CancelJob(self, job_id, kill):
        return [self.is_canceled, "it runs already"]


@pytest.fixture
def resumed(monkeypatch):
    paths = []
    monkeypatch.setattr(jobqueue, "_resume", paths.append)
    return paths


def test_a_queue_that_works_passes(resumed):
    queue = Queue()
    done = commands.run("gnt-debug test-jobqueue", queue)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "Testing stops, log messages and states",
        "Testing failure of an opcode",
        "Testing cancelation",
        "Testing several jobs at once",
        "Job queue test finished successfully",
    ]
    assert resumed == [f"/{point}" for point in [*POINTS, "expandnames"]]
    test, delay = "OP_TEST_JQUEUE", "OP_TEST_DELAY"
    assert submitted(queue, "SubmitJob") == [[test], [test] * 3, [test], [delay]]
    assert submitted(queue, "SubmitManyJobs") == [[delay]] * 5
    ops = [args[0] for name, args in queue.calls if name == "SubmitJob"]
    assert ops[0][0]["log_messages"] == TEXTS
    assert (ops[0][0]["notify_waitlock"], ops[0][0]["notify_exec"]) == (True, True)
    assert [op.get("fail", False) for op in ops[1]] == [False, True, False]
    assert ops[3][0]["depends"] == [[3, ["success", "error", "canceled"]]]
    assert ("CancelJob", [4, False]) in [(m, list(a)) for m, a in queue.calls]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"points": [("expandnames", "running")]},
            "status at expandnames: wanted 'waiting', found 'running'",
        ),
        (
            {"points": [("expandnames", "waiting"), ("exec", "waiting")]},
            "status at exec: wanted 'running', found 'waiting'",
        ),
        ({"points": [("expandnames", "waiting")]}, "stops: wanted ['expandnames', "),
        ({"texts": ["TESTMSG=first message"]}, "messages: wanted ['TESTMSG=first mes"),
        ({"result": False}, "result: wanted [True], found [False]"),
        ({"states": ["success"] * 3}, "job 2 should have failed, but succeeded"),
        (
            {"states": ["success", "error", "success"]},
            "opcodes: wanted ['success', 'error', 'error'], found",
        ),
        ({"is_canceled": False}, "job 4 was not canceled: it runs already"),
        ({"id_step": 2}, "ids: wanted [9, 10, 11, 12, 13], found [9, 11, 13, 15, 17]"),
    ],
)
def test_a_queue_that_does_not_work_is_reported(resumed, change, text):
    queue = Queue()
    for name, value in change.items():
        setattr(queue, name, value)
    done = commands.run("gnt-debug test-jobqueue", queue)
    assert done.code == 1
    assert text in " ".join(done.err.split())


def test_a_test_opcode_continues_after_one_byte(tmp_path):
    path = str(tmp_path / "socket")
    received = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def accept():
            with listener.accept()[0] as client:
                received.append(client.recv(10))

        thread = threading.Thread(target=accept)
        thread.start()
        jobqueue._resume(path)
        thread.join(30)
    assert received == [b"\n"]
    with pytest.raises(errors.OpExecError, match=f"no process listens at {path}"):
        jobqueue._resume(path)
