"""A guest that runs on another node than its record says is not started again."""

import copy

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.jobs import FakeCallbacks
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base import errors
from ganeti.decisions.repair import journal
from ganeti.decisions.repair.node_lives import DeathState
from ganeti.model import objects

N1, N2, N3 = (clusters.node_uuid(number) for number in (1, 2, 3))
NAME = "inst1.example.com"
RUNS = {"memory": 128, "vcpus": 1, "state": 0, "time": 1.0}
WAITS = RUNS | {"state": 1}
SILENT = failure("no answer", is_silent=True)
CLEANUP = f"gnt-instance migrate --cleanup {NAME}"
AUTOMATON = [journal.reason("1", 0)]
DISK = objects.Disk(
    uuid="d0",
    dev_type="sharedfile",
    logical_id=("loop", f"/srv/ganeti/shared-file-storage/{NAME}/d0"),
    iv_name="disk/0",
    size=1024,
    serial_no=1,
)


def start(disk=DISK, hypervisor="kvm", nodes=None, **changes):
    """Return a cluster whose instance is on node1, with a shared disk."""
    policy = copy.deepcopy(clusters.EXAMPLE["cluster"]["ipolicy"])
    policy["minmax"][0]["min"]["nic-count"] = 0
    policy["disk-templates"] = ["drbd", "file", "plain", "sharedfile"]
    record = clusters.instance(
        1,
        disks=[disk.uuid],
        hypervisor=hypervisor,
        **{"disks_active": False, **changes},
    )
    present = {N1: clusters.node(1), N2: clusters.node(2), N3: clusters.node(3)}
    return clusters.snapshot(
        nodes=0,
        extra=[disk, record, *(present | (nodes or {})).values()],
        ipolicy=policy,
        enabled_hypervisors=["kvm", "lxc"],
        volume_group_name="xenvg",
    )


def engine(places=None, snapshot=None, **answers):
    """Return a cluster on which nodes say this of the guest."""
    reports = {N2: RUNS} if places is None else places
    script = {
        **SUCCESSFUL_ACTS,
        "node_info": ["boot", [], [{"memory_free": 4096, "hv_version": "7.2"}]],
        "instance_info": lambda node, _args: reports.get(node, {}),
        "instance_list": lambda node, _args: (
            reports[node]
            if isinstance(reports.get(node), type(SILENT))
            else [NAME] * bool(reports.get(node))
        ),
        "instance_get_migration_status": {"status": "failed"},
        "blockdev_assemble": ["/dev/x", "/link", None],
        "blockdev_close": None,
        "drbd_attach_net": None,
        "export_list": [],
        "hooks_runner": [],
    }
    return Engine(snapshot or start(), script | answers)


def run(eng, name, **changes):
    callbacks = FakeCallbacks()
    op = {"OP_ID": f"OP_INSTANCE_{name}", "instance_name": NAME, **changes}
    eng.run(op, callbacks=callbacks)
    return callbacks.text()


def refusal(eng, name, **changes):
    before = eng.snapshot
    with pytest.raises(errors.OpPrereqError) as caught:
        run(eng, name, **changes)
    assert eng.snapshot is before
    acts = ("instance_shutdown", "instance_start", "instance_reboot", "blockdev_remove")
    assert not any(eng.rpc.called(act) for act in acts)
    return str(caught.value)


def place(eng):
    (record,) = eng.snapshot.instances.values()
    return record.primary_node


