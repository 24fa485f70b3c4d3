"""Answers of methods: results, errors, malformed requests, and clients that left."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from ganeti.base import errors
from ganeti.base.constants import misc
from ganeti.daemons.masterd.methods import calls, jobs


class FakeCall:
    """A call that records how it was answered."""

    def __init__(self, method="Test", args=()):
        self.method, self.args = method, list(args)
        self.on_close = self.origin = None
        self.connection = SimpleNamespace(peer=(1, 0))
        self.answers = []

    def succeed(self, result):
        self.answers.append(("result", result))

    def fail(self, err):
        self.answers.append(("error", type(err), str(err)))

    def reject(self, text):
        self.answers.append(("rejected", text))


class Stalls:
    """Records the subjects of calls that wait for a commit."""

    def __init__(self):
        self.subjects, self.must_answer = [], True

    def add(self, _call, subject):
        self.subjects.append(subject)

    def remove(self, _call):
        return self.must_answer


@pytest.fixture
def method(monkeypatch):
    """Return a function that answers a call by a function with one argument."""
    monkeypatch.setattr(calls, "METHODS", dict(calls.METHODS))

    def answer(function, args=()):
        calls.method("Test")(function)
        call = FakeCall(args=args)
        calls.answer(SimpleNamespace(), call, Stalls())
        return call.answers

    return answer


def test_arguments_are_checked_by_their_types_and_have_defaults(method):
    def test(_deps, number: int, text: str = "none"):
        return [number, text]

    assert method(test, [1]) == [("result", [1, "none"])]
    assert method(test, [1, "x"]) == [("result", [1, "x"])]
    for wrong in ([], ["1"], [1, "x", 2]):
        ((kind, text),) = method(test, wrong)
        assert kind == "rejected"
        assert text.startswith("Failed to parse request: Test: ")


def test_an_unknown_method_is_named():
    call = FakeCall("Nonsense")
    calls.answer(SimpleNamespace(), call, Stalls())
    ((kind, text),) = call.answers
    assert kind == "rejected"
    assert "unknown method 'Nonsense'" in text


def raising(error):
    def test(_deps):
        raise error

    return test


def later(error):
    future = Future()
    future.set_exception(error)
    return lambda _deps: calls.Later(future)


@pytest.mark.parametrize("form", [raising, later])
def test_errors_have_their_form_at_once_and_later(method, form):
    error = errors.OpPrereqError("no such node", "unknown_entity")
    ((kind, made, _text),) = method(form(error))
    assert (kind, made) == ("error", errors.OpPrereqError)
    malformed = calls.Malformed("job x")
    assert method(form(malformed)) == [
        ("rejected", "Failed to parse request: Test: job x")
    ]


def test_an_unexpected_error_is_logged_and_the_client_gets_its_type(method, caplog):
    ((kind, made, text),) = method(later(KeyError("gone")))
    assert (kind, made) == ("error", errors.GenericError)
    assert text == "KeyError: 'gone'"
    assert "Test failed" in caplog.text


def test_a_client_that_left_gets_no_answer_and_its_work_is_cancelled():
    call, future = FakeCall(), Future()
    calls._answer_later(call, calls.Later(future, can_cancel=True), Stalls())
    call.on_close()
    assert future.cancelled()
    assert call.answers == []


def test_work_that_changes_something_goes_on_when_its_client_leaves():
    call, future = FakeCall(), Future()
    calls._answer_later(call, calls.Later(future, committing="Job 7"), Stalls())
    assert call.on_close is None
    future.set_result(7)
    assert call.answers == [("result", 7)]


def test_a_call_that_was_answered_in_a_stall_gets_no_second_answer():
    call, future, stalls = FakeCall(), Future(), Stalls()
    calls._answer_later(call, calls.Later(future, committing="Job 7"), stalls)
    assert stalls.subjects == ["Job 7"]
    stalls.must_answer = False
    future.set_result(7)
    assert call.answers == []


def test_results_are_converted(method):
    future = Future()
    future.set_result(3)
    assert method(lambda _deps: calls.Later(future, lambda n: n + 1)) == [("result", 4)]


class Queue:
    """A job queue that records its calls."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def record(*args, **kwargs):
            self.calls.append((name, args, kwargs))
            return Future()

        return record


