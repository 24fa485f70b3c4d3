"""The phases of an opcode: order, locks, hooks, results, errors."""

import threading

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.jobs import FakeCallbacks
from fakes.rpc import failure
from ganeti.base import errors
from ganeti.master.config import topology
from ganeti.master.jqueue.effects import Canceled, LockTimeout
from ganeti.master.locking import BGL, Level, Request
from ganeti.model import opcodes
from ganeti.operations.base import ALL, LogicalUnit, SubmitJobs

DELAY = opcodes.TestDelay(duration=0.0)


def unit(**members):
    return {"OP_TEST_DELAY": type("Unit", (LogicalUnit,), members)}


def noop(self):
    return None


def write_cluster(self):
    with self.ctx.config.edit(self.ctx.owner) as edit:
        edit.update(edit.snapshot.cluster.replace(candidate_pool_size=3))


@pytest.mark.parametrize("is_changed", [True, False])
def test_a_change_takes_the_log_along(is_changed):
    saved = []

    def execute(self):
        self.ctx.log.info("before the change")
        with self.ctx.config.edit(self.ctx.owner) as edit:
            if is_changed:
                edit.update(edit.snapshot.cluster.replace(candidate_pool_size=3))
        saved.append(engine.callbacks.saved)

    engine = Engine(clusters.snapshot(), units=unit(execute=execute))
    engine.run(DELAY)
    assert saved == [int(is_changed)]


HOOKED = {
    "HOOKS_PATH": "node-modify",
    "HOOKS_TYPE": "NODE",
    "execute": noop,
    "hooks_env": lambda self: {"OP_TARGET": "x", "OFFLINE": None},
    "hooks_nodes": lambda self: (
        (clusters.node_uuid(1), clusters.node_uuid(2)),
        (clusters.node_uuid(2),),
    ),
}


def test_phases_run_in_order_and_everything_is_given_back():
    seen = []

    def note(word, value=None):
        return lambda self, *a: (seen.append(word), value)[1]

    def declare(self, level):
        if level is Level.NODE:
            assert self.ctx.locks.owned(Level.INSTANCE) == {"inst1.example.com"}
            self.locks.names[Level.NODE] = ALL
            self.locks.shared.add(Level.NODE)

    def expand(self):
        seen.append("expand")
        self.locks.names[Level.INSTANCE] = ["inst1.example.com"]

    engine = Engine(
        clusters.snapshot(instances=1),
        units=unit(
            check_arguments=note("arguments"),
            expand_names=expand,
            declare_locks=declare,
            check_prereq=note("prereq"),
            execute=note("execute"),
        ),
    )
    assert engine.run(DELAY) is None
    assert seen == ["arguments", "expand", "prereq", "execute"]
    assert [(row.level, row.shared) for row in engine.locks.requests] == [
        (Level.CLUSTER, True),
        (Level.INSTANCE, False),
        (Level.NODE, True),
    ]
    assert engine.locks.is_idle()
    assert engine.callbacks.is_started


@pytest.mark.parametrize("can_plan", [True, False])
def test_only_effects_outside_of_the_context_wait_for_the_start(can_plan):
    plans = classmethod(lambda _cls, _op: can_plan)
    chosen = unit(can_plan=plans, execute=noop)
    engine = Engine(clusters.snapshot(instances=1), units=chosen)
    engine.run(DELAY)
    assert engine.callbacks.is_start_durable is not can_plan


def test_locks_that_are_busy_end_the_attempt_with_nothing_held():
    def expand(self):
        self.locks.names[Level.NODE] = [clusters.node_uuid(1)]

    engine = Engine(units=unit(expand_names=expand, execute=noop))

    def hold_and_run():
        engine.locks.acquire(Request(Level.CLUSTER, (BGL,), shared=True))
        engine.locks.acquire(Request(Level.NODE, [clusters.node_uuid(1)]))
        holding.set()
        done.wait(60)
        engine.locks.release_all()

    holding, done = threading.Event(), threading.Event()
    other = threading.Thread(target=hold_and_run)
    other.start()
    holding.wait(60)
    try:
        with pytest.raises(LockTimeout, match="node: "):
            engine.run(DELAY, timeout_s=0)
    finally:
        done.set()
        other.join()
    assert engine.locks.is_idle()
    assert not engine.callbacks.is_started


