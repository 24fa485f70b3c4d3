"""Instance units over fakes: refusals, calls to nodes, records."""

import copy
import itertools
import json

import pytest

from fakes import clusters
from fakes.engine import Engine, creation
from fakes.jobs import FakeCallbacks
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base import errors
from ganeti.master.jqueue.effects import Canceled
from ganeti.protocols.rpc import Result

NODE1, NODE2 = clusters.node_uuid(1), clusters.node_uuid(2)
INFO = {"memory": 128, "vcpus": 1, "state": 0, "time": 1.0}


def node_info(free=4096, version="7.2"):
    return ["boot", [], [{"memory_free": free, "hv_version": version}]]


def script(**changes):
    answers = {
        **SUCCESSFUL_ACTS,
        "node_info": node_info(),
        "instance_info": {},
        "blockdev_assemble": ["/dev/x", "/link", None],
        "instance_list": [],
        "instance_migrate": None,
        "instance_get_migration_status": {"status": "completed"},
        "migration_info": "opaque",
        "hooks_runner": [],
    }
    return answers | changes


def small(instances=1, **changes):
    """Return a cluster whose policy allows instances without NICs."""
    policy = copy.deepcopy(clusters.EXAMPLE["cluster"]["ipolicy"])
    policy["minmax"][0]["min"]["nic-count"] = 0
    policy["disk-templates"] = ["diskless", "file", "sharedfile"]
    return clusters.snapshot(instances=instances, ipolicy=policy, **changes)


def engine(instances=1, **answers):
    return Engine(small(instances), script(**answers))


def op(name, **changes):
    return {"OP_ID": name, "instance_name": "inst1.example.com"} | changes


def only_instance(eng):
    (actual,) = eng.snapshot.instances.values()
    return actual


def refused(eng, request, text):
    before = eng.snapshot
    refusals = (errors.OpPrereqError, errors.TypeEnforcementError)
    with pytest.raises(refusals, match=text):
        eng.run(request)
    assert eng.snapshot is before


def test_create_makes_disks_installs_starts_and_records():
    eng = engine(instances=0)
    assert eng.run(creation()) == ["node1.example.com"]
    made = only_instance(eng)
    assert (made.name, made.admin_state, made.disks_active) == (
        "web1.example.com",
        "up",
        True,
    )
    assert made.network_port >= 11000
    (disk,) = eng.snapshot.disks.values()
    assert disk.size == 1024
    assert disk.logical_id[1].startswith("/srv/ganeti/file-storage/web1.example.com/")
    order = [name for name, _node, _args in eng.rpc.calls]
    steps = [
        "blockdev_create",
        "blockdev_assemble",
        "instance_os_add",
        "instance_start",
    ]
    assert [name for name in order if name in steps] == steps


@pytest.mark.parametrize("wipes", [False, True])
def test_the_log_of_a_creation_has_the_lines_that_scripts_know(wipes):
    start = small(0, prealloc_wipe_disks=wipes)
    eng = Engine(start, script(blockdev_wipe=None))
    eng.run(creation())
    wiping = ["* wiping instance disks..."] if wipes else []
    known = [
        "* creating instance disks...",
        *wiping,
        "adding instance web1.example.com to cluster config",
        "adding disks to cluster config",
        "* running the instance OS create scripts...",
        "* starting instance...",
    ]
    lines = eng.callbacks.text().splitlines()
    assert [line for line in lines if line in known] == known
    eng.run(creation(disk_template="diskless", disks=[], instance_name="web2"))
    assert "disks" not in eng.callbacks.text()


def test_a_creation_whose_script_was_killed_on_request_is_marked():
    eng = engine(instances=0, instance_os_add=lambda *_: kill())
    callbacks = FakeCallbacks()

    def kill():
        callbacks.is_canceled = True
        callbacks.kill()
        return failure("the script was ended by signal 9")

    with pytest.raises(Canceled):
        eng.run(creation(), callbacks=callbacks)
    assert only_instance(eng).creation == "interrupted"


@pytest.mark.parametrize(
    "changes", [{}, {"start": False}, {"no_install": True, "os_type": None}]
)
def test_a_creation_whose_disks_cannot_be_activated_leaves_nothing(changes):
    eng = engine(instances=0, blockdev_assemble=failure("no such device"))
    text = "no such device; its disks cannot be used, so the instance was removed again"
    with pytest.raises(errors.OpExecError, match=text):
        eng.run(creation(**changes))
    assert not eng.snapshot.instances
    assert not eng.snapshot.disks
    assert len(eng.rpc.called("blockdev_remove")) == 1
    assert not eng.rpc.called("instance_os_add")


def test_a_creation_whose_script_failed_leaves_a_stopped_instance():
    eng = engine(instances=0, instance_os_add=failure("exit code 1"))
    with pytest.raises(errors.OpExecError, match="exit code 1"):
        eng.run(creation())
    assert only_instance(eng).creation == ""


