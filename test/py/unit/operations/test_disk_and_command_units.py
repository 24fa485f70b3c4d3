"""Disks of groups, storage lists, parameters of providers, restricted commands."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.exporting import small
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base import errors
from ganeti.master.locking import Level
from ganeti.model import objects

N1, N2, N3 = (clusters.node_uuid(n) for n in (1, 2, 3))


def disk(uuid="d1", size=1024):
    return objects.Disk(
        uuid=uuid,
        dev_type="file",
        logical_id=("loop", f"/srv/{uuid}"),
        size=size,
        serial_no=1,
        nodes=(N1,),
        iv_name="disk/0",
    )


def with_disk(script=None, **options):
    start = clusters.snapshot(
        extra=[disk(), clusters.instance(1, disks=["d1"], **options)]
    )
    return Engine(start, script)


# Disks
def test_verifying_disks_is_one_job_per_group():
    engine = Engine(clusters.snapshot(extra=[clusters.group("b", "g-2")]))
    result = engine.run({"OP_ID": "OP_CLUSTER_VERIFY_DISKS", "is_strict": False})
    assert len(result["jobs"]) == 2
    ops = [job[0] for job in engine.callbacks.submitted]
    assert [(op.group_name, op.is_strict) for op in ops] == [
        ("b", False),
        ("default", False),
    ]


def verify_disks(engine, **options):
    return engine.run(
        {"OP_ID": "OP_GROUP_VERIFY_DISKS", "group_name": "default", **options}
    )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([[True, {"ldisk_status": 1}]], ({}, [], {})),
        (
            [[True, None]],
            ({}, [], {"inst1.example.com": [["node1.example.com", "loop//srv/d1"]]}),
        ),
        ([[False, "stuck"]], ({}, ["inst1.example.com"], {})),
        (failure("dead"), ({"node1.example.com": "dead"}, [], {})),
    ],
)
def test_disks_are_missing_inactive_or_unknown(answer, expected):
    engine = with_disk({"blockdev_getmirrorstatus_multi": answer})
    assert verify_disks(engine) == expected


def test_strict_verification_locks_all_and_the_other_what_is_free():
    engine = with_disk({"blockdev_getmirrorstatus_multi": [[True, {}]]})
    verify_disks(engine)
    assert not any(row.opportunistic for row in engine.locks.requests)
    assert all(shared for _, shared in engine.locks.modes().values())
    verify_disks(engine, is_strict=False)
    assert {row.level for row in engine.locks.requests if row.opportunistic} == {
        Level.INSTANCE,
        Level.NODE,
    }


def mirror_row(connection, generations=(), *, disk="UpToDate"):
    kernel = {"connection": connection, "role": "Primary", "disk": disk,
              "peer_disk": "DUnknown", "generations": generations}  # fmt: skip
    status = {"dev_path": "/dev/drbd0", "is_degraded": True, "ldisk_status": 1}
    return [True, status | {"mirror": kernel}]


COMMON, ONE, TWO = ("4" * 16, "2" * 16, "6" * 16)
#: Rows of both nodes, part of the message, whether the disks are activated.
APART = {
    "standalone": (
        mirror_row("StandAlone", (COMMON, "0" * 16, "0" * 16, "0" * 16)),
        mirror_row("WFConnection", (COMMON, "0" * 16, "0" * 16, "0" * 16)),
        ("standalone: node node1.example.com does not try", True),
    ),
    "split brain": (
        mirror_row("StandAlone", (ONE, COMMON, "0" * 16, "0" * 16)),
        mirror_row("StandAlone", (TWO, COMMON, "0" * 16, "0" * 16)),
        ("run gnt-instance replace-disks -s --disks=0 inst1.example.com", False),
    ),
    "silent": (
        mirror_row("WFConnection"),
        None,
        ("node node2.example.com does not report its state", False),
    ),
}


@pytest.mark.parametrize("case", APART)
def test_mirrors_whose_nodes_lost_each_other_are_named(case):
    first, second, (words, is_activated) = APART[case]
    mirror = clusters.drbd_disk("d1", 1, 2)
    start = clusters.snapshot(
        extra=[mirror, clusters.instance(1, disks=["d1"], disks_active=True)]
    )

    def answer(node, _args):
        row = first if node == N1 else second
        return failure("dead") if row is None else [row]

    engine = Engine(start, {"blockdev_getmirrorstatus_multi": answer})
    _problems, inactive, missing = verify_disks(engine)
    assert words in engine.callbacks.text()
    assert (inactive, missing) == (["inst1.example.com"] if is_activated else [], {})


@pytest.mark.parametrize(
    ("groups", "command"),
    [
        ({"xenvg": 4096, "other": 1}, "replace-disks -s --disks=0"),
        ({"other": 1}, "replace-disks -n NODE"),
        (failure("LVM is slow"), "replace-disks -s --disks=0"),
    ],
)
def test_a_mirror_without_volumes_is_missing_and_not_activated(groups, command):
    mirror = clusters.drbd_disk("d1", 1, 2)
    owner = clusters.instance(1, disks=["d1"], disks_active=True)
    rows = {N1: [mirror_row("WFConnection")], N2: [[True, None]]}
    engine = Engine(
        clusters.snapshot(extra=[mirror, owner]),
        {
            "blockdev_getmirrorstatus_multi": lambda node, _args: rows[node],
            "vg_list": groups,
        },
    )
    _problems, inactive, missing = verify_disks(engine)
    assert inactive == []
    ((node, _volume),) = missing["inst1.example.com"]
    assert node == "node2.example.com"
    assert f"run gnt-instance {command} inst1.example.com" in engine.callbacks.text()
    # Only the node that has lost its volumes is asked.
    assert [node for node, _args in engine.rpc.called("vg_list")] == [N2]


def test_info_names_a_command_that_the_volume_groups_allow():
    owner = clusters.instance(1, disks=["d1"], disks_active=True)
    rows = {N1: mirror_row("WFConnection")[1], N2: None}
    engine = Engine(
        clusters.snapshot(extra=[clusters.drbd_disk("d1", 1, 2), owner]),
        {
            "all_instances_info": {},
            "blockdev_find": lambda node, _args: rows[node],
            "vg_list": {"other": 1},
        },
    )
    request = {"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": ["inst1"]}
    (about,) = engine.run(request)["inst1.example.com"]["disks"]
    problem = about["drbd_info"]["problem"]
    assert problem["command"] == "gnt-instance replace-disks -n NODE inst1.example.com"


@pytest.mark.parametrize("status", [1, 3])
def test_one_mirror_with_older_data_keeps_all_disks_from_being_activated(status):
    """An activation is of all disks, and makes the older data the guest's."""
    disks = [clusters.drbd_disk(f"d{number}", 1, 2) for number in (0, 1)]
    owner = clusters.instance(1, disks=["d0", "d1"], disks_active=True)
    start = clusters.snapshot(extra=[*disks, owner])
    none = "0" * 16
    old = mirror_row("StandAlone", (COMMON, none, none, none))
    old[1]["ldisk_status"] = status
    new = mirror_row("StandAlone", (ONE, COMMON, none, none))
    rows = {N1: [old, [True, {"dev_path": ""}]], N2: [new, [True, {"dev_path": ""}]]}
    engine = Engine(
        start, {"blockdev_getmirrorstatus_multi": lambda node, _args: rows[node]}
    )
    assert verify_disks(engine) == ({}, [], {})
    assert "the primary one, has older data" in engine.callbacks.text()


