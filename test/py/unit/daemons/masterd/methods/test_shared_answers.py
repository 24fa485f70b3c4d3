"""Shared answers: never older than the question, and computed once for all who wait."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ganeti.daemons.masterd.methods import shared_answers
from ganeti.daemons.masterd.methods.shared_answers import SharedAnswers

LIMIT_S = 30


class Work:
    """Computations that wait until the test lets them go on."""

    def __init__(self):
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.count = 0

    def __call__(self):
        self.count += 1
        number = self.count
        self.begun.release()
        assert self.may_end.acquire(timeout=LIMIT_S)
        return number


@pytest.fixture
def executor():
    with ThreadPoolExecutor(8) as executor:
        yield executor


@pytest.fixture
def work():
    return Work()


@pytest.fixture
def patient(monkeypatch):
    monkeypatch.setattr(shared_answers, "_PATIENCE_S", LIMIT_S)


def test_who_asks_during_the_work_gets_the_next_answer_with_the_others(
    executor, work, patient
):
    answers = SharedAnswers()
    first = answers.ask(executor, "a", work)
    assert work.begun.acquire(timeout=LIMIT_S)
    later = [answers.ask(executor, "a", work) for _ in range(5)]
    work.may_end.release(2)
    assert first.result(LIMIT_S) == 1
    assert [each.result(LIMIT_S) for each in later] == [2] * 5
    assert answers._subjects == {}


def test_other_questions_have_other_answers(executor, work):
    answers = SharedAnswers()
    both = [answers.ask(executor, key, work) for key in "ab"]
    work.may_end.release(2)
    assert sorted(each.result(LIMIT_S) for each in both) == [1, 2]


def test_a_slow_answer_does_not_delay_the_next_one(executor, work, monkeypatch):
    monkeypatch.setattr(shared_answers, "_PATIENCE_S", 0.001)
    answers = SharedAnswers()
    first = answers.ask(executor, "a", work)
    assert work.begun.acquire(timeout=LIMIT_S)
    second = answers.ask(executor, "a", work)
    assert work.begun.acquire(timeout=LIMIT_S)
    assert not first.done()
    work.may_end.release(2)
    assert {first.result(LIMIT_S), second.result(LIMIT_S)} == {1, 2}


def test_an_error_is_the_answer_of_all_and_not_of_later_ones(executor, work, patient):
    answers = SharedAnswers()

    def fail():
        work()
        raise ValueError("no")

    first = answers.ask(executor, "a", work)
    assert work.begun.acquire(timeout=LIMIT_S)
    later = [answers.ask(executor, "a", fail) for _ in range(2)]
    work.may_end.release(2)
    assert first.result(LIMIT_S) == 1
    for each in later:
        assert isinstance(each.exception(LIMIT_S), ValueError)
    work.may_end.release()
    assert answers.ask(executor, "a", work).result(LIMIT_S) == 3


def test_an_executor_that_has_ended_leaves_nothing(work):
    answers, executor = SharedAnswers(), ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(RuntimeError):
        answers.ask(executor, "a", work)
    assert answers._subjects == {}
