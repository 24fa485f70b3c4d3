"""Jobs of bootstrap commands, and polling: how often, and for how long."""

import pytest

from fakes.clocks import FakeClock
from fakes.luxi_master import Connection
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.bootstrap import jobs
from ganeti.model import opcodes
from ganeti.protocols import luxi

FIELDS = ["status", "opstatus", "opresult"]


class Master:
    """Answers WaitForJobChange from a list; other calls fail the test."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.known = []

    def call(self, method, args):
        assert method == "WaitForJobChange"
        job, fields, previous, serial, timeout_s = args
        assert (job, fields) == (7, FIELDS)
        assert timeout_s > 0
        self.known.append((previous, serial))
        return self.answers.pop(0)


def entry(serial, text):
    return [serial, [1, 0], "message", text]


def ended(status, states, results):
    return [[status, states, results], []]


def wait(master):
    lines = []
    return jobs.wait(master, 7, lines.append), lines


def test_waiting_passes_on_what_is_known_and_shows_each_entry_once():
    running = ["running", ["running"], [None]]
    done = ["success", ["success"], ["result"]]
    master = Master(
        [running, [entry(1, "one"), entry(2, "two")]],
        "nochange",
        [running, []],
        [done, [entry(5, "three")]],
    )
    assert wait(master) == (["result"], ["one", "two", "three"])
    assert master.known == [(None, None), *[(running, 2)] * 3]


def test_the_error_of_the_opcode_that_failed_is_raised_with_its_class():
    failed = errors.encode(errors.OpPrereqError("no such disk", "wrong_input"))
    master = Master(ended("error", ["success", "error"], [1, failed]))
    with pytest.raises(errors.OpPrereqError, match="no such disk"):
        wait(master)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (ended("error", ["error"], ["no memory"]), errors.OpExecError, "^no memory$"),
        (
            ended("canceled", ["canceled"], [None]),
            errors.OpExecError,
            "^job 7: ended as canceled$",
        ),
        (ended(None, None, None), errors.JobLost, "job 7"),
    ],
)
def test_other_ends_are_errors_too(answer, error, text):
    with pytest.raises(error, match=text):
        wait(Master(answer))


def test_a_job_is_submitted_to_the_master_of_this_node(tmp_path, monkeypatch):
    connection = Connection()
    connection.master.results["OP_CLUSTER_POST_INIT"] = True
    connection.master.messages["OP_CLUSTER_POST_INIT"] = ["hook ran"]
    paths, lines = Paths(str(tmp_path / "n1"), "n1"), []
    monkeypatch.setattr(
        luxi.Client, "of_node", {paths: connection}.__getitem__, raising=True
    )
    assert jobs.run(paths, [opcodes.ClusterPostInit()], lines.append) == [True]
    assert connection.master.jobs == {1: [opcodes.ClusterPostInit()]}
    assert lines == ["hook ran"]


class Verification:
    """A master whose jobs end at once: one of verification, which submits others."""

    def __init__(self, jobs_, results):
        self.submitted = []
        self.asked = []
        self._first = {"jobs": jobs_}
        self._results = results

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass

    def call(self, method, args):
        if method == "SubmitJob":
            self.submitted += args[0]
            return 5
        assert method == "WaitForJobChange"
        job = args[0]
        self.asked.append(job)
        results = [self._first] if job == 5 else self._results[job]
        return ended("success", ["success"] * len(results), results)


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ({6: [True], 7: [True, True]}, True),
        ({6: [False], 7: [True]}, False),
        ({6: [True], 7: [True, False]}, False),
        # Anything else than the word of a verification that found nothing.
        ({6: [True], 7: [1]}, False),
    ],
)
def test_a_cluster_is_well_if_all_jobs_of_its_verification_are(
    tmp_path, monkeypatch, results, expected
):
    master = Verification([[True, 6], [True, "7"]], results)
    paths = Paths(str(tmp_path / "n1"), "n1")
    monkeypatch.setattr(luxi.Client, "of_node", {paths: master}.__getitem__)
    assert jobs.verify_cluster(paths, print) is expected
    assert [op["OP_ID"] for op in master.submitted] == ["OP_CLUSTER_VERIFY"]
    assert master.asked == [5, 6, 7]


def test_a_verification_that_was_not_submitted_is_an_error(tmp_path, monkeypatch):
    master = Verification([[False, "queue is full"]], {})
    paths = Paths(str(tmp_path / "n1"), "n1")
    monkeypatch.setattr(luxi.Client, "of_node", {paths: master}.__getitem__)
    with pytest.raises(errors.OpExecError, match="cannot be verified: queue is full"):
        jobs.verify_cluster(paths, print)


def test_a_job_for_a_drained_queue_has_a_method_of_its_own(tmp_path, monkeypatch):
    asked = []

    class Client(Verification):
        def call(self, method, args):
            asked.append((method, args))
            return 7 if "Submit" in method else ended("success", ["success"], [True])

    paths = Paths(str(tmp_path / "n1"), "n1")
    client = Client([], {})
    monkeypatch.setattr(luxi.Client, "of_node", {paths: client}.__getitem__)
    op = opcodes.ClusterPostInit()
    assert jobs.run(paths, [op], print, to_drained=True) == [True]
    assert asked[0] == ("SubmitJobToDrainedQueue", [[opcodes.encode(op)]])


def test_the_first_failure_without_a_class_is_reported_as_it_is():
    master = Master(
        ended("error", ["success", "error", "error"], [1, {"odd": 1}, "later"])
    )
    with pytest.raises(errors.OpExecError, match=r"^\{'odd': 1\}$"):
        wait(master)


class Condition:
    """Becomes true at some question; records when it was asked."""

    def __init__(self, clock, number=None):
        self.clock, self.number, self.times = clock, number, []

    def __call__(self):
        self.times.append(self.clock.now - 100.0)
        return len(self.times) == self.number


def test_a_condition_that_holds_takes_no_time():
    clock = FakeClock(100.0)
    assert jobs.wait_until(Condition(clock, 1), clock, timeout_s=30)
    assert clock.now == 100.0


def test_pauses_grow_to_a_limit():
    clock = FakeClock(100.0)
    condition = Condition(clock, 7)
    assert jobs.wait_until(condition, clock, timeout_s=30)
    assert condition.times == [0, 1.0, 2.5, 4.75, 8.125, 13.125, 18.125]


def test_the_last_question_is_asked_at_the_end_of_the_time():
    clock = FakeClock(100.0)
    condition = Condition(clock)
    assert not jobs.wait_until(condition, clock, timeout_s=3)
    assert condition.times == [0, 1.0, 2.5, 3.0]
