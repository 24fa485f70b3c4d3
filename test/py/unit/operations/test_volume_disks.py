"""Disks in volume groups and storage units, as the master handles them."""

import pytest

from fakes import clusters
from fakes.engine import Engine, creation
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base import errors
from ganeti.model import objects

N1, N2 = clusters.node_uuid(1), clusters.node_uuid(2)
WEB1 = "web1.example.com"


def engine(*extra, free=5000, exclusive=False, group="xenvg", **script):
    answers = {
        **SUCCESSFUL_ACTS,
        "blockdev_assemble": ["/dev/xenvg/x", "/link", None],
        "blockdev_rename": None,
        "blockdev_setinfo": None,
        "blockdev_find": None,
        "hooks_runner": [],
        "instance_info": {},
        "node_info": lambda _node, args: [
            "boot",
            [{"type": kind, "name": key, "storage_free": free, "storage_size": 9000}
             for kind, key, _ in args[0]],
            [{"memory_free": 4096}],
        ],
    }  # fmt: skip
    start = clusters.snapshot(
        extra=extra,
        enabled_disk_templates=["plain", "file", "blockdev", "diskless"],
        volume_group_name=group,
        ndparams=clusters.cluster().ndparams | {"exclusive_storage": exclusive},
    )
    cluster = start.cluster
    policy = cluster.ipolicy | {
        "disk-templates": ["plain", "file", "blockdev", "diskless"]
    }
    start = clusters.changed(start, cluster.replace(ipolicy=policy))
    return Engine(start, answers | script)


def create(eng, *disks, **changes):
    wanted = {
        "disk_template": "plain",
        "start": False,
        "ignore_ipolicy": True,
        **changes,
    }
    return eng.run(creation(disks=list(disks), **wanted))


def only_instance(eng):
    return next(i for i in eng.snapshot.instances.values() if i.name == WEB1)


def test_a_disk_is_a_volume_of_the_cluster_s_group_or_of_its_own():
    eng = engine()
    create(eng, {"size": 1024}, {"size": 2048, "vg": "fast"})
    first, second = eng.snapshot.instance_disks(only_instance(eng))
    assert first.logical_id == ("xenvg", f"{first.uuid}.disk0")
    assert second.logical_id == ("fast", f"{second.uuid}.disk1")
    assert first.nodes == (N1,)
    created = [args for _node, args in eng.rpc.called("blockdev_create")]
    assert [args[1] for args in created] == [1024, 2048]
    assert {args[4] for args in created} == {f"originstname+{WEB1}"}
    asked = eng.rpc.called("node_info")[0][1][0]
    assert asked == [["lvm-vg", "xenvg", [False]], ["lvm-vg", "fast", [False]]]


def test_too_little_space_is_refused_with_wanted_and_free():
    eng = engine(free=1000)
    text = (
        "needs 1024 MiB in volume group xenvg of node node1.example.com, which has 1000"
    )
    with pytest.raises(errors.OpPrereqError, match=text):
        create(eng, {"size": 600}, {"size": 424})
    assert not eng.rpc.called("blockdev_create")


def test_a_group_that_a_node_lacks_is_named():
    eng = engine(node_info=["boot", [None], []])
    with pytest.raises(
        errors.OpPrereqError, match="group fast is missing on node node1"
    ):
        create(eng, {"size": 600, "vg": "fast"})


def test_a_cluster_without_a_group_names_the_command_that_sets_one():
    with pytest.raises(errors.OpPrereqError, match="modify --vg-name"):
        create(engine(group=None), {"size": 600})


@pytest.mark.parametrize(
    ("template", "disk", "text"),
    [
        (
            "plain",
            {"size": 5, "metavg": "x"},
            "metavg does not apply to template plain",
        ),
        ("file", {"size": 5, "vg": "x"}, "vg does not apply to template file"),
        ("plain", {"size": 5, "spindles": 1}, "spindles can only be given with excl"),
        ("plain", {"size": 5, "adopt": "x"}, "has the size of what it adopts"),
        ("plain", {}, "wanted a size of 1 MiB or more"),
        ("blockdev", {"size": 5}, "give adopt=PATH, below /dev/disk/"),
        ("plain", {"size": 5, "dev_type": "file"}, "wanted disk type plain"),
    ],
)
def test_keys_that_do_not_apply_are_refused(template, disk, text):
    with pytest.raises(errors.OpPrereqError, match=text):
        create(engine(), disk, disk_template=template)


