"""Transfers that are ended on request, at each moment of their life.

The client's thread is held inside the callback of another request, so the order of
events does not depend on time.
"""

import contextlib
import queue
import threading

import pytest

from fakes.patience import until
from ganeti.protocols.http import client, server

LONG_S = 60


class App:
    """Records paths; /wait answers after `gate` opens, /no refuses once, then waits."""

    def __init__(self):
        self.seen = []
        self.gate = threading.Event()

    def __call__(self, environ, start):
        path = environ["PATH_INFO"]
        self.seen.append(path)
        refuse = path == "/no" and self.seen.count(path) == 1
        if path == "/wait" or (path == "/no" and not refuse):
            self.gate.wait(LONG_S)
        start("403 Forbidden" if refuse else "200 OK", [("Content-Length", "0")])
        return [b""]


@pytest.fixture
def app():
    return App()


@pytest.fixture
def port(app):
    made = server.Server(("127.0.0.1", 0), app, context=None, threads=3)
    made.start_serving()
    yield made.bind_addr[1]
    app.gate.set()
    made.stop()


@pytest.fixture
def caller():
    made = client.Client()
    yield made
    made.close()


def request(port, path):
    return client.Request(
        address="127.0.0.1",
        port=port,
        path=path,
        body=b"",
        credentials=None,
        timeout_s=LONG_S,
    )


@contextlib.contextmanager
def held(caller, port):
    """Hold the client's thread: further requests and aborts are queued."""
    inside, gate = threading.Event(), threading.Event()

    def hold(_response):
        inside.set()
        gate.wait(LONG_S)

    caller.start(request(port, "/hold"), hold)
    assert inside.wait(LONG_S)
    try:
        yield
    finally:
        gate.set()


def is_ended_on_request(answer):
    return answer.status == 0 and "was ended on request" in answer.error


def test_a_transfer_that_was_not_taken_up_yet_is_answered_and_not_sent(
    port, caller, app
):
    answers = queue.SimpleQueue()
    with held(caller, port):
        transfer = caller.start(request(port, "/never"), answers.put)
        caller.abort(transfer)
    answer = answers.get(timeout=LONG_S)
    assert is_ended_on_request(answer)
    assert not answer.is_lost
    # The client goes on, and answered once although it was asked twice.
    assert caller.perform([request(port, "/later")])[0].status == 200
    assert answers.empty()
    assert app.seen == ["/hold", "/later"]


def test_the_others_of_a_group_are_sent(port, caller):
    answers = {path: queue.SimpleQueue() for path in ("/a", "/b", "/c")}
    with held(caller, port):
        made = caller.start_all(
            [(request(port, path), each.put) for path, each in answers.items()]
        )
        caller.abort(made[1])
    assert is_ended_on_request(answers["/b"].get(timeout=LONG_S))
    for path in ("/a", "/c"):
        assert answers[path].get(timeout=LONG_S).status == 200


def test_a_transfer_that_waits_for_its_answer_may_have_been_executed(port, caller, app):
    answers = queue.SimpleQueue()
    transfer = caller.start(
        request(port, "/wait"),
        answers.put,
    )
    until("the server has the request", lambda: app.seen == ["/wait"])
    caller.abort(transfer)
    caller.abort(transfer)
    assert is_ended_on_request(answers.get(timeout=LONG_S))
    assert caller.perform([request(port, "/later")])[0].status == 200
    assert answers.empty()


def test_the_repetition_of_a_refused_request_is_ended_too(port, caller, app):
    answers = queue.SimpleQueue()
    caller.perform([request(port, "/first")])  # its connection is kept
    transfer = caller.start(request(port, "/no"), answers.put)
    until("it is repeated", lambda: app.seen.count("/no") == 2)
    caller.abort(transfer)
    assert is_ended_on_request(answers.get(timeout=LONG_S))
    assert not app.gate.is_set()


def test_a_transfer_that_has_ended_is_not_answered_again(port, caller):
    answers = queue.SimpleQueue()
    transfer = caller.start(request(port, "/a"), answers.put)
    assert answers.get(timeout=LONG_S).status == 200
    caller.abort(transfer)
    assert caller.perform([request(port, "/later")])[0].status == 200
    assert answers.empty()


def test_a_client_that_closes_answers_an_aborted_transfer_once(port, app):
    caller = client.Client()
    answers = queue.SimpleQueue()
    with held(caller, port):
        transfer = caller.start(request(port, "/wait"), answers.put)
        loop = caller._loop
        closing = threading.Thread(target=caller.close)
        closing.start()
        until("the client closes", lambda: caller._loop is None)
        until("the end is queued", lambda: loop._queue.qsize() == 2)
        # As an abort does that another thread began before the end.
        transfer.is_aborted = True
        loop.submit(transfer)
    closing.join(LONG_S)
    assert answers.get(timeout=LONG_S).status == 0
    assert answers.empty()
    assert app.seen == ["/hold"]
