"""Procedures about the daemon itself: version, vote, delay."""

import threading

from ganeti import errors
from ganeti.backend.registry import LocalNode, procedure
from ganeti.constants import versions


@procedure("version")
def version(node: LocalNode) -> int:
    """Return the protocol version."""
    del node
    return versions.PROTOCOL_VERSION


@procedure("master_node_name")
def master_node_name(node: LocalNode) -> str:
    """Return the name of the node that this node believes to be master."""
    return node.ssconf.master_node()


@procedure("test_delay")
def test_delay(node: LocalNode, duration: float) -> None:
    """Answer after ``duration`` seconds."""
    if duration < 0:
        raise errors.GenericError(f"test_delay: {duration} is no duration")
    node.clock.wait(threading.Event(), duration)