def lv_list(**volumes):
    return {f"xenvg/{name}": row for name, row in volumes.items()}


def test_adopted_volumes_get_the_names_of_their_records():
    eng = engine(lv_list=lv_list(old=["1536.00", False, False]))
    create(eng, {"adopt": "old"})
    (disk,) = eng.snapshot.instance_disks(only_instance(eng))
    assert disk.size == 1536
    ((_node, (renames,)),) = eng.rpc.called("blockdev_rename")
    ((wire, new),) = renames
    assert list(wire["logical_id"]) == ["xenvg", "old"]
    assert list(new) == ["xenvg", f"{disk.uuid}.disk0"]
    assert not eng.rpc.called("blockdev_create")
    assert eng.rpc.called("blockdev_setinfo")[0][1][1] == f"originstname+{WEB1}"


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize(
    ("template", "source"), [("plain", "old"), ("blockdev", "/dev/disk/by-id/one")]
)
def test_nothing_is_installed_on_adopted_disks(template, source, start):
    eng = engine(
        lv_list=lv_list(old=["1536.00", False, False]), bdev_sizes={source: 4096}
    )
    create(eng, {"adopt": source}, disk_template=template, start=start)
    assert not eng.rpc.called("instance_os_add")
    assert bool(eng.rpc.called("instance_start")) == start
    made = only_instance(eng)
    assert (made.os, made.creation) == (creation()["os_type"], "")


@pytest.mark.parametrize("group", ["", "_private", "_secret"])
def test_an_image_beside_adopted_disks_is_refused(group):
    eng = engine(lv_list=lv_list(old=["1536.00", False, False]))
    image = {f"osparams{group}": {"os-image": "/srv/ganeti/images/a.img"}}
    with pytest.raises(errors.OpPrereqError, match="overwrite the adopted disks"):
        create(eng, {"adopt": "old"}, **image)
    assert not eng.rpc.called("blockdev_rename")
    create(eng, {"adopt": "old"}, **image, no_install=True)
    assert not eng.rpc.called("instance_os_add")


def test_a_volume_gets_its_name_back_if_the_others_could_not_be_adopted():
    answers = iter([failure("busy"), None])
    eng = engine(
        lv_list=lv_list(a=["8.00", False, False], b=["8.00", False, False]),
        blockdev_rename=lambda _node, _args: next(answers),
        blockdev_find=lambda _node, args: (
            {"dev_path": "/dev/x"} if args[0]["iv_name"] == "disk/0" else None
        ),
    )
    with pytest.raises(errors.OpExecError, match=r"cannot adopt its disks.*busy"):
        create(eng, {"adopt": "a"}, {"adopt": "b"})
    back = eng.rpc.called("blockdev_rename")[1][1][0]
    assert [list(new) for _wire, new in back] == [["xenvg", "a"]]
    assert WEB1 not in {i.name for i in eng.snapshot.instances.values()}


def test_an_adopted_volume_that_cannot_be_activated_stays_and_gets_its_name_back():
    eng = engine(
        lv_list=lv_list(old=["8.00", False, False]),
        blockdev_find={"dev_path": "/dev/x"},
        blockdev_assemble=failure("no such device"),
    )
    with pytest.raises(errors.OpExecError, match="the instance was removed again"):
        create(eng, {"adopt": "old"})
    back = eng.rpc.called("blockdev_rename")[1][1][0]
    assert [list(new) for _wire, new in back] == [["xenvg", "old"]]
    assert not eng.rpc.called("blockdev_remove")
    assert WEB1 not in {i.name for i in eng.snapshot.instances.values()}


def test_an_adopted_volume_is_named_if_its_node_falls_silent():
    """Nobody else knows that the volume of a generated name has the content."""
    silent = failure("no answer", is_silent=True)
    eng = engine(
        lv_list=lv_list(old=["8.00", False, False]),
        blockdev_find=silent,
        blockdev_assemble=silent,
    )
    with pytest.raises(errors.OpExecError, match="the instance was removed again"):
        create(eng, {"adopt": "old"})
    warned = [e for e in map(str, eng.callbacks.entries) if "its name old back" in e]
    assert len(warned) == 1
    assert ".disk0 may not have" in warned[0]


