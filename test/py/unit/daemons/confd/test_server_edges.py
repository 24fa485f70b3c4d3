"""The loop of a confd server, step by step: drops, reports, changes, limits, replays."""

import json
import logging
import os
import socket
import threading

import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.confd import KEY, VECTORS, FakeSource, orchard
from ganeti.base import errors
from ganeti.daemons.confd import answers, server
from ganeti.model.objects import Update
from ganeti.protocols.confd import wire

SENDER = ("192.0.2.7", 40000)
MOMENT, REQUEST, INNER, *_REST = VECTORS["role"]


class Socket:
    """A socket of UDP with datagrams that have arrived, or errors."""

    def __init__(self):
        self.arrived, self.sent, self.options = [], [], {}
        self.send_error = None

    def setblocking(self, flag):
        assert flag is False

    def setsockopt(self, level, option, value):
        assert level == socket.SOL_SOCKET
        self.options[option] = value

    def recvfrom(self, size):
        # One byte more than the largest request, so that a larger one is noticed.
        assert size == 61441
        if not self.arrived:
            raise BlockingIOError
        item = self.arrived.pop(0)
        if isinstance(item, Exception):
            raise item
        return item, SENDER

    def sendto(self, data, sender):
        assert sender == SENDER
        if self.send_error:
            raise self.send_error
        self.sent.append(data)


class Site:
    def __init__(self):
        self.sock, self.source = Socket(), FakeSource(orchard())
        self.clock = FakeClock(MOMENT)
        self.server = server.Server(self.sock, self.source, self.clock)

    def receive(self, *items):
        self.sock.arrived += items
        self.server._answer_all()
        return self.server.counters


@pytest.fixture
def site():
    made = Site()
    yield made
    made.source.close()


def dropped(counters):
    return {reason: count for reason, count in counters.dropped.items() if count}


def test_requests_are_answered_and_others_counted_by_reason(site):
    counters = site.receive(REQUEST, b"odd", OSError("port unreachable"), REQUEST)
    assert (counters.answered, dropped(counters)) == (2, {"magic": 1})
    assert len(site.sock.sent) == 2
    reply = json.loads(site.sock.sent[0].removeprefix(b"plj0"))
    assert reply["msg"] == INNER
    buffers = {socket.SO_RCVBUF: 4 << 20, socket.SO_SNDBUF: 4 << 20}
    assert site.sock.options == buffers
    assert counters.reloads == 1


def test_a_reply_that_cannot_be_sent_is_a_drop(site):
    site.sock.send_error = OSError("no route")
    counters = site.receive(REQUEST)
    assert (counters.answered, dropped(counters)) == (0, {"send": 1})


def test_replies_have_a_limit_of_their_rate(site, monkeypatch):
    monkeypatch.setattr(site.server._limit, "admits", lambda _size, _now: False)
    counters = site.receive(REQUEST)
    assert (counters.answered, dropped(counters)) == (0, {"reply rate": 1})
    assert site.sock.sent == []


def test_a_defect_costs_one_request(site, monkeypatch, caplog):
    def fail(_query):
        raise KeyError("bug")

    monkeypatch.setattr(site.server.projection, "message", fail)
    counters = site.receive(REQUEST)
    assert dropped(counters) == {"request": 1}
    assert "a request failed" in caplog.text


def test_a_request_is_answered_once_where_replays_are_detected(site):
    site.server._always_detects = True
    site.server._update()
    counters = site.receive(REQUEST, REQUEST)
    assert (counters.answered, dropped(counters)) == (1, {"replay": 1})


def test_a_recorded_request_gets_no_larger_reply_than_itself(site, monkeypatch):
    """Of the documented requests, one with a reply that is longer."""
    sizes = iter([10, 10, 10_000, 10_000])
    monkeypatch.setattr(wire, "seal_reply", lambda *_args: b"x" * next(sizes))
    counters = site.receive(REQUEST, REQUEST, REQUEST, REQUEST)
    assert [len(data) for data in site.sock.sent] == [10, 10, 10_000]
    assert (counters.answered, dropped(counters)) == (3, {"replay": 1})


def test_in_a_flood_changes_are_looked_for_now_and_then(site):
    site.sock.arrived += [REQUEST] * 300
    site.server._answer_all()
    assert site.server.counters.answered == 256
    site.server._answer_all()
    assert site.server.counters.answered == 300


def test_the_loop_looks_for_changes_when_it_is_asked():
    source = FakeSource(orchard())
    with server.bind("127.0.0.1", 0) as sock, socket.socket(type=sock.type) as client:
        made = server.Server(sock, source, FakeClock(MOMENT))
        client.connect(sock.getsockname())
        client.settimeout(60)
        thread = threading.Thread(target=made.serve)
        source.put(orchard().at(78, 1))
        thread.start()
        try:
            while not source.notices:
                os.sched_yield()
            # A notification alone does not make the loop look.
            assert made.counters.reloads == 1
            for serial in (78, 79, 80):
                if serial > 78:
                    source.put(orchard().at(serial, 1))
                client.send(REQUEST)
                reply = json.loads(client.recv(4096).removeprefix(b"plj0"))
                assert json.loads(reply["msg"])["serial"] == serial
        finally:
            made.stop()
            thread.join()
    assert made.counters.reloads == 4
    source.close()


