"""One run over a group against a fake master: jobs, their reasons, state, log."""

import logging

import pytest

from ganeti.automation.watcher import group_part, main
from ganeti.automation.watcher.master_part import NotMaster
from ganeti.base import errors
from ganeti.decisions.watching import Attempts

GROUP = "5e1c0b9a-0000-4000-8000-000000000001"
VERIFY = ("OP_GROUP_VERIFY_DISKS", None)


@pytest.fixture(autouse=True)
def log(caplog):
    caplog.set_level(logging.DEBUG)
    return caplog


def run(node, **settings):
    with main.opened(node.paths, GROUP) as file:
        group_part.run(node.watch(**settings), GROUP, file)
        return file.state


def settle(node):
    """Let the boot ids be known."""
    run(node)
    node.master.jobs.clear()


def reboot(node, **statuses):
    """Let a secondary reboot, whose boot id is known, and instances change."""
    node.instances(**dict.fromkeys(statuses, "running"))
    settle(node)
    node.master.rounds.clear()
    node.instances(**statuses)
    node.nodes(n1="a", n2="c")


def test_an_instance_that_is_down_is_started_and_the_reason_logged(node, log):
    node.instances(web1="ERROR_down", web2="running")
    settle(node)
    state = run(node)
    assert node.ops() == [("OP_INSTANCE_STARTUP", "web1"), VERIFY]
    (op, *_), *_ = node.master.jobs.values()
    assert op.reason[0][0] == "gnt:watcher"
    assert state.instances["web1"].restart == Attempts(2, node.clock.now)
    assert "web1: start: status ERROR_down, attempt 2 of 5" in log.text
    assert "web2: nothing to do: status running" in log.text
    assert "succeeded" in log.text


def test_limits_hold_across_runs(node, log):
    node.instances(web1="ERROR_down")
    node.master.results["OP_INSTANCE_STARTUP"] = errors.OpExecError("no memory")
    for _ in range(8):
        run(node, verify_disks=False)
        node.clock.now += 300
    starts = [op for op in node.ops() if op[0] == "OP_INSTANCE_STARTUP"]
    assert len(starts) == 5
    (given_up,) = [r for r in log.records if r.levelname == "WARNING"]
    assert "too many attempts" in given_up.getMessage()
    assert "no memory" in log.text
    node.clock.now += 8 * 3600
    run(node, verify_disks=False)
    assert len(node.ops()) == len(starts) + 1


def test_attempts_are_saved_before_the_wait_for_jobs(node, monkeypatch):
    node.instances(web1="ERROR_down")

    class Killed(BaseException):
        pass

    def killed(*_args):
        raise Killed

    monkeypatch.setattr(group_part.Jobs, "wait", killed)
    with pytest.raises(Killed):
        run(node)
    with main.opened(node.paths, GROUP) as file:
        assert file.state.instances["web1"].restart.count == 1


def test_a_shutdown_by_the_user_is_recorded_as_such(node):
    node.instances(web1="USER_down")
    settle(node)
    run(node)
    (op,), *_ = node.master.jobs.values()
    assert (op.op_id(), op.admin_state_source) == ("OP_INSTANCE_SHUTDOWN", "user")
    node.master.jobs.clear()
    node.master.objects["lock"] = [
        {"name": "instance/web1", "mode": "exclusive", "pending": None}
    ]
    run(node)
    assert node.ops() == [VERIFY]


def test_locks_that_nobody_uses_keep_nothing_waiting(node):
    node.instances(web1="USER_down")
    settle(node)
    node.master.objects["lock"] = [
        {"name": "instance/web1", "mode": None, "pending": None},
        {"name": "node/web1", "mode": "exclusive", "pending": None},
    ]
    run(node)
    assert ("OP_INSTANCE_SHUTDOWN", "web1") in node.ops()


def test_a_job_that_hangs_ends_the_wait_before_the_next_run(node, log):
    node.instances(web1="ERROR_down")
    node.master.still[1] = "waiting"
    began = node.clock.now
    run(node)
    assert 200 < node.clock.now - began < 300
    assert "job 1 has not ended yet" in log.text


def test_a_start_of_an_earlier_run_is_not_repeated(node):
    node.instances(web1="ERROR_down")
    node.master.objects["job"] = [{"id": 17, "summary": ["INSTANCE_STARTUP(web1)"]}]
    run(node, verify_disks=False)
    assert ("OP_INSTANCE_STARTUP", "web1") not in node.ops()


def test_a_refused_job_is_no_attempt(node, log):
    node.instances(web1="ERROR_down")
    settle(node)
    node.master.refuse["OP_INSTANCE_STARTUP"] = errors.JobQueueError("a filter")
    state = run(node)
    assert state.instances["web1"].restart.count == 1
    assert "refused: a filter" in log.text