STARTS = [
    ("STARTUP", {}),
    ("STARTUP", {"force": True}),
    ("REBOOT", {"reboot_type": "full"}),
    ("FAILOVER", {"target_node": "node3"}),
    ("MIGRATE", {"target_node": "node3"}),
    ("MIGRATE", {"target_node": "node3", "allow_failover": True}),
]
CHANGES = [
    ("REINSTALL", {}),
    ("RENAME", {"new_name": "other.example.com", "name_check": False}),
    ("RECREATE_DISKS", {}),
    ("SET_PARAMS", {"disk_template": "file"}),
    ("SET_PARAMS", {"disks": [["remove", "0", {}]], "ignore_ipolicy": True}),
    ("SET_PARAMS", {"pnode": "node3"}),
    ("REMOVE", {}),
]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("FAILOVER", {"target_node": "node3"}),
        ("MIGRATE", {"target_node": "node3", "allow_failover": True}),
    ],
)
def test_no_automaton_starts_a_guest_that_runs_on_a_node_marked_offline(
    monkeypatch, name, changes
):
    away = {N1: clusters.node(1), N2: clusters.node(2, offline=True)}
    snapshot = start(nodes=away, primary_node=N2)
    answers = {"instance_left": RUNS}
    text = refusal(engine({}, snapshot, **answers), name, reason=AUTOMATON, **changes)
    assert "runs on its primary node node2.example.com, although that is marked" in text
    # A person answers for it; who is silent is taken at that person's word.
    assert "although that is marked offline" in run(
        engine({}, snapshot, **answers), name, **changes
    )
    for quiet in (SILENT, {}):
        eng = engine({}, snapshot, instance_left=quiet)
        run(eng, name, reason=AUTOMATON, **changes)
        assert place(eng) == N3
    # Its helper alone may have switched another machine off.
    off = clusters.node(2, offline=True, powered=False)
    snapshot = start(nodes=away | {N2: off}, primary_node=N2)
    text = refusal(engine({}, snapshot, **answers), name, reason=AUTOMATON, **changes)
    assert "runs on its primary node node2.example.com, although that is marked" in text
    # The watch over deaths has seen that it is off, and silent.
    eng = engine({}, snapshot, **answers)
    monkeypatch.setattr(
        eng.config.node_deaths, "state", lambda: DeathState(marked=(N2,))
    )
    run(eng, name, reason=AUTOMATON, **changes)
    assert not eng.rpc.called("instance_left")


@pytest.mark.parametrize(("name", "changes"), STARTS)
def test_a_guest_that_runs_elsewhere_is_not_started(name, changes):
    text = refusal(engine(), name, **changes)
    assert f"instance {NAME}: must run on no other node" in text
    assert "primary node node1.example.com" in text
    assert "but runs on node node2.example.com" in text
    assert CLEANUP in text


@pytest.mark.parametrize(("name", "changes"), CHANGES)
def test_the_disks_of_a_guest_that_runs_elsewhere_are_not_changed(name, changes):
    eng = engine(snapshot=start(admin_state="down"))
    assert CLEANUP in refusal(eng, name, **changes)


def test_a_guest_that_runs_elsewhere_is_not_recorded_as_stopped():
    assert CLEANUP in refusal(engine(), "SHUTDOWN")


def test_no_command_records_the_guest_of_a_node_that_is_offline_as_stopped():
    gone = clusters.node(1, offline=True, master_candidate=False)
    eng = engine(snapshot=start(nodes={N1: gone}))
    assert CLEANUP in refusal(eng, "SHUTDOWN", ignore_offline_nodes=True)


def test_a_forced_stop_names_the_node_that_runs_the_guest():
    eng = engine()
    text = run(eng, "SHUTDOWN", force=True)
    assert "runs on node node2.example.com" in text
    assert CLEANUP in text
    assert [node for node, _args in eng.rpc.called("instance_shutdown")] == [N1]


def test_a_silent_node_hinders_no_stop():
    eng = engine({N2: SILENT})
    text = run(eng, "SHUTDOWN", reason=AUTOMATON)
    assert "node node2.example.com: no answer" in text
    assert eng.rpc.called("instance_shutdown")


DISK_USES = [
    ("ACTIVATE_DISKS", {}),
    ("DEACTIVATE_DISKS", {}),
    ("GROW_DISK", {"disk": 0, "amount": 64, "ignore_ipolicy": True}),
]


@pytest.mark.parametrize(("name", "changes"), DISK_USES)
def test_disks_that_another_node_uses_stay_as_they_are(name, changes):
    eng = engine(snapshot=start(admin_state="down", disks_active=True))
    assert CLEANUP in refusal(eng, name, **changes)
    acts = ("blockdev_assemble", "blockdev_shutdown", "blockdev_grow")
    assert not any(eng.rpc.called(act) for act in acts)


def test_a_forced_deactivation_names_the_node_that_runs_the_guest():
    eng = engine(snapshot=start(disks_active=True))
    text = run(eng, "DEACTIVATE_DISKS", force=True)
    assert "runs on node node2.example.com" in text
    assert [node for node, _args in eng.rpc.called("blockdev_shutdown")] == [N1]


def test_disks_that_are_not_shut_down_are_in_use_still():
    idle = start(admin_state="down", disks_active=True)
    eng = engine({}, snapshot=idle, blockdev_shutdown=failure("busy"))
    request = {"OP_ID": "OP_INSTANCE_DEACTIVATE_DISKS", "instance_name": NAME}
    with pytest.raises(errors.OpExecError, match="not all disks could be shut down"):
        eng.run(request)
    (record,) = eng.snapshot.instances.values()
    assert record.disks_active
    # Failures of the primary node do not count then.
    eng.run(request | {"force": True})
    (record,) = eng.snapshot.instances.values()
    assert not record.disks_active