@pytest.mark.parametrize(
    ("disks", "rows", "text"),
    [
        ([{"adopt": "a"}], {}, "has no volume xenvg/a"),
        ([{"adopt": "a"}], {"a": ["8.00", False, True]}, "in use on node.*: xenvg/a"),
        ([{"adopt": "a"}] * 2, {}, "xenvg/a is adopted twice"),
        ([{"adopt": "a"}, {"size": 5}], {}, "either all disks are adopted, or none"),
    ],
)
def test_volumes_that_cannot_be_adopted_are_refused(disks, rows, text):
    with pytest.raises(errors.OpPrereqError, match=text):
        create(engine(lv_list=lv_list(**rows)), *disks)


def test_an_adopted_device_keeps_its_path():
    path = "/dev/disk/by-id/one"
    eng = engine(bdev_sizes={path: 4096})
    create(eng, {"adopt": path}, disk_template="blockdev")
    (disk,) = eng.snapshot.instance_disks(only_instance(eng))
    assert (disk.logical_id, disk.size, disk.nodes) == (("manual", path), 4096, ())
    for wrong in ("/dev/sda", "/dev/disk/by-id/two"):
        other = creation(
            instance_name="web2.example.com",
            disk_template="blockdev",
            disks=[{"adopt": wrong}],
        )
        with pytest.raises(errors.OpPrereqError, match=wrong):
            eng.run(other)


@pytest.mark.parametrize("way", ["one", "/one", "./one", "x/../one"])
def test_a_device_is_adopted_once_however_its_path_is_written(way):
    path, other = "/dev/disk/by-id/one", f"/dev/disk/by-id/{way}"
    eng = engine(bdev_sizes={path: 4096, other: 4096})
    twice = [{"adopt": path}, {"adopt": other}]
    with pytest.raises(errors.OpPrereqError, match=f"{path} is adopted twice"):
        create(eng, *twice, disk_template="blockdev")
    create(eng, {"adopt": path}, disk_template="blockdev")
    with pytest.raises(errors.OpPrereqError, match=f"{path} is a disk of this cluster"):
        create(
            eng,
            {"adopt": other},
            disk_template="blockdev",
            instance_name="web2.example.com",
        )


def test_a_device_that_another_job_adopts_is_refused():
    path = "/dev/disk/by-id/one"
    eng = engine(bdev_sizes={path: 4096})
    eng.config.reserve("job 7", "device", path)
    with pytest.raises(errors.OpPrereqError, match=f"{path}.* is reserved by job 7"):
        create(eng, {"adopt": path}, disk_template="blockdev")
    eng.config.release("job 7")
    create(eng, {"adopt": path}, disk_template="blockdev")


ALIAS, ONE, TWO = (f"/dev/disk/{name}" for name in ("by-path/pci-1", "by-id/one", "x"))


def numbers(_node, args):
    """Return the numbers of devices; one of them has two paths."""
    paths = [disk["logical_id"][1] for disk in args[0]]
    minors = {ALIAS: 16, ONE: 16, TWO: 32}
    return [
        [True, {"dev_path": path, "major": 8, "minor": minors[path]}] for path in paths
    ]


def test_a_device_is_adopted_once_by_whichever_of_its_paths():
    eng = engine(
        bdev_sizes={ONE: 4096, ALIAS: 4096, TWO: 4096},
        blockdev_getmirrorstatus_multi=numbers,
    )
    web2 = {"disk_template": "blockdev", "instance_name": "web2.example.com"}
    same = f"{ONE} is the same device on node node1.* as {ALIAS}, which is adopted, too"
    with pytest.raises(errors.OpPrereqError, match=same):
        create(eng, {"adopt": ONE}, {"adopt": ALIAS}, disk_template="blockdev")
    eng.config.reserve("job 7", "device", ALIAS)
    with pytest.raises(errors.OpPrereqError, match=f"{ALIAS}.* is reserved by job 7"):
        create(eng, {"adopt": ONE}, disk_template="blockdev")
    eng.config.release("job 7")
    create(eng, {"adopt": ONE}, disk_template="blockdev")
    with pytest.raises(errors.OpPrereqError, match=f"{ONE}, which is a disk of this"):
        create(eng, {"adopt": ALIAS}, **web2)
    create(eng, {"adopt": TWO}, **web2)
    assert len(eng.snapshot.instances) == 2


