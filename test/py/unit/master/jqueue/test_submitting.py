"""Submissions of several jobs at once: ids, limits, reasons, and one commit for all."""

import pytest

from fakes.jobs_run import WAIT_S, Harness, dummy
from ganeti.base import errors
from ganeti.master.jqueue.effects import Document
from ganeti.model import opcodes


@pytest.fixture
def waiting():
    """Return a queue that runs nothing, with room for three jobs."""
    harness = Harness(hard_limit=3)
    yield harness
    harness.close()


def stored(harness, table):
    harness.settle()
    return [key for key, _data in harness.store.scan(table)]


def test_all_jobs_and_documents_are_one_commit(waiting):
    seen = []

    def also(ids):
        seen.append(list(ids))
        return [Document("meta", "of-the-round", b"%d" % sum(ids))]

    before = waiting.store.snapshot().revision
    future = waiting.queue.submit_all_later([[dummy("a")], [dummy("b"), dummy()]], also)
    assert future.result(WAIT_S) == [1, 2]
    assert seen == [[1, 2]]
    assert stored(waiting, "jobs") == ["1", "2"]
    assert waiting.store.read("meta", "of-the-round") == b"3"
    assert waiting.store.read("meta", "serial") == b"2"
    assert waiting.store.snapshot().revision == before + 1
    assert waiting.queue.submit([dummy()]) == 3


def test_documents_may_come_without_jobs(waiting):
    document = Document("meta", "of-the-round", b"x")
    future = waiting.queue.submit_all_later([], lambda _ids: [document])
    assert future.result(WAIT_S) == []
    assert waiting.store.read("meta", "of-the-round") == b"x"
    assert waiting.queue.submit([dummy()]) == 1


@pytest.mark.parametrize(
    ("jobs", "error"),
    [
        ([[dummy()]] * 4, errors.JobQueueFull),
        ([[dummy()], []], errors.OpPrereqError),
        ([[dummy(priority=3)]], errors.OpPrereqError),
    ],
)
def test_of_jobs_that_belong_together_all_are_refused(waiting, jobs, error):
    with pytest.raises(error):
        waiting.queue.submit_all_later(jobs, lambda _ids: pytest.fail("asked"))
    assert stored(waiting, "jobs") == []
    # No id was used up.
    future = waiting.queue.submit_all_later([[dummy()]] * 3, lambda _ids: [])
    assert future.result(WAIT_S) == [1, 2, 3]
    with pytest.raises(errors.JobQueueFull):
        waiting.queue.submit([dummy()])


def test_a_drained_queue_takes_jobs_that_belong_together_on_request(waiting):
    waiting.queue.set_drain_later(True).result()
    with pytest.raises(errors.JobQueueDrainError, match="drained, refusing jobs"):
        waiting.queue.submit_all_later([[dummy()]], lambda _ids: [])
    future = waiting.queue.submit_all_later(
        [[dummy()]], lambda _ids: [], to_drained=True
    )
    assert future.result(WAIT_S) == [1]


def test_jobs_beyond_the_limit_use_up_their_ids(waiting):
    answers = waiting.queue.submit_many_later([[dummy()]] * 4).result()
    assert [answer[0] for answer in answers] == [True, True, True, False]
    assert [answer[1] for answer in answers[:3]] == [1, 2, 3]
    assert answers[3][1] == "JobQueueFull"
    assert waiting.store.read("meta", "serial") == b"4"


def test_a_job_without_opcodes_and_a_wrong_priority_are_named(waiting):
    with pytest.raises(errors.OpPrereqError) as caught:
        waiting.queue.submit([])
    assert caught.value.args == ("a job needs at least one opcode", "wrong_input")
    with pytest.raises(errors.OpPrereqError) as caught:
        waiting.queue.submit([opcodes.TestDelay(duration=1.0, priority=7)])
    text, code = caught.value.args
    assert code == "wrong_input"
    assert text.startswith(
        "TEST_DELAY(1.0): priority 7 cannot be submitted, wanted one of "
    )
    for allowed in ("-10", "0", "10"):
        assert allowed in text


def test_each_opcode_has_the_reason_of_its_job(waiting):
    entry = ("gnt:user", "maintenance", 5)
    op = dummy("a", reason=[entry])
    waiting.queue.submit([dummy(), op])
    (own,) = waiting.queue.job(1).ops[0].input_value()["reason"]
    assert own[:2] == ["gnt:opcode:test_dummy", "job=1;index=0"]
    first, second = waiting.queue.job(1).ops[1].input_value()["reason"]
    assert first == list(entry)
    assert second[:2] == ["gnt:opcode:test_dummy", "job=1;index=1"]
    seconds, micros = waiting.queue.job(1).received_timestamp
    assert second[2] == seconds * 1_000_000_000 + micros * 1000