def test_disks_that_should_not_be_assembled_are_not_looked_at():
    assert verify_disks(with_disk(disks_active=False)) == ({}, [], {})


def repair(engine, *names):
    return engine.run(
        {"OP_ID": "OP_CLUSTER_REPAIR_DISK_SIZES", "instances": list(names)}
    )


def test_recorded_sizes_are_corrected_and_listed():
    engine = with_disk({"blockdev_getdimensions": [[2048 * 1024 * 1024, None]]})
    assert repair(engine, "inst1") == [("inst1.example.com", 0, "size", 2048)]
    assert engine.snapshot.disks["d1"].size == 2048
    assert repair(engine) == []
    assert engine.locks.modes() == {
        Level.INSTANCE: (None, False),
        Level.NODE_RES: (frozenset([N1]), True),
    }


@pytest.mark.parametrize("size", [1024, 2048])
def test_the_data_volume_of_a_mirror_is_corrected_like_the_mirror(size):
    """Nodes create mirrors by their volumes; an older release left the volume alone."""
    mirror = clusters.drbd_disk("d1", 1, 2).replace(size=size)
    extra = [mirror, clusters.instance(1, disks=["d1"])]
    engine = Engine(
        clusters.snapshot(extra=extra),
        {"blockdev_getdimensions": [[2048 * 1024 * 1024, None]]},
    )
    assert repair(engine) == [("inst1.example.com", 0, "size", 2048)]
    assert "recorded 1024, actual 2048" in engine.callbacks.text()
    repaired = engine.snapshot.disks["d1"]
    assert (repaired.size, [v.size for v in repaired.children]) == (2048, [2048, 128])
    assert repair(engine) == []


