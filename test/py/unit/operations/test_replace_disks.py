"""The checks of a replacement, and the choice of its node; see test_replacements.py."""

import json

import pytest

from fakes import clusters
from fakes.commands import run
from fakes.engine import Engine
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.commands.cli.output import explain
from ganeti.master.locking import Level
from ganeti.model import objects

NAME = "inst1.example.com"
REQUEST = {"OP_ID": "OP_INSTANCE_REPLACE_DISKS", "instance_name": NAME, "disks": []}
OTHER = clusters.group(name="other", uuid="00000000-0000-4000-8000-0000000000b0")
REPORT = {"memory_total": 16000, "memory_free": 9000, "cpu_total": 4}
SPACE = {"storage_size": 90000, "storage_free": 80000}
NEW, OLD = {"mode": "replace_new_secondary"}, "node2.example.com"


def node(number):
    return f"node{number}.example.com"


def engine(disks, script=None, **changes):
    """Return a cluster of six nodes: 4 drained, 5 with little room, 9 in a group."""
    records = [
        *disks,
        clusters.instance(1, disks=[disk.uuid for disk in disks]),
        OTHER,
        clusters.node(4, drained=True),
        clusters.node(9, group=OTHER.uuid),
    ]
    start = clusters.snapshot(extra=records, volume_group_name="xenvg")
    start = clusters.changed(start, *changes.get("also", ()))
    answers = {
        "node_info": ["boot", [SPACE], [REPORT]],
        "all_instances_info": {},
        "hooks_runner": [],
    }
    return Engine(start, answers | (script or {}))


def mirrored(script=None, **changes):
    disks = [clusters.drbd_disk(f"d{n}", 1, 2) for n in (0, 1)]
    return engine(disks, script, **changes)


def refused(eng, **changes):
    before = eng.snapshot
    with pytest.raises(errors.OpPrereqError) as caught:
        eng.run(REQUEST | changes)
    assert eng.snapshot is before
    return caught.value.args[0]


def reported(eng):
    return [
        output for _kind, output in eng.callbacks.entries if isinstance(output, str)
    ]


def placements(eng):
    return [output for kind, output in eng.callbacks.entries if kind == "placement"]


@pytest.mark.parametrize("template", ["file", "sharedfile"])
def test_disks_with_one_copy_are_refused_with_what_helps(template):
    disk = objects.Disk(
        uuid="d1",
        dev_type=template,
        logical_id=("loop", f"/srv/ganeti/file-storage/{NAME}/disk0"),
        size=64,
        serial_no=1,
    )
    text = refused(engine([disk]), mode="replace_auto")
    assert f"disk template {template} has no second copy to replace" in text
    assert "only drbd has" in text
    assert "gnt-instance recreate-disks" in text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (NEW, "either a new secondary or an allocator"),
        (
            NEW | {"iallocator": "a", "remote_node": "b"},
            "either a new secondary or an allocator",
        ),
        (
            {"mode": "replace_auto", "iallocator": "hail"},
            "goes with mode replace_new_secondary, found",
        ),
        (NEW | {"remote_node": "node8"}, "not known"),
        ({"mode": "replace_auto", "disks": [0]}, "finds the faulty ones"),
        ({"mode": "replace_on_primary", "disks": [1, 1]}, "disk 1 is given twice"),
        (
            {"mode": "replace_on_primary", "disks": [2]},
            "has no disk 2, it has 2: 0 to 1",
        ),
        (NEW | {"remote_node": "node3", "disks": [1]}, "gets all 2 disks"),
        (NEW | {"remote_node": "node1"}, f"{node(1)} is already its primary node"),
        (NEW | {"remote_node": "node2"}, f"{OLD} is already its secondary node"),
        (NEW | {"remote_node": "node4"}, f"node {node(4)} is marked drained"),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
def test_what_cannot_be_is_refused_first(changes, text, dry):
    assert text in refused(mirrored(), **changes, dry_run=dry)


def test_offline_nodes_hinder():
    eng = mirrored(also=[clusters.node(2, offline=True)])
    text = refused(eng, mode="replace_on_secondary")
    assert text.endswith(f"its secondary node {OLD} is marked offline")
    eng = mirrored(
        also=[
            clusters.instance(2, primary=3, disks=["dx"]),
            clusters.drbd_disk("dx", 3, 2),
            clusters.node(3, offline=True),
        ]
    )
    text = refused(eng, **NEW, remote_node="node1", instance_name="inst2")
    assert text.endswith(f"its primary node {node(3)} is marked offline")


def test_a_new_secondary_takes_the_policy_of_its_group():
    policy = {"disk-templates": ["file"]}
    other = OTHER.replace(ipolicy=policy)
    eng = mirrored(also=[other])
    text = refused(eng, **NEW, remote_node="node9", dry_run=True)
    assert "policy of node group other: disk template drbd is not allowed, only" in text
    assert "only file (see --ipolicy-disk-templates)" in text
    eng.run(
        REQUEST
        | NEW
        | {"remote_node": "node9", "ignore_ipolicy": True, "dry_run": True}
    )
    assert any("in place of node2" in line for line in reported(eng))


