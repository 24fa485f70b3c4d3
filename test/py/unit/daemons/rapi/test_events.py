"""Streams of events over real sockets: rights, resumption, limits, slow clients."""

import base64
import collections
import contextlib
import json
import socket
import ssl
import threading

import pytest

from fakes.patience import PATIENCE_S, until
from fakes.rapi_master import RapiMaster
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.tls import x509
from ganeti.daemons.rapi import access, users
from ganeti.daemons.rapi.application import Application
from ganeti.daemons.rapi.authentication import Authenticator
from ganeti.daemons.rapi.following import event_texts, events, streams
from ganeti.daemons.rapi.problems import Refused
from ganeti.decisions.events import Position
from ganeti.protocols.http import server, tls
from ganeti.protocols.rapi.event_stream import Blocks

#: Events of one answer of the master.
MOST = 6
FILE = """jack pass write
ann pass read:/2/events
bob pass
"""


def event(number, kind="object", object_="instance", name="web1", term=1, size=0):
    return {
        "position": f"{term}.{number}.1",
        "revision": number,
        "time": 1.5,
        "kind": kind,
        "object": object_,
        "name": name,
        "uuid": "",
        "change": "changed",
        "details": {"text": "x" * size},
    }


class FeedMaster:
    """Answers `WaitForEvents` as the master daemon does, of a list of events."""

    def __init__(self):
        self.lock = threading.Lock()
        self.known = []
        self.term = 1
        self.waits = []
        self.error = None
        self.asked = []

    def submit(self, method, args, done, *, timeout_s):
        assert method == "WaitForEvents"
        assert timeout_s > args[2]
        self.asked.append(args)
        self._ask(args, done)

    def _ask(self, args, done):
        with self.lock:
            answer = None if self.error else self.answer(*args)
            if answer is None and not self.error:
                self.waits.append((args, done))
        if self.error:
            done(None, self.error)
        elif answer is not None:
            done(answer, None)

    def answer(self, since, kinds, wait_s):
        end = self.known[-1]["position"] if self.known else f"{self.term}.0.0"
        if since is None:
            return {"position": end, "lost": False, "events": []}
        term, number, _n = map(int, since.split("."))
        if term != self.term:
            return {"position": end, "lost": True, "events": []}
        new = [e for e in self.known if e["revision"] > number]
        new = [e for e in new if not kinds or e["kind"] in kinds]
        if not new and wait_s:
            return None
        if len(new) > MOST:
            end = new[MOST - 1]["position"]
        return {"position": end, "lost": False, "events": new[:MOST]}

    def publish(self, *new):
        with self.lock:
            self.known += new
            waits, self.waits = self.waits, []
        for args, done in waits:
            self._ask(args, done)

    def restart(self):
        with self.lock:
            self.known, self.term = [], self.term + 1
            waits, self.waits = self.waits, []
        for args, done in waits:
            self._ask(args, done)

    def close(self):
        """End the calls, as a shared client does."""


class Reader:
    """A client of the streams."""

    def __init__(self, sock):
        self.sock = sock
        self.blocks = Blocks()
        self.got = collections.deque()
        self.head = b""

    def start(self):
        while b"\r\n\r\n" not in self.head:
            part = self.sock.recv(1)
            if not part:
                return self
            self.head += part
        return self

    @property
    def status(self):
        return int(self.head.split()[1])

    def next(self):
        """Return the next block that is no comment; None at the end."""
        while True:
            while self.got:
                block = self.got.popleft()
                if block.data:
                    return block
            try:
                part = self.sock.recv(65536)
            except OSError:
                return None
            if not part:
                return None
            self.got += self.blocks.feed(part)

    def value(self):
        return json.loads(self.next().data)

    def position(self):
        block = self.next()
        assert block.name == "position"
        value = json.loads(block.data)
        assert value["position"] == block.id
        return value["position"], value["lost"]

    def revisions(self, count):
        return [self.value()["revision"] for _ in range(count)]


