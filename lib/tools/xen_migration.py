"""``xen-migration``: send or receive a guest of Xen over an encrypted connection.

The node daemon starts ``receive`` on the target and ``migrate`` on the source; both go
on in the background, where SIGTERM ends them. xl starts ``send`` in the place of ssh.
"""

import argparse
import json
import os
import shlex
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from ganeti import errors
from ganeti.tools import common, xen_channel
from ganeti.utils import files, pidfile

NAME: Final = "xen-migration"
_XL: Final = "xl"
#: Seconds that the source may take to connect, and xl to end after its connection.
_CONNECT_S: Final = 120.0
_END_S: Final = 60.0
_CHUNK: Final = 4096
#: Bytes of xl's messages that are kept as the reason of a failure.
_REASON_LENGTH: Final = 500


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the program's options."""
    parser = common.parser(NAME, "Sends or receives a guest of Xen.")
    parser.add_argument("--pid-file", metavar="FILE", help="of receive and migrate")
    parser.add_argument("--result", metavar="FILE", help="of migrate, in JSON")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("receive", "wait for a guest"),
        ("migrate", "send a guest to a node that waits for it"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("instance")
        action.add_argument("address", help="of the target")
        action.add_argument("port", type=int)
    send = actions.add_parser(
        "send", help="connect xl, which calls this, to the target"
    )
    send.add_argument("port", type=int)
    send.add_argument("address")
    send.add_argument("command", nargs=argparse.REMAINDER, help="of xl; not used")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program."""
    parser = build_parser()
    options = parser.parse_args(argv)
    if options.action != "send" and not (options.pid_file and options.result):
        parser.error(f"{options.action}: wanted --pid-file and --result")
    act = {"receive": _receive, "migrate": _migrate, "send": _send}[options.action]
    return common.run(NAME, lambda: act(options))


def _send(options: argparse.Namespace) -> None:
    tls = xen_channel.context(common.own_paths(), is_server=False)
    channel = xen_channel.connect(options.address, options.port, tls)
    xen_channel.relay(channel, sys.stdin.fileno(), sys.stdout.fileno())


def _receive(options: argparse.Namespace) -> None:
    tls = xen_channel.context(common.own_paths(), is_server=True)
    # Before this program is in the background: then the source may connect.
    with xen_channel.listen(options.address, options.port) as listener:
        if _into_background():
            return
        with pidfile.PidFile(options.pid_file):
            channel = xen_channel.accept(listener, tls, _CONNECT_S)
            listener.close()
            _say(f"instance {options.instance}: arrives")
            _receive_from(channel)
            _say(f"instance {options.instance}: has arrived")


def _receive_from(channel: ssl.SSLSocket) -> None:
    """Pass the peer's data to xl and its answers back.

    Raises:
        HypervisorError: xl failed, or the connection broke.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            child = _start([_XL, "migrate-receive"], stdin=theirs, stdout=theirs)
        try:
            xen_channel.relay(channel, ours.fileno(), ours.fileno())
            ours.close()
            code = child.wait(_END_S)
        except subprocess.TimeoutExpired as err:
            raise errors.HypervisorError("xl migrate-receive does not end") from err
        finally:
            _end(child)
    if code:
        raise errors.HypervisorError(f"xl migrate-receive exited with code {code}")


def _migrate(options: argparse.Namespace) -> None:
    files.remove_file(options.result)
    if _into_background():
        return
    with pidfile.PidFile(options.pid_file):
        result = {"code": 1, "reason": f"{NAME} was ended"}
        try:
            result = _run_xl(options)
        finally:
            # In place before the pid file is removed: one of both is always there.
            files.write_file(options.result, json.dumps(result).encode())


def _run_xl(options: argparse.Namespace) -> dict[str, object]:
    """Run xl to its end; return its exit code and, of a failure, its last messages."""
    transport = shlex.join([sys.argv[0], "send", str(options.port)])
    argv = [_XL, "migrate", "-s", transport, options.instance, options.address]
    child = _start(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = b""
    try:
        if child.stdout is not None:
            while data := os.read(child.stdout.fileno(), _CHUNK):
                os.write(sys.stdout.fileno(), data)
                text = (text + data)[-_REASON_LENGTH:]
        code = child.wait()
    finally:
        _end(child)
    if code == 0:
        return {"code": 0}
    reason = " ".join(text.decode(errors="replace").split())
    return {"code": code, "reason": reason or f"{_XL} exited with code {code}"}


def _start(argv: Sequence[str], **streams: object) -> "subprocess.Popen[bytes]":
    streams = {"stdin": subprocess.DEVNULL, **streams}
    try:
        return subprocess.Popen(argv, start_new_session=True, **streams)  # type: ignore[call-overload,no-any-return]
    except OSError as err:
        raise errors.HypervisorError(f"{argv[0]}: cannot be run: {err}") from err


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End xl and its transport if they still run."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait()


def _into_background() -> bool:
    """Continue in a child with a session of its own; return whether this is the parent.

    The parent returns when the child has set up the end by SIGTERM.
    """
    ready, begun = os.pipe()
    if os.fork():
        os.close(begun)
        os.read(ready, 1)
        os.close(ready)
        return True
    os.close(ready)
    os.setsid()
    signal.signal(signal.SIGTERM, _terminated)
    os.close(begun)
    return False


def _terminated(_number: int, _frame: object) -> None:
    raise errors.HypervisorError(f"{NAME} was ended")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