def test_too_little_space_is_refused_before_any_change():
    eng = mirrored({"node_info": ["boot", [SPACE | {"storage_free": 2000}], [REPORT]]})
    for changes, where in (
        (NEW | {"remote_node": "node3"}, node(3)),
        (NEW | {"iallocator": "mine"}, node(3)),
        ({"mode": "replace_on_primary"}, node(1)),
        ({"mode": "replace_on_secondary"}, OLD),
    ):
        output = {"success": True, "info": "", "result": [node(3)]}
        eng.rpc.script["iallocator_runner"] = json.dumps(output)
        text = refused(eng, **changes)
        assert text == (
            f"instance {NAME}: needs 2304 MiB in volume group xenvg of node {where},"
            " which has 2000 MiB free"
        )
        # No hook runs before a refused change.
        assert eng.rpc.called("hooks_runner") == []


def test_a_dry_run_reports_where_and_why_not_elsewhere():
    eng = mirrored()
    eng.run(REQUEST | NEW | {"iallocator": "hail", "dry_run": True})
    (output,) = placements(eng)
    (one,) = output["instances"]
    assert (output["allocator"], one["instance"]) == ("hail", NAME)
    assert one["nodes"] == [node(1), node(3)]
    against = {row["node"] for row in one["reasons"]}
    assert node(4) in against
    assert any(
        f"on node {node(3)}, in place of {OLD}" in line for line in reported(eng)
    )
    ((_uuid, (units, _hv)), *_others) = eng.rpc.called("node_info")
    assert units == [["lvm-vg", "xenvg", [False]]]


def test_allocators_are_asked_for_another_second_node():
    output = {"success": True, "info": "", "result": [node(3)]}
    eng = mirrored({"iallocator_runner": json.dumps(output)})
    eng.run(REQUEST | NEW | {"iallocator": "mine", "dry_run": True})
    ((_node, (_name, text, _options)),) = eng.rpc.called("iallocator_runner")
    asked = json.loads(text)["request"]
    assert asked["relocate_from"] == [OLD]
    assert asked["disk_space_total"] == 2 * (1024 + 128)
    levels = eng.locks.modes()
    assert levels[Level.NODE][1] is False
    output["result"] = [OLD]
    eng = mirrored({"iallocator_runner": json.dumps(output)})
    with pytest.raises(errors.ResultValidationError, match=f"node other than {OLD}"):
        eng.run(REQUEST | NEW | {"iallocator": "mine", "dry_run": True})


def statuses(*values):
    return [
        [True, {"dev_path": "/dev/drbd0", "ldisk_status": value}] for value in values
    ]


@pytest.mark.parametrize(
    ("primary", "secondary", "words"),
    [
        ((1, 1), (1, 1), "to replace: none"),
        ((1, 4), (1, 1), f"disk/1 would be replaced on node {node(1)}"),
        ((1, 1), (4, 4), f"disk/0, disk/1 would be replaced on node {OLD}"),
    ],
)
def test_faulty_disks_are_found(primary, secondary, words):
    answers = {
        clusters.node_uuid(1): statuses(*primary),
        clusters.node_uuid(2): statuses(*secondary),
    }
    eng = mirrored({"blockdev_getmirrorstatus_multi": lambda uuid, *_: answers[uuid]})
    eng.run(REQUEST | {"mode": "replace_auto", "dry_run": True})
    assert any(words in line for line in reported(eng)), reported(eng)


def test_faults_on_both_sides_or_unknown_ones_are_refused():
    both = mirrored({"blockdev_getmirrorstatus_multi": statuses(4, 1)})
    assert "has faulty disks on both nodes" in refused(both, mode="replace_auto")
    text = "disks of type drbd are not offered"
    lost = mirrored({"blockdev_getmirrorstatus_multi": [[False, text]] * 2})
    actual = refused(lost, mode="replace_auto")
    assert f"node {node(1)}: disk/0: {text}" in actual
    idle = clusters.instance(1, disks=["d0", "d1"], disks_active=False)
    asleep = mirrored(also=[idle])
    assert "its disks are not active" in refused(asleep, mode="replace_auto")


def test_a_node_is_emptied_of_second_copies_by_the_same_rules():
    eng = mirrored()
    request = {
        "OP_ID": "OP_NODE_EVACUATE",
        "node_name": OLD,
        "mode": "secondary-only",
        "iallocator": "hail",
    }
    eng.run(request | {"dry_run": True})
    (output,) = placements(eng)
    (one,) = output["instances"]
    assert one["nodes"] == [node(1), node(3)]
    assert eng.callbacks.submitted == []
    eng.run(request)
    (((op,)),) = eng.callbacks.submitted
    assert (op.op_id(), op.remote_node) == ("OP_INSTANCE_REPLACE_DISKS", node(3))


def test_the_command_prints_nodes_and_reasons(monkeypatch):
    seen = []
    monkeypatch.setattr(explain, "run", lambda _ctx, *words: seen.append(words))
    words = f"gnt-instance replace-disks -I hail --dry-run --explain {NAME}"
    assert run(words, FakeMaster()).code == 0
    ((op, name),) = seen
    assert (op["OP_ID"], op["iallocator"], name) == (REQUEST["OP_ID"], "hail", NAME)


def test_without_an_allocator_there_are_no_reasons_to_print():
    words = f"gnt-instance replace-disks -n node3 --dry-run --explain {NAME}"
    actual = run(words, FakeMaster())
    assert (actual.code, actual.out) == (0, "No allocator was used.\n")
