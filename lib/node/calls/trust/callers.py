"""The list of permitted callers, passed on by a node that is still permitted.

A node that was away while another node became a candidate, and then master, refuses the
certificate of this master, which can therefore not send the new list. The master asks
another node, whose certificate is still listed, to send it. Nobody gains a right: the
sender is one that may replace the list anyway.
"""

import re
from collections.abc import Mapping
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import misc
from ganeti.base.constants.protocols import ssh
from ganeti.base.net import netutils
from ganeti.base.tls import x509
from ganeti.decisions.quorum import term_of
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.protocols import rpc, ssconf

_LIST: Final = "master_candidates_certs"
_UUID: Final = re.compile(misc.UUID_REGEX)
_DIGEST: Final = re.compile(x509.DIGEST_REGEX)
#: Seconds for the call of the other node.
_CALL_S: Final = 10.0


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
    uuid, name, address = target
    if not _UUID.fullmatch(uuid) or not netutils.is_address(address):
        raise errors.RpcError(f"callers_relay: no node: {uuid} at {address}")
    _check(term, callers)
    runner = rpc.StaticRunner(
        [rpc.Target(uuid, name, address, rpc.node_port())], node.paths
    )
    try:
        answer = runner.call_one(
            "callers_adopt", uuid, term, callers, timeout_s=_CALL_S
        )
    finally:
        runner.close()
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
    _check(term, callers)
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


def _check(term: tuple[int, str], callers: Mapping[str, str]) -> None:
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
