"""The rules of one lock, each documented behaviour, without threads."""

import pytest

from ganeti.base import errors
from ganeti.decisions import lock_rules as rules


def granted(conditions):
    return [list(p.waiters) for p in conditions]


def shape(state):
    return [("s" if p.shared else "x", list(p.waiters)) for p in state.queue]


def ask(state, owner, mode, priority=0):
    return state.request(owner, shared=mode == "s", priority=priority)


def test_a_new_lock_is_free_with_an_empty_queue():
    state = rules.LockState()
    assert state.queue == ()
    assert state.mode is None


def test_compatible_requests_are_granted_at_once_without_touching_the_queue():
    state = rules.LockState()
    assert ask(state, "a", "s") is None
    assert ask(state, "b", "s") is None
    assert state.queue == ()
    assert state.holders == ("a", "b")
    assert state.mode == "shared"


def test_with_a_queue_even_a_compatible_request_waits():
    state = rules.LockState()
    ask(state, "a", "s")
    ask(state, "x", "x")
    assert ask(state, "b", "s") is not None
    assert shape(state) == [("x", ["x"]), ("s", ["b"])]


def test_a_shared_request_joins_the_queued_condition_and_passes_exclusive_ones():
    state = rules.LockState()
    ask(state, "a", "x")
    ask(state, "s1", "s")
    ask(state, "x1", "x")
    ask(state, "s2", "s")
    assert shape(state) == [("s", ["s1", "s2"]), ("x", ["x1"])]
    assert granted(state.release("a")) == [["s1", "s2"]]
    # Conditions were swapped: who comes now stands behind the exclusive one.
    ask(state, "s3", "s")
    assert shape(state) == [("x", ["x1"]), ("s", ["s3"])]


def test_the_queue_is_never_longer_than_two_and_the_exclusive_ones():
    state = rules.LockState()
    ask(state, "a", "x")
    for i in range(10):
        ask(state, f"s{i}", "s")
        ask(state, f"x{i}", "x")
    assert len(state.queue) <= 2 + 10


def test_exclusive_needs_no_holder_and_shared_no_exclusive_holder():
    state = rules.LockState()
    ask(state, "a", "s")
    ask(state, "b", "s")
    ask(state, "x", "x")
    assert state.release("a") == []
    assert granted(state.release("b")) == [["x"]]
    assert state.mode == "exclusive"


def test_the_last_waiter_who_leaves_takes_the_condition_along():
    state = rules.LockState()
    ask(state, "a", "x")
    first = ask(state, "s1", "s")
    assert ask(state, "s2", "s") is first
    state.withdraw("s1", first)
    assert shape(state) == [("s", ["s2"])]
    state.withdraw("s2", first)
    assert state.queue == ()


def test_a_waiter_that_gives_up_lets_the_next_one_pass():
    state = rules.LockState()
    ask(state, "a", "s")
    first = ask(state, "x", "x")
    ask(state, "b", "s")
    assert granted(state.withdraw("x", first)) == [["b"]]


def test_the_most_urgent_priority_is_first():
    state = rules.LockState()
    ask(state, "a", "x")
    ask(state, "low", "x", 10)
    ask(state, "normal", "x")
    ask(state, "high", "x", -10)
    order = []
    owner = "a"
    while conditions := state.release(owner):
        [owner] = conditions[0].waiters
        order.append(owner)
    assert order == ["high", "normal", "low"]


def test_shared_waiters_are_grouped_by_priority():
    state = rules.LockState()
    ask(state, "a", "x")
    ask(state, "n1", "s")
    ask(state, "h1", "s", -5)
    ask(state, "n2", "s")
    assert shape(state) == [("s", ["h1"]), ("s", ["n1", "n2"])]
    assert granted(state.release("a")) == [["h1"], ["n1", "n2"]]


def test_a_more_urgent_compatible_request_is_first_in_the_queue():
    state = rules.LockState()
    ask(state, "a", "s")
    ask(state, "x", "x")
    assert ask(state, "b", "s", -1) is None


def test_downgrade_lets_the_most_urgent_shared_waiters_in():
    state = rules.LockState()
    ask(state, "a", "x")
    ask(state, "x", "x")
    ask(state, "b", "s")
    ask(state, "c", "s", 5)
    assert granted(state.downgrade("a")) == [["b"]]
    assert state.mode == "shared"
    assert shape(state) == [("x", ["x"]), ("s", ["c"])]
    assert state.downgrade("a") == []


def test_delete_fails_everybody():
    state = rules.LockState()
    ask(state, "a", "x")
    ask(state, "b", "s")
    ask(state, "c", "x")
    assert granted(state.delete("a")) == [["b"], ["c"]]
    assert state.mode == "deleted"
    assert state.holders == ()
    with pytest.raises(errors.LockError):
        ask(state, "d", "s")


def test_misuse_is_a_programming_error():
    state = rules.LockState()
    ask(state, "a", "s")
    for step in (
        lambda: ask(state, "a", "s"),
        lambda: state.release("b"),
        lambda: state.downgrade("b"),
        lambda: state.delete("a"),
    ):
        with pytest.raises(errors.ProgrammerError):
            step()