def test_create_in_a_dry_run_returns_the_nodes_and_changes_nothing():
    eng = engine(instances=0)
    before = eng.snapshot
    assert eng.run(creation(dry_run=True)) == ["node1.example.com"]
    assert eng.snapshot is before
    assert not eng.rpc.called("blockdev_create")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mode": "remote-import"}, "needs source_handshake, source_x509_ca"),
        ({"disk_template": "plain"}, "plain is not enabled"),
        ({"disk_template": "diskless"}, "diskless has no disks, found 1"),
        ({"disks": []}, "needs at least one disk"),
        ({"disks": [{"size": 0}]}, "wanted a size of 1 MiB or more, found 0"),
        ({"disks": [{"size": 1024, "mode": "rx"}]}, "wanted mode rw or ro, found 'rx'"),
        ({"disks": [{"size": 512}]}, "disk 0: 512 MiB is not within 1024"),
        ({"pnode": None}, "name a node or an allocator"),
        ({"pnode": "nowhere"}, "nowhere"),
        ({"instance_name": "-bad"}, "wanted a host name"),
        ({"hypervisor": "lxc", "hvparams": {}}, "lxc is not enabled"),
        ({"hvparams": {"nonsense": 1}}, "nonsense: unknown"),
        ({"beparams": {"minmem": 512, "maxmem": 256}}, "minimum memory 512 MiB"),
        ({"nics": [{"mac": "zz"}]}, "wanted a unicast MAC"),
        ({"nics": [{"mac": "00:00:00:00:00:00"}]}, "wanted a unicast MAC"),
        ({"nics": [{"name": "a\x1bb"}]}, "nic 0: wanted a name of printable"),
        ({"disks": [{"size": 1024, "name": "a\nb"}]}, "name of printable characters"),
        ({"nics": [{"mode": "routed"}]}, "routed needs an ip"),
        ({"nics": [{"ip": "1.2.3"}]}, "wanted an ip address"),
        ({"nics": [{"link": "br0\nlxc.a = b"}]}, "wanted as link a name of letters"),
        ({"nics": [{}] * 9}, "at most 8 NICs"),
        ({"tags": ["a b"]}, "tag 'a b'"),
        ({"ip_check": True}, "needs the name to be checked"),
        ({"file_storage_dir": "../../etc"}, "must be a path below"),
        ({"os_type": None}, "no operating system given"),
    ],
)
def test_create_refuses_what_cannot_be(changes, text):
    refused(engine(instances=0), creation(**changes), text)


def test_create_refuses_a_name_in_use_and_a_node_without_memory():
    refused(engine(), creation(instance_name="inst1.example.com"), "already exists")
    refused(
        engine(instances=0, node_info=node_info(free=64)),
        creation(),
        "needs 128 MiB on node node1.example.com, which has 64 MiB free",
    )


def test_a_failed_disk_is_undone_and_nothing_is_recorded():
    answers = iter([None, failure("disk full", "blockdev_create", "node1")])
    eng = engine(instances=0, blockdev_create=lambda node, args: next(answers))
    with pytest.raises(errors.OpExecError, match=r"cannot create disk/1.*disk full"):
        eng.run(creation(disks=[{"size": 1024}, {"size": 1024}]))
    assert len(eng.rpc.called("blockdev_remove")) == 1
    assert not eng.snapshot.instances
    assert not eng.snapshot.disks


def test_a_failed_os_script_leaves_the_instance_stopped():
    eng = engine(instances=0, instance_os_add=failure("script said no"))
    with pytest.raises(errors.OpExecError, match="script said no"):
        eng.run(creation())
    assert only_instance(eng).admin_state == "down"


def test_start_marks_up_and_sends_overrides_for_this_start_only():
    start = op("OP_INSTANCE_STARTUP", beparams={"vcpus": 3}, hvparams={"acpi": False})
    eng = engine()
    eng.run(start)
    ((_node, args),) = eng.rpc.called("instance_start")
    assert args[0]["beparams"]["vcpus"] == 3
    assert args[0]["hvparams"]["acpi"] is False
    assert only_instance(eng).beparams == {}


@pytest.mark.parametrize(
    ("info", "changes"), [({}, {"disks_active": True}), (INFO, {})]
)
def test_a_start_is_one_change(info, changes):
    eng = Engine(
        small(0, extra=[clusters.instance(1, admin_state="down", disks_active=False)]),
        script(instance_info=info),
    )
    before, serial = only_instance(eng), eng.config.header().serial_no
    eng.run(op("OP_INSTANCE_STARTUP"))
    after = only_instance(eng)
    assert eng.config.header().serial_no == serial + 1
    assert after == before.replace(
        admin_state="up", serial_no=before.serial_no + 1, mtime=after.mtime, **changes
    )


def test_start_refuses_an_offline_instance_and_an_offline_node():
    gone = small(0, extra=[clusters.instance(1, admin_state="offline")])
    refused(Engine(gone, script()), op("OP_INSTANCE_STARTUP"), "is marked offline")
    dead = clusters.node(1, offline=True, master_candidate=False)
    eng = Engine(small(extra=[dead]), script())
    refused(eng, op("OP_INSTANCE_STARTUP"), "node node1.example.com is marked offline")
    eng.run(op("OP_INSTANCE_SHUTDOWN", ignore_offline_nodes=True))
    assert only_instance(eng).admin_state == "down"


def test_a_failed_start_shuts_the_disks_down_again():
    eng = engine(instances=0)
    eng.run(creation(start=False))
    eng.rpc.script["instance_start"] = failure("no kvm")
    with pytest.raises(errors.OpExecError, match=r"web1.*could not be started.*no kvm"):
        eng.run(op("OP_INSTANCE_STARTUP", instance_name="web1"))
    assert eng.rpc.called("blockdev_shutdown")


