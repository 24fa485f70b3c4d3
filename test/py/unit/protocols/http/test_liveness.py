"""Probes of silent servers, and the requests given up."""

import pytest

from ganeti.protocols.http.liveness import PROBE_EVERY_S, STALE_S, Liveness

A, B = ("a", 1), ("b", 1)


@pytest.fixture
def state():
    return Liveness()


def test_nobody_is_asked_before_the_time(state):
    assert state.wait_s(0.0) is None
    state.watch("x", A, 5.0)
    state.watch("y", B, 3.0)
    assert state.wait_s(1.0) == 2.0
    assert state.due(2.9) == []
    assert state.due(3.0) == [(B, "y")]
    assert state.due(9.0) == [(A, "x")]
    assert state.wait_s(9.0) is None


def test_requests_that_are_over_are_forgotten(state):
    state.watch("x", A, 1.0)
    state.forget("x")
    assert state.wait_s(2.0) is None
    assert state.due(2.0) == []
    state.watch("y", A, 1.0)
    assert state.due(2.0) == [(A, "y")]
    state.forget("y")
    assert state.silent(A, 0.0) == []
    state.forget("y")


def test_one_question_serves_all_requests_to_a_server(state):
    for due, item in enumerate("xyz"):
        state.watch(item, A, float(due))
    assert state.due(1.0) == [(A, "x")]
    assert state.due(2.0) == []
    assert state.silent(A, 0.0) == ["x", "y", "z"]


def test_who_lives_is_asked_again_later(state):
    state.watch("x", A, 1.0)
    assert state.due(1.0) == [(A, "x")]
    state.alive(A, 2.0)
    assert state.wait_s(2.0) == PROBE_EVERY_S
    assert state.due(2.0 + PROBE_EVERY_S) == [(A, "x")]


def test_a_server_may_be_asked_later_without_a_word_about_it(state):
    state.silent(A, 0.0)
    state.watch("x", A, 1.0)
    assert state.due(1.0) == [(A, "x")]
    state.later(A, 2.0)
    assert state.is_silent(A)
    assert state.due(2.0 + PROBE_EVERY_S) == [(A, "x")]


def test_silence_ends_with_a_word(state):
    assert not state.is_silent(A)
    state.silent(A, 0.0)
    assert state.is_silent(A)
    assert state.is_stale(A, 0.0)
    state.answered(A, 1.0)
    assert not state.is_silent(A)
    assert not state.is_stale(A, 1.0 + STALE_S)
    assert state.is_stale(A, 1.1 + STALE_S)
    assert not state.is_stale(B, 100.0)


def test_a_request_that_acts_bears_some_silence(state):
    state.watch("reads", A, 1.0)
    state.watch("acts", A, 1.0, 12.0)
    assert [host for host, _ in state.due(1.0)] == [A]
    assert state.silent(A, 6.0) == ["reads"]
    state.forget("reads")
    assert [host for host, _ in state.due(11.0)] == [A]
    assert state.silent(A, 12.0) == []
    assert [host for host, _ in state.due(17.0)] == [A]
    assert state.silent(A, 18.0) == ["acts"]


def test_an_answer_ends_the_silence(state):
    state.watch("acts", A, 1.0, 12.0)
    state.due(1.0)
    assert state.silent(A, 6.0) == []
    state.due(11.0)
    state.alive(A, 12.0)
    state.due(17.0)
    assert state.silent(A, 22.0) == []