@pytest.fixture
def queue():
    return Queue()


def watch(queue, **more):
    deps = SimpleNamespace(queue=queue)
    made = jobs.wait_for_job_change(deps, job_id="7", fields=["status"], **more)
    ((name, args, kwargs),) = queue.calls
    assert (name, args[0]) == ("wait_for_change", 7)
    return made, kwargs


@pytest.mark.parametrize(
    ("wanted", "used"),
    [
        ({}, misc.LUXI_WFJC_TIMEOUT),
        ({"timeout_s": 10.0**9}, misc.LUXI_WFJC_TIMEOUT),
        ({"timeout_s": -5.0}, 0.0),
        ({"timeout_s": 2.5}, 2.5),
    ],
)
def test_a_client_cannot_wait_for_a_job_without_limit(queue, wanted, used):
    made, kwargs = watch(queue, **wanted)
    assert kwargs["timeout_s"] == used
    assert (made.can_cancel, made.committing) == (True, "Job 7")


def test_a_watcher_says_what_it_knows(queue):
    _made, kwargs = watch(queue, previous=["queued"], serial=4)
    assert (kwargs["previous"], kwargs["serial"]) == (["queued"], 4)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "Each of the jobs 1"),
        (5, "Each of the jobs 1, 2, 3, 4, 5"),
        (6, "Each of the jobs 1, 2, 3, 4, 5, ..."),
    ],
)
def test_a_stall_names_some_of_the_jobs(queue, count, text):
    watched = [jobs.Watched(n, ["queued"], n) for n in range(1, count + 1)]
    deps = SimpleNamespace(queue=queue)
    made = jobs.wait_for_job_changes(deps, watched, ["status"], 3.0)
    assert (made.committing, made.can_cancel) == (text, True)
    ((_name, (known, _fields), kwargs),) = queue.calls
    assert [(row.job_id, row.serial) for row in known] == [
        (n, n) for n in range(1, count + 1)
    ]
    assert kwargs == {"timeout_s": 3.0}


def test_one_call_watches_ten_thousand_jobs_at_most(queue):
    watched = [jobs.Watched(1)] * 10_000
    deps = SimpleNamespace(queue=queue)
    jobs.wait_for_job_changes(deps, watched, ["status"])
    with pytest.raises(calls.Malformed, match="wanted 1 to 10000 jobs, found 10001"):
        jobs.wait_for_job_changes(deps, [*watched, watched[0]], ["status"])


def test_acts_on_jobs_reach_the_queue_as_asked(queue):
    deps = SimpleNamespace(queue=queue)
    jobs.cancel_job(deps, "7")
    jobs.cancel_job(deps, 7, kill=True)
    jobs.change_job_priority(deps, 8, -10)
    jobs.auto_archive_jobs(deps, 5.0, 9.0)
    jobs.set_drain_flag(deps, flag=False)
    jobs.submit_job_to_drained_queue(deps, [])
    jobs.submit_job(deps, [])
    assert queue.calls == [
        ("cancel_later", (7,), {"kill": False}),
        ("cancel_later", (7,), {"kill": True}),
        ("change_priority_later", (8, -10), {}),
        ("autoarchive_later", (5.0, 9.0), {}),
        ("set_drain_later", (False,), {}),
        ("submit_later", ([],), {"to_drained": True}),
        ("submit_later", ([],), {}),
    ]


def test_plans_are_cancelled_with_their_client_and_jobs_are_not():
    deps = SimpleNamespace(
        queue=Queue(),
        planning=SimpleNamespace(submit=lambda *_args: Future()),
        planner=SimpleNamespace(plan=None),
    )
    assert jobs.plan_job(deps, []).can_cancel
    assert not jobs.submit_job(deps, []).can_cancel


def test_job_ids_are_numbers(queue):
    deps = SimpleNamespace(queue=queue)
    with pytest.raises(calls.Malformed, match="abc"):
        jobs.archive_job(deps, "abc")
    jobs.archive_job(deps, "12")
    assert queue.calls == [("archive_later", (12,), {})]
