"""An emulator as drivers see it over QMP; its answers are set beforehand."""

import contextlib
import pathlib
import tempfile

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
