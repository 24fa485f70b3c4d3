"""Files become mirrors, and mirrors files, by plain disks in between."""

import copy

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base import errors
from ganeti.master import config
from ganeti.model import objects

N1, N2 = clusters.node_uuid(1), clusters.node_uuid(2)
TO_DRBD = {
    "OP_ID": "OP_INSTANCE_SET_PARAMS",
    "instance_name": "inst1.example.com",
    "disk_template": "drbd",
    "remote_node": "node2.example.com",
}
COMPLETE = {
    "dev_path": "/dev/drbd0",
    "is_degraded": False,
    "ldisk_status": 1,
}
SPACE = {"type": "lvm-vg", "name": "xenvg", "storage_free": 9000, "storage_size": 9999}


def engine(**answers):
    """Return a cluster with a stopped instance in a file."""
    disk = objects.Disk(
        uuid="f0",
        dev_type="file",
        logical_id=("loop", "/srv/ganeti/file-storage/inst1.example.com/f0"),
        size=300,
        nodes=(N1,),
        serial_no=1,
        iv_name="disk/0",
    )
    policy = copy.deepcopy(clusters.EXAMPLE["cluster"]["ipolicy"])
    policy["disk-templates"] = ["file", "plain", "drbd"]
    start = clusters.snapshot(
        nodes=2,
        extra=[disk, clusters.instance(1, disks=["f0"], admin_state="down")],
        volume_group_name="xenvg",
        enabled_disk_templates=["file", "plain", "drbd"],
        ipolicy=policy,
    )
    script = {
        **SUCCESSFUL_ACTS,
        "node_info": lambda _node, args: ["boot", [SPACE for _ in args[0]], []],
        "blockdev_convert_part": None,
        "blockdev_create": lambda _node, args: list(args[0]["logical_id"]),
        "blockdev_find": None,
        "blockdev_getdimensions": lambda _node, args: (
            [[300 << 20, None]] * len(args[0])
        ),
        "blockdev_getmirrorstatus_multi": [[True, COMPLETE]],
        "blockdev_assemble": ["/dev/drbd0", "/link", None],
        "hooks_runner": [],
        "instance_info": {},
        **answers,
    }
    return Engine(start, script)


def disk_of(eng):
    (instance,) = eng.snapshot.instances.values()
    (uuid,) = instance.disks
    return eng.snapshot.disks[uuid]


def test_a_file_becomes_a_mirror_around_a_volume_with_its_content():
    eng = engine()
    eng.run(TO_DRBD)
    disk = disk_of(eng)
    assert (disk.dev_type, disk.nodes, disk.size) == ("drbd", (N1, N2), 300)
    assert disk.logical_id[2] is not None
    assert list(eng.snapshot.disks) == [disk.uuid]
    assert config.verify(eng.snapshot) == []
    copied = [args for name, _node, args in eng.rpc.calls if "convert_part" in name]
    assert {args[1]["logical_id"][1] for args in copied} == {
        disk.children[0].logical_id[1]
    }
    assert [args[2:4] for args in copied] == [(0, 256), (256, 44)]


def test_a_mirror_that_cannot_be_made_leaves_the_copy_as_a_plain_disk():
    eng = engine(
        blockdev_create=lambda node, args: (
            failure("no space") if node == N2 else list(args[0]["logical_id"])
        )
    )
    with pytest.raises(errors.OpExecError, match="no space") as refused:
        eng.run(TO_DRBD)
    text = "its disks were converted from file to plain, but not to drbd: "
    assert text in str(refused.value)
    assert disk_of(eng).dev_type == "plain"
    assert config.verify(eng.snapshot) == []


def test_nothing_is_copied_without_space_for_the_second_copy():
    def space(node, args):
        free = 100 if node == N2 else 9000
        return ["boot", [SPACE | {"storage_free": free} for _ in args[0]], []]

    eng = engine(node_info=space)
    with pytest.raises(errors.OpPrereqError, match=r"node2\.example\.com"):
        eng.run(TO_DRBD)
    assert disk_of(eng).uuid == "f0"