class Site:
    """A server with streams, and its clients."""

    def __init__(self, context):
        self.secure = context is not None
        self.master = FeedMaster()
        self.clock = SystemClock()
        self.authenticator = Authenticator(self.clock, users.parse(FILE))
        self.events = events.Events(
            self.master, self.clock, self.authenticator.is_present
        )
        app = Application(
            RapiMaster(),
            self.authenticator,
            self.clock,
            waiting=None,
            streams=self.events,
        )
        self.server = server.Server(("127.0.0.1", 0), app, context=context, threads=2)
        self.port = self.server.start_serving()
        self.sockets = []

    def connect(self, receive=None):
        sock = socket.socket()
        if receive:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        sock.settimeout(PATIENCE_S)
        sock.connect(("127.0.0.1", self.port))
        if self.secure:
            client = ssl.create_default_context()
            client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
            sock = client.wrap_socket(sock)
        self.sockets.append(sock)
        return sock

    def open(self, query="", user="jack", last=None, receive=None):
        sock = self.connect(receive)
        token = base64.b64encode(f"{user}:pass".encode()).decode()
        lines = [f"GET /2/events{query} HTTP/1.1", "Host: x"]
        lines += [f"Authorization: Basic {token}"] if user else []
        lines += [f"Last-Event-ID: {last}"] if last else []
        sock.sendall("\r\n".join([*lines, "", ""]).encode())
        return Reader(sock).start()

    def begun(self, *args, **options):
        """Return a reader that has its first position."""
        reader = self.open(*args, **options)
        assert reader.status == 200
        reader.position()
        return reader

    def stop(self):
        self.events.close()
        for sock in self.sockets:
            sock.close()
        self.server.stop()


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    path = tmp_path_factory.mktemp("pem") / "server.pem"
    path.write_bytes(x509.create_self_signed().pem)
    return str(path)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(events, "_TICK_S", 0.01)
    monkeypatch.setattr(events, "_RETRY_S", 0.01)


@pytest.fixture(params=["tls", "plain"])
def site(request, pem):
    context = tls.server_context(pem, pem) if request.param == "tls" else None
    made = Site(context)
    yield made
    made.stop()


def test_a_stream_begins_with_its_position_and_has_events_as_they_come(site):
    site.master.publish(event(1))
    reader = site.open()
    head = reader.head.decode().lower()
    assert reader.status == 200
    assert "content-type: text/event-stream\r\n" in head
    assert "connection: close\r\n" in head
    assert "x-request-id: " in head
    assert reader.position() == ("1.1.1", False)
    site.master.publish(event(2), event(3, "job", "job", "7"))
    first, second = reader.next(), reader.next()
    assert (first.id, first.name) == ("1.2.1", "object")
    assert json.loads(first.data) == event(2)
    assert (second.id, second.name) == ("1.3.1", "job")
    site.master.publish(event(4))
    assert reader.revisions(1) == [4]


def test_many_clients_cost_one_question(site):
    readers = [site.begun() for _ in range(20)]
    until("the question", lambda: site.master.waits)
    before = len(site.master.asked)
    site.master.publish(event(1))
    assert all(reader.revisions(1) == [1] for reader in readers)
    until("the next question", lambda: site.master.waits)
    assert len(site.master.asked) == before + 1


def test_only_wanted_kinds_are_sent(site):
    reader = site.begun("?kinds=job,job-log")
    other = site.begun()
    site.master.publish(event(1), event(2, "job", "job", "7"), event(3))
    assert reader.value()["kind"] == "job"
    assert other.revisions(3) == [1, 2, 3]
    site.master.publish(event(4, "job-log", "job", "7"))
    assert reader.revisions(1) == [4]


def test_users_see_what_they_may_read(site):
    some = [
        event(1, "journal", "journal", "4"),
        event(2, "incident", "node", "n1"),
        event(3, "node-death", "node", "n1"),
        event(4, "freeze", "cluster", "c"),
        event(5, "object", "weather", "c"),
        event(6, "object", "instance", "web1"),
    ]
    all_of_it, open_lists = site.begun(), site.begun(user="ann")
    site.master.publish(*some)
    assert all_of_it.revisions(5) == [1, 2, 3, 4, 6]
    # Without a right of its own, a list with access for all.
    assert open_lists.revisions(1) == [6]
    resumed = site.open("?since=1.0.0", user="ann")
    assert resumed.revisions(1) == [6]


def test_rights_of_one_path_show_the_objects_that_it_matches(monkeypatch):
    closed = {
        path: each.__class__(**{**vars(each), "access": ("read", "write")})
        for path, each in event_texts._READS.items()
    }
    monkeypatch.setattr(event_texts, "_READS", closed)
    rights = access.parse_rights(["read:/2/instances/web-*", "get:/2/nodes/n%201"])
    view = event_texts.View(rights, frozenset())
    shown = [
        name
        for name, object_ in [
            ("web-1", "instance"),
            ("db-1", "instance"),
            ("n 1", "node"),
            ("n2", "node"),
            ("c", "cluster"),
            ("web-1/../x", "group"),
        ]
        if view.shows(event(1, object_=object_, name=name))
    ]
    assert shown == ["web-1", "n 1"]


