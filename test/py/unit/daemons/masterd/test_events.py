"""The feed of events: what waits get, what is lost, what it costs when nobody asks."""

import threading

import msgspec
import pytest

from fakes import clusters
from fakes.clocks import PushedClock
from fakes.master import Master
from fakes.patience import PATIENCE_S, until
from fakes.store import open_memory, updates
from ganeti.base import errors
from ganeti.base.constants.protocols.events import Kind
from ganeti.daemons.masterd import events
from ganeti.decisions.events import Position, parse_position
from ganeti.model.objects import Update
from ganeti.store import Document

LOG = '[0,[1,[5,0],"message","hello"]]'


class Site:
    """A feed over a store in memory."""

    def __init__(self):
        self.clock = PushedClock()
        self.store = open_memory()
        self.store.commit(updates(clusters.snapshot(nodes=2)))
        self.feed = events.Feed(self.store, self.clock)

    def ask(self, since=None, kinds=(), timeout_s=0.0):
        """Return the decoded answer."""
        return self.result(self.feed.wait(_place(since), kinds, timeout_s))

    @staticmethod
    def result(future):
        return msgspec.json.decode(future.result(PATIENCE_S).text)

    def later(self, since, kinds=()):
        """Return the future of a wait that nothing has answered yet."""
        future = self.feed.wait(_place(since), kinds, 80.0)
        assert not future.done()
        return future

    def tag(self, number=1):
        """Change a node; return the revision."""
        node = self.store.snapshot().nodes[clusters.node_uuid(number)]
        new = node.replace(serial_no=node.serial_no + 1)
        return self.store.commit([Update("nodes", node.uuid, new)])

    def log(self, count=1):
        lines = [Document("joblogs", f"1/{n:010d}", LOG.encode()) for n in range(count)]
        return self.store.commit(lines)


def _place(text):
    return None if text is None else parse_position(text)


@pytest.fixture
def site():
    made = Site()
    yield made
    made.feed.stop()
    made.store.close()


def threads():
    return [each.name for each in threading.enumerate() if each.name == "events"]


def test_nobody_pays_before_somebody_asks(site):
    before = threads()
    site.tag()
    assert threads() == before
    answer = site.ask()
    assert answer["events"] == []
    assert not answer["lost"]
    assert answer["position"].split(".")[1] == str(site.store.snapshot().revision)


def test_a_wait_ends_with_the_next_commit(site):
    start = site.ask()["position"]
    waiting = site.later(start)
    revision = site.tag()
    answer = site.result(waiting)
    [event] = answer["events"]
    assert event["revision"] == revision
    assert event["position"] == answer["position"]
    assert (event["object"], event["change"]) == ("node", "changed")
    # Events that the client has are not sent again; others are, at once.
    assert site.ask(answer["position"])["events"] == []
    assert site.ask(start) == answer


def test_other_kinds_do_not_end_a_wait(site):
    start = site.ask()["position"]
    waiting = site.later(start, {Kind.JOB_LOG})
    other = site.later(start)
    site.tag()
    site.result(other)
    assert not waiting.done()
    site.log()
    assert [each["kind"] for each in site.result(waiting)["events"]] == ["job-log"]


def test_the_time_limit_ends_a_wait_with_the_newest_position(site):
    start = site.ask()["position"]
    waiting = site.feed.wait(_place(start), {Kind.FREEZE}, 80.0)
    seen = site.later(start)
    site.tag()
    site.result(seen)
    site.clock.ahead = 85.0
    site.feed.wait(_place(start), {Kind.FREEZE}, 1e9)  # the timers look at the clock
    answer = site.result(waiting)
    assert answer["events"] == []
    assert answer["position"] == site.ask()["position"] != start


def test_positions_of_others_are_lost(site):
    now = parse_position(site.ask()["position"])
    for odd in (
        now._replace(term=now.term + 1),
        now._replace(term=0),
        now._replace(revision=now.revision - 1),
        now._replace(revision=now.revision + 1),
    ):
        answer = site.ask(str(odd))
        assert answer == {"position": str(now), "lost": True, "events": []}


