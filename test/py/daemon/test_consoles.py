"""Consoles of real guests through real node daemons: tickets, viewers, commands."""

import contextlib
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import termios

import pytest

from fakes.patience import PATIENCE_S, until
from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.node.consoles import tickets
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.protocols import rpc
from ganeti.protocols.console import stream, viewer
from ganeti.protocols.rpc import calls

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.sampled,
    pytest.mark.skipif(
        not shutil.which("qemu-system-x86_64"), reason="needs an emulator"
    ),
]

WEB1, WEB2 = "web1.vc.test", "web2.vc.test"
COUNTER = rb"tiny counter \d+"
RFB = b"RFB 003.008\n"
NODED = "ganeti-noded"
ADD = (
    *("gnt-instance", "add", "-t", "sharedfile", "-s", "32M", "-B", "memory=96M"),
    *("-o", "tiny+default", "--no-nics", "-n", "node2"),
)


@pytest.fixture(scope="module")
def cluster(cluster_of):
    made = cluster_of(2, "kvm,fake")
    made.check(*ADD, "-H", "kvm", WEB1)
    displays = pathlib.Path(made.directory, "vnc")
    displays.mkdir(0o700)
    made.check(*ADD, "-H", f"kvm:vnc_bind_address={displays}", WEB2)
    return made


@pytest.fixture(autouse=True)
def is_quiet(cluster):
    """End with no viewer."""
    yield
    until("nobody watches", lambda: not viewers(cluster))


def viewers(cluster):
    """Return the lines of the log of node2 since the last of its starts, by viewer."""
    log = log_of(cluster).rpartition("serving on port")[2]
    joined = len(re.findall(r"console of .*, (?:control|watch)$", log, re.MULTILINE))
    return joined - len(re.findall(r"console of .* has left", log))


def log_of(cluster, node="node2"):
    return pathlib.Path(cluster.paths(node).log_dir, "node-daemon.log").read_text()


def ticket(cluster, name=WEB1, kind="serial", *more):
    with contextlib.closing(cluster.luxi()) as client:
        answer = client.call("OpenConsole", [name, kind, *more])
    return viewer.Place.of(answer)


class Viewer:
    """An open console; its data is in ``text``, its messages are in ``notices``."""

    def __init__(self, cluster, place=None, **more):
        self.console = viewer.connect(place or ticket(cluster), cluster.paths(), **more)
        self.text, self.notices, self.last = b"", [], None

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.console.close()

    def send(self, data):
        self.console.send(data)
        self.console.flush_all()

    def read(self):
        """Read what there is; return false at the end."""
        frames = self.console.receive()
        if frames is None:
            select.select([self.console], [], [], PATIENCE_S)
            return True
        for kind, content in frames:
            if kind == stream.DATA:
                self.text += content
            elif kind == stream.NOTICE:
                self.notices.append(stream.parse_message(content))
            else:
                self.last = stream.parse_message(content)
        return self.last is None

    def wait_for(self, pattern):
        def is_there():
            return re.search(pattern, self.text) or (self.read() and None)

        return until(f"{pattern} comes", is_there)

    def end(self):
        until("the last word comes", lambda: not self.read())
        return self.last


def test_the_serial_line_is_seen_and_written(cluster):
    with Viewer(cluster) as one:
        one.wait_for(COUNTER)
        assert one.notices[0].role == "control"
        one.send(b"\r")
        one.wait_for(rb"web1\S* login: ")


def test_the_display_greets_its_viewer(cluster):
    with Viewer(cluster, ticket(cluster, WEB2, "vnc")) as one:
        one.wait_for(RFB)
        one.send(RFB)
        # One kind of authentication, which is none.
        one.wait_for(re.escape(RFB) + rb"\x01\x01")


@pytest.mark.parametrize("kind", ["serial", "vnc"])
def test_a_missing_console_is_named_before_there_is_a_ticket(cluster, kind):
    with contextlib.closing(cluster.luxi()) as client:
        for name, text in (("none", "not known"), (WEB1, "without a vnc console")):
            if (name, kind) != (WEB1, "serial"):
                with pytest.raises(errors.GenericError, match=text):
                    client.call("OpenConsole", [name, kind])
        with pytest.raises(errors.GenericError):
            client.call("OpenConsole", [WEB2, "spice"])