def test_unknown_opcodes_are_named():
    with pytest.raises(errors.OpCodeUnknown, match="OP_TEST_DELAY is not offered"):
        Engine(units={}).run(DELAY)


def test_unexpected_errors_become_execution_errors_without_a_traceback(caplog):
    def broken(self):
        raise ValueError("boom")

    engine = Engine(units=unit(execute=broken))
    with pytest.raises(errors.OpExecError, match="ValueError: boom") as info:
        engine.run(DELAY)
    assert "Traceback" not in str(info.value)
    assert "Traceback" in caplog.text
    assert engine.locks.is_idle()


def test_a_result_of_the_wrong_shape_is_refused():
    engine = Engine(units=unit(execute=lambda self: 7))
    with pytest.raises(errors.OpResultError, match="OP_TEST_DELAY"):
        engine.run(DELAY)


def test_submitted_jobs_inherit_and_the_result_lists_them():
    parent = opcodes.ClusterVerifyDisks(
        priority=-10, debug_level=2, reason=[("gnt:user", "why", 1)]
    )
    child = opcodes.TestDelay(duration=1.0, reason=[("gnt:opcode", "c", 2)])
    engine = Engine(
        units={
            "OP_CLUSTER_VERIFY_DISKS": type(
                "Unit", (LogicalUnit,), {"execute": lambda self: SubmitJobs([[child]])}
            )
        }
    )
    assert engine.run(parent) == {"jobs": [[True, 101]]}
    (((sent,)),) = engine.callbacks.submitted
    assert sent.priority == -10
    assert sent.debug_level == 2
    assert sent.reason == [("gnt:user", "why", 1), ("gnt:opcode", "c", 2)]
    assert sent.comment == "Submitted by OP_CLUSTER_VERIFY_DISKS"


def test_hooks_get_the_documented_environment_in_both_phases():
    engine = Engine(units=unit(**HOOKED), script={"hooks_runner": []})
    engine.run(DELAY)
    pre, post = engine.rpc.called("hooks_runner")[:2], engine.rpc.calls[-1]
    assert [node for node, _ in pre] == [clusters.node_uuid(1), clusters.node_uuid(2)]
    hook, phase, env = pre[0][1]
    assert (hook, phase) == ("node-modify", "pre")
    assert env == {
        "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
        "GANETI_HOOKS_VERSION": "2",
        "GANETI_OP_CODE": "OP_TEST_DELAY",
        "GANETI_DATA_DIR": "/var/lib/ganeti",
        "GANETI_HOOKS_PHASE": "pre",
        "GANETI_HOOKS_PATH": "node-modify",
        "GANETI_OBJECT_TYPE": "NODE",
        "GANETI_CLUSTER": "cluster1.example.com",
        "GANETI_MASTER": "node1.example.com",
        "GANETI_OP_TARGET": "x",
        "GANETI_OFFLINE": "None",
    }
    hook, phase, env = post[2]
    assert (hook, phase) == ("node-modify", "post")
    assert env["GANETI_OP_TARGET"] == env["GANETI_POST_OP_TARGET"] == "x"


def test_a_failing_pre_hook_aborts_and_names_node_script_and_output():
    rows = {
        clusters.node_uuid(1): [["node-modify-pre.d/ok", 2, ""]],
        clusters.node_uuid(2): [["node-modify-pre.d/no", 1, "go away"]],
    }
    done = []
    engine = Engine(
        units=unit(**{**HOOKED, "execute": lambda self: done.append(1)}),
        script={"hooks_runner": lambda node, args: rows[node]},
    )
    with pytest.raises(errors.HooksAbort) as info:
        engine.run(DELAY)
    assert info.value.args == (
        [["node2.example.com", "node-modify-pre.d/no", "go away"]],
    )
    assert not done


def test_nodes_that_do_not_answer_never_deny():
    engine = Engine(units=unit(**HOOKED), script={"hooks_runner": failure("gone")})
    engine.run(DELAY)
    assert "did not answer: gone" in engine.callbacks.text()
    engine.rpc.script["hooks_runner"] = lambda node, args: (
        failure("gone") if node == clusters.node_uuid(2) else []
    )
    engine.run(DELAY)
    assert engine.callbacks.text().count("did not answer: gone") == 2