def test_answers_have_a_limited_number_of_events(site):
    start = site.ask()["position"]
    site.log(1203)
    until("the events", lambda: site.ask(start)["events"])
    sizes, position = [], start
    while some := (answer := site.ask(position))["events"]:
        sizes.append(len(some))
        position = answer["position"]
        assert position == some[-1]["position"]
    assert sizes == [500, 500, 203]


def test_the_oldest_events_are_forgotten(site, monkeypatch):
    monkeypatch.setattr(events, "_MAX_EVENTS", 5)
    start = site.ask()["position"]
    site.log(3)
    middle = site.result(site.feed.wait(_place(start), (), 80.0))["position"]
    site.log(4)
    until("the later ones", lambda: site.ask(middle)["events"])
    assert site.ask(start)["lost"]
    assert len(site.ask(middle)["events"]) == 4


def test_a_client_that_has_gone_leaves_nothing(site):
    waiting = site.later(site.ask()["position"])
    waiting.cancel()
    assert not site.feed._waits


def test_equal_waits_share_one_text(site):
    start = site.ask()["position"]
    waits = [site.later(start) for _ in range(3)]
    site.tag()
    texts = {id(each.result(PATIENCE_S).text) for each in waits}
    assert len(texts) == 1


def test_the_feed_ends_when_nobody_has_asked_for_long(site):
    start = site.ask()["position"]
    thread = site.feed._thread
    site.clock.ahead = events.IDLE_S + 1
    site.tag()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    answer = site.ask(start)
    assert answer["lost"]
    waiting = site.later(answer["position"])
    site.tag()
    assert len(site.result(waiting)["events"]) == 1


def test_an_error_in_the_feed_ends_the_waits_and_not_the_next_ones(site, monkeypatch):
    start = site.ask()["position"]
    waiting = site.later(start)
    monkeypatch.setattr(events, "_encoded", lambda _event: 1 / 0)
    site.tag()
    with pytest.raises(errors.GenericError, match="interrupted"):
        waiting.result(PATIENCE_S)
    monkeypatch.undo()
    assert site.ask(start)["lost"]


def test_a_text_that_is_not_unicode_costs_only_the_details():
    kept = events._encoded(
        events.Event(
            position="1.2.3",
            revision=2,
            time=1.0,
            kind=Kind.JOB_LOG,
            object="job",
            name="1",
            change="line",
            details={"message": "\ud800"},
        )
    )
    assert kept.position == Position(1, 2, 3)
    assert msgspec.json.decode(kept.text)["details"] == {}


def test_after_the_end_of_the_feed_a_wait_is_never_answered(site):
    site.feed.stop()
    assert not site.feed.wait(None, (), 0.0).done()


def test_the_method_of_luxi(tmp_path):
    with Master.connected(tmp_path) as client:
        start = client.call("WaitForEvents")
        assert start["events"] == []
        op = {"OP_ID": "OP_TAGS_SET", "kind": "cluster", "tags": ["x"]}
        job = client.call("SubmitJob", [[op]])
        seen, position = [], start["position"]
        while "success" not in seen:
            answer = client.call("WaitForEvents", [position, ["job"], 60])
            position = answer["position"]
            assert {event["name"] for event in answer["events"]} == {str(job)}
            seen += [event["change"] for event in answer["events"]]
        assert seen[0] == "queued"
        objects = client.call("WaitForEvents", [start["position"], ["object"], 0])
        assert [each["object"] for each in objects["events"]] == ["cluster"]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["x"], "since: wanted a position such as 3.1201.2, found 'x'"),
        ([None, ["weather"]], "Invalid enum value 'weather'"),
        ([5], "Expected `str | null`"),
    ],
)
def test_other_arguments_are_refused(tmp_path, args, text):
    with (
        Master.connected(tmp_path) as client,
        pytest.raises(errors.RequestError, match=text.replace("|", r"\|")),
    ):
        client.call("WaitForEvents", args)
