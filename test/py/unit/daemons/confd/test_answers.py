"""Answers of confd over a snapshot."""

import json

import pytest

from fakes import clusters
from fakes.confd import SERIAL, nic, orchard
from ganeti.daemons.confd import answers
from ganeti.daemons.confd.answers import AddressIndex
from ganeti.model.objects import Update
from ganeti.protocols.confd import wire

OK, ERROR = 0, 1
UNKNOWN, ARGUMENT = 0, 2


def ask(kind, key=None, snapshot=None):
    """Return status, answer and serial of a query."""
    projection = answers.Projection(snapshot or orchard())
    message = projection.message(wire.Query(1, kind, "s", key))
    reply = json.loads(message)
    assert reply["protocol"] == 1
    return reply["status"], reply["answer"], reply["serial"]


def with_node(number, **changes):
    return clusters.changed(orchard(), clusters.node(number, name="x.y", **changes))


@pytest.mark.parametrize(
    ("changes", "role"),
    [
        ({"master_candidate": True}, 1),
        ({"master_candidate": False, "offline": True}, 2),
        ({"master_candidate": False, "drained": True}, 3),
        ({"master_candidate": False}, 4),
        ({"drained": True, "offline": True, "master_candidate": True}, 3),
    ],
)
def test_roles(changes, role):
    assert ask(1, "x.y", with_node(2, **changes))[:2] == (OK, role)


def test_a_node_has_several_names():
    for name in ("apple.cluster.test", "apple", clusters.node_uuid(1)):
        assert ask(1, name) == (OK, 0, SERIAL)
    assert ask(1, "plum") == (ERROR, UNKNOWN, 0)
    for key in (None, 1, [], {}, True):
        assert ask(1, key) == (ERROR, ARGUMENT, 0)


def test_ping_and_master():
    assert ask(0) == (OK, 3010000, 0)
    assert ask(3) == (OK, "apple.cluster.test", SERIAL)
    assert ask(3, {"3": [2, 0]})[1] == ["192.0.2.11", "apple.cluster.test"]
    for key in ({}, {"3": None}, {"3": [3]}, {"3": [True]}, {"3": ["0"]}, [], "x"):
        assert ask(3, key) == (ERROR, ARGUMENT, 0)


def test_lists_of_addresses():
    assert ask(4)[1] == ["192.0.2.13", "192.0.2.12", "192.0.2.11"]
    others = with_node(2, master_candidate=False, primary_ip="192.0.2.12")
    assert ask(5, None, others)[1] == ["192.0.2.13", "192.0.2.11"]
    assert ask(6)[1] == ["198.51.100.8"]
    assert ask(6, "br7")[1] == ["198.51.100.7"]
    assert ask(6, "none")[:2] == (OK, [])
    assert ask(6, 1)[:2] == (ERROR, ARGUMENT)


def test_nodes_by_address():
    known = [OK, "192.0.2.13", SERIAL]
    assert ask(2, {"1": "198.51.100.8"}) == tuple(known)
    both = {"2": ["198.51.100.8", "198.51.100.9"]}
    assert ask(2, both) == (OK, [known, [ERROR, UNKNOWN, 0]], SERIAL)
    # The single address wins, and neither gives an empty list.
    assert ask(2, {**both, "1": "198.51.100.9"}) == (ERROR, UNKNOWN, 0)
    assert ask(2, {})[:2] == (OK, [])
    for key in (None, "x", {"1": 1}, {"2": "x"}, {"2": [1]}, {"0": 1, "1": "x"}):
        assert ask(2, key) == (ERROR, ARGUMENT, 0)


def test_drbd_minors_of_a_node():
    primary = ask(7, "fig")[1]
    assert sorted(primary) == [
        [
            "fig.cluster.test",
            0,
            "inst1.example.com",
            "disk/0",
            "primary",
            "pear.cluster.test",
        ],
        [
            "fig.cluster.test",
            0,
            "inst1.example.com",
            "disk/1",
            "primary",
            "apple.cluster.test",
        ],
    ]
    assert ask(7, "apple")[1] == [
        [
            "apple.cluster.test",
            0,
            "inst1.example.com",
            "disk/1",
            "secondary",
            "fig.cluster.test",
        ],
    ]
    assert ask(7, "plum") == (ERROR, UNKNOWN, 0)


def test_instances_and_disks_have_no_secrets():
    first, second = ask(8, "fig")[1]
    assert ([item["name"] for item in first], second) == (["inst1.example.com"], [])
    assert first[0]["osparams_private"] == {"password": "<redacted>"}
    assert [item["name"] for item in ask(8, "pear")[1][1]] == ["inst1.example.com"]
    disks = ask(9, "inst1")[1]
    assert [disk["uuid"] for disk in disks] == ["disk-1", "disk-2"]
    assert disks[0]["logical_id"][4:] == [0, None]
    for kind, key in ((8, "fig"), (9, "inst1"), (10, ""), (10, "/disks/disk-1")):
        text = json.dumps(ask(kind, key))
        assert '"secret"' not in text
        assert "tiger" not in text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/version", 3010000),
        ("/serial_no", SERIAL),
        ("/cluster/master_ip", "192.0.2.250"),
        ("/cluster/nicparams/default/link", "br0"),
        ("/cluster/osparams_private_cluster", {"tiny": {"token": "<redacted>"}}),
        ("/cluster/enabled_hypervisors/1", "fake"),
        (f"/nodes/{clusters.node_uuid(2)}/name", "pear.cluster.test"),
    ],
)
def test_parts_of_the_configuration(path, value):
    assert ask(10, path) == (OK, value, SERIAL)


