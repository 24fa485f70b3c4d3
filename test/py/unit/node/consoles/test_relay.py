"""The relay on real sockets: who sees what, who gives way, and what it costs."""

import contextlib
import os
import socket
import threading

import pytest

from fakes.clocks import PushedClock
from fakes.patience import PATIENCE_S, until
from ganeti.base import errors
from ganeti.node.consoles import lines, relay
from ganeti.node.consoles.tickets import Ticket
from ganeti.protocols.console import stream
from ganeti.protocols.http.sockets import PlainSocket

MIB = 1 << 20


class Conn:
    """A connection of the server, as the relay gets it."""

    def __init__(self, sock):
        self.socket = PlainSocket(sock)

    def close(self):
        self.socket.close()


class Peer:
    """The viewer's side of a connection."""

    def __init__(self, sock):
        self.sock = sock
        sock.settimeout(PATIENCE_S)
        self.reader = stream.AnswerReader()
        self.decoder = stream.Decoder()
        self.frames = []
        self.first = None

    def open(self):
        """Read up to the first notice, which it returns; a refusal is raised."""
        rest = None
        while rest is None:
            data = self.sock.recv(4096)
            assert data
            rest = self.reader.feed(data)
        self.frames += self.decoder.feed(rest)
        return self.message(stream.NOTICE)

    def next(self):
        while not self.frames:
            data = self.sock.recv(65536)
            if not data:
                return None, b""
            self.frames += self.decoder.feed(data)
        return self.frames.pop(0)

    def message(self, wanted):
        kind, content = self.next()
        assert kind == wanted, (kind, content)
        return stream.parse_message(content)

    def data(self, size):
        got = b""
        while len(got) < size:
            kind, content = self.next()
            assert kind == stream.DATA, content
            got += content
        return got

    def send(self, data):
        self.sock.sendall(stream.frames_of(data))

    def closed(self):
        """Return whether nothing follows."""
        return self.next() == (None, b"")


class Site:
    """A relay, and guests whose consoles are sockets."""

    def __init__(self, stack):
        self.clock = PushedClock()
        self.relay = relay.Relay(self.clock)
        self.relay.start()
        stack.callback(self.relay.stop)
        self.stack = stack
        #: The guests' ends of lines that were opened.
        self.guests = []

    def open_line(self):
        ours, theirs = socket.socketpair()
        theirs.settimeout(PATIENCE_S)
        self.stack.callback(theirs.close)
        self.guests.append(theirs)
        return lines.SocketLine(ours)

    def enter(self, mode="refuse", *, holder="alice", kind="serial", opener=None):
        ours, theirs = socket.socketpair()
        self.stack.callback(theirs.close)
        ticket = Ticket(
            digest="",
            instance="uuid1",
            name="web1",
            hypervisor="kvm",
            kind=kind,
            session="",
            holder=holder,
        )
        opener = opener or self.open_line
        self.relay.enter(Conn(ours), ticket, mode, opener)
        return Peer(theirs)

    def opened(self, mode="refuse", **more):
        peer = self.enter(mode, **more)
        peer.open()
        return peer

    def later(self, seconds):
        self.clock.ahead += seconds
        self.relay.run_soon(lambda: None)


@pytest.fixture
def site():
    with contextlib.ExitStack() as stack:
        yield Site(stack)


def test_bytes_go_both_ways(site):
    peer = site.enter()
    notices = peer.open()
    assert (notices.event, notices.role) == ("open", "control")
    assert notices.text == "connected to the serial console of instance web1"
    (guest,) = site.guests
    peer.send(b"root\r")
    assert guest.recv(100) == b"root\r"
    guest.sendall(b"# ")
    assert peer.data(2) == b"# "


def test_large_amounts_pass_both_ways_at_once(site):
    peer = site.opened()
    (guest,) = site.guests
    content = os.urandom(4 * MIB)

    def echo():
        left = len(content)
        while left:
            data = guest.recv(65536)
            guest.sendall(data)
            left -= len(data)

    workers = [threading.Thread(target=echo)]
    workers.append(threading.Thread(target=peer.send, args=(content,)))
    for worker in workers:
        worker.start()
    assert peer.data(len(content)) == content
    for worker in workers:
        worker.join()


def test_the_end_of_the_guest_is_the_last_word(site):
    peer = site.opened()
    site.guests[0].sendall(b"last line")
    site.guests[0].close()
    assert peer.data(9) == b"last line"
    notices = peer.message(stream.END)
    assert notices.event == "ended"
    assert "has stopped or moved" in notices.text
    assert peer.closed()
    until("nobody is there", lambda: not site.relay.count())


def test_the_end_of_a_viewer_closes_the_line(site):
    peer = site.opened()
    peer.sock.close()
    assert site.guests[0].recv(1) == b""


