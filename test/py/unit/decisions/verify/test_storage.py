"""Volumes, minors of DRBD and exports that nobody knows, or that are missing."""

import pytest

from fakes import clusters
from ganeti.decisions.verify import Report, node_answer, storage
from ganeti.model import objects

N1, N2 = clusters.node_uuid(1), clusters.node_uuid(2)
WHOLE = {
    "lvlist": {
        f"xenvg/{name}": ["64.00", False, True]
        for name in ("d0.data", "d0.meta", "d1.disk0")
    },
    "drbd-list": [0],
    "drbd-helper": "/bin/true",
}


def actual(answer, number=1, noted=(), **changes):
    """Return the findings about a node with a mirrored and a plain disk."""
    plain = objects.Disk(
        uuid="d1",
        dev_type="plain",
        logical_id=("xenvg", "d1.disk0"),
        size=64,
        serial_no=1,
        iv_name="disk/0",
        nodes=(N1,),
    )
    snapshot = clusters.snapshot(
        nodes=2,
        extra=[
            clusters.drbd_disk("d0", 1, 2).replace(iv_name="disk/0"),
            plain,
            clusters.instance(1, disks=["d0"], disks_active=True),
            clusters.instance(2, disks=["d1"]),
        ],
        **{
            "enabled_disk_templates": ["drbd", "plain"],
            "volume_group_name": "xenvg",
            "drbd_usermode_helper": "/bin/true",
            **changes,
        },
    )
    report = Report()
    good, _wrong = node_answer.clean(answer)
    node = snapshot.nodes[clusters.node_uuid(number)]
    storage.judge_volumes(report, snapshot, node, good, noted=noted)
    return [(f.severity, f.code, f.name, f.text) for f in report.take()]


def without(key, name):
    return {**WHOLE, key: {k: v for k, v in WHOLE[key].items() if k != name}}


def test_what_is_recorded_is_fine_on_both_nodes():
    assert actual(WHOLE) == []
    assert actual(without("lvlist", "xenvg/d1.disk0"), 2) == []


def test_a_missing_volume_is_an_error_of_its_disk_also_below_a_mirror():
    ((level, code, name, text),) = actual(without("lvlist", "xenvg/d0.meta"))
    assert (level, code, name) == (
        "ERROR",
        "EINSTANCEMISSINGDISK",
        "inst1.example.com",
    )
    assert text == (
        "disk/0: logical volume xenvg/d0.meta is missing on node node1.example.com"
    )
    ((_, _, name, _),) = actual(without("lvlist", "xenvg/d1.disk0"))
    assert name == "inst2.example.com"


def test_a_volume_of_nobody_is_an_error_unless_it_is_reserved():
    answer = {
        **WHOLE,
        "lvlist": {**WHOLE["lvlist"], "xenvg/root": ["1.0", False, True]},
    }
    ((level, code, node, text),) = actual(answer)
    assert (level, code, node) == ("ERROR", "ENODEORPHANLV", "node1.example.com")
    assert text.endswith("remove it there: lvremove xenvg/root")
    for expression in ("root", "xenvg/ro.*", "ro+t"):
        assert actual(answer, reserved_lvs=[expression]) == []
    # An expression is for the whole name.
    assert len(actual(answer, reserved_lvs=["ro"])) == 1


def test_a_recorded_volume_on_another_node_is_one_of_nobody():
    ((_, code, node, _),) = actual(WHOLE, 2)
    assert (code, node) == ("ENODEORPHANLV", "node2.example.com")


def test_what_the_master_removes_later_is_no_error():
    old = clusters.drbd_disk("old", 1, 2)
    old = old.replace(logical_id=(*old.logical_id[:3], 7, 0, "secret"))
    names = ("xenvg/old.data", "xenvg/old.meta")
    answer = {
        **WHOLE,
        "lvlist": {**WHOLE["lvlist"], **{key: ["1.0", False, True] for key in names}},
        "drbd-list": [0, 7],
    }
    assert len(actual(answer)) == 3
    assert actual(answer, noted=[old]) == []


def test_minors_are_missing_or_of_nobody():
    ((_, code, node, text),) = actual({**WHOLE, "drbd-list": []})
    assert (code, node) == ("ENODEDRBD", "node1.example.com")
    assert text == (
        "drbd minor 0 of disk/0 of instance inst1.example.com is not active; to activate"
        " it: gnt-instance activate-disks inst1.example.com"
    )
    ((_, code, _, text),) = actual({**WHOLE, "drbd-list": [0, 7]})
    assert code == "ENODEDRBD"
    assert text.startswith("drbd minor 7 is in use and belongs to no instance")
    assert text.endswith("drbdsetup down resource7")


def test_a_mirror_without_volumes_is_not_to_be_activated():
    volumes = {"xenvg/d1.disk0": ["64.00", False, True]}
    lost = {**WHOLE, "drbd-list": [], "lvlist": volumes}
    codes = [code for _level, code, _name, _text in actual(lost)]
    assert codes == ["EINSTANCEMISSINGDISK"] * 2
    # Volumes of another group are not listed.
    texts = [text for *_, text in actual(lost, volume_group_name="other")]
    assert any("to activate it" in text for text in texts)