def test_disks_are_activated_when_a_secondary_has_rebooted(node, log):
    node.instances(web1="running", web2="ERROR_down")
    settle(node)
    node.nodes(n1="a", n2="c")
    state = run(node)
    assert ("OP_INSTANCE_ACTIVATE_DISKS", "web1") in node.ops()
    assert ("OP_INSTANCE_ACTIVATE_DISKS", "web2") not in node.ops()
    assert state.boot_ids == {"n1": "a", "n2": "c"}
    assert "n2 has rebooted" in log.text
    node.master.jobs.clear()
    run(node)
    assert ("OP_INSTANCE_ACTIVATE_DISKS", "web1") not in node.ops()


def test_a_new_master_activates_only_the_disks_that_the_check_finds(node):
    node.instances(web1="running", web2="running")
    node.nodes(n1="a", n2="b")
    node.master.results["OP_GROUP_VERIFY_DISKS"] = ({}, ["web2"], {})
    state = run(node)
    assert node.ops() == [VERIFY, ("OP_INSTANCE_ACTIVATE_DISKS", "web2")]
    assert state.boot_ids == {"n1": "a", "n2": "b"}


def test_a_new_master_that_checks_no_disks_activates_them_all(node):
    node.instances(web1="running", web2="running")
    run(node, verify_disks=False)
    assert node.ops() == [
        ("OP_INSTANCE_ACTIVATE_DISKS", "web1"),
        ("OP_INSTANCE_ACTIVATE_DISKS", "web2"),
    ]


def test_a_node_that_does_not_answer_is_reported(node, log):
    node.instances()
    node.nodes(n1=None)
    run(node)
    assert "node n1: did not report its boot id" in log.text


# The check of disks


def test_inactive_disks_are_activated_in_one_job_and_the_check_is_archived(node, log):
    node.instances(a="running", b="running", c="ERROR_nodedown")
    settle(node)
    node.master.results["OP_GROUP_VERIFY_DISKS"] = (
        {"n2": "no answer"},
        ["a", "b", "c"],
        {"a": [["n1", "xenvg/disk0"]]},
    )
    run(node, strict=False)
    (check,), activations = node.master.jobs.values()
    assert (check.is_strict, check.priority) == (False, 10)
    assert check.group_name == GROUP
    assert [op.instance_name for op in activations] == ["a", "b"]
    (first,) = [job for job, ops in node.master.jobs.items() if ops == [check]]
    assert ("ArchiveJob", [first]) in node.master.calls
    for text in ("n2: its disks could not be checked", "xenvg/disk0 on n1"):
        assert text in log.text


def test_the_check_is_strict_by_default_and_can_be_left_out(node):
    node.instances(a="running")
    run(node, verify_disks=False)
    assert VERIFY not in node.ops()
    node.master.jobs.clear()
    run(node)
    (check,) = [op for ops in node.master.jobs.values() for op in ops]
    assert check.is_strict


def test_a_check_that_is_in_progress_is_not_repeated(node):
    node.instances(a="running")
    node.master.objects["job"] = [
        {"id": 9, "summary": [f"GROUP_VERIFY_DISKS({GROUP})"]}
    ]
    run(node)
    assert VERIFY not in node.ops()


def test_disks_that_cannot_be_checked_are_not(node):
    node.instances(a="running")
    node.master.objects["instance"][0]["disk_template"] = "ext"
    run(node)
    assert VERIFY not in node.ops()


def test_a_check_that_fails_is_logged(node, log):
    node.instances(a="running")
    node.master.results["OP_GROUP_VERIFY_DISKS"] = errors.OpExecError("no locks")
    run(node)
    assert "could not check its disks: no locks" in log.text


# The rest


def test_status_files_are_written(node):
    node.instances(a="running", b="ERROR_nodedown")
    run(node)
    path = main.merged_path(node.paths)
    with open(path, encoding="utf-8") as stream:
        assert stream.read() == "a running\nb ERROR_nodedown\n"


def test_another_master_ends_the_run(node):
    node.instances(a="ERROR_down")
    node.master.values["master_node"] = "n9.tst"
    with pytest.raises(NotMaster, match=r"n9\.tst"):
        run(node)
    assert not node.master.jobs


def test_a_drained_queue_keeps_the_counters(node):
    node.instances(web1="ERROR_down")
    settle(node)
    node.master._SubmitManyJobs = node.master._SubmitJob = _drained
    with pytest.raises(errors.JobQueueDrainError):
        run(node)
    with main.opened(node.paths, GROUP) as file:
        assert file.state.instances["web1"].restart.count == 1


def _drained(*_args):
    raise errors.JobQueueDrainError("the queue is drained")


# Journal
def items(node):
    return [item for each in node.master.rounds.values() for item in each.items]


def test_a_round_has_its_decisions_with_jobs_and_their_ends_in_the_journal(node):
    reboot(node, web1="ERROR_down", web2="ERROR_nodedown", web3="running")
    node.master.results["OP_INSTANCE_STARTUP"] = errors.OpExecError("no memory")
    run(node)
    ((number, entry),) = node.master.rounds.items()
    assert (entry.automaton, entry.scope, entry.revision) == ("watcher", "default", 7)
    started, helpless, activated = entry.items[:3]
    assert (started.name, started.decision, started.jobs) == ("web1", "chosen", (2,))
    assert started.reason == "status ERROR_down, attempt 1 of 5"
    assert started.nodes == ("n1", "n2")
    assert (helpless.name, helpless.decision) == ("web2", "refused")
    assert activated.action == "activate disks"
    assert (entry.results[0].job, entry.results[0].error) == (2, "no memory")
    (op,) = node.master.jobs[2]
    assert [entry[1] for entry in op.reason[:2]] == [
        "it should run and does not",
        f"round {number}",
    ]


