"""Every opcode that names an instance, or works on all, meets a forthcoming one."""

import json
import typing

import pytest

from fakes import clusters, schemas
from fakes.jobs import FakeCallbacks
from fakes.reservations import acts, engine, op, reserve, sized, the_instance
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti.base import errors
from ganeti.commands.instance import info
from ganeti.master import config
from ganeti.master.config import topology
from ganeti.model import opcodes
from ganeti.operations.instance import common
from ganeti.operations.unit_table import UNITS

N1 = clusters.node_uuid(1)
#: Opcodes that need an existing instance -> the reason in the refusal.
REFUSED = {
    "OP_BACKUP_EXPORT": "there is nothing to export",
    "OP_BACKUP_PREPARE": "there is nothing to export",
    "OP_INSTANCE_ACTIVATE_DISKS": "it has no disks on nodes that could be activated",
    "OP_INSTANCE_CONSOLE": "it has no console",
    "OP_INSTANCE_DEACTIVATE_DISKS": "it has no disks on nodes .* deactivated",
    "OP_INSTANCE_MIGRATE": "only failover can move it",
    "OP_INSTANCE_REBOOT": "it cannot be rebooted",
    "OP_INSTANCE_RECREATE_DISKS": "no disks were lost",
    "OP_INSTANCE_REINSTALL": "there is no operating system to install again",
    "OP_INSTANCE_REPLACE_DISKS": "it has no disks on nodes that could be replaced",
    "OP_INSTANCE_SHUTDOWN": "there is nothing to stop",
    "OP_INSTANCE_STARTUP": "it cannot be started",
}
#: Parameters besides the name with which an opcode is tried.
PARAMS = {
    "OP_INSTANCE_CREATE": {"commit": True},
    "OP_INSTANCE_FAILOVER": {"target_node": "node2"},
    "OP_INSTANCE_GROW_DISK": {"disk": 0, "amount": 10},
    "OP_INSTANCE_MIGRATE": {"target_node": "node2"},
    "OP_BACKUP_EXPORT": {"target_node": "node2"},
    "OP_BACKUP_PREPARE": {"mode": "remote"},
    "OP_INSTANCE_MOVE": {"target_node": "node2"},
    "OP_INSTANCE_REBOOT": {"reboot_type": "hard"},
    "OP_INSTANCE_RENAME": {"new_name": "web2.example.com"},
    "OP_INSTANCE_REPLACE_DISKS": {
        "mode": "replace_new_secondary",
        "disks": [],
        "remote_node": "node2",
    },
    "OP_INSTANCE_SET_PARAMS": {"beparams": {"maxmem": 2048}},
}
#: Opcodes that carry out their work on the record alone, or submit jobs that do.
HANDLED = {
    "OP_INSTANCE_CHANGE_GROUP",
    "OP_INSTANCE_CREATE",
    "OP_INSTANCE_FAILOVER",
    "OP_INSTANCE_GROW_DISK",
    "OP_INSTANCE_MOVE",
    "OP_INSTANCE_REMOVE",
    "OP_INSTANCE_RENAME",
    "OP_INSTANCE_SET_PARAMS",
}
#: Those that other tests of this file try.
WITH_A_GROUP = {"OP_INSTANCE_CHANGE_GROUP"}


def named():
    """Return the ids of the opcodes of this release that name one instance."""
    return {
        op_id
        for op_id in UNITS
        if "instance_name" in typing.get_type_hints(opcodes.OPCODES[op_id])
        # That is the name of an export; the instance need not exist.
        and op_id != "OP_BACKUP_REMOVE"
    }


def reserved():
    eng = engine()
    eng.rpc.script |= {
        "storage_list": [],
        "blockdev_getmirrorstatus_multi": [],
        "node_verify": {"nodelist": {}},
    }
    reserve(eng, **sized(pnode="node1"))
    return eng


def test_the_table_is_complete():
    assert named() == REFUSED.keys() | HANDLED


def test_a_unit_refuses_forthcoming_instances_unless_it_says_otherwise():
    assert common.InstanceUnit.NEEDS_EXISTING
    for op_id in REFUSED.keys() - {"OP_INSTANCE_MIGRATE"}:
        assert UNITS[op_id].NEEDS_EXISTING, op_id


@pytest.mark.parametrize("op_id", sorted(REFUSED))
def test_what_a_forthcoming_instance_cannot_do_is_refused_with_the_reason(op_id):
    eng = reserved()
    before = eng.snapshot
    with pytest.raises(
        errors.OpPrereqError,
        match=f"instance web1.example.com: is forthcoming, so {REFUSED[op_id]};"
        " create it first, with gnt-instance add --commit",
    ) as caught:
        eng.run(op(op_id, **PARAMS.get(op_id, {})))
    assert caught.value.args[1] == "wrong_state"
    assert eng.snapshot is before
    assert acts(eng) == []


