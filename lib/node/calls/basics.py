"""Procedures of the daemon itself: version, master vote, delay."""

import threading

from ganeti.base import errors
from ganeti.base.constants import versions
from ganeti.node.calls.registry import LocalNode, procedure


@procedure("version")
def version(node: LocalNode) -> int:
    """Return the protocol version."""
    del node
    return versions.PROTOCOL_VERSION


@procedure("master_node_name")
def master_node_name(node: LocalNode) -> str:
    """Return the name of the master node according to this node's ssconf."""
    return node.ssconf.master_node()


@procedure("test_delay")
def test_delay(node: LocalNode, duration: float) -> None:
    """Wait ``duration`` seconds."""
    if duration < 0:
        raise errors.GenericError(
            f"test_delay: wanted a duration of at least 0 s, found {duration}"
        )
    node.clock.wait(threading.Event(), duration)