def test_a_quiet_round_is_reported_once_and_without_items(node):
    node.instances(web1="running")
    settle(node)
    node.master.calls.clear()
    node.master.rounds.clear()
    run(node)
    assert items(node) == []
    assert [m for m, _ in node.master.calls].count("RecordRound") == 1


def test_a_refused_job_is_a_refusal_in_the_journal(node):
    node.instances(web1="ERROR_down")
    node.master.refuse["OP_INSTANCE_STARTUP"] = errors.JobQueueError("a filter")
    run(node)
    (refused,) = [item for item in items(node) if item.action == "start"]
    assert (refused.decision, refused.reason) == ("refused", "a filter")
    assert refused.jobs == ()


def test_decisions_are_in_the_journal_before_their_jobs_are_submitted(node):
    node.instances(web1="ERROR_down")
    seen = []
    submit = node.master._SubmitManyJobs

    def watched(jobs):
        seen.append([item.name for item in items(node)])
        return submit(jobs)

    node.master._SubmitManyJobs = watched
    run(node, verify_disks=False)
    assert seen[0] == ["web1"]


def test_instances_are_helped_without_the_journal_and_the_log_says_so(node, log):
    def fail(_entry):
        raise errors.StorageError("no majority")

    node.instances(web1="ERROR_down")
    node.master._RecordRound = fail
    run(node)
    assert ("OP_INSTANCE_STARTUP", "web1") in node.ops()
    assert "the round is not in the journal: no majority" in log.text


def test_inactive_disks_are_noted_with_their_job(node):
    node.instances(web1="running", web2="ERROR_nodedown")
    settle(node)
    node.master.rounds.clear()
    node.master.results["OP_GROUP_VERIFY_DISKS"] = ({}, ["web1", "web2"], {})
    run(node)
    noted = {i.name: i for i in items(node) if i.action == "activate disks"}
    assert noted["web1"].decision == "chosen"
    assert len(noted["web1"].jobs) == 1
    assert (noted["web2"].decision, noted["web2"].jobs) == ("refused", ())


# Freeze
FREEZE = {"reason": "work", "time": 1.0}


def test_nothing_is_started_during_a_freeze_and_the_journal_says_why(node):
    reboot(node, web1="ERROR_down", web2="USER_down")
    node.master.automation["freeze"] = FREEZE
    node.master.results["OP_GROUP_VERIFY_DISKS"] = ({}, ["web1"], {})
    state = run(node)
    assert node.ops() == [VERIFY]
    noted = items(node)
    assert {item.decision for item in noted} == {"refused"}
    assert {item.limit for item in noted} == {"frozen"}
    actions = {(item.name, item.action) for item in noted}
    assert ("web1", "start") in actions
    assert ("web1", "activate disks") in actions
    # No attempt was made, and nodes that have rebooted are helped afterwards.
    assert state.instances == {}
    assert state.boot_ids["n2"] == "b"
    node.master.automation["freeze"] = None
    run(node)
    assert ("OP_INSTANCE_STARTUP", "web1") in node.ops()


def test_a_master_of_an_earlier_release_has_instances_started(node, log, monkeypatch):
    node.instances(web1="ERROR_down")
    settle(node)
    for name in ("_QueryAutomation", "_RecordRound"):
        monkeypatch.delattr(type(node.master), name)
    node.master.calls.clear()
    run(node)
    assert ("OP_INSTANCE_STARTUP", "web1") in node.ops()
    assert "the master daemon is of an earlier release" in log.text
    # It would close the connection, and the submission after it would fail.
    assert "RecordRound" not in [method for method, _args in node.master.calls]


def test_another_refusal_of_the_limits_ends_the_run(node, monkeypatch):
    def refuse(_master):
        raise errors.RequestError("Failed to parse request: QueryAutomation: no")

    node.instances(web1="ERROR_down")
    monkeypatch.setattr(type(node.master), "_QueryAutomation", refuse)
    with pytest.raises(errors.RequestError):
        run(node)
    assert not node.ops()


def test_a_freeze_during_a_run_holds_the_disks(node):
    node.instances(web1="running", web2="ERROR_down")
    settle(node)
    node.nodes(n1="a", n2="c")

    def started(_op):
        node.master.automation = {"freeze": {"reason": "work", "time": 1.0}}

    node.master.results["OP_INSTANCE_STARTUP"] = started
    run(node)
    actual = [op for op, _name in node.ops()]
    assert "OP_INSTANCE_STARTUP" in actual
    assert "OP_INSTANCE_ACTIVATE_DISKS" not in actual
