"""Reader of a guest's serial console, for scripts and demonstrations.

The interactive console is ``gnt-instance console``.
"""

import os
import re
import socket
import time
from collections.abc import Callable
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.devel.vcluster.layout import Layout, Node
from ganeti.node.hypervisor.kvm.files import Files

#: Pause in seconds between checks for a guest's socket.
_POLL_S: Final = 0.05


def connect(layout: Layout, instance: str) -> tuple[Node, socket.socket]:
    """Open the serial console of an instance; search all nodes for it.

    Raises:
        OpPrereqError: the instance runs on no node.
    """
    for node in layout.nodes:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path = Files(layout.paths(node), instance).control("serial")
            sock.connect(layout.host_path(node, path) if layout.isolated else path)
        except (OSError, errors.HypervisorError):
            # There is none, or that of a guest that was killed.
            sock.close()
            continue
        return node, sock
    raise errors.OpPrereqError(
        f"instance {instance}: has no serial console on any node", ecodes.ECODE_STATE
    )


def listen(
    layout: Layout,
    instance: str,
    *,
    until: str,
    timeout_s: float,
    say: Callable[[str], None],
) -> str:
    """Print a guest's output until a pattern appears; return the match.

    A carriage return is sent first, so that a login prompt is repeated.

    Args:
        layout: the cluster.
        instance: full name.
        until: regular expression.
        timeout_s: for the whole call.
        say: called with the node, then with each line, without newline.

    Raises:
        OpPrereqError: the instance runs on no node.
        OpExecError: the pattern did not appear in time.
    """
    deadline = time.monotonic() + timeout_s
    node, sock = _connect_soon(layout, instance, deadline)
    say(f"[{instance} on {node.short}]")
    text = shown = ""
    with sock:
        sock.sendall(b"\r")
        while (left := deadline - time.monotonic()) > 0:
            sock.settimeout(left)
            try:
                data = sock.recv(4096)
            except TimeoutError:
                break
            if not data:
                break
            text += data.decode(errors="replace").replace("\r", "")
            shown = _say_lines(text, shown, say)
            if match := re.search(until, text):
                if rest := text[len(shown) :].strip():
                    say(rest)
                return match.group()
    raise errors.OpExecError(
        f"instance {instance}: {until!r} did not appear on its serial console within"
        f" {timeout_s:g} seconds"
    )


def _connect_soon(
    layout: Layout, instance: str, deadline: float
) -> tuple[Node, socket.socket]:
    while True:
        try:
            return connect(layout, instance)
        except errors.OpPrereqError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


def _say_lines(text: str, shown: str, say: Callable[[str], None]) -> str:
    """Print complete lines that were not printed yet; return the printed text."""
    end = text.rfind(os.linesep) + 1
    for line in text[len(shown) : end].splitlines():
        if line.strip():
            say(line)
    return text[: max(end, len(shown))]