def test_the_helper_must_be_that_of_the_cluster():
    ((level, code, _, text),) = actual({**WHOLE, "drbd-helper": "/sbin/drbdadm"})
    assert (level, code) == ("ERROR", "ENODEDRBDHELPER")
    assert "wanted /bin/true, found /sbin/drbdadm" in text


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("lvlist", "ENODELVM"),
        ("drbd-list", "ENODEDRBD"),
        ("drbd-helper", "ENODEDRBDHELPER"),
    ],
)
def test_an_absent_or_malformed_answer_is_an_error(key, code):
    absent = {name: value for name, value in WHOLE.items() if name != key}
    for answer in (absent, {**WHOLE, key: {"xenvg/a; reboot": [1]}}):
        assert [row[1] for row in actual(answer)] == [code]


def test_names_that_are_no_names_of_volumes_are_never_shown():
    for name in ("xenvg/$(reboot)", "root", "xenvg/-f", "xenvg/a\n", "xenvg/a/b"):
        answer = {**WHOLE, "lvlist": {**WHOLE["lvlist"], name: ["1", False, False]}}
        assert [row[1] for row in actual(answer)] == ["ENODELVM"]


def test_without_a_group_and_without_mirrors_nothing_is_compared():
    assert actual({}, enabled_disk_templates=["file"], volume_group_name=None) == []


def generations(*versions):
    """Return the findings about nodes whose DRBD has these versions."""
    snapshot = clusters.snapshot(nodes=len(versions))
    nodes = [snapshot.nodes[clusters.node_uuid(n + 1)] for n in range(len(versions))]
    answers = {
        node.uuid: node_answer.clean({"drbd-version": version})[0]
        for node, version in zip(nodes, versions, strict=True)
    }
    report = Report()
    storage.judge_generations(report, nodes, answers)
    return [(f.code, f.name, f.text) for f in report.take()]


def test_nodes_with_another_generation_of_drbd_are_named():
    assert generations("8.4.11", "8.4.7", "8.4.11") == []
    assert generations("9.1.4", None, "9.2.11") == []
    ((code, name, text),) = generations("9.2.11", "8.4.11", "8.4.11")
    assert (code, name) == ("ENODEDRBDVERSION", "node1.example.com")
    assert text == (
        "DRBD 9 cannot mirror disks with DRBD 8, which node2.example.com,"
        " node3.example.com have; install the same kernel module"
    )


def test_a_version_that_is_no_version_is_not_shown():
    assert generations("8.4.11", "9; reboot", 9) == []


EXCLUSIVE = {"ndparams": {"exclusive_storage": True}}
UNITS = {"pvlist": [["/dev/sdb", 1020.0], ["/dev/sdc", 1012]], "exclusive-pvs": []}


def test_disks_of_exclusive_storage_share_no_physical_volume():
    assert actual({**WHOLE, **UNITS}, **EXCLUSIVE) == []
    users = ["xenvg/d1.disk0", "xenvg/foreign"]
    shared = {
        **UNITS,
        "exclusive-pvs": [["/dev/sdb", users], ["/dev/sdd", ["a/b", "a/c"]]],
    }
    ((level, code, _node, text),) = actual({**WHOLE, **shared}, **EXCLUSIVE)
    assert (level, code) == ("ERROR", "ENODELVM")
    assert text.endswith("/dev/sdb is shared by xenvg/d1.disk0, xenvg/foreign")
    assert actual({**WHOLE, **shared}) == []


def test_physical_volumes_of_exclusive_storage_have_one_size():
    units = {**UNITS, "pvlist": [["/dev/sdb", 1020.0], ["/dev/sdc", 900]]}
    ((_level, code, group, text),) = actual({**WHOLE, **units}, **EXCLUSIVE)
    assert (code, group) == ("EGROUPDIFFERENTPVSIZE", "default")
    assert "on node node1.example.com differ in size" in text
    assert text.endswith("/dev/sdc has 900 MiB, /dev/sdb 1020 MiB")


@pytest.mark.parametrize("key", UNITS)
def test_a_node_that_does_not_list_physical_volumes_is_named(key):
    answer = {**WHOLE, **{name: UNITS[name] for name in UNITS if name != key}}
    ((_level, code, _node, text),) = actual(answer, **EXCLUSIVE)
    assert code == "ENODELVM"
    assert text == "unable to list physical volumes, for exclusive storage"


def test_expressions_for_volumes_of_others_are_bounded_and_wrong_ones_skipped():
    names = ["root", "swap", "a" * 60 + "-"]
    answer = {**WHOLE, "lvlist": dict(WHOLE["lvlist"])}
    answer["lvlist"] |= {f"xenvg/{name}": ["64.00", False, True] for name in names}
    findings = actual(answer, reserved_lvs=["(?!x)", "(a|aa)+", "root", "xenvg/sw.."])
    assert [finding[1] for finding in findings] == ["ENODEORPHANLV"]
    assert findings[0][3].startswith(f"logical volume xenvg/{names[2]} belongs to no")


# Remains beside complete exports in the export directories of nodes.


def test_remains_are_warnings_with_the_path_to_remove():
    report = Report()
    remains = {N2: {"web1.new": "unfinished", "notes.txt": "foreign"}, N1: {}}
    storage.judge_exports(report, clusters.snapshot(nodes=2), remains)
    foreign, unfinished = report.take()
    for each in (foreign, unfinished):
        assert (each.severity, each.name) == ("WARNING", "node2.example.com")
    assert foreign.text.startswith("/srv/ganeti/export/notes.txt is no export")
    assert unfinished.text.startswith("/srv/ganeti/export/web1.new was not finished")
    assert report.is_clean
