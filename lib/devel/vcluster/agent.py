"""Power agent: a process outside all nodes that switches their power.

The agent power cycles nodes that request a reset. It also serves the out-of-band helper
of isolated nodes, which runs in the master's namespaces and cannot reach other nodes'
processes. Protocol: a unix socket in the cluster's directory, one JSON object per line,
``{"action", "node"}`` to ``{"code", "stdout", "stderr"}``.
"""

import contextlib
import json
import logging
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.filesystem import files, filewatch
from ganeti.devel.vcluster import isolation
from ganeti.devel.vcluster.layout import Layout, Node

_log = logging.getLogger(__name__)
COMMAND: Final = "power-agent"
_READY: Final = b"ready\n"
#: File in a simple node's root. `ganeti.node.calls.power` writes it; that module is too
#: slow to import here.
RESET_REQUEST: Final = "power-cycle"
#: A power cycle starts all daemons of a node again.
_TIMEOUT_S: Final = 120.0

#: Executes an action for a node and returns the helper's output.
Act = Callable[[str, str], str]


def socket_path(layout: Layout) -> str:
    """Return the path of the agent's socket."""
    return os.path.join(layout.directory, "state", "agent.sock")


def _pid_file(layout: Layout) -> str:
    return os.path.join(layout.directory, "state", "agent.pid")


def start(layout: Layout) -> None:
    """Start the agent and wait until it listens.

    Raises:
        OpExecError: the agent does not start.
    """
    program = os.path.join(layout.bindir, "vcluster")
    log = os.path.join(layout.directory, "state", "agent.log")
    with open(log, "ab") as errors_to:
        child = subprocess.Popen(
            [sys.executable, "-I", program, "-C", layout.directory, COMMAND],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors_to,
            start_new_session=True,
            cwd="/",
        )
    if child.stdout is None or child.stdout.readline() != _READY:
        raise errors.OpExecError(f"the power agent does not start; see {log}")
    child.stdout.close()
    files.write_file(_pid_file(layout), f"{child.pid}\n", mode=0o644)


def stop(layout: Layout) -> None:
    """Stop the agent if it runs."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(files.read_file(_pid_file(layout)))
        words = files.read_file(f"/proc/{pid}/cmdline").split(b"\0")
        if COMMAND.encode() in words and layout.directory.encode() in words:
            os.kill(pid, signal.SIGKILL)


def ask(layout: Layout, action: str, node: str) -> dict[str, Any]:
    """Send a request to the agent; return its answer.

    Raises:
        OpExecError: the agent does not answer.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(_TIMEOUT_S)
            sock.connect(socket_path(layout))
            sock.sendall(json.dumps({"action": action, "node": node}).encode() + b"\n")
            with sock.makefile("rb") as stream:
                answer: dict[str, Any] = json.loads(stream.readline())
    except (OSError, ValueError) as err:
        raise errors.OpExecError(f"the power agent does not answer: {err}") from err
    return answer


def serve(layout: Layout, act: Act) -> int:
    """Run as the agent until killed."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(json.dumps(_answer(self.rfile.readline(), act)).encode())
            self.wfile.write(b"\n")

    path = socket_path(layout)
    files.remove_file(path)
    threading.Thread(target=_watch, args=(layout, act), daemon=True).start()
    with socketserver.ThreadingUnixStreamServer(path, Handler) as server:
        os.write(1, _READY)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        server.serve_forever()
    return 0


def _watch(layout: Layout, act: Act) -> None:
    """Power cycle each node that requests a reset."""
    directories = {os.path.dirname(_request(layout, node)) for node in layout.nodes}
    for _path in filewatch.changes(sorted(directories)):
        for node in layout.nodes:
            if not _wants_reset(layout, node):
                continue
            try:
                act("cycle", node.name)
            except (errors.GenericError, OSError):
                _log.exception("node %s: cannot be reset", node.name)


def _request(layout: Layout, node: Node) -> str:
    """Return the file that a node writes to request a reset."""
    if layout.isolated:
        return isolation.reset_file(layout, node)
    return os.path.join(node.root, RESET_REQUEST)


def _wants_reset(layout: Layout, node: Node) -> bool:
    """Return whether a node requested a reset, and clear the request."""
    path = _request(layout, node)
    if not layout.isolated:
        return files.remove_file(path)
    try:
        wanted = os.path.getsize(path) > 0
        if wanted:
            os.truncate(path, 0)
    except FileNotFoundError:
        return False
    return wanted


def _answer(line: bytes, act: Act) -> dict[str, Any]:
    try:
        request = json.loads(line)
        text = act(request["action"], request["node"])
    except (errors.GenericError, OSError, ValueError, KeyError) as err:
        message = str(err.args[0]) if err.args else str(err)
        return {"code": 1, "stdout": "", "stderr": message}
    return {"code": 0, "stdout": text, "stderr": ""}
