"""Events of change-sets: what an event says, and what it must not say."""

import msgspec
import pytest

from fakes import clusters
from ganeti.decisions import events
from ganeti.decisions.jobs.records import (
    Job,
    JobOp,
    LogEntry,
    Status,
    encode_job,
    encode_log,
)
from ganeti.decisions.repair.incidents import (
    Action,
    Incident,
    IncidentState,
    MaintenanceState,
)
from ganeti.decisions.repair.journal import Entry
from ganeti.decisions.repair.node_lives import Death, DeathState, Phase
from ganeti.model import opcodes
from ganeti.model.objects import Update

NOW = 1_700_000_000.0
NODE = clusters.node_uuid(2)
encode = msgspec.json.encode


class Site:
    """A reader of a small cluster, and the revision of the next change-set."""

    def __init__(self, incidents=None, deaths=None):
        self.snapshot = clusters.snapshot(nodes=3, instances=2)
        self.reader = events.Reader(self.snapshot, incidents, deaths)
        self.revision = self.snapshot.revision

    def read(self, *changes):
        self.revision += 1
        return self.reader.read(7, self.revision, changes, NOW)

    def short(self, *changes):
        """Return kind, name and change of each event."""
        return [(e.kind, e.name, e.change) for e in self.read(*changes)]


@pytest.fixture
def site():
    return Site()


def test_an_object_is_created_changed_and_removed_at_its_serial(site):
    new = clusters.instance(9, serial_no=1, osparams={"secret": "s3cret"})
    [event] = site.read(Update("instances", new.uuid, new))
    assert event == events.Event(
        position=f"7.{site.revision}.1",
        revision=site.revision,
        time=NOW,
        kind="object",
        object="instance",
        name=new.name,
        uuid=new.uuid,
        change="created",
        details={"serial_no": 1},
    )
    assert b"s3cret" not in encode(event)
    more = Update("instances", new.uuid, new.replace(serial_no=2))
    assert site.read(more)[0].details == {"serial_no": 2}
    gone = Update("instances", new.uuid, None)
    assert site.short(more, gone) == [
        ("object", new.name, "changed"),
        ("object", new.name, "removed"),
    ]
    assert site.short(gone) == []


@pytest.mark.parametrize(
    ("table", "record", "kind", "name"),
    [
        ("nodes", clusters.node(8), "node", "node8.example.com"),
        ("networks", clusters.network(), "network", "lan"),
        ("nodegroups", clusters.group("g2", "u2"), "group", "g2"),
        ("disks", clusters.drbd_disk("d1", 1, 2), "disk", "d1"),
    ],
)
def test_every_kind_of_object_has_its_name(site, table, record, kind, name):
    [event] = site.read(Update(table, record.uuid, record))
    assert (event.object, event.name, event.change) == (kind, name, "created")


def test_a_freeze_and_its_end_are_events_beside_that_of_the_cluster(site):
    cluster = site.snapshot.cluster
    frozen = cluster.replace(automation_freeze={"reason": "rack 2", "time": NOW})
    first, second = site.read(Update("cluster", "", frozen))
    assert (first.kind, first.object, first.change) == ("object", "cluster", "changed")
    assert (second.kind, second.change) == ("freeze", "frozen")
    assert second.details == {"reason": "rack 2"}
    assert len(site.read(Update("cluster", "", frozen.replace(serial_no=9)))) == 1
    assert site.short(Update("cluster", "", cluster))[1] == (
        "freeze",
        cluster.cluster_name,
        "thawed",
    )


def job(number, *states, **values):
    op = opcodes.decode({"OP_ID": "OP_TAGS_SET", "kind": "cluster", "tags": ["x"]})
    ops = [
        JobOp(input=msgspec.Raw(encode(opcodes.encode(op))), status=s) for s in states
    ]
    return ("jobs", str(number), encode_job(Job(id=number, ops=tuple(ops), **values)))


def test_a_job_is_an_event_when_a_state_of_its_opcodes_changes(site):
    queued, running = Status.QUEUED, Status.RUNNING
    [event] = site.read(job(4, queued, queued))
    assert (event.kind, event.name, event.change) == ("job", "4", "queued")
    assert event.details["opstatus"] == ["queued", "queued"]
    assert event.details["opcodes"] == 2
    assert event.details["summary"][0].startswith("TAGS_SET")
    assert site.read(job(4, queued, queued, start_timestamp=(1, 2))) == []
    assert site.short(job(4, running, queued)) == [("job", "4", "running")]
    assert site.short(job(4, Status.SUCCESS, running)) == [("job", "4", "running")]
    assert site.short(job(4, Status.SUCCESS, Status.SUCCESS)) == [
        ("job", "4", "success")
    ]
    assert site.short(("jobs", "4", None), ("archive", "4", b"{}")) == [
        ("job", "4", "archived")
    ]


