"""Descriptions of real clusters from the answers of their masters."""

import pytest

from ganeti.base import errors
from ganeti.devel.sim import live

GROUP = {"uuid": "g1", "name": "default", "alloc_policy": "preferred"}
GROUP |= {"custom_ipolicy": {"vcpu-ratio": 2.0}, "tags": ["a"]}
NODE = {
    "uuid": "n1",
    "name": "node1.example.com",
    "group": "default",
    "tags": ["b"],
    "master_candidate": True,
    "master_capable": True,
    "vm_capable": True,
    "offline": False,
    "drained": False,
    "powered": None,
    "bootid": "x",
    "mtotal": 8192,
    "mnode": 500,
    "dfree": 1000,
    "ctotal": 4,
    "ndp/oob_program": "/usr/lib/ganeti/oob",
}
N2 = NODE | {"uuid": "n2", "name": "node2.example.com", "master_candidate": False}
INSTANCE = {
    "uuid": "i1",
    "name": "web1.example.com",
    "forthcoming": False,
    "pnode": NODE["name"],
    "snodes": [N2["name"]],
    "disk_template": "drbd",
    "disk.sizes": [100, 50],
    "admin_state": "up",
    "oper_state": True,
    "be/maxmem": 1024,
    "be/minmem": 512,
    "be/vcpus": 2,
    "tags": ["c"],
    "be/always_failover": True,
    "be/auto_balance": False,
}
INFO = {
    "name": "cluster1",
    "master": NODE["name"],
    "tags": ["d"],
    "ipolicy": {},
    "default_iallocator": "hail",
    "default_iallocator_params": {"x": "y"},
    "candidate_pool_size": 7,
    "diagnose_data_collector_filename": "check",
    "enabled_data_collectors": {"diagnose": True},
    "data_collector_interval": {"diagnose": 5_000_000},
}
AUTOMATION = {"revision": 1, "limits": {"moved-share": 5.0}, "freeze": None}
AUTOMATION |= {"node_death": True, "moving": [], "instances": 1}


def read(
    nodes=(NODE, N2),
    instances=(INSTANCE,),
    info=INFO,
    automation=AUTOMATION,
    store="file",
):
    answers = live.Answers(
        [GROUP, GROUP | {"uuid": "g2", "name": "empty"}],
        nodes,
        instances,
        info,
        automation,
        {"store": store},
    )
    return live.read(answers)


def test_the_description_has_what_decisions_depend_on():
    made = read()
    cluster = made.description
    assert (made.name, made.notes) == ("cluster1", ())
    node, second = cluster.nodes
    assert (node.name, node.group, node.tags) == (NODE["name"], "default", ("b",))
    assert (node.memory_mib, node.own_memory_mib, node.cpus) == (8192, 500, 4)
    # Two disks with metadata.
    assert node.disk_mib == second.disk_mib == 1000 + 100 + 50 + 2 * 128
    assert (node.helper, node.answers, node.powered) == (True, True, True)
    assert (node.candidate, second.candidate, second.master_capable) == (
        True,
        False,
        True,
    )
    (web1,) = cluster.instances
    assert (web1.primary, web1.secondary) == (NODE["name"], N2["name"])
    assert (web1.memory_mib, web1.min_memory_mib, web1.vcpus) == (1024, 512, 2)
    assert (web1.disks_mib, web1.state, web1.runs) == ((100, 50), "up", True)
    assert (web1.always_failover, web1.auto_balance) == (True, False)
    (group,) = cluster.groups
    assert (group.name, group.tags, group.ipolicy) == (
        "default",
        ("a",),
        {"vcpu-ratio": 2.0},
    )
    assert (cluster.master, cluster.tags) == (NODE["name"], ("d",))
    assert (cluster.allocator, cluster.allocator_params) == ("hail", {"x": "y"})
    assert (cluster.node_death, cluster.limits) == (True, {"moved-share": 5.0})
    assert (cluster.diagnose, cluster.diagnose_s) == (True, 5.0)
    assert (cluster.freeze, cluster.candidate_pool_size) == ("", 7)


def test_nothing_secret_is_asked_for():
    asked = {field for fields in live.FIELDS.values() for field in fields}
    assert not {field for field in asked if field.startswith(("hv", "os", "nic"))}
    assert not asked & {"osparams", "hvparams", "beparams", "custom_osparams"}


