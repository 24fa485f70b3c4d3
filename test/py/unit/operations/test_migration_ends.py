"""The end of a migration: a guest that may be complete at the target is kept there."""

import copy
import itertools

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.jobs import FakeCallbacks
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base import errors
from ganeti.model.objects import Update
from ganeti.operations.instance.move import migration_steps

N1, N2, N3 = (clusters.node_uuid(number) for number in (1, 2, 3))
NAME = "inst1.example.com"
RUNS = {"memory": 128, "vcpus": 1, "state": 0, "time": 1.0}
WAITS = RUNS | {"state": 1}
LEFT = {"status": "completed"}
FAILED = {"status": "failed", "error": "the connection broke"}
CLEANUP = f"gnt-instance migrate --cleanup {NAME}"
SOURCE, TARGET = (f"instance_finalize_migration_{end}" for end in ("src", "dst"))
SILENT = failure("no answer")


def engine(*, listed=(N1, N2), start=None, **answers):
    """Return a cluster on which these nodes list the guest."""
    policy = copy.deepcopy(clusters.EXAMPLE["cluster"]["ipolicy"])
    policy["minmax"][0]["min"]["nic-count"] = 0
    policy["disk-templates"] = ["diskless", "drbd"]
    script = {
        **SUCCESSFUL_ACTS,
        "node_info": ["boot", [], [{"memory_free": 4096, "hv_version": "7.2"}]],
        "instance_info": RUNS,
        "instance_list": lambda node, _args: [NAME] if node in listed else [],
        "instance_get_migration_status": FAILED,
        "migration_info": "opaque",
        "blockdev_close": None,
        "drbd_attach_net": None,
        "hooks_runner": [],
    }
    start = start or clusters.snapshot(instances=1, ipolicy=policy)
    return Engine(start, script | answers)