def test_a_larger_data_volume_is_no_mismatch():
    """Volumes of a converted or replaced mirror have sizes that LVM has rounded."""
    mirror = clusters.drbd_disk("d1", 1, 2)
    data, meta = mirror.children
    mirror = mirror.replace(children=(data.replace(size=1028), meta))
    engine = Engine(
        clusters.snapshot(extra=[mirror, clusters.instance(1, disks=["d1"])]),
        {"blockdev_getdimensions": [[1024 * 1024 * 1024, 7]]},
    )
    assert repair(engine) == [("inst1.example.com", 0, "spindles", 7)]
    repaired = engine.snapshot.disks["d1"]
    assert (repaired.spindles, repaired.children) == (7, mirror.children)


def test_nodes_and_disks_that_do_not_answer_are_ignored_with_a_warning():
    engine = with_disk({"blockdev_getdimensions": failure("dead")})
    assert repair(engine) == []
    assert "dead" in engine.callbacks.text()
    engine.rpc.script["blockdev_getdimensions"] = [None]
    assert repair(engine) == []
    assert "did not return size" in engine.callbacks.text()


# Lists
def storage(engine, **options):
    return engine.run(
        {
            "OP_ID": "OP_NODE_QUERY_STORAGE",
            "output_fields": ["node", "type", "name", "free"],
            **options,
        }
    )


def test_storage_rows_are_sorted_by_node_and_unit():
    engine = Engine(
        clusters.snapshot(nodes=2),
        {"storage_list": lambda node, args: [["/srv", 5]] if node == N2 else failure()},
    )
    assert storage(engine, storage_type="file") == [
        ["node2.example.com", "file", "/srv", 5]
    ]
    assert "cannot get storage data" in engine.callbacks.text()
    ((_, args), _) = engine.rpc.called("storage_list")
    assert args == ("file", [["/srv/ganeti/file-storage"]], None, ["name", "free"])


def test_storage_of_no_named_type_is_the_first_that_can_be_listed():
    engine = Engine(
        clusters.snapshot(nodes=1, enabled_disk_templates=["diskless", "sharedfile"]),
        {"storage_list": [["/shared", 5]]},
    )
    assert [row[1] for row in storage(engine)] == ["sharedfile"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"storage_type": "lvm-vg"}, "no enabled disk template uses it"),
        ({"storage_type": "rados"}, "cannot be listed"),
        ({"output_fields": ["bogus"]}, "unknown fields: bogus"),
        ({"nodes": ["nope"]}, "not known"),
    ],
)
def test_storage_that_cannot_be_listed_is_refused(options, text):
    with pytest.raises(errors.OpPrereqError, match=text):
        storage(Engine(), **options)


