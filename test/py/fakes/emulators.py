"""An emulator as drivers see it over QMP, and an agent in a guest.

Answers of the emulator are set beforehand. The agent is on a socket as the emulator offers
it: one client at a time.
"""

import contextlib
import json
import pathlib
import socket
import tempfile
import threading

from fakes.clocks import FakeClock
from ganeti.base.pathutils import Paths
from ganeti.node.hypervisor.kvm.files import Files

#: Commands that QEMU spells with an underscore.
_OLD = {"block_resize", "migrate_cancel", "set_password", "system_powerdown"}


class Effects:
    """Effects of a node whose waiting takes no time."""

    def __init__(self):
        self.clock = FakeClock()

    def sleep(self, seconds):
        self.clock.now += seconds


@contextlib.contextmanager
def guest_files():
    """Files of the guest web1, whose process id is not written yet."""
    # A short path: names of sockets are limited to 107 bytes.
    with tempfile.TemporaryDirectory(prefix="gv-", dir="/tmp") as root:
        guest = Files(Paths(root, "n1"), "web1")
        guest.make_directories()
        pathlib.Path(guest.pid).touch()
        yield guest


class Emulator:
    """Answers the scripted QMP commands; the rest fails the test.

    A list gives one answer per call; the last one stays.
    """

    def __init__(self, **answers):
        self.answers = {
            name if name in _OLD else name.replace("_", "-"): answer
            for name, answer in answers.items()
        }
        self.executed = []
        self.paths = []

    def __call__(self, path, _name):
        self.paths.append(path)
        return contextlib.nullcontext(self)

    def execute(self, command, arguments=None):
        assert command in self.answers, command
        self.executed.append((command, arguments))
        answer = self.answers[command]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if callable(answer):
            answer = answer(arguments)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def names(self):
        return [command for command, _arguments in self.executed]


class GuestAgent:
    """Answers commands; a context manager.

    Attributes:
        answers: command -> result, bytes to send instead of an answer, or None for none.
        commands: those that came, in order.
        frozen: whether the file systems are frozen.
    """

    def __init__(self, path, **answers):
        self.answers = {
            name.replace("_", "-"): value for name, value in answers.items()
        }
        self.commands = []
        self.frozen = False
        self.changed = threading.Condition()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_error):
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()

    def wait_for(self, command):
        """Wait until a command has come."""
        with self.changed:
            assert self.changed.wait_for(lambda: command in self.commands, 60)

    def _serve(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), client, client.makefile("rwb") as stream:
                # An earlier client has not read this.
                stream.write(b'{"return": "old"}\n')
                stream.flush()
                for line in stream:
                    self._answer(stream, json.loads(line.lstrip(b"\xff")))

    def _answer(self, stream, message):
        command = message["execute"]
        if command == "guest-sync-delimited":
            number = message["arguments"]["id"]
            stream.write(b"\xff" + json.dumps({"return": number}).encode() + b"\n")
            stream.flush()
            return
        answer = self.answers.get(command, b'{"error": {"desc": "unknown"}}\n')
        with self.changed:
            self.commands.append(command)
            if command == "guest-fsfreeze-freeze" and type(answer) is int:
                self.frozen = True
            if command == "guest-fsfreeze-thaw" and type(answer) is int:
                self.frozen = False
            self.changed.notify_all()
        if answer is not None:
            plain = isinstance(answer, bytes)
            stream.write(
                answer if plain else json.dumps({"return": answer}).encode() + b"\n"
            )
            stream.flush()