@pytest.mark.parametrize("op_id", sorted(HANDLED - WITH_A_GROUP))
def test_what_is_handled_changes_records_alone(op_id):
    eng = reserved()
    before = eng.snapshot
    eng.run(op(op_id, **PARAMS.get(op_id, {})))
    assert eng.snapshot is not before
    if op_id != "OP_INSTANCE_CREATE":
        assert acts(eng) == []
    assert config.verify(eng.snapshot) == []


def test_a_migration_that_may_fail_over_moves_the_reservation():
    eng = reserved()
    params = PARAMS["OP_INSTANCE_MIGRATE"]
    eng.run(op("OP_INSTANCE_MIGRATE", allow_failover=True, **params))
    assert the_instance(eng).primary_node != N1
    assert acts(eng) == []


# Opcodes that meet it among others
def test_tags_belong_to_the_record():
    eng = reserved()
    uuid = the_instance(eng).uuid
    tags = {"kind": "instance", "name": uuid, "tags": ["a"]}
    eng.run({"OP_ID": "OP_TAGS_SET", **tags})
    assert the_instance(eng).tags == ("a",)
    assert eng.run({"OP_ID": "OP_TAGS_GET", "kind": "instance", "name": uuid}) == ["a"]
    eng.run({"OP_ID": "OP_TAGS_DEL", **tags})


@pytest.mark.parametrize("static", [False, True])
def test_details_show_the_terms_and_ask_no_node_for_disks(static):
    eng = reserved()
    wire = {"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": [], "static": static}
    data = eng.run(wire)["web1.example.com"]
    assert data["forthcoming"] is True
    assert data["reservation_priority"] == "normal"
    shown = json.loads(json.dumps([info.instance_json(data)]))
    assert schemas.problems("gnt-instance-info", shown) == []
    assert data["disks"][0]["pstatus"] is None
    assert acts(eng) == []


def test_disks_are_neither_verified_nor_measured():
    eng = reserved()
    group = {"OP_ID": "OP_GROUP_VERIFY_DISKS", "group_name": "default"}
    assert eng.run(group) == ({}, [], {})
    sizes = {"OP_ID": "OP_CLUSTER_REPAIR_DISK_SIZES", "instances": []}
    assert eng.run(sizes) == []
    assert acts(eng) == []


def test_an_evacuation_of_its_node_moves_it_first():
    eng = reserved()
    reserve(eng, instance_name="zz", pnode="node1")
    wire = {
        "OP_ID": "OP_NODE_EVACUATE",
        "node_name": "node1",
        "mode": "primary-only",
        "iallocator": "hail",
    }
    callbacks = FakeCallbacks()
    eng.run(wire, callbacks=callbacks)
    jobs = callbacks.submitted
    assert {child.op_id() for job in jobs for child in job} == {"OP_INSTANCE_FAILOVER"}
    for job in jobs:
        for child in job:
            eng.run(child)
    assert N1 not in {i.primary_node for i in eng.snapshot.instances.values()}
    assert acts(eng) == []


def test_a_migration_of_its_node_fails_it_over():
    eng = reserved()
    callbacks = FakeCallbacks()
    wire = {"OP_ID": "OP_NODE_MIGRATE", "node_name": "node1", "iallocator": "hail"}
    eng.run(wire, callbacks=callbacks)
    ((child,),) = callbacks.submitted
    assert child.allow_failover
    eng.run(child)
    assert the_instance(eng).primary_node != N1


def test_its_node_cannot_be_removed():
    eng = engine()
    eng.rpc.script |= {**SUCCESSFUL_ACTS}
    reserve(eng, **sized(pnode="node2"))
    with pytest.raises(errors.OpPrereqError, match=r"web1\.example\.com"):
        eng.run({"OP_ID": "OP_NODE_REMOVE", "node_name": "node2"})


def test_its_hypervisor_and_its_template_cannot_be_disabled():
    eng = reserved()
    for changes in (
        {"enabled_hypervisors": ["fake"]},
        {"enabled_disk_templates": ["diskless"]},
    ):
        with pytest.raises(errors.OpPrereqError, match=r"web1\.example\.com"):
            eng.run({"OP_ID": "OP_CLUSTER_SET_PARAMS", **changes})


def test_a_change_of_group_moves_the_reservation_alone():
    rack = "00000000-0000-4000-8000-0000000000b0"
    eng = engine(extra=[clusters.group("rack", rack)])
    reserve(eng, **sized(pnode="node1"))
    with eng.config.edit("test") as edit:
        topology.assign_nodes(
            edit, dict.fromkeys(map(clusters.node_uuid, (2, 3)), rack)
        )
    callbacks = FakeCallbacks()
    wire = op("OP_INSTANCE_CHANGE_GROUP", target_groups=["rack"], iallocator="hail")
    eng.run(wire, callbacks=callbacks)
    ((child,),) = callbacks.submitted
    assert child.op_id() == "OP_INSTANCE_MOVE"
    eng.run(child)
    assert the_instance(eng).primary_node != N1
    assert acts(eng) == []