def test_shutdown_passes_the_timeout_and_marks_down():
    eng = engine()
    eng.run(op("OP_INSTANCE_SHUTDOWN", timeout=7))
    ((_node, args),) = eng.rpc.called("instance_shutdown")
    assert args[1] == 7
    assert only_instance(eng).admin_state == "down"


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_reboot_of_a_running_instance_is_left_to_the_node(kind):
    eng = engine(instance_info=INFO)
    eng.run(op("OP_INSTANCE_REBOOT", reboot_type=kind))
    assert eng.rpc.called("instance_reboot")
    assert not eng.rpc.called("instance_start")


def test_a_full_reboot_stops_and_starts():
    eng = engine(instance_info=INFO)
    eng.run(op("OP_INSTANCE_REBOOT", reboot_type="full"))
    names = [name for name, _node, _args in eng.rpc.calls]
    assert names.index("instance_shutdown") < names.index("instance_start")


def test_remove_forgets_instance_and_disks_and_gives_the_port_back():
    eng = engine(instances=0)
    eng.run(creation())
    port = only_instance(eng).network_port
    eng.run(op("OP_INSTANCE_REMOVE", instance_name="web1.example.com"))
    assert not eng.snapshot.instances
    assert not eng.snapshot.disks
    assert port in eng.snapshot.cluster.tcpudp_port_pool


def test_remove_goes_on_after_failures_only_if_asked():
    eng = engine(instance_shutdown=failure("silent"))
    with pytest.raises(errors.OpExecError, match="could not be stopped"):
        eng.run(op("OP_INSTANCE_REMOVE"))
    assert eng.snapshot.instances
    eng.run(op("OP_INSTANCE_REMOVE", ignore_failures=True))
    assert not eng.snapshot.instances


def test_migration_moves_the_record_when_the_guest_has_moved():
    eng = engine(instance_info=INFO)
    eng.run(op("OP_INSTANCE_MIGRATE", target_node="node2"))
    assert only_instance(eng).primary_node == NODE2
    ((node, args),) = eng.rpc.called("instance_finalize_migration_src")
    assert (node, args[1]) == (NODE1, True)
    ((node, args),) = eng.rpc.called("instance_finalize_migration_dst")
    assert (node, args[1], args[2]) == (NODE2, "opaque", True)


@pytest.mark.parametrize(
    "answers",
    [
        {"accept_instance": failure("no memory")},
        {"instance_migrate": failure("refused")},
        {"instance_get_migration_status": {"status": "failed"}},
    ],
)
def test_a_failed_migration_is_aborted_on_the_target(answers):
    eng = engine(instance_info=INFO, **answers)
    with pytest.raises(errors.OpExecError, match="migration"):
        eng.run(op("OP_INSTANCE_MIGRATE", target_node="node2"))
    assert only_instance(eng).primary_node == NODE1
    ((node, args),) = eng.rpc.called("instance_finalize_migration_dst")
    assert (node, args[2]) == (NODE2, False)


@pytest.mark.parametrize(
    ("running", "status", "text"),
    [
        (
            {NODE1: ["inst1.example.com"]},
            {"error": "Channel error: Connection reset by peer"},
            (
                "failed: Channel error: Connection reset by peer; the guest runs on node"
                " node1.example.com as before"
            ),
        ),
        (
            {NODE2: ["inst1.example.com"]},
            {},
            (
                "failed: QEMU gives no reason; see its log on both nodes; the guest runs on"
                " node node2.example.com; then run gnt-instance migrate --cleanup"
            ),
        ),
        ({}, {"error": ["odd"]}, "runs on neither node, start it with gnt-instance"),
        ({}, {"error": "x" * 5000}, f"failed: {'x' * 500}; the guest"),
    ],
)
def test_a_failed_migration_has_its_reason_and_the_place_of_the_guest(
    running, status, text
):
    eng = engine(
        instance_info=INFO,
        instance_get_migration_status={"status": "failed", **status},
        instance_list=lambda node, *_args: running.get(node, []),
    )
    with pytest.raises(errors.OpExecError) as caught:
        eng.run(op("OP_INSTANCE_MIGRATE", target_node="node2"))
    assert text in str(caught.value)
    assert "ended" not in str(caught.value)


@pytest.mark.parametrize(
    ("step", "silent", "running", "recorded", "place"),
    [
        (
            "dst",
            None,
            "node1",
            NODE1,
            (
                "node node1.example.com has given the guest up, which may wait on node"
                " node2.example.com: run"
            ),
        ),
    ],
)
def test_a_migration_that_is_not_finished_names_the_command_that_finishes_it(
    step, silent, running, recorded, place
):
    def listed(node, *_args):
        name = eng.snapshot.nodes[node].name.partition(".")[0]
        if name == silent:
            return failure("no answer")
        return ["inst1.example.com"] if name == running else []

    answers = {f"instance_finalize_migration_{step}": failure("no answer")}
    eng = engine(instance_info=INFO, instance_list=listed, **answers)
    with pytest.raises(errors.OpExecError) as caught:
        eng.run(op("OP_INSTANCE_MIGRATE", target_node="node2"))
    assert place in str(caught.value)
    assert "gnt-instance migrate --cleanup inst1.example.com" in str(caught.value)
    assert only_instance(eng).primary_node == recorded


@pytest.mark.parametrize(
    "call", ["accept_instance", "instance_migrate", "instance_get_migration_status"]
)
def test_a_deposed_master_leaves_a_migration_to_the_new_one(call):
    refusal = Result(call, "n", fail_msg="term 1 is over", deposed=True)
    eng = engine(instance_info=INFO, **{call: refusal})
    with pytest.raises(errors.OpExecError, match="term 1 is over"):
        eng.run(op("OP_INSTANCE_MIGRATE", target_node="node2"))
    for name in ("migration_dst", "migration_src"):
        assert not eng.rpc.called(f"instance_finalize_{name}")
    assert not eng.rpc.called("blockdev_shutdown")


