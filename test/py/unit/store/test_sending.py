"""Calls to candidates in threads, and the answers that count."""

import queue

import pytest

from ganeti.base import errors
from ganeti.protocols.rpc import Result, calls
from ganeti.store.copies import sending

REQUEST = calls.store_apply(7, 4, "data")


def result(payload=None, fail_msg=None):
    return Result("store_apply", "n", payload, fail_msg=fail_msg)


def test_each_candidate_is_called_by_itself_and_answers_once():
    def replicate(nodes, request):
        (node,) = nodes
        assert request == REQUEST
        if node == "lost":
            raise errors.RpcError("no route")
        return {node: f"answer of {node}"} if node != "none" else {}

    answers = queue.Queue()
    begin = sending.beginner(replicate)
    begin(["a", "b", "lost", "none"], REQUEST, lambda *row: answers.put(row))
    rows = dict(answers.get(timeout=60) for _ in range(4))
    assert (rows["a"], rows["b"], rows["none"]) == ("answer of a", "answer of b", None)
    assert (rows["lost"].fail_msg, rows["lost"].payload) == ("no route", None)
    assert answers.empty()


def test_calls_that_can_be_begun_need_no_threads():
    class Begins:
        def __call__(self, nodes, request):
            raise AssertionError("called")

        def begin(self, nodes, request, done):
            done(nodes[0], request)

    answers = []
    begin = sending.beginner(Begins())
    begin(["a"], REQUEST, lambda *row: answers.append(row))
    assert answers == [("a", REQUEST)]


def test_the_payload_of_an_answer():
    assert sending.payload_of(calls.store_apply, result({"applied": True})) == {
        "applied": True
    }


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (None, errors.StorageError, "store_apply: no answer"),
        (result(fail_msg="disk full"), errors.StorageError, "store_apply: disk full"),
        (result([1]), errors.StorageError, "store_apply: wanted a mapping, found [1]"),
        (
            result(fail_msg="master term 3 of n1 is over, this node follows 4 of n2"),
            errors.TermError,
            "master term 3 of n1 is over, this node follows 4 of n2",
        ),
        (
            result(fail_msg="HTTP error 409: Term 3 is over: x"),
            errors.TermError,
            "HTTP error 409: Term 3 is over: x",
        ),
        (
            result(fail_msg="the game is over"),
            errors.StorageError,
            "store_apply: the game is over",
        ),
        (result(fail_msg="bad term"), errors.StorageError, "store_apply: bad term"),
    ],
)
def test_what_is_no_answer_is_an_error(answer, kind, text):
    with pytest.raises(kind) as caught:
        sending.payload_of(calls.store_apply, answer)
    assert (type(caught.value), caught.value.args) == (kind, (text,))


DIGEST = b"\x0f" * 16


@pytest.mark.parametrize(
    ("answer", "digest"),
    [
        ({"applied": True}, None),
        ({"applied": True, "digest": "00"}, DIGEST),
        ({"applied": False, "digest": DIGEST.hex()}, DIGEST),
    ],
)
def test_a_copy_with_the_changes_is_accepted(answer, digest):
    sending.require_applied(4, answer, digest)


@pytest.mark.parametrize(
    ("answer", "digest", "text"),
    [
        ({}, None, "None"),
        ({"revision": 3, "applied": False}, None, "3"),
        ({"revision": 3, "applied": False, "digest": DIGEST.hex()}, None, "3"),
        ({"revision": 3, "digest": "0e" * 16}, DIGEST, "3"),
    ],
)
def test_a_copy_without_the_changes_is_not(answer, digest, text):
    with pytest.raises(errors.StorageError) as caught:
        sending.require_applied(4, answer, digest)
    assert caught.value.args == (f"wanted revision 4, found {text}",)