@pytest.mark.parametrize("way", ["header", "query", "both"])
def test_a_client_resumes_without_a_gap_or_a_repetition(site, way):
    site.begun()
    site.master.publish(*(event(n) for n in range(1, 6)))
    query = {"header": "", "query": "?since=1.2.1", "both": "?since=1.0.0"}[way]
    reader = site.open(query, last="1.2.1" if way != "query" else None)
    site.master.publish(event(6))
    got = []
    while len(got) < 4:
        block = reader.next()
        if block.name != "position":
            got.append(json.loads(block.data)["revision"])
    site.master.publish(event(7))
    block = reader.next()
    if block.name == "position":
        block = reader.next()
    assert [*got, json.loads(block.data)["revision"]] == [3, 4, 5, 6, 7]


def test_the_first_client_may_resume(site):
    site.master.publish(event(1), event(2))
    reader = site.open("?since=1.1.1")
    assert reader.revisions(1) == [2]
    assert reader.position() == ("1.2.1", False)
    site.master.publish(event(3))
    assert reader.revisions(1) == [3]


def test_lost_events_are_announced(site):
    reader = site.begun()
    site.master.restart()
    assert reader.position() == ("2.0.0", True)
    site.master.publish(event(1, term=2))
    assert reader.revisions(1) == [1]
    late = site.open(last="1.44.1")
    assert late.position() == ("2.1.1", True)
    assert late.position() == ("2.1.1", False)


class Kept:
    """A stream that keeps what is sent."""

    def __init__(self):
        self.sent = b""

    def push(self, text, _now):
        self.sent += text


def test_a_client_that_is_ahead_of_the_others_learns_what_was_lost(site):
    ahead, others = Kept(), Kept()
    user = site.authenticator.authenticate(
        f"Basic {base64.b64encode(b'jack:pass').decode()}", ""
    )
    wanted = events.Wanted(user, frozenset(), None, "1")
    made = events.Events(site.master, site.clock, site.authenticator.is_present)
    made._wanted = {ahead: wanted, others: wanted}
    made._views = {wanted.view: {ahead: None, others: None}}
    made._ahead = {ahead: Position(6, 200, 0)}
    made._pass_on({"position": "6.250.1", "lost": True, "events": []}, 0.0)
    assert ahead.sent == others.sent
    assert b'"lost":true' in ahead.sent.replace(b" ", b"")
    assert made._ahead == {}


def test_a_few_clients_catch_up_at_a_time(site, monkeypatch):
    monkeypatch.setattr(events, "_MAX_CATCH_UPS", 2)
    site.master.publish(*(event(n) for n in range(1, 6)))
    readers = [site.open(last="1.2.1") for _ in range(9)]
    for reader in readers:
        assert reader.revisions(3) == [3, 4, 5]
        assert reader.position() == ("1.5.1", False)


def test_a_master_that_does_not_answer_is_asked_again(site):
    site.master.error = errors.NoMasterError("/nowhere")
    reader = site.open()
    assert reader.status == 200
    until("questions", lambda: len(site.master.asked) > 3)
    site.master.error = None
    reader.position()
    site.master.publish(event(1))
    assert reader.revisions(1) == [1]


def test_an_answer_of_another_form_ends_no_stream(site):
    reader = site.begun()
    until("the question", lambda: site.master.waits)
    [(_args, done)] = site.master.waits
    site.master.waits = []
    done({"position": "x", "lost": False, "events": []}, None)
    site.master.publish(event(1))
    assert reader.revisions(1) == [1]


def test_a_client_that_stops_reading_is_closed_and_can_resume(site):
    lazy, good = site.begun(receive=4096), site.begun()
    for number in range(1, 41):
        site.master.publish(event(number, size=100_000))
        assert good.revisions(1) == [number]
    until("the lazy one is closed", lambda: site.events.count == 1)
    seen = []
    while (block := lazy.next()) is not None:
        seen.append(block.id)
    assert 0 < len(seen) < 30
    again = site.open(last=seen[-1])
    left = [again.value().get("revision") for _ in range(40 - len(seen))]
    assert left == list(range(len(seen) + 1, 41))