def test_migration_needs_a_running_instance_or_permission_to_fail_over():
    refused(engine(), op("OP_INSTANCE_MIGRATE", target_node="node2"), "is not running")
    eng = engine()
    eng.run(op("OP_INSTANCE_MIGRATE", target_node="node2", allow_failover=True))
    assert only_instance(eng).primary_node == NODE2


def test_with_permission_to_fail_over_instances_leave_a_dead_node():
    dead = clusters.node(2, offline=True, master_candidate=False)
    start = clusters.changed(small(), clusters.instance(1, primary=2), dead)
    request = op("OP_INSTANCE_MIGRATE", target_node="node1")
    refused(Engine(start, script()), request, "node2.example.com is marked offline")
    eng = Engine(start, script())
    eng.run(request | {"allow_failover": True})
    assert only_instance(eng).primary_node == NODE1
    assert eng.rpc.called("instance_start")[0][0] == NODE1
    assert not eng.rpc.called("instance_migrate")


def test_what_cannot_migrate_is_failed_over_with_permission():
    fixed = failure("is attached to a device of this node")
    eng = engine(instance_info=INFO, instance_migratable=fixed)
    request = op("OP_INSTANCE_MIGRATE", target_node="node2")
    refused(eng, request, "cannot migrate.*attached to a device")
    eng.run(request | {"allow_failover": True})
    assert only_instance(eng).primary_node == NODE2
    assert not eng.rpc.called("instance_migrate")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "needs a target node: name a node or an allocator"),
        ({"target_node": "node1"}, "is already on node node1.example.com"),
        (
            {"target_node": "node2", "iallocator": "hail"},
            "either an allocator or a node",
        ),
    ],
)
def test_migration_refuses_wrong_targets(changes, text):
    refused(engine(instance_info=INFO), op("OP_INSTANCE_MIGRATE", **changes), text)


def test_different_hypervisor_versions_are_refused_unless_ignored():
    def info(node, _args):
        return node_info(version="7.2" if node == NODE1 else "8.0")

    request = op("OP_INSTANCE_MIGRATE", target_node="node2")
    refused(engine(instance_info=INFO, node_info=info), request, "versions differ")
    eng = engine(instance_info=INFO, node_info=info)
    eng.run(request | {"ignore_hvversions": True})
    assert only_instance(eng).primary_node == NODE2


def test_a_target_without_the_hypervisor_is_named():
    def info(node, _args):
        return node_info(version=[7, 2, 22] if node == NODE1 else None)

    refused(
        engine(instance_info=INFO, node_info=info),
        op("OP_INSTANCE_MIGRATE", target_node="node2"),
        "7.2.22 on node node1.example.com, none on node node2.example.com",
    )


def test_cleanup_records_where_the_instance_really_is():
    eng = engine(
        instance_list=lambda node, _args: ["inst1.example.com"] if node == NODE2 else []
    )
    eng.run(op("OP_INSTANCE_MIGRATE", cleanup=True))
    assert only_instance(eng).primary_node == NODE2
    both = engine(instance_list=["inst1.example.com"])
    with pytest.raises(errors.OpExecError, match="more than one node"):
        both.run(op("OP_INSTANCE_MIGRATE", cleanup=True))


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_cleanup_believes_the_source_about_a_guest_that_waits_elsewhere(status):
    eng = engine(
        instance_list=lambda node, _: ["inst1.example.com"] if node == NODE2 else [],
        instance_info=INFO | {"state": 1},
        instance_get_migration_status={"status": status},
    )
    request = op("OP_INSTANCE_MIGRATE", cleanup=True)
    if status == "completed":
        eng.run(request)
        assert only_instance(eng).primary_node == NODE2
        return
    with pytest.raises(
        errors.OpExecError, match=r"on any node: node node1.* removed; "
    ):
        eng.run(request)
    assert only_instance(eng).primary_node == NODE1
    ((node, args),) = eng.rpc.called("instance_finalize_migration_dst")
    assert (node, args[-1]) == (NODE2, False)


def test_cleanup_frees_the_disks_on_the_node_that_the_instance_has_left():
    eng = engine(
        instances=0,
        instance_list=lambda node, _: ["inst1.example.com"] if node == NODE2 else [],
    )
    eng.run(creation(instance_name="inst1.example.com", disk_template="sharedfile"))
    eng.run(op("OP_INSTANCE_MIGRATE", cleanup=True, target_node="node2"))
    ((node, _args),) = eng.rpc.called("blockdev_shutdown")
    assert node == NODE1
    # Which may start the guest again one day.
    ((node, _args),) = eng.rpc.called("instance_finalize_migration_src")
    assert node == NODE1


def test_failover_off_a_silent_node_needs_proof_that_it_is_dead():
    silent = failure("connection refused")
    request = op("OP_INSTANCE_FAILOVER", target_node="node2")
    eng = engine(
        instance_shutdown=lambda node, _args: silent if node == NODE1 else None
    )
    with pytest.raises(errors.OpExecError, match="mark it offline"):
        eng.run(request)
    assert only_instance(eng).primary_node == NODE1
    eng.run(request | {"ignore_consistency": True})
    assert only_instance(eng).primary_node == NODE2
    assert eng.rpc.called("instance_start")[0][0] == NODE2