def test_failing_post_hooks_only_warn():
    engine = Engine(
        units=unit(**HOOKED),
        script={
            "hooks_runner": lambda node, args: (
                [["node-modify-post.d/s", 1, "bad\nworse"]] if args[1] == "post" else []
            )
        },
    )
    engine.run(DELAY)
    text = engine.callbacks.text()
    assert " - WARNING: hook node-modify-post.d/s failed" in text
    assert ": bad / worse" in text


def test_dry_run_ends_after_the_pre_hooks():
    done = []
    engine = Engine(
        units=unit(**{**HOOKED, "execute": lambda self: done.append(1)}),
        script={"hooks_runner": []},
    )
    assert engine.run(DELAY.replace(dry_run=True)) is None
    assert not done
    assert {args[1] for _, args in engine.rpc.called("hooks_runner")} == {"pre"}


def test_the_config_update_hook_runs_after_writes_even_failed_ones(tmp_path):
    root = tmp_path / "n1"
    (root / "etc/ganeti/hooks/config-update-post.d").mkdir(parents=True)

    def write_and_fail(self):
        write_cluster(self)
        raise errors.OpExecError("later")

    engine = Engine(
        units=unit(execute=write_and_fail), script={"hooks_runner": []}, root=str(root)
    )
    with pytest.raises(errors.OpExecError, match="later"):
        engine.run(DELAY)
    ((node, args),) = engine.rpc.called("hooks_runner")
    assert node == clusters.node_uuid(1)
    assert args[:2] == ("config-update", "post")
    assert args[2]["GANETI_HOOKS_PATH"] == "config-update"
    engine.units = unit(execute=noop)
    engine.run(DELAY)
    assert engine.rpc.called("hooks_runner") == []


def test_without_scripts_on_the_master_nothing_is_asked():
    engine = Engine(units=unit(execute=write_cluster))
    engine.run(DELAY)
    assert engine.rpc.calls == []


def test_locks_of_objects_that_were_not_added_are_dropped():
    def expand(self):
        self.locks.add[Level.INSTANCE] = ["new.example.com"]

    engine = Engine(units=unit(expand_names=expand, execute=noop))
    engine.run(DELAY)
    assert engine.locks.removed == [(Level.INSTANCE, ("new.example.com",))]
    assert engine.locks.names(Level.INSTANCE) == set()


def test_a_canceled_job_does_not_start():
    engine = Engine(units=unit(execute=noop))
    callbacks = FakeCallbacks()
    callbacks.is_canceled = True
    with pytest.raises(Canceled):
        engine.run(DELAY, callbacks=callbacks)
    assert engine.locks.is_idle()


def test_checks_that_need_more_opportunistic_locks_are_tried_again_before_running():
    def expand(self):
        self.locks.names[Level.NODE] = ALL
        self.locks.opportunistic.add(Level.NODE)

    def check(self):
        raise self.prereq("full", "temp_insufficient_resources")

    engine = Engine(units=unit(expand_names=expand, check_prereq=check))
    with pytest.raises(LockTimeout, match="full"):
        engine.run(DELAY)
    assert not engine.callbacks.is_started
    with pytest.raises(errors.OpPrereqError, match="full"):
        engine.run(DELAY, timeout_s=None)


def test_members_of_lock_levels_follow_the_configuration():
    new = clusters.node(9)

    def add(self):
        with self.ctx.config.edit(self.ctx.owner) as edit:
            topology.add_node(edit, new)
            topology.remove_node(edit, clusters.node_uuid(3))

    engine = Engine(units=unit(EXCLUSIVE=True, execute=add))
    engine.run(DELAY)
    nodes = {clusters.node_uuid(n) for n in (1, 2, 9)}
    assert engine.locks.names(Level.NODE) == nodes
    assert engine.locks.names(Level.NODE_RES) == nodes
    assert engine.locks.is_idle()


@pytest.mark.parametrize("error", [None, errors.OpExecError("broken")])
def test_values_that_an_opcode_reserved_are_free_after_it(error):
    def reserve(self):
        self.ctx.config.reserve(self.ctx.owner, "mac", "aa:00:00:00:00:01")
        if error is not None:
            raise error

    engine = Engine(units=unit(execute=reserve))
    for _run in range(2):
        if error is None:
            engine.run(DELAY)
        else:
            with pytest.raises(errors.OpExecError, match="broken"):
                engine.run(DELAY)
    engine.config.reserve("another job", "mac", "aa:00:00:00:00:01")