def test_what_waits_for_a_client_is_less_than_a_mebibyte():
    # The kernel doubles what it is asked to keep.
    assert streams.MAX_UNSENT + 2 * streams._IN_KERNEL < 1 << 20


def test_clients_that_have_gone_are_forgotten(site):
    site.begun().sock.close()
    until("no stream", lambda: not site.events.count)
    reader = site.begun()
    reader.sock.sendall(b"GET / HTTP/1.1\r\n\r\n")  # is never answered
    site.master.publish(event(1))
    assert reader.revisions(1) == [1]
    with contextlib.suppress(OSError):
        reader.sock.shutdown(socket.SHUT_RDWR)
    until("no stream", lambda: not site.events.count)


def test_users_have_a_limited_number_of_streams(site, monkeypatch):
    monkeypatch.setattr(events, "MAX_PER_USER", 2)
    readers = [site.begun() for _ in range(2)]
    refused = site.open()
    assert refused.status == 429
    assert b"Retry-After: 10" in refused.head
    site.begun(user="ann")
    readers[0].sock.close()
    until("room", lambda: site.events.count == 2)
    site.begun()


def test_all_users_have_a_limited_number_of_streams(site, monkeypatch):
    monkeypatch.setattr(events, "MAX_STREAMS", 2)
    site.begun()
    site.begun(user="ann")
    assert site.open().status == 503


@pytest.mark.parametrize(
    "text",
    [
        "",
        FILE.replace("jack pass write", "jack pass read"),
        FILE.replace("pass", "new"),
    ],
)
def test_a_change_of_the_user_ends_the_streams(site, text):
    reader = site.begun()
    site.authenticator.replace(users.parse(text))
    assert reader.next() is None
    until("no stream", lambda: not site.events.count)


def test_other_changes_of_the_users_file_end_no_stream(site):
    reader = site.begun()
    site.authenticator.replace(users.parse(FILE + "eve pass read\n"))
    site.master.publish(event(1))
    assert reader.revisions(1) == [1]


def test_an_expired_token_ends_its_streams(site):
    end = int(site.clock.time()) + 3600
    secret = users.format_token("t" * 32, end)
    site.authenticator.replace(users.parse(f"{FILE}ci {secret} read\n"))
    user = site.authenticator.authenticate(f"Bearer {'t' * 32}", "")
    assert site.authenticator.is_present(user)
    sock = site.connect()
    words = f"GET /2/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {'t' * 32}"
    sock.sendall(f"{words}\r\n\r\n".encode())
    reader = Reader(sock).start()
    reader.position()
    site.clock.time = lambda: end + 1
    assert reader.next() is None


def test_a_quiet_stream_has_comments_with_the_present_position(site, monkeypatch):
    reader = site.begun("?kinds=freeze")
    other = site.begun()
    site.master.publish(event(1))
    other.revisions(1)
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.0)
    data = b""
    while b":\nid: 1.1.1\n\n" not in data:
        data += reader.sock.recv(65536)


def test_the_end_of_the_daemon_ends_the_streams(site):
    readers = [site.begun() for _ in range(3)]
    site.events.close()
    assert [reader.next() for reader in readers] == [None] * 3


@pytest.mark.parametrize(
    ("query", "user", "last", "status"),
    [
        ("", None, None, 401),
        ("", "bob", None, 403),
        ("?kinds=weather", "jack", None, 400),
        ("?kinds=job,JOB", "jack", None, 400),
        ("?since=5", "jack", None, 400),
        ("", "jack", "5;1.1", 400),
    ],
)
def test_wrong_requests_are_refused(site, query, user, last, status):
    assert site.open(query, user, last).status == status
    assert site.events.count == 0


def test_refusals_name_what_was_wanted():
    with pytest.raises(
        Refused, match="kinds: wanted kinds of events among object, job"
    ):
        event_texts.kinds_of(["weather"])
    with pytest.raises(Refused, match="since: wanted a position such as"):
        event_texts.since_of("x" * 1000, "since")


def test_hostile_names_are_data(site):
    reader = site.begun()
    name = "a\n\nevent: job\ndata: {}\r\n\u2028<script>"
    site.master.publish(event(1, name=name))
    block = reader.next()
    assert (block.name, json.loads(block.data)["name"]) == ("object", name)