def test_modify_without_changes_is_refused():
    refused(engine(), op("OP_INSTANCE_SET_PARAMS"), "no changes submitted")


def test_modify_reports_and_records_parameters():
    eng = engine()
    result = eng.run(
        op("OP_INSTANCE_SET_PARAMS", beparams={"vcpus": 2}, hvparams={"acpi": False})
    )
    assert result == [("hv/acpi", False), ("be/vcpus", 2)]
    assert only_instance(eng).beparams == {"vcpus": 2}
    eng.run(op("OP_INSTANCE_SET_PARAMS", beparams={"vcpus": "default"}))
    assert only_instance(eng).beparams == {}


def test_a_nic_is_added_changed_and_removed():
    eng = engine()
    eng.run(op("OP_INSTANCE_SET_PARAMS", nics=[["add", -1, {"name": "eth-a"}]]))
    (nic,) = only_instance(eng).nics
    assert nic.mac.startswith("aa:00:00")
    eng.run(op("OP_INSTANCE_SET_PARAMS", nics=[["modify", "eth-a", {"link": "br9"}]]))
    (changed,) = only_instance(eng).nics
    assert (changed.mac, changed.uuid, changed.nicparams) == (
        nic.mac,
        nic.uuid,
        {"link": "br9"},
    )
    eng.run(op("OP_INSTANCE_SET_PARAMS", nics=[["remove", 0, {}]]))
    assert only_instance(eng).nics == ()


def test_disks_are_added_renamed_detached_attached_and_removed():
    eng = engine(instances=0)
    eng.run(creation(start=False))

    def change(*mods):
        request = op(
            "OP_INSTANCE_SET_PARAMS",
            instance_name="web1",
            disks=[list(m) for m in mods],
        )
        return eng.run(request)

    assert change(("add", -1, {"size": 2048})) == [("disk/1", "add:size=2048,mode=rw")]
    change(("modify", 1, {"name": "data"}))
    second = only_instance(eng).disks[1]
    assert eng.snapshot.disks[second].name == "data"
    change(("detach", 0, {}))
    assert only_instance(eng).disks == (second,)
    assert len(eng.snapshot.disks) == 2
    assert eng.snapshot.disks[second].iv_name == "disk/0"
    other = next(uuid for uuid in eng.snapshot.disks if uuid != second)
    change(("attach", -1, {"uuid": other}))
    assert only_instance(eng).disks == (second, other)
    change(("remove", 0, {}))
    assert only_instance(eng).disks == (other,)
    assert list(eng.snapshot.disks) == [other]


def test_a_directory_goes_with_its_last_disk_only():
    eng = engine(instances=0)
    eng.run(creation(start=False, disks=[{"size": 1024}, {"size": 2048}]))
    for left in (1, 0):
        removal = op(
            "OP_INSTANCE_SET_PARAMS",
            instance_name="web1",
            disks=[["remove", -1, {}]],
            ignore_ipolicy=True,
        )
        eng.run(removal)
        assert f"* removing disk/{left} on " in eng.callbacks.text()
        assert len(eng.rpc.called("file_storage_dir_remove")) == (0 if left else 1)


def test_a_removal_that_leaves_a_directory_can_be_repeated():
    eng = engine(instances=0)
    eng.run(creation(start=False))
    removal = op("OP_INSTANCE_REMOVE", instance_name="web1")
    eng.rpc.script["file_storage_dir_remove"] = failure("the connection broke")
    with pytest.raises(errors.OpExecError, match="not all of its disks"):
        eng.run(removal)
    assert only_instance(eng).name == "web1.example.com"
    eng.rpc.script["file_storage_dir_remove"] = None
    eng.run(removal)
    assert not eng.snapshot.instances


def test_without_installation_it_is_not_started():
    eng = engine(instances=0)
    eng.run(creation(no_install=True))
    assert only_instance(eng).admin_state == "down"
    assert not eng.rpc.called("instance_os_add")
    assert not eng.rpc.called("instance_start")
    assert "not started" in eng.callbacks.text()


def test_modify_refuses_wrong_devices():
    for mods, text in [
        ({"nics": [["remove", 3, {}]]}, "has no nic 3, it has none"),
        ({"disks": [["remove", 0, {}]]}, "has no disk 0, it has none"),
        (
            {"disks": [["add", -1, {"size": 1024}], ["add", -1, {"size": 1}]]},
            "disk 1: 1 MiB is not within",
        ),
        ({"runtime_mem": 64}, "is not running"),
    ]:
        refused(engine(), op("OP_INSTANCE_SET_PARAMS", **mods), text)


def test_a_running_guest_gets_a_new_nic():
    eng = engine(instance_info=INFO)
    result = eng.run(op("OP_INSTANCE_SET_PARAMS", nics=[["add", -1, {}]]))
    assert ("nic/0", "hotplug:done") in result
    ((_node, args),) = eng.rpc.called("hotplug_device")
    assert args[1:3] == ("hotadd", "nic")


def test_a_guest_without_hotplug_gets_a_new_nic_at_its_next_start():
    add = op("OP_INSTANCE_SET_PARAMS", nics=[["add", -1, {}]])
    eng = engine(instance_info=INFO, hotplug_supported=failure("no such monitor"))
    assert not any("hotplug" in str(value) for _name, value in eng.run(add))
    assert not eng.rpc.called("hotplug_device")
    assert "node node1.example.com: no such monitor" in eng.callbacks.text()
    eng = engine(instance_info=INFO, hotplug_device=failure("no free slot"))
    assert ("nic/0", "hotplug:failed") in eng.run(add)
    (output,) = [line for line in eng.callbacks.text().splitlines() if "slot" in line]
    assert "cannot hot-plug nic/0: node node1.example.com: no free slot" in output


