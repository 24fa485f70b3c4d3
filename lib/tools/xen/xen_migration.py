"""``xen-migration``: send or receive a guest of Xen over an encrypted connection.

The node daemon starts ``receive`` on the target, and ``migrate`` or ``move`` on the
source; they go on in the background, where SIGTERM ends them. xl starts ``send`` in the
place of ssh.

``migrate`` is live: ``xl migrate`` talks to ``xl migrate-receive``. ``move`` stops the
guest: ``xl save`` writes to ``xl restore``. Both domains wait then, and the source
decides: when the target has reported a complete guest, the source writes the result,
destroys its domain, and lets the target go on. After a failure before that, the guest
goes on at the source. After a later one, it waits on the target until the node daemon
there lets it go on. Until the target has heard of the decision, a file says so: nobody
else may let the guest go on there, as it may have gone on at the source.

``resume`` lets a guest go on at the source if xl or this program was killed.
"""

import argparse
import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.filesystem import files, pidfile
from ganeti.node.hypervisor.base import Arrival
from ganeti.node.hypervisor.xen import xl
from ganeti.tools import channel as channels
from ganeti.tools import common
from ganeti.tools.channel import Channel, End
from ganeti.tools.xen import xen_relay

NAME: Final = "xen-migration"
_XL: Final = "xl"
#: Seconds that the source may take to connect, and xl to end after its connection.
_CONNECT_S: Final = 120.0
_END_S: Final = 60.0
#: Seconds for the devices of a guest that has arrived, and for short calls of xl.
_RESTORE_S: Final = 300.0
_CALL_S: Final = 60.0
#: Seconds for xl to ask a guest in vain to suspend, and bytes of its state until then.
_ASK_S: Final = 180.0
_BEGINNING: Final = 1 << 20
#: Longest list of domains, bytes.
_LONGEST_LIST: Final = 1 << 20
#: Seconds for xl to let a guest go on after the end of its connection.
_RESUME_S: Final = 30.0
#: Words of ``move`` between the nodes: of the target, and of the source.
_COMPLETE: Final = b"C"
_GO: Final = b"G"
#: Word of the program in the background: it has begun.
_BEGUN: Final = b"1"
_CHUNK: Final = 4096
#: Bytes of xl's messages that are kept as the reason of a failure.
_REASON_LENGTH: Final = 500


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the program's options."""
    parser = common.parser(NAME, "Sends or receives a guest of Xen.")
    parser.add_argument("--pid-file", metavar="FILE", help="of receive and migrate")
    parser.add_argument(
        "--life", type=int, metavar="DESCRIPTOR", help="of send: the end of a pipe"
    )
    parser.add_argument("--result", metavar="FILE", help="of both, in JSON")
    parser.add_argument("--arrival", metavar="FILE", help="of receive: see above")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("receive", "wait for a guest"),
        ("migrate", "send a guest to a node that waits for it"),
        ("move", "stop a guest, and let it go on at a node that waits for it"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("instance")
        action.add_argument("address", help="of the target")
        action.add_argument("port", type=int)
    resume = actions.add_parser("resume", help="let a guest go on that waits here")
    resume.add_argument("instance")
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
    if options.action not in {"send", "resume"} and not (
        options.pid_file and options.result and options.arrival
    ):
        parser.error(f"{options.action}: wanted --pid-file, --result and --arrival")
    actions = {
        "receive": _receive,
        "migrate": lambda given: _leave(given, _run_xl),
        "move": lambda given: _leave(given, _stop_and_send),
        "resume": lambda given: _let_go_on(given.instance),
        "send": _send,
    }
    return common.run(NAME, lambda: actions[options.action](options))


def _send(options: argparse.Namespace) -> None:
    end = channels.of_cluster(common.own_paths(), is_server=False)
    channel = xen_relay.connect(options.address, options.port, end)
    fds = (sys.stdin.fileno(), sys.stdout.fileno())
    xen_relay.relay(channel, *fds, life=options.life)


def _receive(options: argparse.Namespace) -> None:
    end = channels.of_cluster(common.own_paths(), is_server=True)
    # A node that cannot write it should not let the guest stop.
    _write(options.arrival, Arrival.INCOMPLETE)
    # Before this program is in the background: then the source may connect.
    with xen_relay.listen(options.address, options.port) as listener:
        _in_background(options.pid_file, lambda: _accept(options, listener, end))


def _accept(options: argparse.Namespace, listener: socket.socket, end: End) -> None:
    channel = xen_relay.accept(listener, end, _CONNECT_S)
    listener.close()
    _say(f"instance {options.instance}: arrives")
    if channel.sock.selected_alpn_protocol() == xen_relay.STOPPED:
        _restore_from(channel, options.instance, options.arrival)
    else:
        files.remove_file(options.arrival)
        _receive_from(channel)
    _say(f"instance {options.instance}: has arrived")


def _receive_from(channel: Channel) -> None:
    """Pass the peer's data to xl and its answers back.

    Raises:
        HypervisorError: xl failed, or the connection broke.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            child = _start([_XL, "migrate-receive"], stdin=theirs, stdout=theirs)
        try:
            xen_relay.relay(channel, ours.fileno(), ours.fileno())
            ours.close()
            code = child.wait(_END_S)
        except subprocess.TimeoutExpired as err:
            raise errors.HypervisorError("xl migrate-receive does not end") from err
        finally:
            _end(child)
    if code:
        raise errors.HypervisorError(f"xl migrate-receive exited with code {code}")


def _restore_from(channel: Channel, name: str, arrival: str) -> None:
    """Let xl restore a guest from the peer's data; it goes on when the peer says so.

    Raises:
        HypervisorError: xl failed, or the connection broke. A guest that is complete
            waits then: the peer may have given it up. Another one is destroyed.
    """
    with channel:
        try:
            _restore(channel)
            # The source may give the guest up from here on, so its word is waited for.
            _ignore_end()
            _write(arrival, Arrival.COMPLETE)
        except errors.HypervisorError:
            _destroy_incomplete(name)
            raise
        xen_relay.say(channel, _COMPLETE)
        _require(xen_relay.hear(channel, 2 * _CALL_S), _GO)
    files.remove_file(arrival)
    _call("unpause", name)


def _restore(channel: Channel) -> None:
    data, sink = os.pipe()
    try:
        child = _start([_XL, "restore", "-p", "/dev/stdin"], stdin=data)
    finally:
        os.close(data)
    try:
        xen_relay.feed(channel, sink, child.pid)
        code = child.wait(_RESTORE_S)
    except subprocess.TimeoutExpired as err:
        raise errors.HypervisorError("xl restore does not end") from err
    finally:
        os.close(sink)
        _end(child)
    if code:
        raise errors.HypervisorError(f"xl restore exited with code {code}")


def _destroy_incomplete(name: str) -> None:
    """Destroy what xl has left of a guest that its source has kept."""
    with contextlib.suppress(errors.HypervisorError):
        row = _domain(name)
        if row is not None and row.is_paused:
            _call("destroy", name)


def _leave(
    options: argparse.Namespace,
    send: Callable[[argparse.Namespace], dict[str, object]],
) -> None:
    """Send a guest in the background; the file of the result has the end."""
    files.remove_file(options.result)

    def work() -> None:
        result: dict[str, object] = {"code": 1, "reason": f"{NAME} was ended"}
        try:
            result = send(options)
        except errors.GenericError as err:
            result = {"code": 1, "reason": str(err)}
            raise
        finally:
            # In place before the pid file is removed: one of both is always there. The
            # decision of `move` stays whatever happens after it.
            if not os.path.exists(options.result):
                _write_result(options, result)

    _in_background(options.pid_file, work)


def _write_result(options: argparse.Namespace, result: dict[str, object]) -> None:
    _write(options.result, json.dumps(result))


def _write(path: str, text: str) -> None:
    """Replace a file.

    Raises:
        HypervisorError: it cannot be written.
    """
    try:
        files.write_file(path, text)
    except OSError as err:
        raise errors.HypervisorError(f"{path}: {err.strerror or err}") from err


def _run_xl(options: argparse.Namespace) -> dict[str, object]:
    """Run xl to its end; return its exit code and, of a failure, its last messages."""
    # The transport ends with this pipe, also if this program is killed. Without a
    # connection, xl lets the guest go on; without xl, it would stay suspended.
    life, alive = os.pipe()
    words = (sys.argv[0], "--life", str(life), "send", str(options.port))
    argv = [_XL, "migrate", "-s", shlex.join(words)]
    argv += [options.instance, options.address]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    child = _start(argv, pass_fds=(life,), **streams)
    os.close(life)
    text = b""
    try:
        if child.stdout is not None:
            while data := os.read(child.stdout.fileno(), _CHUNK):
                with contextlib.suppress(OSError):
                    os.write(sys.stdout.fileno(), data)
                text = (text + data)[-_REASON_LENGTH:]
        child.wait()
    except (errors.HypervisorError, OSError):
        os.close(alive)
        _end(child, _RESUME_S)
        # The guest may have left before xl heard of the end.
        if child.returncode:
            raise
    code = child.returncode
    if code == 0:
        return {"code": 0}
    reason = " ".join(text.decode(errors="replace").split())
    return {"code": code, "reason": reason or f"{_XL} exited with code {code}"}


def _stop_and_send(options: argparse.Namespace) -> dict[str, object]:
    """Stop a guest, send it, and give it up when it is complete at the target.

    Raises:
        HypervisorError: the guest goes on here.
    """
    name = options.instance
    end = channels.of_cluster(common.own_paths(), is_server=False)
    end.tls.set_alpn_protocols([xen_relay.STOPPED])
    with xen_relay.connect(options.address, options.port, end) as channel:
        if channel.sock.selected_alpn_protocol() != xen_relay.STOPPED:
            raise errors.HypervisorError(
                f"{options.address} has an earlier release, which takes live guests"
                " only; upgrade it first"
            )
        try:
            _save_to(channel, name)
            _require(xen_relay.hear(channel, _RESTORE_S), _COMPLETE)
            _ignore_end()
            _decide(options)
        except BaseException:
            # xl has done so itself if it could not save the guest.
            with contextlib.suppress(errors.HypervisorError):
                _let_go_on(name)
            raise
        # From here on the guest is the target's, whatever happens.
        try:
            _call("destroy", name)
            xen_relay.say(channel, _GO)
        except (errors.GenericError, OSError) as err:
            _say(f"instance {name}: {err}; the node daemons finish the migration")
    return {"code": 0}


def _decide(options: argparse.Namespace) -> None:
    """Give the guest up by writing the result, which stays whatever happens.

    Raises:
        HypervisorError: the result cannot be written; there is none.
    """
    try:
        _write_result(options, {"code": 0})
    except errors.HypervisorError:
        # The file may be in place nevertheless, if only its name is not durable.
        with contextlib.suppress(OSError):
            files.remove_file(options.result)
        # If it cannot be removed, everybody reads that the guest has left.
        if not os.path.exists(options.result):
            raise


def _save_to(channel: Channel, name: str) -> None:
    """Pass the state of a guest to the peer; its domain waits afterwards.

    Raises:
        HypervisorError: xl failed, or the connection broke.
    """
    data, sink = os.pipe()
    try:
        child = _start([_XL, "save", "-p", name, f"/dev/fd/{sink}"], pass_fds=(sink,))
    finally:
        os.close(sink)
    try:
        xen_relay.drain(channel, data)
        code = child.wait()
    finally:
        # Without a reader, xl fails and lets the guest go on.
        os.close(data)
        _end(child, _RESUME_S)
    if code:
        raise errors.HypervisorError(f"xl save exited with code {code}")


def _let_go_on(name: str) -> None:
    """Let a guest go on at the source that waits since its state was to be saved.

    Raises:
        HypervisorError: it still waits.
    """
    row = _domain(name)
    if row is not None and row.is_suspended:
        _resume(name)
        row = _domain(name)
    if row is not None and row.is_paused:
        _call("unpause", name)
    elif row is not None and row.is_suspended:
        raise errors.HypervisorError(
            f"instance {name}: is suspended, and xl does not resume it"
        )


def _resume(name: str) -> None:
    """Resume a guest whose saving was interrupted.

    xl has no command for that. But it does so when it cannot save the guest, as nobody
    reads the state to its end.
    """
    data, sink = os.pipe()
    with os.fdopen(data, "rb") as stream:
        try:
            argv = [_XL, "save", "-p", name, f"/dev/fd/{sink}"]
            child = _start(argv, pass_fds=(sink,))
        finally:
            os.close(sink)
        # Without its beginning, xl would fail before it has looked at the guest.
        stream.read(_BEGINNING)
    _end(child, _ASK_S)


def _domain(name: str) -> xl.Domain | None:
    """Return the domain of a guest, None if there is none.

    Raises:
        HypervisorError: xl does not list it.
    """
    child = _start([_XL, "list"], stdout=subprocess.PIPE)
    try:
        output, _errors = child.communicate(timeout=_CALL_S)
    except subprocess.TimeoutExpired as err:
        raise errors.HypervisorError("xl list does not end") from err
    finally:
        _end(child)
    text = output[:_LONGEST_LIST].decode(errors="replace")
    rows = xl.guests(xl.domains(text))
    return next((row for row in rows if row.name == name), None)


def _require(word: bytes, wanted: bytes) -> None:
    if word != wanted:
        raise errors.HypervisorError(
            f"wanted {wanted!r} of the other node, found {word!r}"
        )


def _call(command: str, name: str) -> None:
    """Run a short command of xl.

    Raises:
        HypervisorError: it failed.
    """
    child = _start([_XL, command, name])
    try:
        code = child.wait(_CALL_S)
    except subprocess.TimeoutExpired as err:
        raise errors.HypervisorError(f"xl {command} does not end") from err
    finally:
        _end(child)
    if code:
        raise errors.HypervisorError(f"xl {command} exited with code {code}")


def _start(argv: Sequence[str], **streams: Any) -> "subprocess.Popen[bytes]":
    streams = {"stdin": subprocess.DEVNULL, **streams}
    try:
        return subprocess.Popen(argv, start_new_session=True, **streams)
    except OSError as err:
        raise errors.HypervisorError(f"{argv[0]}: cannot be run: {err}") from err


def _end(child: "subprocess.Popen[bytes]", patience_s: float = 0) -> None:
    """End xl and its transport if they still run after some seconds."""
    try:
        child.wait(patience_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait()


def _in_background(pid_file: str, work: Callable[[], None]) -> None:
    """Do work in a child with a session of its own.

    The parent returns when the child can be found by its pid file and ends by SIGTERM.

    Raises:
        HypervisorError: the child has no pid file.
    """
    ready, begun = os.pipe()
    if os.fork():
        os.close(begun)
        word = os.read(ready, _REASON_LENGTH)
        os.close(ready)
        if word != _BEGUN:
            reason = word.decode(errors="replace")
            raise errors.HypervisorError(reason or "ended at its start")
        return
    os.close(ready)
    os.setsid()
    signal.signal(signal.SIGTERM, _terminated)
    try:
        lock = pidfile.PidFile(pid_file)
    except (errors.GenericError, OSError) as err:
        os.write(begun, f"{pid_file}: {err}".encode()[:_REASON_LENGTH])
        raise
    with lock:
        os.write(begun, _BEGUN)
        os.close(begun)
        work()


def _terminated(_number: int, _frame: object) -> None:
    raise errors.HypervisorError(f"{NAME} was ended")


def _ignore_end() -> None:
    """Go on to the end of the program; children of it can be ended nevertheless."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)


def _say(text: str) -> None:
    """Write to the log; a full disk ends no migration."""
    with contextlib.suppress(OSError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