def migrate(eng, callbacks=None, **changes):
    op = {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": NAME, **changes}
    eng.run(op, callbacks=callbacks or FakeCallbacks())


def refusal(eng, callbacks=None, **changes):
    with pytest.raises(errors.OpExecError) as caught:
        migrate(eng, callbacks, **changes)
    return str(caught.value)


def ends(eng):
    """Return the calls that end a migration, with their success."""
    return [
        (name, node, args[2] if name == TARGET else args[1])
        for name, node, args in eng.rpc.calls
        if name in (SOURCE, TARGET)
    ]


def place(eng):
    (record,) = eng.snapshot.instances.values()
    return record.primary_node


def test_the_source_keeps_the_guest_before_the_target_ends_its_copy():
    eng = engine(listed=(N1,))
    text = refusal(eng, target_node="node2")
    assert ends(eng) == [(SOURCE, N1, False), (TARGET, N2, False)]
    assert "runs on node node1.example.com as before" in text


def test_a_copy_stays_as_long_as_its_source_is_silent():
    eng = engine(**{SOURCE: SILENT})
    text = refusal(eng, target_node="node2")
    assert ends(eng) == [(SOURCE, N1, False)]
    # Nor does it lose its disks.
    names = [name for name, _node, _args in eng.rpc.calls]
    assert not {"blockdev_close", "blockdev_shutdown"} & set(names)
    assert "no answer" in text
    assert f"node2.example.com keeps what it has of the guest: run {CLEANUP}" in text
    assert place(eng) == N1


def test_a_silent_target_is_not_asked_to_end_what_it_may_have():
    def listed(node, _args):
        return SILENT if node == N2 else []

    eng = engine(instance_list=listed, **{SOURCE: failure("may have left")})
    assert CLEANUP in refusal(eng, target_node="node2")
    assert ends(eng) == [(SOURCE, N1, False)]


def test_a_target_that_has_nothing_is_cleaned_whatever_the_source_says():
    eng = engine(listed=(), **{SOURCE: failure("may have left")})
    assert "runs on neither node" in refusal(eng, target_node="node2")
    assert ends(eng)[-1] == (TARGET, N2, False)


def test_a_copy_that_ends_with_its_source_leaves_nothing_to_clean_up():
    """Its user has shut the guest down, so both emulators end, one after the other."""
    lists = [[NAME], [NAME], []]

    def listed(node, _args):
        return lists.pop(0) if node == N2 and lists else []

    eng = engine(instance_list=listed, **{SOURCE: failure("may have left")})
    assert "runs on neither node" in refusal(eng, target_node="node2")
    assert ends(eng)[-1] == (TARGET, N2, False)


@pytest.mark.parametrize("lost", ["instance_migrate", "instance_get_migration_status"])
def test_a_migration_that_succeeds_while_it_is_given_up_is_finished(lost):
    """An answer is lost; the guest has left when the source is asked to keep it."""
    answers = [SILENT, LEFT]
    given = {lost: lambda *_args: answers.pop(0) if len(answers) > 1 else answers[0]}
    if lost == "instance_migrate":
        given = {lost: SILENT, "instance_get_migration_status": LEFT}
    refuses = {SOURCE: lambda _n, args: None if args[1] else failure("has left")}
    callbacks = FakeCallbacks()
    eng = engine(**given, **refuses)
    migrate(eng, callbacks, target_node="node2")
    assert ends(eng) == [(SOURCE, N1, False), (TARGET, N2, True), (SOURCE, N1, True)]
    assert place(eng) == N2
    assert "the guest has left, so the migration is finished" in callbacks.text()


@pytest.mark.parametrize("kind", ["is_silent", "is_lost"])
def test_a_source_whose_node_daemon_restarts_ends_no_migration(kind):
    answers = [failure("no answer", **{kind: True})] * 5 + [LEFT]
    eng = engine(instance_get_migration_status=lambda *_args: answers.pop(0))
    migrate(eng, target_node="node2")
    assert ends(eng) == [(TARGET, N2, True), (SOURCE, N1, True)]
    assert place(eng) == N2


def test_a_source_that_stays_silent_is_not_waited_for():
    silent = failure("no answer", is_silent=True)
    eng = engine(instance_get_migration_status=silent, **{SOURCE: silent})
    assert CLEANUP in refusal(eng, target_node="node2")
    asked = eng.rpc.called("instance_get_migration_status")
    # Once more afterwards: the guest may have left while it was silent.
    assert (
        len(asked) == round(migration_steps.SILENCE_S / migration_steps.POLL_S) + 1 + 1
    )


def test_a_restarted_master_waits_for_a_source_whose_daemon_starts_as_well():
    state = {"phase": "transfer", "source": N1, "target": N2, "is_live": True}
    silent = failure("no answer", is_silent=True)
    answers = [silent] * 5 + [LEFT] * 2
    eng = engine(instance_get_migration_status=lambda *_args: answers.pop(0))
    migrate(eng, FakeCallbacks(resumption=state), target_node="node2")
    assert ends(eng) == [(TARGET, N2, True), (SOURCE, N1, True)]
    assert place(eng) == N2


def test_a_migration_is_not_begun_again_while_a_copy_may_be_the_only_one():
    state = {"phase": "begin", "source": N1, "target": N2, "is_live": True}
    eng = engine(**{SOURCE: failure("may have left")})
    text = refusal(eng, FakeCallbacks(resumption=state), target_node="node2")
    assert CLEANUP in text
    assert ends(eng) == [(SOURCE, N1, False)]
    assert not eng.rpc.called("accept_instance")


# Clean-up
def test_a_clean_up_that_cannot_decide_is_an_error():
    eng = engine(**{SOURCE: SILENT})
    assert CLEANUP in refusal(eng, cleanup=True)
    assert ends(eng) == [(SOURCE, N1, False)]


@pytest.mark.parametrize(
    "status", [LEFT, FAILED | {"is_stopped": True}], ids=["left", "stopped"]
)
def test_a_clean_up_takes_over_what_waits_before_it_records_the_place(status):
    seen = []

    def take_over(_node, args):
        seen.append((args[2], place(eng)))

    eng = engine(
        listed=(N2,), instance_info=WAITS, instance_get_migration_status=status
    )
    eng.rpc.script[TARGET] = take_over
    migrate(eng, cleanup=True)
    assert seen == [(True, N1)]
    assert place(eng) == N2


def test_what_waits_and_cannot_go_on_is_not_recorded():
    broken = {TARGET: failure("wanted a running guest, found it inmigrate")}
    eng = engine(
        listed=(N2,), instance_info=WAITS, instance_get_migration_status=LEFT, **broken
    )
    assert "found it inmigrate" in refusal(eng, cleanup=True)
    assert place(eng) == N1


def test_a_copy_whose_source_does_not_answer_waits():
    eng = engine(
        listed=(N2,), instance_info=WAITS, instance_get_migration_status=SILENT
    )
    text = refusal(eng, cleanup=True)
    assert "so the copy on node node2.example.com waits" in text
    assert "mark it offline and use gnt-instance failover" in text
    assert ends(eng) == []


@pytest.mark.parametrize("has_left", [True, False])
def test_a_copy_on_the_recorded_node_needs_the_word_of_another_node(has_left):
    """It has failed over there, and waits since its migration."""

    def status(node, _args):
        return LEFT if has_left and node == N3 else FAILED

    eng = engine(
        listed=(N1,), instance_info=WAITS, instance_get_migration_status=status
    )
    if has_left:
        migrate(eng, cleanup=True)
        assert ends(eng) == [(TARGET, N1, True)]
        return
    assert "shutdown and startup" in refusal(eng, cleanup=True)
    assert ends(eng) == []


@pytest.mark.parametrize("runs_on", [N1, N2])
def test_a_clean_up_makes_mirrors_primary_where_the_guest_is(runs_on):
    disk = clusters.drbd_disk("d0", 1, 2)
    start = clusters.snapshot(
        nodes=2,
        extra=[disk, clusters.instance(1, disks=[disk.uuid])],
        volume_group_name="xenvg",
    )
    eng = engine(
        listed=(runs_on,),
        start=start,
        blockdev_assemble=["/dev/drbd0", "/link", None],
    )
    migrate(eng, cleanup=True)
    assert place(eng) == runs_on
    [(node, args)] = eng.rpc.called("blockdev_assemble")
    assert (node, args[2]) == (runs_on, True)
    names = [name for name, _node, _args in eng.rpc.calls]
    # The other node gives it up first.
    [(closed, _args)] = eng.rpc.called("blockdev_close")
    assert closed == ({N1, N2} - {runs_on}).pop()
    assert names.index("blockdev_close") < names.index("blockdev_assemble")


def test_a_mirror_that_cannot_be_made_primary_is_an_error():
    disk = clusters.drbd_disk("d0", 1, 2)
    start = clusters.snapshot(
        nodes=2,
        extra=[disk, clusters.instance(1, disks=[disk.uuid])],
        volume_group_name="xenvg",
    )
    refused = failure("State change failed: Multiple primaries not allowed")
    eng = engine(listed=(N1,), start=start, blockdev_assemble=refused)
    text = refusal(eng, cleanup=True)
    assert "clean-up: cannot make disk 0 primary" in text
    assert "Multiple primaries" in text


# The pause of the guest
def test_the_guest_goes_on_before_anything_is_recorded():
    seen = []

    def let_go_on(_node, _args):
        seen.append((place(eng), callbacks.resumption["phase"]))

    callbacks = FakeCallbacks()
    eng = engine(instance_get_migration_status=LEFT, **{TARGET: let_go_on})
    migrate(eng, callbacks, target_node="node2")
    assert seen == [(N1, "transfer")]
    assert callbacks.resumption["phase"] == "finish"
    assert place(eng) == N2


def test_the_end_of_a_transfer_is_polled_often():
    ram = {"total_ram": 1 << 40, "transferred_ram": 1}
    far = [{"status": "active", **ram, "remaining_ram": 1 << 39}] * 10
    near = [{"status": "active", **ram, "remaining_ram": 1 << 20}] * 10
    answers, times = [*far, *near, LEFT], []

    def status(_node, _args):
        times.append(eng.clock.monotonic())
        return answers.pop(0)

    eng = engine(instance_get_migration_status=status)
    migrate(eng, target_node="node2")
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses[9] == pytest.approx(migration_steps.POLL_S)
    assert max(pauses[10:]) == pytest.approx(migration_steps.FIRST_POLL_S)


@pytest.mark.parametrize("kind", ["is_silent", "is_lost"])
def test_a_target_is_asked_again_when_it_does_not_answer(kind):
    answers = [failure("no answer", **{kind: True})] * 3 + [None]
    eng = engine(
        instance_get_migration_status=LEFT, **{TARGET: lambda *_args: answers.pop(0)}
    )
    migrate(eng, target_node="node2")
    assert ends(eng) == [*[(TARGET, N2, True)] * 4, (SOURCE, N1, True)]
    assert place(eng) == N2


def test_a_guest_that_does_not_go_on_keeps_its_source():
    eng = engine(
        instance_get_migration_status=LEFT, **{TARGET: failure("did not arrive")}
    )
    text = refusal(eng, target_node="node2")
    assert "did not arrive; node node1.example.com has given the guest up" in text
    assert CLEANUP in text
    assert ends(eng) == [(TARGET, N2, True)]
    assert place(eng) == N1


def test_a_source_that_cannot_be_cleaned_is_a_warning_after_the_move():
    disk = clusters.drbd_disk("d0", 1, 2)
    start = clusters.snapshot(
        nodes=2,
        extra=[disk, clusters.instance(1, disks=[disk.uuid])],
        volume_group_name="xenvg",
    )
    complete = {"dev_path": "/dev/drbd0", "is_degraded": False}
    eng = engine(
        start=start,
        instance_get_migration_status=LEFT,
        blockdev_assemble=["/dev/drbd0", "/link", None],
        blockdev_getmirrorstatus_multi=[[True, complete]],
        **{SOURCE: SILENT},
    )
    callbacks = FakeCallbacks()
    migrate(eng, callbacks)
    text = callbacks.text()
    assert "the guest runs on node node2.example.com, which is its primary" in text
    assert f"when node node1.example.com answers, run {CLEANUP}" in text
    assert place(eng) == N2
    # The rest is done: the source loses its disks, and one node may write again.
    assert [node for node, _args in eng.rpc.called("blockdev_close")] == [N1]
    assert eng.rpc.called("drbd_attach_net")[-1][1][1] is False


def test_a_guest_goes_on_at_the_target_as_soon_as_postcopy_begins():
    ahead = {"status": "active", "postcopy_status": "postcopy-active"}
    answers = [{"status": "active"}, ahead, ahead, LEFT]
    eng = engine(instance_get_migration_status=lambda *_args: answers.pop(0))
    migrate(eng, target_node="node2")
    names = [name for name, _node, _args in eng.rpc.calls]
    asked = [
        name for name in names if name in (TARGET, "instance_get_migration_status")
    ]
    assert asked.index(TARGET) == 2
    assert ends(eng) == [(TARGET, N2, True), (SOURCE, N1, True)]


def test_a_broken_postcopy_is_an_error_that_says_what_can_be_done():
    broken = {
        "status": "failed",
        "postcopy_status": "postcopy-paused",
        "error": "the connection broke (postcopy-paused); use gnt-instance failover",
    }
    eng = engine(instance_get_migration_status=broken, **{SOURCE: failure("has left")})
    text = refusal(eng, cleanup=True)
    assert "use gnt-instance failover" in text
    assert ends(eng) == [(SOURCE, N1, False)]


# Failover
def fail_over(eng):
    op = {"OP_ID": "OP_INSTANCE_FAILOVER", "instance_name": NAME}
    eng.run(op | {"target_node": "node2"}, callbacks=FakeCallbacks())


def on_target(hypervisor, info):
    policy = copy.deepcopy(clusters.EXAMPLE["cluster"]["ipolicy"])
    policy["minmax"][0]["min"]["nic-count"] = 0
    policy["disk-templates"] = ["diskless", "drbd"]
    start = clusters.snapshot(instances=1, ipolicy=policy)
    (record,) = start.instances.values()
    start = start.apply(
        [Update("instances", record.uuid, record.replace(hypervisor=hypervisor))]
    )
    return engine(
        start=start, instance_info=lambda node, _args: info if node == N2 else {}
    )


@pytest.mark.parametrize("info", [{}, WAITS], ids=["nothing", "waits"])
def test_a_failover_removes_what_a_migration_has_left_at_its_target(info):
    eng = on_target("kvm", info)
    fail_over(eng)
    assert ends(eng) == [(TARGET, N2, False)]
    names = [name for name, _node, _args in eng.rpc.calls]
    stopped, removed = names.index("instance_shutdown"), names.index(TARGET)
    assert stopped < removed < names.index("instance_start")


def test_a_failover_removes_the_emulator_that_a_guest_has_left_at_its_target():
    """It looks as if it ran, so the guest would not be started."""
    eng = on_target("kvm", RUNS)
    eng.rpc.script["instance_get_migration_status"] = LEFT
    fail_over(eng)
    assert ends(eng) == [(TARGET, N2, False)]


@pytest.mark.parametrize(
    ("hypervisor", "info"), [("kvm", RUNS), ("kvm", SILENT), ("lxc", {})]
)
def test_a_failover_removes_no_guest_that_may_run(hypervisor, info):
    eng = on_target(hypervisor, info)
    fail_over(eng)
    assert ends(eng) == []
