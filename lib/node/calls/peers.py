"""Procedures about other nodes: whether this node reaches their servers."""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ganeti.base import errors
from ganeti.base.net import netutils
from ganeti.node.calls.registry import LocalNode, procedure

#: Most nodes in one call, and how many are asked at the same time.
MAX_NODES: Final = 64
_AT_ONCE: Final = 16
#: Seconds that a server has to react.
_REACTION_S: Final = 1.5
#: A request in plain text. A TLS server rejects it by closing the connection, which
#: takes no more than this one packet and needs no certificate.
_NO_HANDSHAKE: Final = b"\r\n\r\n"


@procedure("node_reaches")
def node_reaches(
    node: LocalNode, nodes: list[tuple[str, int, int]]
) -> list[tuple[bool, bool]]:
    """Return whether servers of other nodes react.

    Args:
        node: this node.
        nodes: address, port of the node daemon, port of the SSH server.

    Returns:
        for each node, whether its node daemon and its SSH server react.

    Raises:
        OpExecError: too many nodes, or an entry that is no address.
    """
    del node
    if len(nodes) > MAX_NODES:
        raise errors.OpExecError(
            f"node_reaches: wanted at most {MAX_NODES} nodes, found {len(nodes)}"
        )
    for address, *_ports in nodes:
        if not netutils.is_address(address):
            raise errors.OpExecError(
                f"node_reaches: wanted an address, found {address!r}"
            )
    if not nodes:
        return []
    with ThreadPoolExecutor(_AT_ONCE, "reach") as pool:
        daemons = [
            pool.submit(
                netutils.server_reacts,
                *(address, port),
                timeout_s=_REACTION_S,
                greeting=_NO_HANDSHAKE,
            )
            for address, port, _ssh in nodes
        ]
        shells = [
            pool.submit(netutils.server_reacts, address, ssh, timeout_s=_REACTION_S)
            for address, _port, ssh in nodes
        ]
        return [
            (daemon.result(), shell.result())
            for daemon, shell in zip(daemons, shells, strict=True)
        ]
