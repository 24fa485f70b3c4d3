"""Transitions of whole jobs: statuses, times, results and priorities after each event."""

import msgspec
import pytest

from ganeti.base import errors
from ganeti.decisions.jobs import records, transitions
from ganeti.decisions.jobs.records import Event, encode_value
from ganeti.master.jqueue import Status
from ganeti.model import opcodes

NOW, LATER, LAST = (100, 5), (200, 6), (300, 7)
CANCELED = "Job canceled by request"


def job(*statuses, **changes):
    ops = tuple(
        records.JobOp(
            input=encode_value(opcodes.encode(opcodes.TestDelay(duration=1.0))),
            status=Status(status),
            priority=number,
        )
        for number, status in enumerate(statuses)
    )
    return records.Job(id=7, ops=ops, received_timestamp=(1, 1), **changes)


def statuses(made):
    return " ".join(op.status.value for op in made.ops)


def results(made):
    return [op.result_value() for op in made.ops]


def test_a_new_job_waits_with_its_priorities_and_without_secrets():
    ops = [
        opcodes.TestDelay(duration=1.0, priority=-5),
        opcodes.decode(
            {
                "OP_ID": "OP_INSTANCE_REINSTALL",
                "instance_name": "a",
                "osparams_private": {"p": "x"},
                "osparams_secret": {"s": "y"},
            }
        ),
    ]
    made = transitions.new_job(9, ops, NOW)
    assert (made.id, made.received_timestamp, statuses(made)) == (
        9,
        NOW,
        "queued queued",
    )
    assert (made.start_timestamp, made.end_timestamp) == (None, None)
    assert [op.priority for op in made.ops] == [-5, 0]
    stored = made.ops[1].decoded_input()
    assert stored["osparams_private"] == {"p": "x"}
    assert stored["osparams_secret"] == {"s": "<redacted>"}


@pytest.mark.parametrize(
    ("given", "index"),
    [
        (("queued",), 0),
        (("success", "waiting"), 1),
        (("success", "error", "error"), None),
        (("canceled",), None),
        (("success", "running", "queued"), 1),
    ],
)
def test_the_next_opcode_is_the_first_that_has_not_ended(given, index):
    assert transitions.next_index(job(*given)) == index


def test_a_start_is_recorded_once_for_opcode_and_job():
    made = transitions.start(job("queued", "queued"), 0, NOW)
    assert (made.start_timestamp, made.ops[0].start_timestamp) == (NOW, NOW)
    assert made.ops[1].start_timestamp is None
    again = transitions.start(transitions.requeue(made, 0), 0, LATER)
    assert (again.start_timestamp, again.ops[0].start_timestamp) == (NOW, NOW)
    retried = transitions.retry(again, 0, -7)
    assert (retried.ops[0].priority, retried.ops[1].priority) == (-7, 1)
    assert statuses(retried) == "waiting queued"
    running = transitions.execute(retried, 0, LATER)
    assert running.ops[0].exec_timestamp == LATER
    assert statuses(running) == "running queued"


def test_a_job_ends_with_its_last_opcode():
    made = job("running", "queued")
    value = encode_value({"a": 1})
    made = transitions.with_resumption(made, 0, value)
    assert made.ops[0].is_resumable
    assert made.ops[0].resumption_value() == {"a": 1}
    assert transitions.resume(made, 0) == made
    made = transitions.succeed(made, 0, encode_value(5), LATER)
    assert (statuses(made), made.end_timestamp) == ("success queued", None)
    assert made.ops[0].end_timestamp == LATER
    # Nothing is left to continue.
    assert made.ops[0].resumption_value() is None
    made = transitions.start(made, 1, LATER)
    made = transitions.execute(made, 1, LATER)
    made = transitions.succeed(made, 1, encode_value(None), LAST)
    assert (made.status, made.end_timestamp) == (Status.SUCCESS, LAST)
    assert results(made) == [5, None]


def test_a_failure_ends_all_later_opcodes():
    made = job("success", "running", "queued")
    error = errors.OpPrereqError("no disk", "environment_error")
    made = transitions.fail(made, 1, error, NOW)
    assert statuses(made) == "success error error"
    assert made.end_timestamp == NOW
    assert [op.end_timestamp for op in made.ops] == [None, NOW, NOW]
    assert results(made)[1:] == [
        ["OpPrereqError", ["no disk", "environment_error"]],
        ["OpExecError", ["Preceding opcode failed"]],
    ]


@pytest.mark.parametrize(
    ("reason", "result"),
    [("why", "why"), (errors.OpExecError("why"), ["OpExecError", ["why"]])],
)
def test_an_outside_reason_ends_what_has_not_ended(reason, result):
    made = transitions.abort(job("success", "running", "queued"), reason, NOW)
    assert statuses(made) == "success error error"
    assert results(made) == [None, result, result]
    assert made.end_timestamp == NOW


@pytest.mark.parametrize(
    ("given", "expected", "is_over"),
    [
        (("queued", "queued"), "canceled canceled", True),
        (("success", "queued"), "success canceled", True),
        (("waiting", "queued"), "canceling queued", False),
        (("success", "waiting"), "success canceling", False),
    ],
)
def test_a_waiting_job_is_canceled_by_its_worker(given, expected, is_over):
    made = transitions.cancel(job(*given), NOW)
    assert statuses(made) == expected
    assert made.end_timestamp == (NOW if is_over else None)
    if is_over:
        assert results(made)[-1] == CANCELED
        assert transitions.cancel(job(*given), NOW, "x").ops[-1].result_value() == "x"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("waiting", "queued"), "canceled canceled"),
        (("success", "queued"), "success canceled"),
        (("success", "success"), "success success"),
    ],
)
def test_the_rest_of_a_job_is_canceled(given, expected):
    made = transitions.cancel_rest(job(*given), NOW)
    assert statuses(made) == expected
    assert made.end_timestamp == NOW
    with pytest.raises(errors.ProgrammerError, match="running cannot cancel"):
        transitions.cancel_rest(job("running"), NOW)