def test_grow_refuses_to_shrink_and_records_the_new_size():
    eng = engine(instances=0)
    eng.run(creation(start=False))
    grow = {"OP_ID": "OP_INSTANCE_GROW_DISK", "instance_name": "web1", "disk": 0}
    refused(eng, grow | {"amount": 512, "absolute": True}, "is 1024 MiB, shrinking to")
    refused(eng, grow | {"disk": 4, "amount": 1}, "has no disk 4")
    eng.run(grow | {"amount": 1024})
    (disk,) = eng.snapshot.disks.values()
    assert disk.size == 2048


def test_a_running_guest_gets_the_new_size_in_bytes():
    eng = engine(instances=0)
    eng.run(creation())
    eng.rpc.script["instance_info"] = INFO
    grow = {"OP_ID": "OP_INSTANCE_GROW_DISK", "instance_name": "web1", "disk": 0}
    eng.run(grow | {"amount": 1024})
    ((_node, args),) = eng.rpc.called("resize_disk")
    assert args[2] == 2048 * 1024 * 1024


def test_rename_moves_name_paths_and_locks_both_names():
    eng = engine(instances=0)
    eng.run(creation(start=False))
    rename = {"OP_ID": "OP_INSTANCE_RENAME", "instance_name": "web1"}
    assert eng.run(rename | {"new_name": "web2.example.com"}) == "web2.example.com"
    (disk,) = eng.snapshot.disks.values()
    assert "/web2.example.com/" in disk.logical_id[1]
    ((_node, args),) = eng.rpc.called("file_storage_dir_rename")
    assert args[0].endswith("web1.example.com")
    assert args[1].endswith("web2.example.com")
    eng.run(rename | {"instance_name": "web2", "new_name": "web2.example.com"})
    assert only_instance(eng).name == "web2.example.com"
    assert len(eng.rpc.called("instance_run_rename")) == 1
    assert not eng.rpc.called("file_storage_dir_rename")


LOST = failure("connection lost", is_lost=True)


@pytest.mark.parametrize("lost", [1, 1000])
def test_a_rename_is_completed_although_the_node_daemon_is_killed_in_it(lost):
    answers = itertools.chain([LOST] * lost, itertools.repeat(None))
    eng = engine(
        instances=0, file_storage_dir_rename=lambda _node, _args: next(answers)
    )
    eng.run(creation(start=False))
    rename = op("OP_INSTANCE_RENAME", instance_name="web1", new_name="web2.example.com")
    if lost == 1:
        eng.run(rename)
        assert only_instance(eng).name == "web2.example.com"
        return
    way_out = "gnt-instance rename web1.example.com web2.example.com"
    with pytest.raises(errors.OpExecError, match=way_out):
        eng.run(rename)
    assert only_instance(eng).name == "web1.example.com"


@pytest.mark.parametrize("earlier", [[], [LOST]])
def test_a_node_that_refused_the_rename_has_not_begun_it(earlier):
    answers = iter([*earlier, failure("too many calls", is_rejected=True)])
    eng = engine(
        instances=0, file_storage_dir_rename=lambda _node, _args: next(answers)
    )
    eng.run(creation(start=False))
    rename = op("OP_INSTANCE_RENAME", instance_name="web1", new_name="web2.example.com")
    with pytest.raises(errors.OpExecError, match="too many calls") as caught:
        eng.run(rename)
    assert ("may have its new name" in str(caught.value)) == bool(earlier)


def test_a_refused_rename_of_a_second_directory_says_how_to_complete_the_first():
    answers = iter([None, failure("too many calls", is_rejected=True)])
    eng = engine(
        instances=0, file_storage_dir_rename=lambda _node, _args: next(answers)
    )
    eng.run(creation(start=False, disks=[{"size": 1024}, {"size": 1024}]))
    first, _second = sorted(eng.snapshot.disks)
    with eng.config.edit("9/9") as edit:
        disk = edit.snapshot.disks[first]
        path = disk.logical_id[1].replace("/web1.", "/other/web1.")
        edit.update(disk.replace(logical_id=(disk.logical_id[0], path)))
    rename = op("OP_INSTANCE_RENAME", instance_name="web1", new_name="web2.example.com")
    with pytest.raises(errors.OpExecError, match="complete this with gnt-instance"):
        eng.run(rename)


def test_reinstall_needs_a_stopped_instance_with_disks():
    refused(engine(), op("OP_INSTANCE_REINSTALL"), "is marked up")
    eng = engine(instances=0)
    eng.run(creation(start=False))
    eng.run(op("OP_INSTANCE_REINSTALL", instance_name="web1", os_type="other"))
    assert only_instance(eng).os == "other"
    assert eng.rpc.called("instance_os_add")[0][1][1] is True
    assert only_instance(eng).disks_active is False