def test_escapes_in_paths():
    odd = clusters.snapshot(1, os_hvp={"a/b": {"~": 5}})
    assert ask(10, "/cluster/os_hvp/a~1b/~0", odd)[1] == 5


@pytest.mark.parametrize(
    "path",
    [
        *("/", "cluster", "/plums", "/nodes/none", "/cluster/master_ip/0"),
        *("/cluster/enabled_hypervisors/2", "/cluster/enabled_hypervisors/01"),
        *("/cluster/enabled_hypervisors/-1", "/cluster/enabled_hypervisors/x"),
        *("/cluster/enabled_hypervisors/٣", None, 1, ["cluster"]),
    ],
)
def test_bad_paths(path):
    assert ask(10, path) == (ERROR, ARGUMENT, 0)


def test_data_collectors():
    collectors = {"inst-status-xen": {"active": True, "interval": 5000000}}
    odd = clusters.snapshot(1, data_collectors=collectors)
    assert ask(11, None, odd)[1] == collectors


def test_an_unknown_kind_is_dropped():
    for kind in (12, 99, -1, 2**63):
        with pytest.raises(wire.Dropped, match="request"):
            ask(kind)


def test_an_answer_with_too_many_records_is_not_computed():
    many = clusters.snapshot(
        1, extra=[clusters.instance(n, uuid=f"i{n}", name=f"i{n}") for n in range(601)]
    )
    for kind, key in ((8, "node1"), (10, "/instances"), (10, "")):
        with pytest.raises(wire.Dropped, match="too large"):
            ask(kind, key, many)


def test_without_a_configuration_all_but_a_ping_is_an_error():
    projection = answers.Projection()
    for kind in range(1, 12):
        reply = json.loads(projection.message(wire.Query(1, kind, "s")))
        assert (reply["status"], reply["serial"]) == (ERROR, 0)
        assert "not a master candidate" in reply["answer"]
    assert json.loads(projection.message(wire.Query(1, 0, "s")))["answer"] == 3010000


def test_a_kept_answer_ends_with_the_next_change():
    projection = answers.Projection(orchard())
    query = wire.Query(1, 3, "s")
    before = projection.message(query)
    assert projection.message(query) is before
    projection.advance(orchard().at(SERIAL + 1, 1), [])
    assert json.loads(projection.message(query))["serial"] == SERIAL + 1
    projection.advance(None)
    assert json.loads(projection.message(query))["status"] == ERROR


def as_sets(index):
    return {
        link: {address: index.find(link, address) for address in index.on_link(link)}
        for link in ("br0", "br1", "br7")
    }


def test_the_index_follows_changes_as_if_it_were_built_again():
    snapshot = orchard()
    index = AddressIndex(snapshot)
    steps = [
        [clusters.instance(2, nics=[nic(4, ip="198.51.100.8")])],
        [clusters.instance(3, nics=[nic(5, ip="10.0.0.1", nicparams={"link": "br1"})])],
        [clusters.instance(3, nics=[nic(5, ip="10.0.0.2")])],
    ]
    for records in steps:
        after = clusters.changed(snapshot, *records)
        rows = [Update("instances", item.uuid, item) for item in records]
        assert index.apply(snapshot, after, rows)
        snapshot = after
    # The last one that was set counts.
    assert index.find("br0", "198.51.100.8") == clusters.instance_uuid(2)
    gone = [Update("instances", clusters.instance_uuid(2), None)]
    after = snapshot.apply(gone)
    assert index.apply(snapshot, after, gone)
    assert index.find("br0", "198.51.100.8") == clusters.instance_uuid(1)
    assert as_sets(index) == as_sets(AddressIndex(after))
    assert as_sets(index) == {
        "br0": {
            "198.51.100.8": clusters.instance_uuid(1),
            "10.0.0.2": clusters.instance_uuid(3),
        },
        "br1": {},
        "br7": {"198.51.100.7": clusters.instance_uuid(1)},
    }


def test_another_default_link_needs_another_index():
    before = orchard()
    cluster = before.cluster.replace(nicparams={"default": {"link": "br9"}})
    updates = [Update("cluster", "", cluster)]
    after = before.apply(updates)
    assert not AddressIndex(before).apply(before, after, updates)
    projection = answers.Projection(before)
    projection.advance(after, updates)
    assert json.loads(projection.message(wire.Query(1, 6, "s", "br9")))["answer"] == [
        "198.51.100.8"
    ]
