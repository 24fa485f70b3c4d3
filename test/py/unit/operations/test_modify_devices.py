"""Several devices in one change of an instance, and first disks of any template."""

import copy

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.jobs import FakeCallbacks, KeepingCallbacks
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti.base import errors

NODE2 = clusters.node_uuid(2)
INFO = {"memory": 128, "vcpus": 1, "state": 0, "time": 1.0}
ENABLED = ["diskless", "file", "sharedfile", "gluster", "rbd", "ext", "plain", "drbd"]


def node_info(node, args):
    units = [{"storage_free": 4096, "name": unit[1]} for unit in args[0]]
    return ["boot", units, [{"memory_free": 4096, "hv_version": "7.2"}]]


def diskless(enabled=ENABLED, **answers):
    """Return an engine with inst1, which is stopped and has neither disks nor NICs."""
    policy = copy.deepcopy(clusters.EXAMPLE["cluster"]["ipolicy"])
    policy["minmax"][0]["min"].update({"nic-count": 0, "disk-size": 1})
    policy["disk-templates"] = ENABLED
    snapshot = clusters.snapshot(
        ipolicy=policy,
        enabled_disk_templates=enabled,
        volume_group_name="xenvg",
        default_iallocator="",
        extra=[clusters.instance(1, nics=[], admin_state="down", disks_active=False)],
    )
    script = {
        **SUCCESSFUL_ACTS,
        "node_info": node_info,
        "instance_info": {},
        "instance_list": [],
        "blockdev_assemble": ["/dev/x", "/link", None],
        "hooks_runner": [],
        "extstorage_diagnose": [["shelf", "/srv/shelf", True, "", []]],
    }
    return Engine(snapshot, script | answers)