def test_a_running_cluster_gives_devices_to_an_instance_without_disks():
    eng = engine(
        bdev_sizes={ONE: 4096, ALIAS: 4096, TWO: 8},
        blockdev_getmirrorstatus_multi=numbers,
        instance_info={},
        instance_list=[],
    )
    create(eng, disk_template="diskless")
    modify = {
        "OP_ID": "OP_INSTANCE_SET_PARAMS",
        "instance_name": only_instance(eng).name,
        "disk_template": "blockdev",
        "ignore_ipolicy": True,
    }

    def add(*paths):
        eng.run(modify | {"disks": [["add", -1, {"adopt": each}] for each in paths]})
        modify.pop("disk_template", None)

    for twice in (ONE, ALIAS):
        with pytest.raises(errors.OpPrereqError, match="adopted"):
            add(ONE, twice)
    with pytest.raises(errors.OpPrereqError, match="give adopt=PATH"):
        eng.run(modify | {"disks": [["add", -1, {"size": 8}]]})
    add(ONE, TWO)
    disks = eng.snapshot.instance_disks(only_instance(eng))
    assert [(disk.logical_id, disk.size) for disk in disks] == [
        (("manual", ONE), 4096),
        (("manual", TWO), 8),
    ]
    # Nothing is made or wiped: they keep their data.
    for procedure in ("blockdev_create", "blockdev_wipe"):
        assert eng.rpc.called(procedure) == []
    with pytest.raises(errors.OpPrereqError, match="is a disk of this cluster"):
        add(ALIAS)


def test_a_device_that_the_node_lacks_hinders_no_adoption():
    eng = engine(
        bdev_sizes={ONE: 4096, TWO: 4096},
        blockdev_getmirrorstatus_multi=lambda _node, args: [
            [False, "missing"] for _disk in args[0]
        ],
    )
    create(eng, {"adopt": ONE}, {"adopt": TWO}, disk_template="blockdev")


def test_exclusive_storage_gives_whole_physical_volumes_to_plain_disks_alone():
    eng = engine(exclusive=True)
    create(eng, {"size": 1024, "spindles": 2})
    ((_node, args),) = eng.rpc.called("blockdev_create")
    assert args[0]["spindles"] == 2
    assert args[5] is True
    with pytest.raises(
        errors.OpPrereqError, match="file is not possible with the excl"
    ):
        create(eng, {"size": 5}, disk_template="file", instance_name="web2.example.com")


def stored(**changes):
    disk = objects.Disk(
        uuid="d0",
        dev_type="plain",
        logical_id=("xenvg", "d0.disk0"),
        size=1024,
        iv_name="disk/0",
        serial_no=1,
        nodes=(N1,),
    )
    down = {"admin_state": "down", "disks_active": False} | changes
    return disk, clusters.instance(1, disks=["d0"], **down)


def test_a_rename_moves_the_tags():
    eng = engine(*stored())
    eng.run(
        {
            "OP_ID": "OP_INSTANCE_RENAME",
            "instance_name": "inst1.example.com",
            "new_name": "inst9.example.com",
            "name_check": False,
            "ip_check": False,
        }
    )
    ((_node, args),) = eng.rpc.called("blockdev_setinfo")
    assert args[1] == "originstname+inst9.example.com"


def unit(op, **fields):
    return {"OP_ID": op, "node_name": "node1.example.com", **fields}


def test_a_physical_volume_is_modified_under_the_node_s_lock():
    eng = engine(storage_modify=None)
    eng.run(
        unit(
            "OP_NODE_MODIFY_STORAGE",
            storage_type="lvm-pv",
            name="/dev/sda",
            changes={"allocatable": False},
        )
    )
    ((node, args),) = eng.rpc.called("storage_modify")
    assert node == N1
    assert list(args) == ["lvm-pv", [], "/dev/sda", {"allocatable": False}]


