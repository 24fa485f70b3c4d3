"""Searches of a small cluster, and the texts that they make again."""

import pytest

from fakes import clusters
from ganeti.base import errors
from ganeti.decisions import search
from ganeti.master.query import SearchIndex, Sources
from ganeti.master.query import search as kept
from ganeti.model.objects import FilterRule, Nic, Update

NIC = Nic(mac="aa:00:00:11:22:33", nicparams={}, uuid="nic-1", ip="198.51.100.7")
RULE = FilterRule(
    watermark=0,
    priority=1,
    predicates=(),
    action="ACCEPT",
    reason_trail=(),
    uuid="rule-1",
)


class Queue:
    def ids(self):
        return [3, 31, 310, 4]

    def job(self, job_id):
        return object() if job_id in {3, 77} else None


@pytest.fixture
def snapshot():
    first = clusters.instance(1, tags=["Prod"], os="debian+web", disks=["disk-uuid-1"])
    rule = Update("filters", RULE.uuid, RULE)
    extra = [first.replace(nics=(NIC,)), clusters.network()]
    return clusters.snapshot(nodes=3, instances=12, extra=extra).apply([rule])


def find(snapshot, text, *kinds, limit=50, index=None):
    sources = Sources(snapshot, jobs=Queue())
    rows = (index or SearchIndex()).find(sources, text, kinds, limit)
    return [tuple(row) for row in rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("inst1", ("instance", "inst1.example.com", "exact", "name")),
        ("INST12.exam", ("instance", "inst12.example.com", "prefix", "name")),
        ("prod", ("instance", "inst1.example.com", "exact", "tag")),
        ("198.51.100.7", ("instance", "inst1.example.com", "exact", "ip")),
        ("22:33", ("instance", "inst1.example.com", "part", "mac")),
        ("nic-1", ("instance", "inst1.example.com", "exact", "nic")),
        ("disk-uuid", ("instance", "inst1.example.com", "prefix", "disk")),
        ("debian", ("os", "debian+web", "prefix", "name")),
        (clusters.node_uuid(2), ("node", "node2.example.com", "exact", "uuid")),
        ("192.0.2.3", ("node", "node3.example.com", "exact", "ip")),
        ("lan", ("network", "lan", "exact", "name")),
        ("default", ("group", "default", "exact", "name")),
        ("rule-1", ("filter", "rule-1", "exact", "uuid")),
        ("31", ("job", "31", "exact", "id")),
        ("77", ("job", "77", "exact", "id")),
    ],
)
def test_objects_are_found_by_their_texts(snapshot, text, expected):
    assert find(snapshot, text)[0][:4] == expected


def test_the_value_that_matches_is_shown_as_it_is(snapshot):
    assert find(snapshot, "prod") == [
        ("instance", "inst1.example.com", "exact", "tag", "Prod")
    ]
    assert find(snapshot, "no such text") == []
    # The number of an archived job has no zeros in front.
    assert find(snapshot, "077") == []


def test_kinds_and_limit_restrict_the_answer(snapshot):
    assert {row[0] for row in find(snapshot, "example.com")} >= {"node", "instance"}
    assert {row[0] for row in find(snapshot, "example.com", "node")} == {"node"}
    assert [row[1] for row in find(snapshot, "3", "job")] == ["3", "31", "310"]
    assert len(find(snapshot, "example.com", limit=2)) == 2
    for limit in (0, search.MAX_LIMIT + 1):
        with pytest.raises(errors.OpPrereqError, match="limit: wanted"):
            find(snapshot, "x", limit=limit)


def test_the_cluster_is_found_by_its_tags(snapshot):
    cluster = snapshot.cluster.replace(tags=("blue",))
    tagged = snapshot.apply([Update("cluster", "", cluster)])
    assert find(tagged, "blue")[0][:2] == ("cluster", cluster.cluster_name)


def test_only_changed_records_have_their_texts_made_again(snapshot, monkeypatch):
    index, made = SearchIndex(), []
    line_of = search.line_of

    def note(terms):
        made.append(terms[0].value)
        return line_of(terms)

    find(snapshot, "inst", "instance", index=index)
    monkeypatch.setattr(search, "line_of", note)
    monkeypatch.setattr(search, "why", lambda terms, _text: ("part", terms[0]))
    record = snapshot.instances[clusters.instance_uuid(5)].replace(tags=("new",))
    other = clusters.instance(40)
    changed = snapshot.apply(
        [
            Update("instances", record.uuid, record),
            Update("instances", other.uuid, other),
            Update("instances", clusters.instance_uuid(6), None),
        ]
    )
    assert [row[1] for row in find(changed, "new", "instance", index=index)] == [
        record.name
    ]
    assert sorted(made) == sorted([record.name, other.name])
    assert find(changed, "inst6", "instance", index=index) == []
    find(changed, "inst40", "instance", index=index)
    assert len(made) == 2


def test_a_change_at_its_place_makes_one_text_again(snapshot, monkeypatch):
    index, made = SearchIndex(), []
    monkeypatch.setattr(kept, "_FEW", 1)
    line_of = search.line_of
    find(snapshot, "inst", "instance", index=index)
    monkeypatch.setattr(
        search, "line_of", lambda terms: made.append(1) or line_of(terms)
    )
    record = snapshot.instances[clusters.instance_uuid(5)].replace(tags=("new",))
    changed = snapshot.apply([Update("instances", record.uuid, record)])
    rows = index.find(Sources(changed), "new", ["instance"], 9)
    assert [row.name for row in rows] == [record.name]
    # One for the index, and those of the terms of the row.
    assert len(made) == 2
    assert index.find(Sources(snapshot), "new", ["instance"], 9) == []
