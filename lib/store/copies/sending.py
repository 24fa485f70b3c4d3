"""Calls to candidates: made and waited for, or begun and answered elsewhere.

Change-sets are sent to many candidates at once, and their answers are counted where
they arrive: a thread per candidate that waits for its answer would take more of the
master's time than the calls themselves.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from ganeti.base import errors
from ganeti.protocols.rpc import Answer, Procedure, Request
from ganeti.protocols.rpc.answers import Facts

T = TypeVar("T")


class Replicate(Protocol):
    """A caller of candidates; thread-safe.

    One that is `Beginning`, too, can begin calls; the calls of others wait in threads.
    """

    def __call__(
        self, nodes: Sequence[str], request: Request[T]
    ) -> Mapping[str, Answer[T]]:
        """Call nodes; return node uuid -> answer."""


#: Called once with a node's uuid and its answer, from any thread; must not block.
OnAnswer = Callable[[str, Any], None]
Begin = Callable[[Sequence[str], Request[Any], OnAnswer], None]


@runtime_checkable
class Beginning(Protocol):
    """A `Replicate` that can begin calls: `ganeti.protocols.rpc.LateRunner` is one."""

    def begin(
        self, nodes: Sequence[str], request: Request[Any], done: OnAnswer
    ) -> None:
        """Begin a call of nodes and return at once."""


def beginner(replicate: Replicate) -> Begin:
    """Return the function that begins calls."""
    if isinstance(replicate, Beginning):
        return replicate.begin

    def begin(nodes: Sequence[str], request: Request[Any], done: OnAnswer) -> None:
        for node in nodes:
            threading.Thread(
                target=one, args=(node, request, done), daemon=True
            ).start()

    def one(node: str, request: Request[Any], done: OnAnswer) -> None:
        try:
            answer = replicate((node,), request).get(node)
        except errors.GenericError as err:
            answer = Answer(request.procedure.name, node, fail_msg=str(err))
        done(node, answer)

    return begin


def payload_of(
    procedure: Procedure[..., Facts], answer: Answer[Facts] | None
) -> Mapping[str, Any]:
    """Return what a candidate has answered.

    Raises:
        TermError: it follows another master.
        StorageError: there is no answer, or not one that it should give.
    """
    if answer is None:
        raise errors.StorageError(f"{procedure.name}: no answer")
    if answer.fail_msg is not None:
        if is_term_refusal(answer.fail_msg):
            raise errors.TermError(answer.fail_msg)
        raise errors.StorageError(f"{procedure.name}: {answer.fail_msg}")
    if not isinstance(answer.payload, Mapping):
        raise errors.StorageError(
            f"{procedure.name}: wanted a mapping, found {answer.payload!r}"
        )
    return answer.payload


def require_applied(
    base: int, answer: Mapping[str, Any], digest: bytes | None = None
) -> None:
    """Check that a candidate holds the change-sets that it was sent.

    Args:
        base: revision that the first one builds on.
        answer: the candidate's.
        digest: of the history after the last one, if there are any. A copy that is
            there already got them twice, because a connection broke.

    Raises:
        StorageError: it has not applied them.
    """
    is_there = digest is not None and answer.get("digest") == digest.hex()
    if not (answer.get("applied") or is_there):
        raise errors.StorageError(
            f"wanted revision {base}, found {answer.get('revision')}"
        )


def is_term_refusal(text: str) -> bool:
    """Return whether a failure text reports an old term of the caller."""
    return "is over" in text and "term" in text.lower()