def test_a_worker_confirms_a_cancellation():
    made = transitions.confirm_cancel(job("success", "canceling", "queued"), 1, NOW)
    assert statuses(made) == "success canceled canceled"
    assert results(made) == [None, CANCELED, CANCELED]
    assert (made.end_timestamp, made.ops[1].end_timestamp) == (NOW, NOW)
    other = transitions.confirm_cancel(job("canceling"), 0, NOW, "lost locks")
    assert results(other) == ["lost locks"]


def test_a_priority_is_that_of_opcodes_that_have_not_begun():
    given = job("success", "running", "waiting", "queued", "canceling")
    made = transitions.with_priority(given, -9)
    assert [op.priority for op in made.ops] == [0, 1, -9, -9, 4]


UNCLEAN = "Unclean master daemon shutdown"


@pytest.mark.parametrize(
    ("given", "expected", "result"),
    [
        (("queued", "queued"), "queued queued", None),
        (("success", "waiting", "queued"), "success queued queued", None),
        (("success", "running", "queued"), "success error error", UNCLEAN),
        (("canceling", "queued"), "error error", UNCLEAN),
        (("success", "success"), "success success", None),
        (("error", "error"), "error error", None),
        (("canceled",), "canceled", None),
    ],
)
def test_jobs_of_a_dead_daemon(given, expected, result):
    made = transitions.recover(job(*given), NOW)
    assert statuses(made) == expected
    assert results(made)[-1] == result
    assert made.end_timestamp == (NOW if result else None)


def test_a_job_that_can_be_continued_runs_on():
    given = transitions.with_resumption(job("running", "queued"), 0, encode_value(1))
    assert transitions.recover(given, NOW) == given


def test_a_secret_that_was_never_stored_fails_its_job():
    secret = {
        "OP_ID": "OP_INSTANCE_REINSTALL",
        "instance_name": "a",
        "osparams_secret": {"s": "y"},
    }
    made = transitions.new_job(9, [opcodes.decode(secret)], NOW)
    lost = transitions.recover(made, LATER)
    assert (statuses(lost), lost.end_timestamp) == ("error", LATER)
    ((name, (text,)),) = results(lost)
    assert name == "OpExecError"
    assert text.startswith("secret parameters are never stored, so they were lost")
    # One that continues may be able to do without.
    running = transitions.execute(transitions.start(made, 0, NOW), 0, NOW)
    for left, expected in (
        ({"without_secrets": True}, "running"),
        ({"without_secrets": False}, "error"),
        ({}, "error"),
        (["without_secrets"], "error"),
    ):
        kept = transitions.with_resumption(running, 0, encode_value(left))
        assert statuses(transitions.recover(kept, LATER)) == expected, left
    # An opcode that has ended needs no secret any more.
    ended = msgspec.structs.replace(made.ops[0], status=Status.SUCCESS)
    rest = job("queued").ops[0]
    done = msgspec.structs.replace(made, ops=(ended, rest))
    assert statuses(transitions.recover(done, LATER)) == "success queued"


def test_an_opcode_that_continues_is_not_ended_by_the_secrets_of_a_later_one():
    secret = opcodes.decode(
        {
            "OP_ID": "OP_INSTANCE_REINSTALL",
            "instance_name": "a",
            "osparams_secret": {"s": "y"},
        }
    )
    made = transitions.new_job(9, [opcodes.TestDelay(duration=1.0), secret], NOW)
    made = transitions.execute(transitions.start(made, 0, NOW), 0, NOW)
    assert statuses(transitions.recover(made, LATER)) == "error error"
    made = transitions.with_resumption(made, 0, msgspec.Raw(b"{}"))
    assert statuses(transitions.recover(made, LATER)) == "running queued"
    # The one that continues needs its own.
    alone = transitions.new_job(9, [secret], NOW)
    alone = transitions.execute(transitions.start(alone, 0, NOW), 0, NOW)
    alone = transitions.with_resumption(alone, 0, msgspec.Raw(b"{}"))
    assert statuses(transitions.recover(alone, LATER)) == "error"


def test_an_error_without_a_form_in_json_becomes_text():
    error = errors.OpExecError("a", object)
    name, (first, second) = msgspec.json.decode(transitions.encode_error(error))
    assert (name, first) == ("OpExecError", "a")
    assert second == str(object)
    plain = msgspec.json.decode(transitions.encode_error(ValueError("x")))
    assert plain == ["OpExecError", ["x"]]


#: Status, and where each event leads from there; all other events are impossible.
TABLE = {
    "queued": {"start": "waiting", "cancel": "canceled", "abort": "error"},
    "waiting": {
        "retry": "waiting",
        "requeue": "queued",
        "execute": "running",
        "fail": "error",
        "cancel": "canceling",
        "abort": "error",
    },
    "canceling": {"confirm": "canceled", "fail": "error", "abort": "error"},
    "running": {
        "resume": "running",
        "succeed": "success",
        "fail": "error",
        "abort": "error",
    },
    "canceled": {},
    "success": {},
    "error": {},
}


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("event", list(Event))
def test_each_event_leads_where_the_documentation_says(status, event):
    following = TABLE[status.value].get(event.value)
    if following is not None:
        assert records.advance(status, event).value == following
        return
    with pytest.raises(errors.ProgrammerError) as caught:
        records.advance(status, event)
    text = f"an opcode that is {status.value} cannot {event.value}"
    assert caught.value.args == (text,)
    assert status.is_final is (not TABLE[status.value])