# Conditions: serials that objects must still have

NODE1 = clusters.node_uuid(1)


def conditional(wanted):
    return opcodes.TestDelay(duration=0.0, if_serial={NODE1: wanted})


def touch_node(engine, **changes):
    with engine.config.edit("other") as edit:
        edit.update(edit.snapshot.nodes[NODE1].replace(**changes))


def test_an_object_that_changed_before_the_locks_refuses_everything():
    done = []
    engine = Engine(
        units=unit(
            check_prereq=lambda _: done.append(1), execute=lambda _: done.append(2)
        )
    )
    serial = engine.snapshot.nodes[NODE1].serial_no
    touch_node(engine, tags=frozenset({"x"}))
    with pytest.raises(errors.OpPrereqError, match="was changed since it was") as info:
        engine.run(conditional(serial))
    assert f"wanted serial {serial}, found {serial + 1}" in info.value.args[0]
    assert info.value.args[1] == "wrong_state"
    assert done == []
    engine.run(conditional(serial + 1))
    assert done == [1, 2]
    assert engine.locks.is_idle()


def test_a_change_without_the_lock_is_noticed_in_the_commit():
    """It comes at the last moment, when the opcode has been checked."""

    def execute(self):
        touch_node(engine, tags=frozenset({"x"}))
        write_cluster(self)

    engine = Engine(units=unit(execute=execute))
    before = engine.snapshot
    with pytest.raises(errors.OpPrereqError, match="was changed since it was read"):
        engine.run(conditional(before.nodes[NODE1].serial_no))
    assert engine.snapshot.cluster.candidate_pool_size == (
        before.cluster.candidate_pool_size
    )
    assert engine.snapshot.nodes[NODE1].tags


def test_a_change_during_the_work_on_nodes_does_not_stop_the_record_of_it():
    """An act on a node is recorded, whoever has changed the object since."""

    def execute(self):
        self.ctx.rpc.call("test_delay", [NODE1], (0.0,))
        touch_node(engine, tags=frozenset({"x"}))
        write_cluster(self)

    engine = Engine(units=unit(execute=execute), script={"test_delay": None})
    engine.run(conditional(engine.snapshot.nodes[NODE1].serial_no))
    assert engine.snapshot.cluster.candidate_pool_size == 3


def test_an_object_that_changed_before_the_first_act_refuses_it():
    def execute(self):
        touch_node(engine, tags=frozenset({"x"}))
        self.ctx.rpc.call("test_delay", [NODE1], (0.0,))

    engine = Engine(units=unit(execute=execute))
    with pytest.raises(errors.OpPrereqError, match="was changed since it was read"):
        engine.run(conditional(engine.snapshot.nodes[NODE1].serial_no))
    assert engine.rpc.calls == []


def test_its_own_changes_do_not_stop_an_opcode():
    def execute(self):
        for tag in ("x", "y"):
            with self.ctx.config.edit(self.ctx.owner) as edit:
                edit.update(edit.snapshot.nodes[NODE1].replace(tags=frozenset({tag})))

    engine = Engine(units=unit(execute=execute))
    engine.run(conditional(engine.snapshot.nodes[NODE1].serial_no))
    assert set(engine.snapshot.nodes[NODE1].tags) == {"y"}


def test_an_opcode_that_continues_has_been_checked():
    engine = Engine(units=unit(resume=write_cluster))
    engine.run(conditional(77), callbacks=FakeCallbacks(resumption={"step": 1}))
    assert engine.snapshot.cluster.candidate_pool_size == 3


def test_jobs_of_a_conditional_opcode_have_no_condition():
    child = opcodes.TestDelay(duration=1.0)
    members = {"execute": lambda _self: SubmitJobs([[child]])}
    submitting = type("Unit", (LogicalUnit,), members)
    engine = Engine(units={"OP_CLUSTER_VERIFY_DISKS": submitting})
    serial = engine.snapshot.nodes[NODE1].serial_no
    engine.run(opcodes.ClusterVerifyDisks(if_serial={NODE1: serial}))
    [[sent]] = engine.callbacks.submitted
    assert sent.if_serial is None