def test_a_viewer_may_end_its_input_and_still_read(site):
    peer = site.opened()
    (guest,) = site.guests
    peer.send(b"all")
    peer.sock.sendall(stream.frame(stream.EOF))
    assert guest.recv(3) == b"all"
    assert guest.recv(1) == b""
    guest.sendall(b"answer")
    assert peer.data(6) == b"answer"
    guest.close()
    assert "after the end of its input" in peer.message(stream.END).text


def test_a_second_viewer_is_refused_with_the_reason(site):
    first = site.opened()
    with pytest.raises(stream.Refused, match="in use by alice") as caught:
        site.enter(holder="bob").open()
    assert caught.value.status == 409
    # The first one notices nothing, and no second line was opened.
    (guest,) = site.guests
    guest.sendall(b"x")
    assert first.data(1) == b"x"


def test_a_watcher_sees_all_and_sends_nothing(site):
    first = site.opened()
    second = site.enter("watch", holder="bob")
    notices = second.open()
    assert (notices.event, notices.role) == ("open", "watch")
    assert "other viewers: alice (control)" in notices.text
    assert first.message(stream.NOTICE).text == "bob watches this console now"
    second.send(b"rm -rf /\r")
    first.send(b"ls\r")
    (guest,) = site.guests
    assert guest.recv(100) == b"ls\r"
    guest.sendall(b"files")
    assert first.data(5) == second.data(5) == b"files"
    second.sock.close()
    assert first.message(stream.NOTICE).text == "bob has left"


def test_a_watcher_stays_when_control_ends_and_another_may_have_it(site):
    first, second = site.opened(), site.opened("watch", holder="bob")
    first.sock.close()
    assert second.message(stream.NOTICE).text == "alice has left"
    third = site.opened(holder="carol")
    assert second.message(stream.NOTICE).text == "carol has this console now"
    third.send(b"x")
    assert site.guests[0].recv(1) == b"x"


def test_a_take_over_keeps_the_line_and_notifies_the_other(site):
    first = site.opened()
    second = site.opened("take", holder="bob")
    notices = first.message(stream.END)
    assert (notices.event, notices.text) == ("taken", "bob has taken over this console")
    assert first.closed()
    second.send(b"x")
    (guest,) = site.guests
    assert guest.recv(1) == b"x"


def test_viewers_of_a_display_have_connections_of_their_own(site):
    first = site.opened(kind="vnc")
    second = site.opened("watch", kind="vnc", holder="bob")
    one, two = site.guests
    hello = b"RFB 003.008\n"
    second.send(hello + b"\x01\x00" + b"\x04" + bytes(7) + b"\x03" + bytes(9))
    wanted = hello + b"\x01\x01" + b"\x03" + bytes(9)
    assert two.recv(len(wanted), socket.MSG_WAITALL) == wanted
    first.send(b"mine")
    assert one.recv(100) == b"mine"
    third = site.opened("take", kind="vnc", holder="carol")
    assert first.next()[0] == stream.NOTICE  # bob
    assert first.message(stream.END).event == "taken"
    assert one.recv(1) == b""
    third.send(b"new")
    assert site.guests[2].recv(100) == b"new"


def test_a_watcher_of_a_display_that_cannot_be_followed_is_ended(site):
    peer = site.opened("watch", kind="vnc")
    peer.send(b"RFB 003.003\n")
    notices = peer.message(stream.END)
    assert notices.event == "protocol"
    assert "RFB 3.7" in notices.text


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"\x00\xff\xff", "at most 16384 bytes"),
        (stream.frame(stream.NOTICE), "no frames of kind 1"),
        (stream.frame(200, b"x"), "no frames of kind 200"),
    ],
)
def test_a_viewer_without_manners_is_ended(site, sent, text):
    peer = site.opened()
    peer.sock.sendall(sent)
    notices = peer.message(stream.END)
    assert notices.event == "protocol"
    assert text in notices.text
    assert site.guests[0].recv(1) == b""


def waits(site):
    """Return what waits in the relay for viewers and for guests, in bytes."""
    ends = tuple(site.relay._ends.values())
    return [len(end.out) for end in ends]


def test_a_viewer_that_does_not_read_stops_its_guest_and_is_closed(site):
    peer = site.opened()
    (guest,) = site.guests
    guest.setblocking(False)

    def is_full():
        with contextlib.suppress(BlockingIOError):
            while guest.send(b"x" * 65536):
                pass
        return max(waits(site)) >= 64 * 1024

    until("the buffer is full", is_full)
    assert max(waits(site)) < 2 * 64 * 1024
    site.later(relay.STALL_S - 1)
    until("the clock was seen", lambda: site.relay.count() == 1)
    site.later(2)
    guest.settimeout(PATIENCE_S)
    # The line is closed: what the guest wrote is lost, and it gets an error.
    with pytest.raises(OSError, match=r"pipe|reset"):
        while True:
            guest.send(b"x" * 65536)
    # It never reads why, so it does not stay for that.
    site.later(10)
    until("it is closed", lambda: not site.relay.count())
    peer.sock.close()