def test_an_export_does_not_read_disks_that_another_node_writes():
    request = {"OP_ID": "OP_BACKUP_EXPORT", "instance_name": NAME, "mode": "local"}
    request |= {"target_node": "node1", "shutdown": True}
    with pytest.raises(errors.OpPrereqError, match=CLEANUP):
        engine().run(request)


def test_an_emulator_that_the_guest_has_left_is_not_rebooted():
    """It looks as if it ran, on the primary node that the record still names."""
    eng = engine({N1: RUNS, N2: RUNS})
    assert CLEANUP in refusal(eng, "REBOOT", reboot_type="hard")


def test_a_migration_that_would_become_a_failover_is_refused():
    """The source says that an earlier one was not finished."""
    eng = engine({N1: RUNS, N2: RUNS}, instance_migratable=failure("not finished"))
    text = refusal(eng, "MIGRATE", target_node="node3", allow_failover=True)
    assert CLEANUP in text


@pytest.mark.parametrize("kind", ["always", "offline"])
def test_a_migration_that_is_a_failover_is_refused(kind):
    if kind == "always":
        snapshot = start(beparams={"always_failover": True})
    else:
        gone = clusters.node(1, offline=True, master_candidate=False)
        snapshot = start(nodes={N1: gone})
    text = refusal(
        engine(snapshot=snapshot), "MIGRATE", target_node="node3", allow_failover=True
    )
    assert CLEANUP in text


def test_a_failover_to_the_node_that_runs_the_guest_records_it():
    eng = engine()
    run(eng, "FAILOVER", target_node="node2")
    assert place(eng) == N2


@pytest.mark.parametrize(
    ("reports", "status"),
    [
        ({}, "failed"),
        (WAITS, "failed"),
        (RUNS, "completed"),
    ],
    ids=["nothing", "waits or has ended", "has left"],
)
def test_what_does_not_run_stops_no_start(reports, status):
    eng = engine({N2: reports}, instance_get_migration_status={"status": status})
    run(eng, "STARTUP")
    [(node, _args)] = eng.rpc.called("instance_start")
    assert node == N1


def test_hypervisors_without_migrations_are_believed_at_once():
    eng = engine(
        snapshot=start(hypervisor="lxc"),
        instance_get_migration_status={"status": "completed"},
    )
    assert CLEANUP in refusal(eng, "STARTUP")


def test_nodes_that_cannot_run_it_or_are_marked_offline_are_not_asked():
    snapshot = start(
        nodes={
            N2: clusters.node(2, offline=True, master_candidate=False),
            N3: clusters.node(3, vm_capable=False),
        }
    )
    eng = engine({N2: RUNS, N3: RUNS}, snapshot)
    run(eng, "STARTUP")
    assert {node for node, _args in eng.rpc.called("instance_info")} == {N1}


# Nodes that do not answer
def test_a_node_that_does_not_answer_is_named_to_a_human():
    eng = engine({N2: SILENT})
    text = run(eng, "FAILOVER", target_node="node3")
    assert f"instance {NAME}: cannot find out whether another node runs it" in text
    assert "node node2.example.com: no answer" in text
    assert place(eng) == N3


def test_an_automaton_does_not_fail_over_what_a_silent_node_may_run():
    eng = engine({N2: SILENT})
    text = refusal(eng, "FAILOVER", target_node="node3", reason=AUTOMATON)
    assert "node node2.example.com: no answer" in text
    assert "answers or is marked offline" in text


def test_an_automaton_starts_it_where_it_is_recorded():
    """Its node refuses this if the guest has left it."""
    eng = engine({N2: SILENT})
    assert "node2.example.com: no answer" in run(eng, "STARTUP", reason=AUTOMATON)
    assert eng.rpc.called("instance_start")


LEFT = {"status": "completed"}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("STARTUP", {}),
        ("REBOOT", {"reboot_type": "full"}),
        ("FAILOVER", {"target_node": "node3"}),
    ],
)
def test_a_guest_that_has_left_for_a_silent_node_is_started_nowhere(name, changes):
    places = {N2: SILENT} if name == "STARTUP" else {N1: RUNS, N2: SILENT}
    eng = engine(places, instance_get_migration_status=LEFT)
    text = refusal(eng, name, **changes)
    assert "node node2.example.com: no answer" in text
    assert "answers or is marked offline" in text


