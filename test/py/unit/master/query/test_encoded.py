"""Lists as text: after any change, the bytes of a list without a former one."""

import random

import msgspec
import pytest

from fakes import clusters
from fakes.rpc import FakeRunner
from ganeti.base import errors
from ganeti.master import query
from ganeti.master.query import encoded
from ganeti.model import objects
from ganeti.model.objects import Update
from ganeti.protocols.rpc import Result

NODES, INSTANCES = 3, 6
NETWORK = objects.Network(name="net", uuid="net-1", network="192.0.2.0/24", serial_no=1)
#: Live fields at the start, in the middle and at the end.
FIELDS = ["status", "name", "oper_state", "oper_ram", "snodes", "tags", "oper_vcpus"]
CONFIG = [n for n, f in query.RESOURCES["instance"].fields.items() if not f.live]


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


class Nodes:
    """Nodes whose answers a test sets.

    Attributes:
        infos: running instances by node; None for a node that does not answer.
    """

    def __init__(self):
        self.infos = {}

    def sources(self, snapshot):
        """Return the sources of a query with the present answers."""

        def answer(node, _args):
            info = self.infos.get(node, {})
            if info is None:
                return Result("", "", fail_msg="no answer")
            return info

        script = {"all_instances_info": answer}
        return query.Sources(snapshot, FakeRunner(lambda: snapshot, script))


def plain(source, fields):
    """Return the list that is made without former ones."""
    return encoded.objects_text(fields, query.legacy(source, "instance", [], fields))


def text(source, fields, lists):
    return query.objects(source, "instance", [], fields, lists)


def one(source, fields, lists, index=0):
    return msgspec.json.decode(text(source, fields, lists))[index]


def info(memory=5, state=0):
    return {"memory": memory, "vcpus": 2, "state": state, "time": 1.5}


def change_answers(rng, nodes):
    """Change the answer of one node."""
    node = clusters.node_uuid(rng.randint(1, NODES))
    names = [f"inst{rng.randint(1, INSTANCES)}.example.com" for _ in range(4)]
    infos = {name: info(rng.choice([5, 6]), rng.choice([0, 1])) for name in names}
    nodes.infos[node] = rng.choice([None, {}, infos, infos])


@pytest.mark.parametrize("seed", range(10))
def test_texts_equal_those_of_new_lists_after_any_change(seed):
    rng, lists, nodes = random.Random(seed), query.EncodedLists(), Nodes()
    snapshot = start()
    for step in range(1, 80):
        source = nodes.sources(snapshot)
        for fields in (FIELDS, CONFIG):
            assert text(source, fields, lists) == plain(source, fields)
        if rng.random() < 0.5:
            change_answers(rng, nodes)
        else:
            snapshot = change(rng, snapshot, step)


def test_live_values_are_those_of_the_present():
    lists, nodes, snapshot = query.EncodedLists(), Nodes(), start()
    fields = ["name", "oper_ram", "os"]
    assert one(nodes.sources(snapshot), fields, lists)["oper_ram"] is None
    nodes.infos[clusters.node_uuid(1)] = {"inst1.example.com": info(5)}
    assert one(nodes.sources(snapshot), fields, lists)["oper_ram"] == 5
    nodes.infos[clusters.node_uuid(1)] = {"inst1.example.com": info(6)}
    assert one(nodes.sources(snapshot), fields, lists)["oper_ram"] == 6


def test_equal_numbers_of_two_types_are_two_texts():
    lists, nodes, snapshot = query.EncodedLists(), Nodes(), start()
    source, fields = nodes.sources(snapshot), ["name", "oper_ram", "oper_vcpus"]
    for memory in (5, 5.0, 5):
        nodes.infos[clusters.node_uuid(1)] = {"inst1.example.com": info(memory)}
        assert text(source, fields, lists) == plain(source, fields)


def test_without_a_change_the_text_is_used_again():
    lists, nodes, snapshot = query.EncodedLists(), Nodes(), start()
    before = text(nodes.sources(snapshot), FIELDS, lists)
    nodes.infos[clusters.node_uuid(3)] = {"unknown": info()}
    assert text(nodes.sources(snapshot), FIELDS, lists) is before


def test_rows_without_a_change_are_encoded_once(monkeypatch):
    lists, nodes, snapshot = query.EncodedLists(), Nodes(), start()
    text(nodes.sources(snapshot), FIELDS, lists)
    again, encode = [], encoded._Members.__call__

    def watched(members, row):
        again.append((row.name, members._names))
        return encode(members, row)

    monkeypatch.setattr(encoded._Members, "__call__", watched)
    record = snapshot.instances[clusters.instance_uuid(2)].replace(tags=("x",))
    snapshot = clusters.changed(snapshot, record)
    text(nodes.sources(snapshot), FIELDS, lists)
    assert {name for name, _names in again} == {"inst2.example.com"}
    again.clear()
    nodes.infos[clusters.node_uuid(1)] = {"inst3.example.com": info()}
    text(nodes.sources(snapshot), FIELDS, lists)
    live = [["status"], ["oper_state", "oper_ram"], ["oper_vcpus"]]
    assert again == [("inst3.example.com", names) for names in live]


def test_one_object_and_other_resources_have_the_same_form():
    lists, source = query.EncodedLists(), Nodes().sources(start())
    fields = ["name", "beparams"]
    named = query.objects(source, "instance", ["inst1"], fields, lists)
    [actual] = msgspec.json.decode(named)
    assert actual == one(source, fields, lists)
    beparams = actual["beparams"]
    assert beparams["memory"] == beparams["maxmem"]
    nodes = query.objects(source, "node", [], ["name"], lists)
    assert msgspec.json.decode(nodes)[0] == {"name": "node1.example.com"}


def test_wrong_fields_are_refused():
    lists, source = query.EncodedLists(), Nodes().sources(start())
    for fields in (["nonsense"], ["name", "name"]):
        with pytest.raises(errors.OpPrereqError, match=fields[0]):
            text(source, fields, lists)


def test_a_list_of_nothing_is_a_list():
    lists, source = query.EncodedLists(), Nodes().sources(clusters.snapshot(nodes=1))
    assert text(source, FIELDS, lists) == b"[]"


def test_only_few_lists_of_fields_are_kept():
    lists, source = query.EncodedLists(), Nodes().sources(start())
    first = text(source, ["name"], lists)
    text(source, ["os"], lists)
    assert text(source, ["name"], lists) is first
    text(source, ["tags"], lists)
    assert text(source, ["name"], lists) is first
    text(source, ["uuid"], lists)
    text(source, ["os"], lists)
    assert text(source, ["name"], lists) is not first


def test_a_list_that_is_too_large_is_not_kept(monkeypatch):
    monkeypatch.setattr(encoded, "_MAX_BYTES", 10)
    lists, source = query.EncodedLists(), Nodes().sources(start())
    texts = [text(source, ["name"], lists) for _ in range(2)]
    assert texts[0] == texts[1] == plain(source, ["name"])
    assert texts[0] is not texts[1]


def test_an_instance_that_another_node_alone_runs_has_the_status_of_that():
    nodes, snapshot = Nodes(), start()
    nodes.infos[clusters.node_uuid(2)] = {"inst1.example.com": info()}
    source = nodes.sources(snapshot)
    statuses = query.legacy(source, "instance", [], ["status"])
    assert statuses[0] == ["ERROR_wrongnode"]
    assert one(source, ["status"], query.EncodedLists()) == {
        "status": "ERROR_wrongnode"
    }
