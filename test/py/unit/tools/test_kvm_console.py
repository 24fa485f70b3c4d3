"""``ganeti-kvm-console``: both ways of the bytes, the escape, and paused guests."""

import os
import socket
import threading

import pytest

from ganeti.base import errors
from ganeti.node.hypervisor.kvm.qmp import Qmp
from ganeti.tools import kvm_console


class Guest:
    """The files of a guest in a directory of its own."""

    name = "web1.example.com"

    def __init__(self, folder, pid=42):
        self.folder, self.pid = folder, pid
        self.arrival_marker, self.sent_marker = map(self.control, ("arrival", "sent"))

    def alive_pid(self):
        return self.pid

    def control(self, kind):
        return str(self.folder / kind)


@pytest.fixture
def ends():
    """Return the guest's end of the line and the functions of a relay."""
    line, guest = socket.socketpair()
    keys_in, keys = os.pipe()
    screen, screen_out = os.pipe()
    thread = threading.Thread(
        target=kvm_console.relay, args=(keys_in, screen_out, line)
    )
    thread.start()
    yield guest, keys, screen, thread
    guest.close()
    thread.join(10)
    assert not thread.is_alive()
    line.close()
    for fd in {keys_in, screen, screen_out}:
        os.close(fd)


def test_bytes_go_both_ways_until_the_escape_key(ends):
    guest, keys, screen, thread = ends
    guest.sendall(b"login: ")
    assert os.read(screen, 100) == b"login: "
    os.write(keys, b"root\n")
    assert guest.recv(100) == b"root\n"
    os.write(keys, b"rest\x1dnever")
    assert guest.recv(100) == b"rest"
    thread.join(10)
    assert not thread.is_alive()
    os.close(keys)


def test_the_end_of_the_input_ends_the_console(ends):
    _guest, keys, _screen, thread = ends
    os.close(keys)
    thread.join(10)
    assert not thread.is_alive()


def test_the_end_of_the_guest_ends_the_console(ends):
    guest, keys, screen, thread = ends
    guest.sendall(b"x" * 10_000)
    guest.shutdown(socket.SHUT_WR)
    shown = b""
    while len(shown) < 10_000:
        shown += os.read(screen, 4096)
    thread.join(10)
    assert not thread.is_alive()
    assert shown == b"x" * 10_000
    os.close(keys)


def test_a_guest_must_run_and_have_a_serial_console(tmp_path):
    with pytest.raises(
        errors.HypervisorError, match=r"^instance web1.*: not running h"
    ):
        kvm_console.connect(Guest(tmp_path, pid=None))
    text = r"^instance web1.*: no serial console: No such file or directory$"
    with pytest.raises(errors.HypervisorError, match=text):
        kvm_console.connect(Guest(tmp_path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "serial"))
        listener.listen()
        with kvm_console.connect(Guest(tmp_path)) as line:
            other, _ = listener.accept()
            with other:
                other.sendall(b"hello")
                assert line.recv(10) == b"hello"


class Monitor:
    """The monitors of a guest: their states in turn, and what was executed."""

    def __init__(self, monkeypatch, *states):
        self.states, self.ran = list(states), []

        def execute(monitor, command, *_arguments, **_more):
            place = str(monitor._path).rpartition("/")[2]
            self.ran.append((place, command))
            if command == "query-status":
                return {"status": self.states.pop(0)}
            return {}

        monkeypatch.setattr(Qmp, "__enter__", lambda qmp: qmp)
        monkeypatch.setattr(Qmp, "__exit__", lambda *_: None)
        monkeypatch.setattr(Qmp, "execute", execute)


class Left:
    """Whether the user leaves while the console waits."""

    def __init__(self, leaves=False):
        self.leaves, self.waited = leaves, []

    def wait(self, seconds):
        self.waited.append(seconds)
        return self.leaves


LOOK, RESUME = ("kvmd", "query-status"), ("qmp", "cont")


@pytest.mark.parametrize(
    ("states", "leaves", "ran", "waited"),
    [
        (("running",), False, [LOOK], []),
        (("paused", "paused"), False, [LOOK, LOOK, RESUME], [3.0]),
        (("prelaunch", "prelaunch"), False, [LOOK, LOOK, RESUME], [3.0]),
        (("paused", "running"), False, [LOOK, LOOK], [3.0]),
        (("paused",), True, [LOOK], [3.0]),
    ],
)
def test_a_paused_guest_is_resumed_after_a_moment(
    monkeypatch, tmp_path, states, leaves, ran, waited
):
    monitor, left, shown = Monitor(monkeypatch, *states), Left(leaves), []
    kvm_console.unpause(Guest(tmp_path), shown.append, left)
    assert (monitor.ran, left.waited) == (ran, waited)
    resumed = ["Instance web1.example.com is paused, unpausing"]
    assert shown == (resumed if RESUME in ran else [])


@pytest.mark.parametrize("marker", ["arrival", "sent"])
def test_a_guest_that_a_migration_has_paused_is_not_resumed(
    monkeypatch, tmp_path, marker
):
    """It may run at the other end."""
    (tmp_path / marker).touch()
    monitor = Monitor(monkeypatch, "paused")
    kvm_console.unpause(Guest(tmp_path), lambda _text: None, Left(False))
    assert RESUME not in monitor.ran