def test_a_slow_watcher_delays_nobody(site):
    first = site.opened()
    watcher = site.opened("watch", holder="bob")
    assert first.message(stream.NOTICE).event == "joined"
    (guest,) = site.guests
    content = os.urandom(3 * MIB)
    sender = threading.Thread(target=guest.sendall, args=(content,))
    sender.start()
    got = b""
    while len(got) < len(content):
        kind, data = first.next()
        if kind == stream.DATA:
            got += data
        else:
            assert stream.parse_message(data).text == "bob has left"
    sender.join()
    assert got == content
    # It has not read, so it gets what fits, and the reason.
    kind, last = None, b""
    while (frame := watcher.next())[0] is not None:
        kind, last = frame
    assert kind == stream.END
    assert stream.parse_message(last).event == "slow"


def test_a_guest_that_takes_nothing_stops_its_viewer_which_may_leave(site):
    peer = site.opened()
    peer.sock.setblocking(False)

    def is_full():
        with contextlib.suppress(BlockingIOError):
            while peer.sock.send(stream.frames_of(b"x" * 16000)):
                pass
        return max(waits(site)) >= 64 * 1024

    until("the buffer is full", is_full)
    assert max(waits(site)) < 2 * 64 * 1024
    peer.sock.close()
    until("it has left", lambda: not site.relay.count())


def test_a_line_that_cannot_be_opened_is_explained(site):
    def fail():
        raise errors.HypervisorError("instance web1: not running")

    with pytest.raises(stream.Refused, match=r"console of .* web1: .*not running"):
        site.enter(opener=fail).open()

    def break_down():
        raise ZeroDivisionError

    peer = site.enter(opener=break_down)
    assert peer.sock.recv(1) == b""
    assert site.opened()


def test_viewers_are_bounded(site):
    peers = [
        site.opened("watch", holder=f"v{number}")
        for number in range(relay.MOST_VIEWERS)
    ]
    with pytest.raises(stream.Refused, match="64 viewers") as caught:
        site.enter("watch").open()
    assert caught.value.status == 503
    for peer in peers:
        peer.sock.close()
    until("there is room", lambda: not site.relay.count())
    assert site.opened()


def test_200_openings_leave_nothing(site):
    site.opened().sock.close()
    until("nobody is there", lambda: not site.relay.count())
    before = len(os.listdir("/proc/self/fd"))
    threads = threading.active_count()
    for number in range(200):
        peer = site.opened("take", holder=f"v{number}")
        guest = site.guests.pop()
        peer.send(b"x")
        assert guest.recv(1) == b"x"
        peer.sock.close()
        assert guest.recv(1) == b""
        guest.close()
    until("nobody is there", lambda: not site.relay.count())
    assert len(os.listdir("/proc/self/fd")) <= before
    assert threading.active_count() == threads


def test_the_end_of_the_daemon_is_the_last_word():
    with contextlib.ExitStack() as stack:
        site = Site(stack)
        peer = site.opened()
        site.relay.stop()
        assert peer.message(stream.END).event == "stopping"
        assert peer.closed()
        # Whoever comes now finds a closed connection.
        late = site.enter()
        assert late.sock.recv(1) == b""


def test_a_program_on_a_terminal_is_a_line_and_leaves_no_process(site):
    before = children()
    script = "stty -echo raw; echo tty=$(tty | cut -c 1-8); exec cat"
    peer = site.opened(opener=lambda: lines.start(("/bin/sh", "-c", script)))
    assert b"/dev/pts" in peer.data(13)
    peer.send(b"hello")
    got = b""
    while b"hello" not in got:
        got += peer.data(1)
    (own,) = children() - before
    peer.sock.close()
    until("its process is gone", lambda: own not in children())


def test_the_end_of_a_program_is_that_of_its_console(site):
    peer = site.opened(opener=lambda: lines.start(("/bin/echo", "bye")))
    assert b"bye" in peer.data(3)
    while (frame := peer.next())[0] == stream.DATA:
        pass
    assert stream.parse_message(frame[1]).event == "ended"


def children():
    """Return the child processes of this one."""
    me = os.getpid()
    got = set()
    for thread in os.listdir(f"/proc/{me}/task"):
        with (
            contextlib.suppress(OSError),
            open(f"/proc/{me}/task/{thread}/children") as src,
        ):
            got.update(src.read().split())
    return got


@pytest.mark.parametrize("place", ["missing", "closed"])
def test_a_socket_that_nobody_serves_is_named(tmp_path, place):
    path = str(tmp_path / "s")
    if place == "closed":
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(path)
    with pytest.raises(errors.HypervisorError, match="no connection: "):
        lines.connect(lines.ConsolePlace(path=path))


def test_a_line_that_others_wait_for_is_named(tmp_path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as sock, contextlib.ExitStack() as stack:
        sock.bind(path)
        sock.listen(0)
        place = lines.ConsolePlace(path=path)
        with pytest.raises(errors.HypervisorError, match="others wait"):
            while True:
                stack.callback(lines.connect(place).close)