def test_drops_are_reported_once_a_minute_and_counters_on_request(site, caplog):
    caplog.set_level(logging.INFO)
    site.receive(b"odd")
    site.server._report()
    assert caplog.text == ""
    site.clock.now += 60
    site.server._report()
    assert caplog.text.count("answered 0, dropped 1 (magic 1), reloads 1") == 1
    # Nothing was dropped since.
    site.clock.now += 60
    site.server._report()
    assert caplog.text.count("answered") == 1
    site.server.report()
    site.server._report()
    site.server._report()
    assert caplog.text.count("answered") == 2


def test_changes_that_cannot_be_looked_at_leave_the_answers(site, monkeypatch, caplog):
    def fail(_projection):
        raise ValueError("bug")

    monkeypatch.setattr(site.source, "update", fail)
    site.server._update()
    assert "looking for changes of the configuration failed" in caplog.text
    assert site.receive(REQUEST).answered == 1
    assert site.server.counters.reloads == 1


def test_an_address_that_cannot_be_used_is_named():
    with server.bind("127.0.0.1", 0) as sock:
        assert sock.family == socket.AF_INET
        assert sock.type == socket.SOCK_DGRAM
        port = sock.getsockname()[1]
        with pytest.raises(errors.GenericError) as caught:
            server.bind("127.0.0.1", port)
    text = f"cannot bind to 127.0.0.1 port {port}: Address already in use"
    assert caught.value.args == (text,)


# Projections
def ask(projection, kind=1, key="pear.cluster.test"):
    return json.loads(projection.message(wire.Query(1, kind, "s", key)))


def test_a_projection_follows_and_forgets_what_it_kept():
    start = orchard()
    projection = answers.Projection(start)
    assert projection.is_enabled
    assert ask(projection)["answer"] == 1
    index = projection.index
    node = start.nodes[clusters.node_uuid(2)].replace(master_candidate=False)
    update = Update("nodes", node.uuid, node)
    after = start.apply([update])
    projection.advance(after, [update])
    assert ask(projection)["answer"] == 4
    assert projection.snapshot is after
    # Without a list of changes, everything is read again.
    projection.advance(after, None)
    assert projection.index is not index
    projection.advance(None)
    assert not projection.is_enabled
    reply = ask(projection)
    assert reply["status"] == 1
    assert reply["answer"].startswith("this node has no configuration")
    by_address = ask(projection, 2, {"1": "198.51.100.8"})
    assert by_address["answer"].startswith("this node has no configuration")
    # A ping needs none.
    assert ask(projection, 0, None)["status"] == 0
    projection.advance(start, [update])
    assert ask(projection, 2, {"1": "198.51.100.8"})["status"] == 0


def test_the_key_of_the_vectors_signs_both_ways():
    signers = wire.Signers(KEY, {wire.MAGIC_SHA1})
    magic, query = wire.open_request(REQUEST, signers, MOMENT)
    assert (magic, query.type, query.query) == (wire.MAGIC_SHA1, 1, "pear.cluster.test")
    for skew, is_good in ((149, True), (-149, True), (301, False), (-301, False)):
        if is_good:
            wire.open_request(REQUEST, signers, MOMENT + skew)
            continue
        with pytest.raises(wire.Dropped, match="clock"):
            wire.open_request(REQUEST, signers, MOMENT + skew)


# Counters, the limit of replies, and the replay cache.


def test_counters_name_the_reasons():
    counters = server.Counters()
    counters.answered = 3
    counters.dropped["magic"] = 2
    counters.dropped["clock"] = 1
    assert counters.as_text() == ("answered 3, dropped 3 (magic 2, clock 1), reloads 0")


def test_replies_are_limited_per_second_in_number_and_size():
    limit = server.ReplyLimit(replies=2, size=100)
    assert [limit.admits(10, 5.0 + k / 10) for k in range(3)] == [True, True, False]
    assert [limit.admits(60, 6.1), limit.admits(60, 6.2), limit.admits(40, 6.3)] == [
        True,
        False,
        True,
    ]
    assert limit.admits(100, 7.0)
    assert not limit.admits(101, 8.0)


def test_a_salt_counts_as_new_once_within_the_window():
    cache = server.ReplayCache(10.0)
    assert cache.is_new("a", 0.0)
    assert not cache.is_new("a", 10.0)
    assert cache.is_new("a", 10.1)


def test_the_cache_is_bounded():
    cache = server.ReplayCache(1000.0, size=3)
    assert all(cache.is_new(str(number), 0.0) for number in range(5))
    assert [cache.is_new(str(number), 1.0) for number in (4, 3, 2)] == [False] * 3
    assert cache.is_new("0", 1.0)