def test_a_reinstallation_records_its_parameters_but_no_secrets():
    eng = engine(instances=0)
    eng.run(creation(start=False, osparams={"motd": "old", "dns": "x"}))
    given = {
        "osparams": {"motd": "kept", "dns": "default"},
        "osparams_private": {"token": "t"},
        "osparams_secret": {"password": "p"},
    }
    eng.run(op("OP_INSTANCE_REINSTALL", instance_name="web1", **given))
    made = only_instance(eng)
    assert (made.osparams, made.osparams_private) == ({"motd": "kept"}, {"token": "t"})
    sent = eng.rpc.called("instance_os_add")[0][1][0]
    assert sent["osparams"] == {"motd": "kept"}
    assert sent["osparams_private"] == {"token": "t"}
    assert sent["osparams_secret"] == {"password": "p"}
    assert "default" not in json.dumps(eng.rpc.called("os_validate"))


@pytest.mark.parametrize(
    ("request_", "is_install"),
    [
        (creation(start=False, os_type="tiny"), True),
        (creation(start=False, os_type="tiny", no_install=True), False),
        (op("OP_INSTANCE_REINSTALL", instance_name="web1", os_type="tiny"), True),
        (op("OP_INSTANCE_SET_PARAMS", instance_name="web1", os_name="tiny"), False),
    ],
)
def test_nodes_check_whether_they_can_install_an_os_that_will_be(request_, is_install):
    eng = engine(instances=0)
    if request_["OP_ID"] != "OP_INSTANCE_CREATE":
        eng.run(creation(start=False))
        eng.rpc.calls.clear()
    eng.run(request_)
    ((_node, args),) = eng.rpc.called("os_validate")
    assert args[2] == (["parameters", "install"] if is_install else ["parameters"])


def test_an_os_that_a_node_cannot_install_leaves_nothing():
    eng = engine(instances=0, os_validate=failure("OS tiny: is not trusted"))
    refused(eng, creation(os_type="tiny"), "is not trusted")
    assert not eng.snapshot.instances
    assert not eng.rpc.called("blockdev_create")


def test_query_data_speaks_of_state_and_disks():
    eng = engine(
        all_instances_info={"inst1.example.com": INFO},
        blockdev_find={"dev_path": "/d"},
        node_verify={},
    )
    request = {"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": ["inst1"]}
    data = eng.run(request)["inst1.example.com"]
    assert (data["config_state"], data["run_state"]) == ("up", "up")
    assert data["pnode"] == "node1.example.com"
    static = eng.run(request | {"static": True})["inst1.example.com"]
    assert static["run_state"] is None


def test_query_data_has_own_and_inherited_parameters():
    eng = engine(instances=0)
    eng.run(creation(start=False, nics=[{"link": "br7"}]))
    request = {"OP_ID": "OP_INSTANCE_QUERY_DATA", "static": True}
    (data,) = eng.run(request).values()
    assert data["nics_own"] == [{"link": "br7"}]
    assert data["nics"][0][4:6] == ("bridged", "br7")
    assert data["diskparams"] == {"file": {}}
    assert [disk["params"] for disk in data["disks"]] == [{}]


def test_the_console_is_described_by_the_master():
    lie = {"inst1.example.com": {"kind": "ssh", "user": "-oProxyCommand=x"}}
    eng = engine(instance_info=INFO, instance_console_info=lie)
    assert eng.run(op("OP_INSTANCE_CONSOLE"))["user"] == "root"
    assert not eng.rpc.called("instance_console_info")
    with pytest.raises(errors.OpExecError, match="is not running"):
        engine().run(op("OP_INSTANCE_CONSOLE"))


def allocator(*nodes, **changes):
    answer = {"success": True, "info": "fine", "result": list(nodes)} | changes
    return {"iallocator_runner": json.dumps(answer), "all_instances_info": {}}


def test_an_allocator_chooses_the_node_and_other_locks_are_given_back():
    eng = engine(instances=0, **allocator("node3.example.com"))
    request = creation(pnode=None, iallocator="mine")
    assert eng.run(request) == ["node3.example.com"]
    assert only_instance(eng).primary_node == clusters.node_uuid(3)


def test_allocators_learn_the_name_of_the_group():
    output = {"success": True, "info": "", "result": ["node2.example.com"]}
    eng = engine(0, iallocator_runner=json.dumps(output), all_instances_info={})
    request = creation(pnode=None, iallocator="mine")
    eng.run(request | {"group_name": clusters.GROUP, "dry_run": True})
    ((_node, (_name, text, _options)),) = eng.rpc.called("iallocator_runner")
    assert json.loads(text)["request"]["group_name"] == "default"
    refused(eng, request | {"group_name": "nowhere"}, "group 'nowhere' not known")
    assert not eng.rpc.called("iallocator_runner")


def test_an_allocator_without_a_solution_is_a_refusal():
    answers = allocator(success=False, info="all full")
    refused(
        engine(0, **answers), creation(pnode=None, iallocator="mine"), "mine: all full"
    )


def live_node(**changes):
    """Return the report of a node that an allocator can reckon with."""
    memory = {"memory_total": 16384, "memory_dom0": 512, "memory_free": 12000}
    processors = {"cpu_total": 8, "cpu_dom0": 1, "hv_version": "7.2"}
    space = {"type": "file", "name": "/srv", "storage_size": 99999}
    return [
        "boot",
        [space | {"storage_free": 90000}],
        [memory | processors | changes],
    ]


def placements(eng):
    return [data for kind, data in eng.callbacks.entries if kind == "placement"]