def modify(eng, **changes):
    request = {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": "inst1.example.com"}
    return eng.run(request | changes)


def instance(eng):
    (actual,) = eng.snapshot.instances.values()
    return actual


def disks(eng):
    return eng.snapshot.instance_disks(instance(eng))


@pytest.mark.parametrize("template", [name for name in ENABLED if name != "diskless"])
def test_a_diskless_instance_gets_a_first_disk_of_any_enabled_template(template):
    eng = diskless()
    more = {"provider": "shelf"} if template == "ext" else {}
    mirror = {"remote_node": NODE2} if template == "drbd" else {}
    add = ["add", -1, {"size": 8, **more}]
    modify(eng, disk_template=template, disks=[add, add], **mirror)
    assert [(disk.dev_type, disk.size) for disk in disks(eng)] == [(template, 8)] * 2
    assert len({disk.logical_id for disk in disks(eng)}) == 2
    assert [disk.iv_name for disk in disks(eng)] == ["disk/0", "disk/1"]
    created = [node for node, _ in eng.rpc.called("blockdev_create")]
    assert len(created) == (4 if template == "drbd" else 2)


def test_the_provider_of_a_first_disk_may_be_given_as_for_a_conversion():
    eng = diskless()
    given = {"ext_params": {"provider": "shelf"}, "disk_template": "ext"}
    modify(eng, disks=[["add", -1, {"size": 8}]], **given)
    assert [disk.logical_id[0] for disk in disks(eng)] == ["shelf"]


def test_a_continued_change_holds_the_nodes_of_its_new_mirrors():
    eng = diskless()
    keeping = KeepingCallbacks(eng)
    add = ["add", -1, {"size": 8}]
    request = {"disk_template": "drbd", "remote_node": NODE2, "disks": [add]}
    wire = {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": "inst1.example.com"}
    eng.run(wire | request, callbacks=keeping)
    state, start = keeping.kept[0]
    other = Engine(start, eng.rpc.script)
    again = FakeCallbacks(resumption=state)
    # An allocator had chosen the node.
    with pytest.raises(errors.OpExecError, match="the devices are as before"):
        other.run(wire | request | {"remote_node": None}, callbacks=again)
    assert NODE2 in str(other.locks.requests)


def test_without_a_template_a_first_disk_gets_the_first_enabled_one():
    eng = diskless()
    modify(eng, disks=[["add", -1, {"size": 8}]])
    assert [disk.dev_type for disk in disks(eng)] == ["file"]


@pytest.mark.parametrize(
    ("enabled", "changes", "text"),
    [
        (
            ["diskless", "drbd"],
            {"disks": [["add", -1, {"size": 8}]]},
            r"needs a disk template: gnt-instance modify -t drbd .*--disk add:size=SIZE",
        ),
        (
            ENABLED,
            {"disk_template": "file"},
            "gnt-instance modify -t file --disk add:size=SIZE",
        ),
        (
            ENABLED,
            {"disk_template": "diskless", "disks": [["add", -1, {"size": 8}]]},
            "needs a disk template",
        ),
    ],
)
def test_a_refusal_names_the_command_that_gives_the_first_disk(enabled, changes, text):
    with pytest.raises(errors.OpPrereqError, match=text):
        modify(diskless(enabled), **changes)


def test_disks_of_another_template_are_not_added_beside_a_conversion():
    eng = diskless()
    modify(eng, disks=[["add", -1, {"size": 8}]])
    with pytest.raises(errors.OpPrereqError, match="exclude each other"):
        modify(eng, disk_template="plain", disks=[["add", -1, {"size": 8}]])


def test_devices_change_in_the_order_of_the_request():
    eng = diskless()
    modify(eng, disks=[["add", -1, {"size": 8}], ["add", -1, {"size": 9}]])
    first, second = disks(eng)
    report = modify(
        eng,
        disks=[
            ["add", 0, {"size": 10}],
            ["modify", 0, {"mode": "ro"}],
            ["remove", 1, {}],
            ["add", 0, {"size": 11}],
        ],
        nics=[["add", -1, {}], ["add", -1, {}]],
    )
    assert [disk.size for disk in disks(eng)] == [11, 10, 9]
    assert disks(eng)[2].uuid == second.uuid
    assert [disk.iv_name for disk in disks(eng)] == ["disk/0", "disk/1", "disk/2"]
    assert disks(eng)[1].mode == "ro"
    removed = [args[0]["uuid"] for _, args in eng.rpc.called("blockdev_remove")]
    assert removed == [first.uuid]
    made = [args[0] for _, args in eng.rpc.called("blockdev_create")]
    assert [(disk["iv_name"], disk["mode"]) for disk in made] == [
        ("disk/1", "ro"),
        ("disk/0", "rw"),
    ]
    assert [name for name, _ in report] == [
        *("disk/0", "disk.mode/0", "disk/1", "disk/0"),
        *("nic/0", "nic/1"),
    ]
    macs = [nic.mac for nic in instance(eng).nics]
    assert len(set(macs)) == 2


def test_a_running_guest_gets_new_devices_at_their_final_places():
    eng = diskless()
    eng.rpc.script["instance_info"] = INFO
    modify(eng, nics=[["add", 0, {"name": "b"}], ["add", 0, {"name": "a"}]])
    acts = [args for _node, args in eng.rpc.called("hotplug_device")]
    assert [(args[3]["name"], args[5]) for args in acts] == [("b", 1), ("a", 0)]


@pytest.mark.parametrize("kind", ["disks", "nics"])
def test_a_device_that_comes_and_goes_leaves_no_trace(kind):
    eng = diskless()
    before = eng.snapshot.instances
    spec = {"size": 8} if kind == "disks" else {}
    assert modify(eng, **{kind: [["add", -1, spec], ["remove", -1, {}]]}) == []
    assert eng.snapshot.instances == before
    assert eng.rpc.called("blockdev_create") == []


def test_a_disk_is_attached_once():
    eng = diskless()
    modify(eng, disks=[["add", -1, {"size": 8}]])
    (disk,) = disks(eng)
    modify(eng, disks=[["detach", -1, {}]], force=True)
    attach = ["attach", disk.uuid, {}]
    with pytest.raises(errors.OpPrereqError, match="is attached twice"):
        modify(eng, disks=[attach, attach])
    with pytest.raises(errors.OpPrereqError, match="attached by the same request"):
        modify(eng, disks=[attach, ["remove", 0, {}]])
    assert modify(eng, disks=[attach, ["detach", 0, {}]], force=True) == []


def test_the_space_for_all_new_disks_is_checked_together():
    eng = diskless(["plain"])
    add = ["add", -1, {"size": 3000}]
    with pytest.raises(errors.OpPrereqError, match="4096"):
        modify(eng, disks=[add, add])


def test_files_of_gluster_disks_differ_when_others_go():
    eng = diskless(["gluster"])
    add = ["add", -1, {"size": 8}]
    modify(eng, disks=[add, add])
    modify(eng, disks=[["remove", 0, {}], add, add])
    assert len({disk.logical_id for disk in disks(eng)}) == 3


@pytest.mark.parametrize("kind", ["disks", "nics"])
def test_the_old_form_of_a_request_has_one_device(kind):
    spec = {"size": 8} if kind == "disks" else {}
    with pytest.raises(errors.OpPrereqError, match=r"only one .* in the form"):
        modify(diskless(), **{kind: [["add", spec], ["add", spec]]})
    modify(diskless(), **{kind: [["add", spec], ["add", -1, spec]]})


def test_the_report_shows_the_addresses_that_were_chosen():
    eng = diskless()
    modify(eng, nics=[["add", -1, {"mode": "routed", "ip": "192.0.2.77"}]])
    report = dict(
        modify(eng, nics=[["modify", 0, {"mac": "auto", "ip": "192.0.2.78"}]])
    )
    (nic,) = instance(eng).nics
    assert report == {"nic.mac/0": nic.mac, "nic.ip/0": "192.0.2.78"}
    assert dict(
        modify(eng, nics=[["modify", 0, {"mode": "bridged", "ip": "none"}]])
    ) == {
        "nic.mode/0": "bridged",
        "nic.ip/0": "none",
    }