def test_volumes_name_the_instance_that_uses_them():
    volume = objects.Disk(
        uuid="d9",
        dev_type="plain",
        logical_id=("xenvg", "lv0"),
        size=10,
        serial_no=1,
        nodes=(N1,),
    )
    engine = Engine(
        clusters.snapshot(nodes=1, extra=[volume, clusters.instance(1, disks=["d9"])]),
        {
            "node_volumes": [
                {"name": "lv0", "size": "10.00", "dev": "/dev/sda", "vg": "xenvg"}
            ]
        },
    )
    assert engine.run(
        {"OP_ID": "OP_NODE_QUERYVOLS", "output_fields": ["node", "size", "instance"]}
    ) == [["node1.example.com", "10", "inst1.example.com"]]


# Commands
def test_restricted_commands_give_a_row_per_node_and_lock_as_wanted():
    engine = Engine(
        script={
            "restricted_command": lambda node, args: (
                "fine" if node == N1 else failure("refused")
            )
        }
    )
    op = {
        "OP_ID": "OP_RESTRICTED_COMMAND",
        "command": "show",
        "nodes": ["node2", "node1"],
    }
    assert engine.run(op) == [
        (True, "fine"),
        (False, "Command on node 'node2.example.com' failed: refused"),
    ]
    assert engine.locks.modes() == {Level.NODE: (frozenset([N1, N2]), True)}
    engine.run({**op, "use_locking": True})
    assert engine.locks.modes() == {Level.NODE: (frozenset([N1, N2]), False)}
    with pytest.raises(errors.OpPrereqError, match="no nodes"):
        engine.run({**op, "nodes": []})


def test_repair_commands_run_on_one_node_exclusively():
    engine = Engine(script={"repair_command": "done"})
    assert (
        engine.run(
            {
                "OP_ID": "OP_REPAIR_COMMAND",
                "command": "fix",
                "node_name": "node2",
                "input": "{}",
            }
        )
        == "done"
    )
    assert engine.rpc.called("repair_command") == [(N2, ("fix", "{}"))]
    assert engine.locks.modes() == {Level.NODE: (frozenset([N2]), False)}


# Parameters of providers, changed on existing disks of external storage.

SHELF = ["shelf", "/es/shelf", True, "", [["speed", "of it"], ["copies", "of it"]]]


def engine(template="ext", **params):
    start = small(template, admin_state="down", disks_active=False)
    (disk,) = start.disks.values()
    start = clusters.changed(start, disk.replace(params=params))
    script = {
        **SUCCESSFUL_ACTS,
        "extstorage_diagnose": [SHELF],
        "hooks_runner": [],
        "instance_info": {},
    }
    return Engine(start, script)


def modify(eng, **spec):
    return eng.run(
        {
            "OP_ID": "OP_INSTANCE_SET_PARAMS",
            "instance_name": "inst1.example.com",
            "disks": [["modify", 0, spec]],
        }
    )


def test_parameters_are_changed_added_and_removed():
    eng = engine(speed="slow", access="kernelspace")
    report = modify(eng, speed="fast", copies="2", mode="ro")
    assert sorted(report) == [
        ("disk.copies/0", "2"),
        ("disk.mode/0", "ro"),
        ("disk.speed/0", "fast"),
    ]
    disk: objects.Disk = eng.snapshot.disks["d1"]
    own = {"access": "kernelspace", "speed": "fast", "copies": "2"}
    assert disk.params == own
    assert modify(eng, speed="default") == [("disk.speed/0", "default")]
    assert eng.snapshot.disks["d1"].params == {"access": "kernelspace", "copies": "2"}


@pytest.mark.parametrize(
    ("template", "spec", "text"),
    [
        ("ext", {"bogus": "1"}, "shelf has no parameter bogus, only copies, speed"),
        ("ext", {"9x": "1"}, "'9x' cannot be a parameter of a provider"),
        ("ext", {"speed": "a\nb"}, "parameter speed: wanted at most 4096 printable"),
        ("ext", {"size": 5}, "only mode and name can change, found size"),
        ("ext", {"provider": "other"}, "only mode and name can change, found provider"),
        ("plain", {"speed": "fast"}, "only mode and name can change, found speed"),
    ],
)
def test_other_changes_are_refused(template, spec, text):
    eng = engine(template)
    before = eng.snapshot
    with pytest.raises(errors.OpPrereqError, match=text):
        modify(eng, **spec)
    assert eng.snapshot is before