def test_a_dry_run_with_an_allocator_reports_the_nodes_and_the_reasons():
    def report(node, _args):
        return live_node(memory_free=100 if node == NODE2 else 12000)

    eng = Engine(small(0), script(node_info=report, all_instances_info={}))
    before = eng.snapshot
    request = creation(pnode=None, iallocator="hail", dry_run=True)
    (chosen,) = eng.run(request)
    assert eng.snapshot is before
    (reported,) = placements(eng)
    assert (reported["allocator"], reported["success"]) == ("hail", True)
    (one,) = reported["instances"]
    assert (one["instance"], one["nodes"]) == ("web1.example.com", [chosen])
    (reason,) = [r for r in one["reasons"] if r["node"] == "node2.example.com"]
    assert (reason["check"], reason["found"], reason["unit"]) == (
        "free memory",
        100,
        "MiB",
    )


def test_a_real_creation_carries_no_explanation():
    eng = Engine(small(0), script(node_info=live_node(), all_instances_info={}))
    eng.run(creation(pnode=None, iallocator="hail"))
    assert placements(eng) == []


def test_a_failing_allocation_says_why_in_its_error():
    answers = script(node_info=live_node(memory_free=100), all_instances_info={})
    eng = Engine(small(0), answers)
    request = creation(pnode=None, iallocator="hail")
    refused(eng, request, r"free memory: wanted more than \d+ MiB, found 100 MiB")
    assert placements(eng) == []
    refused(eng, request | {"dry_run": True}, "found 100 MiB")
    (reported,) = placements(eng)
    assert reported["instances"][0]["nodes"] == []


def test_scripts_have_no_say_in_the_explanation():
    eng = engine(0, **allocator("node3.example.com", explanation=[{"odd": 1}]))
    eng.run(creation(pnode=None, iallocator="mine", dry_run=True))
    (reported,) = placements(eng)
    chosen = {"nodes": ["node3.example.com"], "reasons": [], "choice": []}
    assert reported == {
        "allocator": "mine",
        "success": True,
        "info": "fine",
        "instances": [{"instance": "web1.example.com", **chosen}],
    }


def test_default_allocators_are_tried_in_order():
    def run(_node, args):
        actual = args[0] == "second"
        answer = {"success": actual, "info": "", "result": ["node2.example.com"]}
        return json.dumps(answer)

    eng = Engine(
        small(0, default_iallocator="first,second"),
        script(iallocator_runner=run, all_instances_info={}),
    )
    assert eng.run(creation(pnode=None)) == ["node2.example.com"]


def test_a_default_allocator_that_fails_is_passed_over_while_there_are_others():
    def run(_node, args):
        answer = {"success": True, "info": "", "result": ["node2.example.com"]}
        return json.dumps(answer) if args[0] == "second" else "no JSON"

    answers = script(iallocator_runner=run, all_instances_info={})
    eng = Engine(small(0, default_iallocator="first,second"), answers)
    assert eng.run(creation(pnode=None)) == ["node2.example.com"]
    warnings = [text for _kind, text in eng.callbacks.entries if "WARNING" in str(text)]
    (warning,) = warnings
    assert warning.startswith(
        " - WARNING: Allocator first failed: its answer is not JSON"
    )
    eng = Engine(small(0, default_iallocator="first,other"), answers)
    refused(
        eng, creation(pnode=None), "no solution found by allocator first: .*; other: "
    )


def test_default_allocators_are_those_of_the_type_of_request():
    asked = []

    def run(_node, args):
        asked.append(args[0])
        answer = {"success": True, "info": "", "result": ["node3.example.com"]}
        return json.dumps(answer)

    answers = script(iallocator_runner=run, all_instances_info={}, instance_info=INFO)
    setting = "other:allocate=first:relocate=second:multi-allocate="
    eng = Engine(small(1, default_iallocator=setting), answers)
    eng.run(creation(pnode=None))
    eng.run(op("OP_INSTANCE_MIGRATE"))
    assert asked == ["first", "second"]
    several = {"OP_ID": "OP_INSTANCE_MULTI_ALLOC", "instances": [creation(pnode=None)]}
    refused(eng, several, "no default allocator for requests of type multi-allocate")


def test_a_migration_asks_the_allocator_for_a_target():
    eng = engine(instance_info=INFO, **allocator("node3.example.com"))
    eng.run(op("OP_INSTANCE_MIGRATE", iallocator="mine"))
    assert only_instance(eng).primary_node == clusters.node_uuid(3)


@pytest.mark.parametrize(
    "name", ["OP_INSTANCE_STARTUP", "OP_INSTANCE_REBOOT", "OP_INSTANCE_SHUTDOWN"]
)
def test_private_parameters_stay_at_the_master(name):
    eng = engine(instance_info=INFO)
    with eng.config.edit("test") as edit:
        item = only_instance(eng)
        edit.update(item.replace(osparams_private={"password": "hidden-1"}))
    request = {"reboot_type": "hard"} if name.endswith("REBOOT") else {}
    eng.run(op(name, **request))
    assert eng.rpc.calls
    assert "hidden-1" not in str(eng.rpc.calls)


def test_query_data_names_a_node_that_does_not_answer():
    eng = engine(all_instances_info=failure("no route"))
    request = {"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": ["inst1"]}
    data = eng.run(request)["inst1.example.com"]
    assert data["silent_node"] == "node1.example.com"
    stopped = engine(all_instances_info={})
    assert "silent_node" not in stopped.run(request)["inst1.example.com"]


@pytest.mark.parametrize("use_locking", [True, False])
def test_query_data_waits_for_nobody_unless_locks_are_wanted(use_locking):
    eng = engine(all_instances_info={})
    request = {"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": ["inst1"]}
    eng.run(request | {"use_locking": use_locking})
    assert bool(eng.locks.requests) is use_locking
