"""Waits for jobs: limits, what is not passed on, the end of the daemon."""

import pytest

from ganeti.base import errors
from ganeti.daemons.rapi import waits
from ganeti.daemons.rapi.problems import Refused

ARGS = [7, ["status"], ["queued"], None, waits.WAIT_S]


class Shared:
    """Keeps calls, as `ganeti.protocols.luxi.shared.SharedClient` does."""

    def __init__(self):
        self.calls = []

    def submit(self, method, args, done, *, timeout_s):
        assert (method, timeout_s) == ("WaitForJobChange", 30.0)
        self.calls.append((args, done))

    def change_all(self, change):
        self.calls = [(change(args), done) for args, done in self.calls]


@pytest.fixture
def shared():
    return Shared()


@pytest.fixture
def all_waits(shared):
    return waits.Waits(shared)


def refusal(all_waits, user="jack", args=ARGS):
    with pytest.raises(Refused) as caught:
        all_waits.admit(user, args)
    return caught.value


def begin(all_waits, user="jack"):
    seen = []
    size = all_waits.admit(user, ARGS)
    all_waits.start(user, ARGS, size, lambda *outcome: seen.append(outcome))
    return seen


def test_a_user_has_a_limited_number_of_waits(all_waits, shared, monkeypatch):
    monkeypatch.setattr(waits, "_MAX_PER_USER", 2)
    seen = [begin(all_waits) for _ in range(2)]
    refused = refusal(all_waits)
    assert (refused.status, refused.headers) == (429, {"Retry-After": "10"})
    assert "user jack waits for 2" in refused.message
    begin(all_waits, "ann")
    shared.calls[0][1]([["running"], []], None)
    assert seen == [[([["running"], []], None)], []]
    begin(all_waits)
    # An error ends a wait, too.
    error = errors.JobLost("no")
    shared.calls[1][1](None, error)
    assert seen[1] == [(None, error)]
    begin(all_waits)
    assert refusal(all_waits).status == 429


def test_all_users_have_a_limited_number_of_waits(all_waits, shared, monkeypatch):
    monkeypatch.setattr(waits, "_MAX_WAITS", 2)
    begin(all_waits, "ann")
    begin(all_waits, "bob")
    refused = refusal(all_waits)
    assert (refused.status, refused.headers) == (503, {"Retry-After": "10"})
    shared.calls[0][1](None, errors.JobLost("no"))
    begin(all_waits)


def test_the_bodies_of_waits_are_limited_together(all_waits, shared, monkeypatch):
    """Both daemons keep them: 1000 of the largest ones would take gigabytes."""
    size = all_waits.admit("jack", ARGS)
    all_waits.start("jack", ARGS, size, lambda *_outcome: None)
    monkeypatch.setattr(waits, "_MAX_BYTES_PER_USER", 2 * size)
    monkeypatch.setattr(waits, "_MAX_BYTES", 3 * size)
    begin(all_waits)
    refused = refusal(all_waits)
    assert (refused.status, refused.headers) == (429, {"Retry-After": "10"})
    assert f"all waits of user jack have more than {2 * size} bytes" in refused.message
    begin(all_waits, "ann")
    refused = refusal(all_waits, "bob")
    assert (refused.status, refused.headers) == (503, {"Retry-After": "10"})
    shared.calls[0][1](["running"], None)
    begin(all_waits, "bob")
    for _args, done in shared.calls[1:]:
        done(["running"], None)
    for _ in range(2):
        begin(all_waits)


def test_large_and_deep_arguments_are_not_passed_on(all_waits, monkeypatch):
    """They would end the connection that all waits share."""
    monkeypatch.setattr(waits, "_MAX_REQUEST", 100)
    refused = refusal(all_waits, args=[7, ["status"], ["x" * 100], None, 10])
    assert (refused.status, "at most 100 bytes" in refused.message) == (413, True)
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert refusal(all_waits, args=[7, ["status"], deep, None, 10]).status == 400
    assert refusal(all_waits, args=[7, ["status"], ["\ud800"], None, 10]).status == 400
    del all_waits, deep


def test_no_wait_outlives_the_daemon(all_waits, shared):
    begin(all_waits)
    all_waits.stop_soon()
    begin(all_waits)
    assert [args for args, _done in shared.calls] == [[*ARGS[:4], 0]] * 2
