"""Node groups: creating, changing, moving nodes."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from ganeti.base import errors
from ganeti.master.locking import Level
from ganeti.model import objects

N1, N2, N3 = (clusters.node_uuid(n) for n in (1, 2, 3))
RACK = "00000000-0000-4000-8000-0000000000b0"
DRBD = {
    "dev_type": "drbd",
    "serial_no": 1,
    "size": 64,
    "nodes": (),
}


def engine_with(*extra, **cluster):
    return Engine(
        clusters.snapshot(extra=[clusters.group("rack", RACK), *extra], **cluster),
        {"hooks_runner": []},
    )


def run(engine, op, name="rack", **options):
    return engine.run({"OP_ID": f"OP_GROUP_{op}", "group_name": name, **options})


def group(engine, name):
    return engine.snapshot.nodegroups[engine.snapshot.uuid_of("nodegroups", name)]


def mirrored(first, second):
    disk = objects.Disk(uuid="d1", logical_id=(first, second, 11000, 0, 0, "s"), **DRBD)
    return disk, clusters.instance(1, disks=["d1"])


def test_a_group_is_created_with_its_policy_and_a_lock_of_its_own():
    engine = engine_with()
    result = run(
        engine,
        "ADD",
        "new",
        alloc_policy="last_resort",
        ndparams={"spindle_count": "3"},
        ipolicy={"vcpu-ratio": "2"},
        diskparams={"drbd": {"resync-rate": "1024"}},
    )
    assert result is None
    new = group(engine, "new")
    assert (new.alloc_policy, new.ndparams) == ("last_resort", {"spindle_count": 3})
    assert new.ipolicy == {"vcpu-ratio": 2.0}
    assert new.diskparams == {"drbd": {"resync-rate": 1024}}
    assert new.uuid in engine.locks.names(Level.NODEGROUP)
    assert engine.locks.is_idle()


MINMAX = clusters.EXAMPLE["cluster"]["ipolicy"]["minmax"][0]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": "rack"}, "already exists"),
        ({"name": "rack\nrow"}, "printable characters only"),
        ({"name": "rack "}, "no space at its ends"),
        ({"name": "r" * 256}, "node group r{40}...: .* 255 characters, found 256"),
        ({"name": RACK.replace("b0", "b1")}, "look like a uuid"),
        ({"ipolicy": {"std": {}}}, "only be set for the cluster"),
        ({"ipolicy": {"bogus": 1}}, "unknown"),
        ({"ipolicy": {"disk-templates": []}}, "at least one template"),
        ({"ipolicy": {"disk-templates": ["tape"]}}, "unknown templates tape"),
        ({"ipolicy": {"minmax": [{"min": {}}]}}, "wanted max and min"),
        (
            {"ipolicy": {"minmax": [{"min": MINMAX["max"], "max": MINMAX["min"]}]}},
            "is above maximum",
        ),
        ({"diskparams": {"drbd": {"protocol": "Z"}}}, "wanted one of A, B, C"),
        ({"diskparams": {"plain": {"stripes": 200}}}, "wanted 1 to 128, found 200"),
        ({"diskparams": {"plain": {"stripe_size": 64}}}, "needs stripes of 2 or more"),
        ({"diskparams": {"rbd": {"pool": "-p"}}}, "wanted a name .* found '-p'"),
        ({"ndparams": {"bogus": 1}}, "unknown"),
    ],
)
def test_impossible_groups_are_refused(options, text):
    engine = engine_with()
    before = engine.snapshot
    name = options.pop("name", "new")
    refusals = (errors.OpPrereqError, errors.TypeEnforcementError)
    with pytest.raises(refusals, match=text):
        run(engine, "ADD", name, **options)
    assert engine.snapshot is before
    assert engine.locks.names(Level.NODEGROUP) == set(before.nodegroups)


def test_only_an_empty_group_that_is_not_the_last_can_be_removed():
    engine = engine_with()
    with pytest.raises(errors.OpPrereqError, match="not empty"):
        run(engine, "REMOVE", "default")
    uuid = group(engine, "rack").uuid
    assert run(engine, "REMOVE") is None
    assert uuid not in engine.snapshot.nodegroups
    assert uuid not in engine.locks.names(Level.NODEGROUP)


def test_renaming_runs_hooks_on_the_members_with_both_names():
    engine = engine_with(clusters.node(5, group=RACK))
    assert run(engine, "RENAME", new_name="rack2") == "rack2"
    assert group(engine, "rack2").uuid == RACK
    asked = engine.rpc.called("hooks_runner")
    assert {node for node, _ in asked} == {N1, clusters.node_uuid(5)}
    assert asked[0][1][2]["GANETI_OLD_NAME"] == "rack"
    assert asked[0][1][2]["GANETI_NEW_NAME"] == "rack2"
    with pytest.raises(errors.OpPrereqError, match="already exists"):
        run(engine, "RENAME", "rack2", new_name="default")


def test_changes_are_stored_and_overrides_can_be_removed():
    engine = engine_with()
    assert run(
        engine,
        "SET_PARAMS",
        ndparams={"spindle_count": 2, "exclusive_storage": "true"},
        alloc_policy="unallocable",
        ipolicy={"spindle-ratio": 4},
    ) == [
        ("ndparams", {"spindle_count": 2, "exclusive_storage": True}),
        ("alloc_policy", "unallocable"),
        ("ipolicy", {"spindle-ratio": 4.0}),
    ]
    run(
        engine,
        "SET_PARAMS",
        ndparams={"spindle_count": "default"},
        ipolicy={"spindle-ratio": "default"},
    )
    assert group(engine, "rack").ndparams == {"exclusive_storage": True}
    assert group(engine, "rack").ipolicy == {}
    with pytest.raises(errors.OpPrereqError, match="no change"):
        run(engine, "SET_PARAMS")


def test_a_policy_that_instances_no_longer_fit_is_stored_with_a_warning():
    low = {**MINMAX["min"], "disk-count": 0, "nic-count": 0}
    bounds = [{"min": low, "max": MINMAX["max"]}]
    policy = {
        **clusters.EXAMPLE["cluster"]["ipolicy"],
        "disk-templates": ["diskless"],
        "minmax": bounds,
    }
    engine = engine_with(clusters.instance(1), ipolicy=policy)
    assert engine.locks.is_idle()
    run(engine, "SET_PARAMS", "default", ipolicy={"disk-templates": ["file"]})
    assert "violate it: inst1.example.com" in engine.callbacks.text()
    assert engine.locks.modes() == {
        Level.INSTANCE: (frozenset(["inst1.example.com"]), True),
        Level.NODEGROUP: (frozenset([clusters.GROUP]), False),
    }


def test_moving_nodes_locks_both_groups_and_raises_all_serials():
    engine = engine_with()
    run(engine, "ASSIGN_NODES", nodes=["node3"])
    assert engine.snapshot.nodes[N3].group == RACK
    assert engine.snapshot.nodes_in_group(RACK) == {N3}
    assert engine.locks.modes() == {
        Level.NODEGROUP: (frozenset([RACK, clusters.GROUP]), False),
        Level.NODE: (frozenset([N3]), False),
    }
    assert group(engine, "rack").serial_no == 2


def test_a_move_that_splits_a_mirrored_instance_needs_force():
    engine = engine_with(*mirrored(N1, N2))
    before = engine.snapshot
    with pytest.raises(errors.OpPrereqError, match=r"split.*inst1"):
        run(engine, "ASSIGN_NODES", nodes=["node2"])
    assert engine.snapshot is before
    run(engine, "ASSIGN_NODES", nodes=["node2"], force=True)
    assert "would be split" in engine.callbacks.text()
    run(engine, "ASSIGN_NODES", nodes=["node1"])
    assert engine.snapshot.nodes_in_group(RACK) == {N1, N2}