@pytest.mark.parametrize("word", [None, "", "!"])
def test_a_node_may_have_no_helper(word):
    (node,) = read([NODE | {"ndp/oob_program": word}], []).description.nodes
    assert not node.helper


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"powered": False}, {"powered": False}),
        ({"powered": True}, {"powered": True}),
        ({"offline": True}, {"offline": True, "drained": False}),
        ({"drained": True}, {"offline": False, "drained": True}),
        ({"master_capable": False}, {"master_capable": False, "vm_capable": True}),
        # Missing values have defaults.
        ({"ctotal": None}, {"cpus": 16}),
        ({"dfree": None}, {"disk_mib": 1024 * 1024}),
        ({"mnode": None}, {"own_memory_mib": 0, "memory_mib": 8192}),
        ({"mtotal": None}, {"own_memory_mib": 500, "memory_mib": 32768}),
    ],
)
def test_the_state_of_a_node_is_taken_over(changes, wanted):
    (node,) = read([NODE | changes], []).description.nodes
    assert {name: getattr(node, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"mtotal": None}, "node1.example.com does not report its memory; "),
        ({"mtotal": None, "offline": True}, ""),
        ({"mtotal": None, "vm_capable": False}, ""),
    ],
)
def test_a_missing_memory_is_noted(changes, note):
    notes = read([NODE | changes], []).notes
    assert len(notes) == bool(note)
    assert note in "".join(notes)


@pytest.mark.parametrize(
    ("place", "store"), [("file", "file"), ("etcd https://192.0.2.1:2379", "etcd")]
)
def test_the_place_of_the_store_is_known(place, store):
    assert read(store=place).description.store == store


def test_a_freeze_is_taken_over_with_its_reason():
    for reason, shown in (("moving", "moving"), ("", "no reason given")):
        automation = AUTOMATION | {"freeze": {"reason": reason, "time": 1.0}}
        assert read(automation=automation).description.freeze == shown


def test_a_node_that_does_not_answer_begins_switched_off():
    silent = N2 | dict.fromkeys(("bootid", "mtotal", "mnode", "dfree", "ctotal"))
    made = read([NODE, silent])
    assert [node.answers for node in made.description.nodes] == [True, False]
    assert made.notes == (
        "node node2.example.com does not answer, so it begins switched off",
    )
    assert read([NODE, silent | {"offline": True}]).notes == ()


def test_a_node_without_guests_is_not_asked_and_runs():
    made = read([NODE, N2 | {"vm_capable": False, "bootid": None, "mtotal": None}])
    assert made.description.nodes[1].answers
    assert not made.description.nodes[1].vm_capable
    assert made.notes == ()


def test_guests_that_run_have_memory():
    (node, _second) = read([NODE | {"mtotal": 1000}, N2]).description.nodes
    assert node.memory_mib == 500 + 1024


def test_the_memory_of_guests_that_are_left_out_is_not_free():
    mixed = INSTANCE | {"uuid": "i2", "name": "db1", "disk_template": "mixed"}
    later = INSTANCE | {"uuid": "i3", "name": "db2", "forthcoming": True}
    made = read(instances=[INSTANCE, mixed, later])
    assert [item.name for item in made.description.instances] == [INSTANCE["name"]]
    assert made.description.nodes[0].own_memory_mib == 500 + 1024
    assert made.notes == (
        "instance db1 is left out: its disk template is mixed",
        "instance db2 is left out: it is a reservation",
    )


def test_objects_have_several_spellings():
    other = N2 | {"uuid": "n3", "name": "node2.example.org"}
    names = read([NODE, N2, other]).names["node"]
    assert names["node1"] == names["n1"] == names[NODE["name"]] == NODE["name"]
    assert names["node2.example.org"] == names["n3"] == "node2.example.org"
    assert "node2" not in names
    assert "n1" not in read().names["instance"]


def test_an_answer_of_another_form_is_refused():
    with pytest.raises(
        errors.ProtocolError, match=r"node node1\.example\.com: .*mtotal"
    ):
        read([NODE | {"mtotal": "much"}])
    with pytest.raises(errors.ProtocolError, match="cluster cluster1: "):
        read(info=INFO | {"tags": 5})
