"""Encoded cells: the same bytes as a plain answer, after any change."""

import random

import msgspec
import pytest

from fakes import clusters
from fakes.rpc import FakeRunner
from ganeti import objects, query
from ganeti.objects import Update
from ganeti.query import encoded

NODES, INSTANCES = 3, 6
NETWORK = objects.Network(name="net", uuid="net-1", network="192.0.2.0/24", serial_no=1)
#: Live fields at the start, in the middle and at the end.
FIELDS = ["status", "name", "oper_state", "oper_ram", "snodes", "tags", "oper_vcpus"]
CONFIG = [n for n, f in query.RESOURCES["instance"].fields.items() if not f.live]


@pytest.fixture(autouse=True)
def keep_short_lists(monkeypatch):
    monkeypatch.setattr(encoded, "_FEWEST_FIELDS", 1)


def start():
    nic = objects.Nic(
        mac="aa:00:00:00:00:01", nicparams={}, uuid="nic-1", network="net-1"
    )
    instances = [
        clusters.instance(n, disks=[f"disk-{n}"]).replace(nics=(nic,))
        for n in range(1, INSTANCES + 1)
    ]
    disks = [clusters.drbd_disk(f"disk-{n}", 1, 2) for n in range(1, INSTANCES + 1)]
    return clusters.snapshot(nodes=NODES, extra=[*instances, *disks, NETWORK])


def sources(snapshot, running=()):
    names = {name: {"memory": 5, "vcpus": 2, "state": 0} for name in running}
    script = {"all_instances_info": lambda node, args: names}
    return query.Sources(snapshot, FakeRunner(lambda: snapshot, script))


def answer(source, fields, cells=None):
    return msgspec.json.encode(
        query.legacy(source, "instance", [], fields, cells=cells)
    )


def change(rng, snapshot, step):
    """Return a snapshot that differs in one record, of any table."""
    number = rng.randint(1, INSTANCES)
    record = snapshot.instances.get(clusters.instance_uuid(number))
    node = snapshot.nodes[clusters.node_uuid(rng.randint(1, NODES))]
    group = snapshot.nodegroups[clusters.GROUP]
    moved = clusters.drbd_disk(f"disk-{number}", 1, rng.choice([2, 3]), size=step)
    cluster = snapshot.cluster
    beparams = {"default": {**cluster.beparams["default"], "maxmem": step}}
    changes = [
        Update("disks", moved.uuid, moved),
        Update("nodes", node.uuid, node.replace(name=f"n{step}.example.com")),
        Update("nodegroups", group.uuid, group.replace(name=f"g{step}")),
        Update("networks", "net-1", NETWORK.replace(name=f"net{step}")),
        Update("cluster", "", cluster.replace(beparams=beparams)),
    ]
    if record is None:
        added = clusters.instance(number, disks=[f"disk-{number}"])
        changes.append(Update("instances", added.uuid, added))
    else:
        changes.append(Update("instances", record.uuid, None))
        tagged = record.replace(tags=(f"t{step}",))
        changes += [Update("instances", record.uuid, tagged)] * 2
    return snapshot.apply([rng.choice(changes)])


@pytest.mark.parametrize("seed", range(10))
def test_answers_equal_plain_ones_after_any_change(seed):
    rng, cells, snapshot = random.Random(seed), query.EncodedCells(), start()
    for step in range(1, 60):
        source = sources(snapshot, running=[f"inst{step % 7}.example.com"])
        for fields in (FIELDS, CONFIG):
            assert answer(source, fields, cells) == answer(source, fields)
        snapshot = change(rng, snapshot, step)


def test_live_values_are_not_kept():
    cells, snapshot = query.EncodedCells(), start()
    fields = ["name", "oper_ram", "os"]
    assert b'"inst1.example.com",null,"tiny"' in answer(
        sources(snapshot), fields, cells
    )
    later = sources(snapshot, running=["inst1.example.com"])
    assert b'"inst1.example.com",5,"tiny"' in answer(later, fields, cells)


def test_rows_without_a_change_are_encoded_once():
    cells, snapshot = query.EncodedCells(), start()

    def parts():
        return query.legacy(sources(snapshot), "instance", [], ["name"], cells=cells)

    before = parts()
    changed = snapshot.instances[clusters.instance_uuid(2)].replace(tags=("x",))
    snapshot = clusters.changed(snapshot, changed)
    after = parts()
    same = [old[0] is new[0] for old, new in zip(before, after, strict=True)]
    assert same == [True, False, True, True, True, True]


def test_named_objects_and_other_resources_have_plain_values():
    cells, source = query.EncodedCells(), sources(start())
    one = query.legacy(source, "instance", ["inst1"], ["name"], cells=cells)
    assert one == [["inst1.example.com"]]
    nodes = query.legacy(source, "node", [], ["name"], cells=cells)
    assert nodes[0] == ["node1.example.com"]


def test_only_few_lists_of_fields_are_kept():
    cells, source = query.EncodedCells(), sources(start())

    def part(field):
        rows = query.legacy(source, "instance", [], [field], cells=cells)
        return rows[0][0]

    first = part("name")
    part("os")
    assert part("name") is first
    part("tags")
    assert part("name") is first
    part("uuid")
    part("os")
    assert part("name") is not first


def test_a_list_that_is_too_large_is_not_kept(monkeypatch):
    monkeypatch.setattr(encoded, "_MAX_BYTES", 10)
    cells, source = query.EncodedCells(), sources(start())
    rows = [
        query.legacy(source, "instance", [], ["name"], cells=cells) for _ in range(2)
    ]
    assert rows[0][0][0] is not rows[1][0][0]
    assert answer(source, ["name"], cells) == answer(source, ["name"])


def test_few_fields_are_not_kept(monkeypatch):
    monkeypatch.setattr(encoded, "_FEWEST_FIELDS", 2)
    cells, source = query.EncodedCells(), sources(start())

    def first(*fields):
        return query.legacy(source, "instance", [], fields, cells=cells)[0]

    assert first("name", "oper_ram") == ["inst1.example.com", None]
    assert isinstance(first("name", "os")[0], msgspec.Raw)