def test_many_opcodes_are_counted_and_few_listed(site):
    [event] = site.read(job(4, *[Status.QUEUED] * 300))
    assert event.details["opcodes"] == 300
    assert len(event.details["summary"]) == len(event.details["opstatus"]) == 20


def test_lines_of_a_log_are_events_of_limited_length(site):
    line = LogEntry(3, (17, 500_000), "message", "x" * 5000)
    [event] = site.read(("joblogs", "4/0000000003", encode_log(0, line)))
    assert (event.kind, event.name, event.change) == ("job-log", "4", "line")
    assert event.details == {
        "serial": 3,
        "time": 17.5,
        "type": "message",
        "message": "x" * 2000,
        "is_cut": True,
    }
    odd = LogEntry(4, (17, 0), "progress", [1, {"a": None}])
    [event] = site.read(("joblogs", "4/0000000004", encode_log(0, odd)))
    assert event.details["message"] == '[1,{"a":null}]'
    assert site.read(("joblogs", "4/0000000003", None)) == []


def test_rounds_of_automatons_are_events(site):
    entry = Entry(round="r1", automaton="watcher", scope="default", id=12)
    [event] = site.read(("journal", "000000000012", encode(entry)))
    assert (event.kind, event.name, event.change) == ("journal", "12", "watcher")
    assert event.details["scope"] == "default"
    assert site.read(("journal", "000000000001", None)) == []


def deaths(*phases, **values):
    known = [Death(node=NODE, name="node2", phase=p, since=5.0) for p in phases]
    return ("meta", "node_deaths", encode(DeathState(deaths=tuple(known), **values)))


@pytest.mark.parametrize(
    ("states", "changes"),
    [
        ([deaths(Phase.SUSPECTED), deaths()], ["suspected", "back"]),
        (
            [deaths(Phase.SUSPECTED), deaths(Phase.FENCING), deaths(Phase.OFFLINE)],
            ["suspected", "fencing", "offline"],
        ),
        (
            [deaths(Phase.OFFLINE), deaths(marked=(NODE,)), deaths()],
            ["offline", "recovered", "back"],
        ),
        (
            [deaths(Phase.HELD), deaths(Phase.HELD, is_given_up=True), deaths()],
            ["held", "given-up"],
        ),
    ],
)
def test_a_silent_node_is_followed_until_it_is_back(site, states, changes):
    seen = [event for state in states for event in site.read(state)]
    assert [event.change for event in seen] == changes
    assert {(event.kind, event.object) for event in seen} == {("node-death", "node")}
    assert {event.uuid for event in seen} == {NODE}


def test_known_states_of_automatons_are_no_events():
    site = Site(deaths=deaths(Phase.HELD)[2])
    assert site.read(deaths(Phase.HELD, serial_no=2)) == []


def test_incidents_are_events_when_their_state_changes(site):
    def state(*states):
        known = [
            Incident(
                uuid=f"i{number}",
                node=NODE,
                original={"secret": 1},
                action=Action.EVACUATE,
                state=each,
            )
            for number, each in enumerate(states)
        ]
        new = MaintenanceState(incidents=tuple(known))
        return ("meta", "maintenance", encode(new))

    [event] = site.read(state(IncidentState.NOTED))
    assert (event.kind, event.name) == ("incident", "node2.example.com")
    assert event.details == {"incident": "i0", "action": "evacuate"}
    assert site.read(state(IncidentState.NOTED)) == []
    assert site.short(state(IncidentState.PENDING))[0][2] == "pending"
    assert site.short(state())[0][2] == "removed"


@pytest.mark.parametrize(
    "change",
    [
        ("jobs", "x", b"{}"),
        ("jobs", "4", b"no json"),
        ("joblogs", "4/1", b"[]"),
        ("journal", "1", b"\xff"),
        ("meta", "serial", b"12"),
        ("archive", "4", b"{}"),
    ],
)
def test_documents_that_cannot_be_read_are_left_out(site, change):
    good = job(5, Status.QUEUED)
    assert [event.name for event in site.read(change, good)] == ["5"]


def test_broken_states_count_as_empty(site):
    assert site.read(("meta", "node_deaths", b"[")) == []
    assert len(site.read(deaths(Phase.SUSPECTED))) == 1


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "1.2.3.4", "1.2.x", "-1.2.3", "1.2.3\n", "٣.1.1", "1" * 40]
)
def test_other_texts_are_no_positions(text):
    with pytest.raises(ValueError, match=r"wanted a position such as 3\.1201\.2"):
        events.parse_position(text)


def test_positions_are_ordered_as_their_events():
    texts = ["1.9.9", "2.3.1", "2.3.12", "2.10.0"]
    places = [events.parse_position(text) for text in texts]
    assert places == sorted(places)
    assert list(map(str, places)) == texts