@pytest.mark.parametrize(
    ("op", "fields", "text"),
    [
        (
            "OP_NODE_MODIFY_STORAGE",
            {"storage_type": "file", "changes": {"allocatable": True}},
            "type file cannot be modified, only those of lvm-pv",
        ),
        (
            "OP_NODE_MODIFY_STORAGE",
            {"storage_type": "lvm-pv", "changes": {"size": 5}},
            "size cannot be modified, only allocatable",
        ),
        (
            "OP_NODE_MODIFY_STORAGE",
            {"storage_type": "lvm-pv", "changes": {}},
            "no changes requested",
        ),
        (
            "OP_REPAIR_NODE_STORAGE",
            {"storage_type": "lvm-pv"},
            "type lvm-pv cannot be repaired, only those of lvm-vg",
        ),
    ],
)
def test_units_that_cannot_change_are_refused(op, fields, text):
    eng = engine()
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(unit(op, name="/dev/sda", **fields))
    assert eng.rpc.calls == []


def mirrored():
    disk = clusters.drbd_disk("d0", 1, 2).replace(iv_name="disk/0")
    return disk, clusters.instance(1, disks=["d0"], disks_active=True)


REPAIR = unit("OP_REPAIR_NODE_STORAGE", storage_type="lvm-vg", name="xenvg")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ([[True, {"ldisk_status": 4}]], "disk/0 on node node2.example.com is faulty"),
        ([[True, {"ldisk_status": 2}]], "disk/0 on node node2.*is no complete copy"),
        ([[True, {"ldisk_status": 3, "dev_path": ""}]], "is no complete copy"),
        ([[True, None]], "is no complete copy"),
        ([[False, "no such device"]], "no such device"),
        (failure("is down"), "cannot be examined.*is down"),
    ],
)
def test_the_last_good_copy_is_not_repaired_away(answer, text):
    eng = engine(
        *mirrored(),
        storage_execute=None,
        blockdev_getmirrorstatus_multi=lambda _node, _args: answer,
    )
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(REPAIR)
    assert not eng.rpc.called("storage_execute")
    eng.run(REPAIR | {"ignore_consistency": True})
    assert "last good copy" in eng.callbacks.text()
    ((node, args),) = eng.rpc.called("storage_execute")
    assert (node, list(args)) == (N1, ["lvm-vg", [], "xenvg", "fix-consistency"])


def test_a_group_is_repaired_while_the_other_copies_are_good():
    eng = engine(
        *mirrored(),
        storage_execute=None,
        blockdev_getmirrorstatus_multi=[[True, {"ldisk_status": 1}]],
    )
    eng.run(REPAIR)
    assert [node for node, _args in eng.rpc.called("storage_execute")] == [N1]
    assert [n for n, _a in eng.rpc.called("blockdev_getmirrorstatus_multi")] == [N2]


@pytest.mark.parametrize(
    ("request_", "procedure"),
    [
        ({"OP_ID": "OP_INSTANCE_DEACTIVATE_DISKS"}, "blockdev_shutdown"),
        ({"OP_ID": "OP_INSTANCE_REMOVE", "ignore_failures": True}, "blockdev_remove"),
    ],
)
def test_a_silent_node_is_waited_for_twice_and_not_for_each_disk(request_, procedure):
    eng = engine()
    create(eng, *({"size": 512} for _ in range(5)))
    eng.rpc.calls.clear()
    eng.rpc.script[procedure] = failure("no answer", is_silent=True)
    request = {**request_, "instance_name": WEB1}
    if procedure == "blockdev_shutdown":
        with pytest.raises(errors.OpExecError):
            eng.run(request)
    else:
        eng.run(request)
    assert len(eng.rpc.called(procedure)) == 2
    warned = [e for e in map(str, eng.callbacks.entries) if "no answer" in e]
    assert len(warned) == 5


def test_a_node_daemon_that_lost_one_call_gets_the_calls_of_the_other_disks():
    eng = engine()
    create(eng, *({"size": 512} for _ in range(4)))
    answers = iter([failure("reset", is_silent=True), None] * 2)
    eng.rpc.script["blockdev_remove"] = lambda *_args: next(answers)
    eng.run(
        {
            "OP_ID": "OP_INSTANCE_REMOVE",
            "instance_name": WEB1,
            "ignore_failures": True,
        }
    )
    assert len(eng.rpc.called("blockdev_remove")) == 4