def test_a_guest_that_has_left_for_the_target_fails_over_beside_a_silent_node():
    statuses = {N1: LEFT, N3: {"status": "failed"}}
    eng = engine(
        {N1: RUNS, N2: SILENT, N3: RUNS},
        instance_get_migration_status=lambda node, _args: statuses[node],
    )
    run(eng, "FAILOVER", target_node="node3")
    assert place(eng) == N3


# Other templates
def test_a_mirrored_instance_that_runs_on_its_secondary_node_is_named():
    disk = clusters.drbd_disk("d0", 1, 2)
    eng = engine(snapshot=start(disk))
    assert CLEANUP in refusal(eng, "STARTUP")
    assert {node for node, _args in eng.rpc.called("instance_info")} == {N1, N2}


@pytest.mark.parametrize("template", ["plain", "file"])
@pytest.mark.parametrize("name", ["STARTUP", "SHUTDOWN", "ACTIVATE_DISKS"])
def test_nobody_else_is_asked_about_local_disks(template, name):
    disk = DISK.replace(dev_type=template, nodes=(N1,), logical_id=("xenvg", "d0"))
    eng = engine(snapshot=start(disk))
    run(eng, name)
    assert {node for node, _args in eng.rpc.called("instance_info")} <= {N1}


# Clean-up
@pytest.mark.parametrize("kind", ["offline", "silent"])
def test_a_clean_up_records_the_place_of_a_guest_whose_source_is_dead(kind):
    gone = clusters.node(1, offline=True, master_candidate=False)
    snapshot = start(nodes={N1: gone} if kind == "offline" else {})
    eng = engine({N1: SILENT, N2: RUNS}, snapshot)
    text = run(eng, "MIGRATE", cleanup=True)
    assert place(eng) == N2
    assert ("node1.example.com: no answer" in text) == (kind == "silent")
    run(eng, "FAILOVER", target_node="node3")
    assert place(eng) == N3


@pytest.mark.parametrize(
    "places",
    [{N1: SILENT, N2: WAITS}, {N1: RUNS, N2: SILENT}, {N1: SILENT}],
    ids=["waits at the target", "may have left the source", "nowhere"],
)
def test_a_clean_up_that_needs_a_silent_node_changes_nothing(places):
    eng = engine(places)
    with pytest.raises(errors.OpExecError, match="no answer"):
        run(eng, "MIGRATE", cleanup=True)
    assert place(eng) == N1
    assert not eng.rpc.called("instance_finalize_migration_dst")


def test_a_clean_up_of_what_runs_nowhere_names_the_way_on():
    gone = clusters.node(1, offline=True, master_candidate=False)
    eng = engine({}, start(nodes={N1: gone}))
    with pytest.raises(errors.OpExecError, match="gnt-instance failover"):
        run(eng, "MIGRATE", cleanup=True)


# A later master
@pytest.mark.parametrize("is_stopped", [False, True])
@pytest.mark.parametrize("has_switched", [False, True])
def test_a_failover_is_not_continued_beside_a_guest(is_stopped, has_switched):
    """It was started on a third node, or the source of a forced one is back."""
    changes = {"primary_node": N3} if has_switched else {}
    left = {"source": N1, "target": N3, "is_stopped": is_stopped}
    request = {"OP_ID": "OP_INSTANCE_FAILOVER", "instance_name": NAME}
    runs_on = N1 if has_switched else N2
    eng = engine({runs_on: RUNS}, start(**changes))
    with pytest.raises(errors.OpPrereqError, match=CLEANUP):
        eng.run(
            request | {"target_node": "node3"}, callbacks=FakeCallbacks(resumption=left)
        )
    assert not eng.rpc.called("instance_start")


def test_a_stop_that_continues_asks_again():
    eng = engine()
    request = {"OP_ID": "OP_INSTANCE_SHUTDOWN", "instance_name": NAME}
    with pytest.raises(errors.OpPrereqError, match=CLEANUP):
        eng.run(request, callbacks=FakeCallbacks(resumption={}))
    assert not eng.rpc.called("instance_shutdown")


def test_a_silent_master_of_before_hinders_no_failover_that_continues():
    left = {"source": N1, "target": N3, "is_stopped": True}
    request = {"OP_ID": "OP_INSTANCE_FAILOVER", "instance_name": NAME}
    request |= {"target_node": "node3", "reason": AUTOMATON}
    eng = engine({N2: SILENT})
    eng.run(request, callbacks=FakeCallbacks(resumption=left))
    assert [node for node, _args in eng.rpc.called("instance_start")] == [N3]