def refused(cluster, place, **more):
    with pytest.raises(stream.Refused) as caught, Viewer(cluster, place, **more):
        pass
    assert caught.value.status == 403
    until("the log has it", lambda: str(caught.value) in log_of(cluster))
    return str(caught.value)


def test_a_ticket_is_valid_once_and_for_one_thing(cluster):
    place = ticket(cluster)
    with Viewer(cluster, place) as one:
        one.wait_for(COUNTER)
    assert "was used before" in refused(cluster, place)

    def other(**changes):
        return viewer.msgspec.structs.replace(ticket(cluster), **changes)

    assert "another instance" in refused(
        cluster, other(uuid=ticket(cluster, WEB2).uuid)
    )
    assert "another kind" in refused(cluster, other(kind="vnc"))
    assert "another session" in refused(cluster, ticket(cluster), session="mine")
    assert "unknown" in refused(cluster, other(ticket="x" * 43))
    bound = ticket(cluster, WEB1, "serial", "mine")
    with Viewer(cluster, bound, session="mine") as one:
        one.wait_for(COUNTER)
    # Neither the tickets nor their digests are in a log.
    secret = bound.ticket
    for node in ("node1", "node2"):
        for path in pathlib.Path(cluster.paths(node).log_dir).glob("*.log"):
            text = path.read_text()
            assert secret not in text
            assert tickets.digest(secret) not in text
    audit = pathlib.Path(cluster.paths().log_dir, "audit.log").read_text()
    assert '"method":"OpenConsole"' in audit


def test_a_ticket_ends_by_the_clock_of_the_node(cluster):
    place = ticket(cluster)
    request = {
        "digest": tickets.digest("late"),
        "instance": place.uuid,
        "name": WEB1,
        "hypervisor": "kvm",
        "hvparams": {},
        "kind": "serial",
        "session": "",
        "holder": "a test",
        "seconds": 1e-6,
    }
    target = rpc.Target(place.node_uuid, place.node, place.address, place.port)
    runner = rpc.StaticRunner([target], cluster.paths())
    result = runner.call_node(place.node, calls.console_ticket(request))
    assert result.fail_msg is None
    late = viewer.msgspec.structs.replace(place, ticket="late")
    assert "has expired" in refused(cluster, late)


def test_others_are_named_and_refused_may_watch_or_take_over(cluster):
    with Viewer(cluster) as first:
        first.wait_for(COUNTER)
        with (
            pytest.raises(stream.Refused, match="in use by root"),
            Viewer(cluster),
        ):
            pass
        with Viewer(cluster, viewer="watch") as second:
            second.wait_for(COUNTER)
            assert second.notices[0].role == "watch"
            second.send(b"root\r")
            with Viewer(cluster, viewer="take") as third:
                assert first.end().event == "taken"
                third.wait_for(COUNTER)
                # Nobody has logged in.
                third.send(b"\r")
                third.wait_for(rb"web1\S* login: ")
                second.wait_for(rb"web1\S* login: ")


def test_a_display_may_be_watched_beside_its_viewer(cluster):
    with (
        Viewer(cluster, ticket(cluster, WEB2, "vnc")) as first,
        Viewer(cluster, ticket(cluster, WEB2, "vnc"), viewer="watch") as second,
    ):
        for each in (first, second):
            each.wait_for(RFB)
            each.send(RFB + b"\x01\x01")
            # Security result, then the size and the name of the display.
            each.wait_for(rb"(?s)\x01\x01\x00\x00\x00\x00.{20}\x00\x00\x00")
        second.send(b"\x04" + bytes(7) + b"\x03\x00" + bytes(4) + b"\x00\x01\x00\x01")
        size = len(second.text)
        until("a picture comes", lambda: second.read() and len(second.text) > size)


def test_a_guest_that_moves_ends_its_viewer_which_follows(cluster):
    with Viewer(cluster) as one:
        one.wait_for(COUNTER)
        cluster.check("gnt-instance", "migrate", "-f", WEB1)
        notices = one.end()
        assert (notices.event, "has stopped or moved" in notices.text) == (
            "ended",
            True,
        )
    place = ticket(cluster)
    assert place.node == "node1.vc.test"
    with Viewer(cluster, place) as one:
        one.wait_for(COUNTER)
    cluster.check("gnt-instance", "migrate", "-f", WEB1)


