"""The term and the certificate of the present master, passed on by other nodes.

A master that a minority was forced to elect can leave its term on nodes. If the number
is not below that of the master that a majority follows, these nodes refuse that one.
The master candidates lead them back: each one that has promised the master's term
vouches for it, and the node gives up the higher term when a majority of the candidates
that it knows has done so. See
`ganeti.node.calls.membership.master_term.TermGuard.open_review`. A master that was
deposed cannot do that: a majority has promised the later term, and none of these
vouches for the earlier one.

A node that was away while another node became a candidate, and then master, refuses the
certificate of this master, which can therefore not send the new list of permitted
callers. The master asks another node, whose certificate is still listed, to send it.
Nobody gains a right: the sender is one that may replace the list anyway.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeVar

from ganeti.base import errors
from ganeti.base.constants import misc
from ganeti.base.constants.protocols import ssh
from ganeti.base.net import netutils
from ganeti.base.tls import x509
from ganeti.decisions.quorum import Term, term_of
from ganeti.node.calls.membership.master_term import TermGuard
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.protocols import rpc, ssconf
from ganeti.protocols.rpc import calls
from ganeti.store import choice

T = TypeVar("T")
_UUID: Final = re.compile(misc.UUID_REGEX)
_NONCE: Final = re.compile(r"[0-9a-f]{32}")
#: Seconds for the call of the other node.
_CALL_S: Final = 10.0


@procedure("term_review")
def term_review(node: LocalNode, term: tuple[int, str]) -> str:
    """Begin to ask for the word of the candidates; return the id of the review.

    Args:
        node: this node, which is no master candidate.
        term: of the caller, refused here so far.

    Raises:
        RpcError: the term is malformed or admitted, or this node is a candidate, whose
            copy has promised its term.
    """
    choice.require_file(node.paths, "term_review")
    if node.paths.hostname in node.ssconf.master_candidates():
        raise errors.RpcError(
            "this node is a master candidate: it follows a higher term of the master,"
            " see ganeti-watcher(8)"
        )
    return _terms(node).open_review(_term(term))


@procedure("term_vouch")
def term_vouch(node: LocalNode, voucher: str, review: str) -> bool:
    """Count one candidate's word; return whether the term of the review counts now.

    Args:
        node: this node.
        voucher: UUID of the caller; the daemon has compared it with the certificate.
        review: id of the review.

    Raises:
        RpcError: no such review, or the caller is no candidate that this node knows.
    """
    known = node.ssconf.master_candidates_certs()
    holders = frozenset(uuid.removesuffix(ssh.CRYPTO_NEXT) for uuid in known)
    return _terms(node).vouch(voucher, review, holders)


@procedure("term_confirm")
def term_confirm(
    node: LocalNode,
    term: tuple[int, str],
    voucher: str,
    review: str,
    target: tuple[str, str, str],
) -> bool:
    """Vouch for the master's term to a node that refuses it.

    Args:
        node: this node, a master candidate.
        term: of the master.
        voucher: UUID of this node.
        review: id of the other node's review.
        target: UUID, name and primary address of the other node.

    Returns:
        whether the other node admits the term now.

    Raises:
        RpcError: an argument is malformed, this node has not promised the term, or the
            other node did not count its word.
    """
    choice.require_file(node.paths, "term_confirm")
    uuid, _name, address = target
    if not (_UUID.fullmatch(uuid) and netutils.is_address(address)):
        raise errors.RpcError(f"term_confirm: no node: {uuid} at {address}")
    if not (_UUID.fullmatch(voucher) and _NONCE.fullmatch(review)):
        raise errors.RpcError("term_confirm: malformed arguments")
    asked = _term(term)
    _require_promise(node, asked)
    answer = _called(node, target, calls.term_vouch(voucher, review))
    if answer.failed:
        raise errors.RpcError(answer.describe("the word of this node was not counted"))
    return answer.payload


def _called(
    node: LocalNode, target: tuple[str, str, str], request: rpc.Request[T]
) -> rpc.Answer[T]:
    """Return the answer of another node: of its UUID, name and primary address."""
    runner = rpc.StaticRunner([rpc.Target(*target, rpc.node_port())], node.paths)
    try:
        return runner.call_node(target[0], request, timeout_s=_CALL_S)
    finally:
        runner.close()


def _require_promise(node: LocalNode, term: Term) -> None:
    """Raise RpcError unless this node follows the master of a term."""
    status = node.replica.status()
    promised = term_of([status["term"], status["owner"]])
    if not status["revision"] or promised != term or _terms(node).seen != term:
        raise errors.RpcError(
            f"the copy of this node has promised term {promised}, not {term}"
        )


def _term(value: tuple[int, str]) -> Term:
    try:
        term = term_of(value)
    except ValueError as err:
        raise errors.RpcError(str(err)) from err
    if not (term.number and term.owner):
        raise errors.RpcError(f"master term {term} has no owner")
    return term


def _terms(node: LocalNode) -> TermGuard:
    if node.terms is None:
        raise errors.RpcError("this node daemon keeps no master term")
    return node.terms


_LIST: Final = "master_candidates_certs"
_DIGEST: Final = re.compile(x509.DIGEST_REGEX)
#: Seconds for the call of the other node.


@procedure("callers_relay")
def callers_relay(
    node: LocalNode,
    term: tuple[int, str],
    target: tuple[str, str, str],
    callers: dict[str, str],
) -> None:
    """Send the list of permitted callers to a node that refuses the master.

    Args:
        node: this node, whose certificate the other node may still accept.
        term: of the master.
        target: UUID, name and primary address of the other node.
        callers: node UUID -> digest of its certificate.

    Raises:
        RpcError: an argument is malformed, or the other node did not take the list.
    """
    uuid, _name, address = target
    if not _UUID.fullmatch(uuid) or not netutils.is_address(address):
        raise errors.RpcError(f"callers_relay: no node: {uuid} at {address}")
    _check_callers(term, callers)
    answer = _called(node, target, calls.callers_adopt(term, callers))
    if answer.failed:
        raise errors.RpcError(answer.describe("permitted callers not replaced"))


@procedure("callers_adopt")
def callers_adopt(
    node: LocalNode, term: tuple[int, str], callers: dict[str, str]
) -> None:
    """Replace the list of permitted callers, for a master that is not listed here.

    A list of a master that was replaced is refused, and so is one that arrives late:
    the master that sent it is already listed then, and sends newer ones itself.

    Args:
        node: this node.
        term: of the master that the list comes from.
        callers: node UUID -> digest of its certificate.

    Raises:
        TermError: a later master is known here.
        RpcError: an argument is malformed, or the master is listed already.
    """
    _check_callers(term, callers)
    asked = term_of(term)
    if node.terms is not None:
        node.terms.admit(asked)
    known = node.ssconf.master_candidates_certs()
    if callers[asked.owner] in known.values():
        raise errors.RpcError(
            f"this node accepts the certificate of its master {asked.owner} already"
        )
    lines = [f"{uuid}={digest}" for uuid, digest in sorted(callers.items())]
    ssconf.write(node.paths, {_LIST: "\n".join(lines)})


def _check_callers(term: tuple[int, str], callers: Mapping[str, str]) -> None:
    """Raise RpcError unless the list is well formed and has the master itself."""
    try:
        owner = term_of(term).owner
    except ValueError as err:
        raise errors.RpcError(str(err)) from err
    if owner not in callers:
        raise errors.RpcError(f"permitted callers: the master {owner} is not listed")
    for uuid, digest in callers.items():
        holder = uuid.removesuffix(ssh.CRYPTO_NEXT)
        if not _UUID.fullmatch(holder) or not _DIGEST.fullmatch(digest):
            raise errors.RpcError(f"permitted callers: damaged entry {uuid!r}")