def test_a_killed_node_daemon_breaks_the_connection_and_no_guest(cluster):
    pid = Files(cluster.paths("node2"), WEB1).alive_pid()
    with Viewer(cluster) as one:
        one.wait_for(COUNTER)
        waiting = ticket(cluster)
        cluster.command("kill", "node2", NODED)
        with pytest.raises(EOFError):
            while one.read():
                pass
    cluster.command("start", "node2", NODED)
    until("it serves", lambda: not cluster.run("gnt-node", "list").failed)
    until("it answers", lambda: ticket(cluster))
    # A new daemon knows no ticket of the old one.
    assert "unknown" in refused(cluster, waiting)
    with Viewer(cluster) as one:
        one.wait_for(COUNTER)
    assert Files(cluster.paths("node2"), WEB1).alive_pid() == pid


def test_200_openings_leave_no_descriptor_thread_or_process(cluster):
    pid = int(pathlib.Path(cluster.paths("node2").pid_file(NODED)).read_text())

    def counts():
        tasks = os.listdir(f"/proc/{pid}/task")
        children = [
            pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text()
            for task in tasks
        ]
        sockets = [
            name
            for name in os.listdir(f"/proc/{pid}/fd")
            if os.path.exists(f"/proc/{pid}/fd/{name}")
            or os.path.islink(f"/proc/{pid}/fd/{name}")
        ]
        return len(tasks), "".join(children).split(), len(sockets)

    with Viewer(cluster) as one:
        one.wait_for(COUNTER)
    until("it has left", lambda: not viewers(cluster))
    threads, children, descriptors = counts()
    for _ in range(200):
        with Viewer(cluster, viewer="take") as one:
            assert one.notices or one.read()
    until("all have left", lambda: not viewers(cluster))
    # Connections of the master's calls may have come or gone.
    until("they are closed", lambda: counts()[2] <= descriptors + 2)
    assert counts()[:2] == (threads, children)
    with Viewer(cluster) as one:
        one.wait_for(COUNTER)


def test_a_flood_that_nobody_reads_stops_no_call(cluster):
    with Viewer(cluster) as one:
        one.wait_for(COUNTER)
        one.send(b"root\r")
        one.wait_for(rb"# ")
        one.send(b"yes floods\r")
        one.wait_for(rb"floods\r\nfloods")
        for _ in range(5):
            cluster.check("gnt-node", "list", "-o", "name,mfree")
        assert ticket(cluster)
        one.send(b"\x03exit\r")
        one.wait_for(rb"login: $")


# Commands
class Terminal:
    """A command on a terminal of its own; its output is in ``text``."""

    def __init__(self, cluster, *words):
        self.fd, end = pty.openpty()
        self.before = termios.tcgetattr(end)
        node = cluster.node("node1")
        self.child = subprocess.Popen(
            cluster.control.argv(node, words),
            stdin=end,
            stdout=end,
            stderr=end,
            env=cluster.control.environment(node),
            start_new_session=True,
            # Background jobs of a shell ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        self.end, self.text = end, b""

    def wait_for(self, pattern):
        def is_there():
            if match := re.search(pattern, self.text):
                return match
            if select.select([self.fd], [], [], PATIENCE_S)[0]:
                self.text += os.read(self.fd, 4096)
            return None

        return until(f"{pattern} comes", is_there)

    def send(self, data):
        os.write(self.fd, data)

    def code(self):
        """Return the exit status; the terminal is as before."""
        code = self.child.wait(PATIENCE_S)
        assert termios.tcgetattr(self.end) == self.before
        for fd in (self.fd, self.end):
            os.close(fd)
        return code


def vnc_of(terminal):
    """Return the port that the command offers."""
    return int(terminal.wait_for(rb"vnc://127\.0\.0\.1:(\d+)/").group(1))


def test_the_command_relays_a_terminal_and_restores_it(cluster):
    terminal = Terminal(cluster, "gnt-instance", "console", "--relay", WEB1)
    terminal.wait_for(rb"connected to the serial console of instance web1")
    terminal.wait_for(rb"Control-\] leaves")
    terminal.wait_for(COUNTER)
    terminal.send(b"\r")
    terminal.wait_for(rb"web1\S* login: ")
    watching = Terminal(cluster, "gnt-instance", "console", "--watch", WEB1)
    watching.wait_for(COUNTER)
    # A key of a terminal in raw mode is the guest's: Control-C ends nothing.
    terminal.send(b"\x03")
    terminal.wait_for(rb"root watches this console now")
    taking = Terminal(cluster, "gnt-instance", "console", "--take-over", WEB1)
    taking.wait_for(COUNTER)
    terminal.wait_for(rb"root has taken over this console")
    assert terminal.code() == exitcodes.EXIT_FAILURE
    for each in (watching, taking):
        each.send(b"\x1d")
        assert each.code() == exitcodes.EXIT_SUCCESS


def test_a_second_terminal_reads_what_it_may_do(cluster):
    with Viewer(cluster) as one:
        one.wait_for(COUNTER)
        done = cluster.run("gnt-instance", "console", "--relay", WEB1)
    assert done.code == exitcodes.EXIT_FAILURE
    assert "in use by root; watch it, or take it over" in done.stderr


@pytest.fixture
def without_ssh(cluster):
    """SSH of the master knows no host."""
    path = pathlib.Path(cluster.paths().data("known_hosts"))
    known = path.read_text()
    path.write_text("")
    yield
    path.write_text(known)


@pytest.mark.usefixtures("without_ssh")
def test_without_ssh_the_console_goes_through_the_relay(cluster):
    terminal = Terminal(cluster, "gnt-instance", "console", WEB1)
    terminal.wait_for(rb"SSH to 127[0-9.]+ does not work; connecting through the node")
    terminal.wait_for(COUNTER)
    terminal.send(b"\x1d")
    assert terminal.code() == exitcodes.EXIT_SUCCESS
    done = cluster.run("gnt-instance", "console", "--ssh", WEB1)
    assert done.code == 255
    assert "connecting through" not in done.output


def test_the_end_of_the_input_ends_the_console(cluster):
    with Viewer(cluster) as one:
        one.wait_for(COUNTER)
    done = cluster.run("gnt-instance", "console", "--relay", WEB1)
    assert done.code == exitcodes.EXIT_SUCCESS
    assert "after the end of its input" in done.stderr


def test_a_display_is_offered_to_one_viewer(cluster):
    terminal = Terminal(cluster, "gnt-instance", "vnc", "--no-viewer", WEB2)
    address = ("127.0.0.1", vnc_of(terminal))
    with socket.create_connection(address, PATIENCE_S) as sock:
        sock.settimeout(PATIENCE_S)
        assert sock.recv(12, socket.MSG_WAITALL) == RFB
        with (
            pytest.raises(ConnectionRefusedError),
            socket.create_connection(address),
        ):
            pass
    assert terminal.code() == exitcodes.EXIT_SUCCESS


def test_a_display_may_be_offered_on_a_socket_of_the_user(cluster, tmp_path):
    path = tmp_path / "vnc"
    words = ("gnt-instance", "vnc", "--socket", str(path), WEB2)
    terminal = Terminal(cluster, *words)
    terminal.wait_for(re.escape(str(path).encode()))
    assert path.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE_S)
        sock.connect(str(path))
        assert sock.recv(12, socket.MSG_WAITALL) == RFB
    assert terminal.code() == exitcodes.EXIT_SUCCESS
    assert not path.exists()
    waiting = Terminal(cluster, *words)
    waiting.wait_for(re.escape(str(path).encode()))
    waiting.child.send_signal(signal.SIGINT)
    assert waiting.code() != exitcodes.EXIT_SUCCESS
    assert b"Traceback" not in waiting.text
    assert not path.exists()


def test_a_guest_without_a_display_has_none_to_offer(cluster):
    done = cluster.run("gnt-instance", "vnc", WEB1)
    assert done.code == exitcodes.EXIT_FAILURE
    assert "set vnc_bind_address with gnt-instance modify" in done.stderr
