"""Submitting, waiting, and the messages during a wait."""

import itertools

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.model import opcodes


@pytest.fixture
def master():
    fake = FakeMaster()
    fake.objects["instance"] = [
        {"name": f"web{n}.tst", "uuid": f"u{n}", "tags": ["t"] * (n == 2)}
        for n in (1, 2, 3)
    ]
    fake.objects["node"] = [
        {
            "name": "n1.tst",
            "uuid": "nu1",
            "pinst_list": ["web1.tst"],
            "sinst_list": ["web2.tst"],
            "tags": ["rack1"],
        },
        {
            "name": "n2.tst",
            "uuid": "nu2",
            "pinst_list": ["web2.tst"],
            "sinst_list": ["web1.tst"],
            "tags": [],
        },
    ]
    return fake


def test_messages_are_printed_with_their_time_and_escaped(master):
    master.messages["OP_TEST_DELAY"] = ["one", "two\tthree\x01é"]
    done = commands.run("gnt-debug delay 0", master)
    assert done.out == (
        "Tue Nov 14 22:13:21 2023 one\nTue Nov 14 22:13:22 2023 two\\tthree\\x01é\n"
    )
    assert (done.code, done.err) == (0, "")


def test_submit_prints_the_id_on_stderr(master):
    done = commands.run("gnt-debug delay --submit 0", master)
    assert (done.code, done.out, done.err) == (0, "", "JobID: 1\n")


def test_print_jobid_prints_the_bare_number_first(master):
    master.messages["OP_TEST_DELAY"] = ["hello"]
    done = commands.run("gnt-debug delay --print-jobid 0", master)
    assert done.out.startswith("1\nTue ")
    done = commands.run("gnt-debug delay --print-jobid --submit 0", master)
    assert (done.out, done.err) == ("2\n", "JobID: 2\n")


def test_generic_options_reach_the_opcode(master):
    commands.run(
        "gnt-debug delay -dd --dry-run --priority=high --reason because 1.5", master
    )
    (op,) = master.jobs[1]
    assert isinstance(op, opcodes.TestDelay)
    assert (op.duration, op.dry_run, op.priority, op.debug_level) == (1.5, True, -10, 2)
    assert [entry[:2] for entry in op.reason] == [
        ("gnt:user", "because"),
        ("gnt:client:gnt-debug", "delay"),
    ]
    assert op.reason[0][2] == 1_700_000_000 * 10**9


def test_a_failed_job_gives_the_error_of_its_first_failed_opcode(master):
    master.results["OP_TEST_DELAY"] = errors.OpPrereqError(
        "no such node", "wrong_input"
    )
    done = commands.run("gnt-debug delay 0", master)
    assert done.code == 1
    assert done.err == (
        "Failure: prerequisites not met for this operation:\n"
        "error type: wrong_input, error details:\nno such node\n"
    )


def test_a_canceled_job(master):
    master.still[1] = "canceled"
    done = commands.run("gnt-debug delay 0", master)
    assert (done.code, done.err) == (1, "Failure: Job was canceled\n")


def test_a_vanished_job(master):
    master.gone.add(1)
    done = commands.run("gnt-debug delay 0", master)
    assert (done.code, done.err) == (1, "Error checking job status: Job 1 lost\n")


class Slow(FakeMaster):
    """Jobs go through states; a state may be seen several times without change."""

    def __init__(self, *states):
        super().__init__()
        self.states = itertools.chain(states, itertools.repeat("success"))
        self.timeouts = []
        self.waits = []

    def _QueryJobWaits(self, _job_id):
        return self.waits

    def _WaitForJobChange(self, job_id, fields, previous, serial, timeout):
        self.timeouts.append(timeout)
        return [[next(self.states)], []]


def test_a_waiting_job_is_explained_once_per_state():
    master = Slow(*["queued"] * 3, *["waiting"] * 3, "running", "running")
    done = commands.run("gnt-debug delay 0", master)
    assert done.code == 0
    assert done.err == (
        "Job 1 is waiting in queue\nJob 1 is trying to acquire all necessary locks\n"
    )
    assert set(master.timeouts) == {60}


def test_a_job_that_moves_on_needs_no_explanation():
    done = commands.run("gnt-debug delay 0", Slow("queued", "waiting", "running"))
    assert (done.code, done.out, done.err) == (0, "", "")


def test_a_terminal_shows_progress_and_is_left_clean():
    clock = itertools.count(0, 5)
    master = Slow("running", "running")
    done = commands.run(
        "gnt-debug delay 0", master, tty=True, now=lambda: float(next(clock))
    )
    assert "job 1: running, " in done.err
    assert done.err.split("\r")[-1] == ""


def test_a_terminal_shows_what_a_job_waits_for_and_a_pipe_does_not():
    def show(**options):
        clock = itertools.count(0, 5)
        master = Slow("running", "running", "running")
        master.waits = [["the shutdown of the guest on n1", 8.0, 112.0]]
        return commands.run(
            "gnt-debug delay 0", master, now=lambda: float(next(clock)), **options
        )

    text = (
        "job 1: waits for the shutdown of the guest on n1, since 8 s, at most 1:52 min"
    )
    assert text in show(tty=True).err
    assert (show().out, show().err) == ("", "")


class Silent(Slow):
    """A master of an earlier release, which does not know what a job waits for."""

    asked = 0

    def _QueryJobWaits(self, _job_id):
        self.asked += 1
        raise errors.RequestError("Failed to parse request: unknown method")


def test_a_master_that_explains_nothing_fails_no_command():
    clock = itertools.count(0, 5)
    master = Silent(*["running"] * 5)
    done = commands.run(
        "gnt-debug delay 0", master, now=lambda: float(next(clock)), tty=True
    )
    assert (done.code, master.asked) == (0, 1)
    assert "job 1: running, " in done.err


class Telling(Slow):
    """A job that logs a line, then how far it has come, then another line."""

    KINDS = ("message", "progress", "message")

    def _WaitForJobChange(self, job_id, fields, previous, serial, timeout):
        [info], _ = super()._WaitForJobChange(job_id, fields, previous, serial, timeout)
        number = (serial or 0) + 1
        if number > len(self.KINDS):
            return [["success"], []]
        kind = self.KINDS[number - 1]
        return [[info], [[number, [0, 0], kind, f"{kind} {number}"]]]


def test_how_far_a_job_has_come_is_for_terminals_alone():
    master = Telling(*["running"] * 9)
    piped = commands.run("gnt-debug delay 0", master)
    assert [line.split(" 1970 ")[1] for line in piped.out.splitlines()] == [
        "message 1",
        "message 3",
    ]
    assert piped.err == ""
    clock = itertools.count(0, 5)
    shown = commands.run(
        "gnt-debug delay 0",
        Telling(*["running"] * 9),
        tty=True,
        now=lambda: float(next(clock)),
    )
    assert shown.out == piped.out
    assert "job 1: progress 2, " in shown.err
    assert "job 1: running, " in shown.err.split("progress 2")[-1]


def test_several_instances_have_a_job_each(master):
    done = commands.run("gnt-instance shutdown --force-multiple --all", master)
    assert done.code == 0
    assert done.out == (
        "Submitted jobs 1, 2, 3\n"
        "Waiting for job 1 for web1.tst ...\n"
        "Waiting for job 2 for web2.tst ...\n"
        "Waiting for job 3 for web3.tst ...\n"
    )


def test_one_named_instance_needs_no_list_of_jobs(master):
    done = commands.run("gnt-instance shutdown web1", master)
    assert done.out == "Waiting for job 1 for web1.tst ...\n"


def test_submitting_several_jobs_lists_them(master):
    master.refuse["OP_INSTANCE_REBOOT"] = errors.JobQueueError("no")
    done = commands.run(
        "gnt-instance start --submit --force-multiple web1 web2", master
    )
    assert (done.code, done.out) == (0, "1: web1.tst\n2: web2.tst\n")
    done = commands.run("gnt-instance reboot --submit web1", master)
    assert (done.code, done.err) == (1, "Failure for web1.tst: no\n")


def test_a_failing_one_of_several_jobs(master):
    def outcome(op):
        if op.instance_name == "web2.tst":
            return errors.OpExecError("broken")
        return None

    master.results["OP_INSTANCE_STARTUP"] = outcome
    done = commands.run("gnt-instance start --force-multiple web1 web2", master)
    assert done.code == 1
    assert done.err == (
        "Job 2 for web2.tst has failed: Failure: command execution error:\nbroken\n"
    )


def test_jobs_that_run_are_watched_before_those_that_wait(master):
    executor_order = []
    master.still[1] = "queued"
    wait = master._WaitForJobChange

    def watch(job_id, *rest):
        executor_order.append(job_id)
        master.still.pop(1, None)
        return wait(job_id, *rest)

    master._WaitForJobChange = watch
    commands.run("gnt-instance start --force-multiple web1 web2", master)
    assert executor_order == [2, 1]


def test_an_archived_one_of_several_jobs(master):
    master.gone.add(1)
    done = commands.run("gnt-instance start web1", master)
    assert done.code == 1
    assert done.err == (
        "Job 1 for web1.tst has been archived, cannot check its result\n"
    )


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("--node n1", ["web1.tst", "web2.tst"]),
        ("--primary n1", ["web1.tst"]),
        ("--secondary n1", ["web2.tst"]),
        ("--tags t", ["web2.tst"]),
        ("--node-tags rack1", ["web1.tst", "web2.tst"]),
        ("--pri-node-tags rack1", ["web1.tst"]),
        ("--sec-node-tags rack1", ["web2.tst"]),
        ("--instance web3 web1", ["web1.tst", "web3.tst"]),
        ("--node n1 n2", ["web1.tst", "web2.tst"]),
    ],
)
def test_instances_are_chosen_by_node_and_tag(master, options, names):
    done = commands.run(f"gnt-instance start --force-multiple {options}", master)
    assert done.code == 0
    assert [ops[0].instance_name for ops in master.jobs.values()] == names


def test_an_unknown_instance_stops_everything(master):
    done = commands.run("gnt-instance start --force-multiple web1 nope", master)
    assert done.code == 1
    assert "unknown_entity" in done.err
    assert "nope" in done.err
    assert not master.jobs


def test_an_empty_selection(master):
    done = commands.run("gnt-instance start --tags nothing", master)
    assert done.code == 1
    master.objects["instance"] = []
    done = commands.run("gnt-instance start --all", master)
    assert done.code == 0
    assert "Cluster is empty" in done.out


def test_verify_waits_for_the_jobs_that_its_job_submits(master):
    verified = []

    def outer(op):
        verified.append(op)
        ids = [master._SubmitJob([{"OP_ID": "OP_CLUSTER_VERIFY_CONFIG"}])]
        return {"jobs": [[True, ids[0]]]}

    master.results["OP_CLUSTER_VERIFY"] = outer
    master.results["OP_CLUSTER_VERIFY_CONFIG"] = True
    master._next = 41
    done = commands.run("gnt-cluster verify --error-codes -I ENODESSH", master)
    assert done.code == 0
    assert done.out == "Submitted jobs 42\nWaiting for job 42 ...\n"
    assert verified[0].ignore_errors == ["ENODESSH"]
    master.results["OP_CLUSTER_VERIFY_CONFIG"] = False
    assert commands.run("gnt-cluster verify", master).code == 1
    master.results["OP_CLUSTER_VERIFY_CONFIG"] = errors.OpExecError("x")
    done = commands.run("gnt-cluster verify", master)
    assert done.code == 1
    assert "1 job(s) failed while verifying the cluster.\n" in done.out


def test_a_malformed_opcode_is_explained(master):
    master.results["OP_NODE_SET_PARAMS"] = []
    done = commands.run("gnt-node modify --node-parameters x=1 -s 1 x", master)
    assert done.code == 0
    done = commands.run(["gnt-instance", "rename", "", ""], master)
    assert done.code == 1
    assert "Failure: prerequisites not met" in done.err
    assert "OP_INSTANCE_RENAME" in done.err


def test_watch_and_wait(master):
    master.messages["OP_TEST_DELAY"] = ["hi"]
    commands.run("gnt-debug delay --submit 0", master)
    done = commands.run("gnt-job watch 1", master)
    assert done.out == (
        "Output from job 1 follows\n-------------------------\n"
        "Tue Nov 14 22:13:21 2023 hi\n"
    )
    assert done.err == ""
    shown = commands.run("gnt-job watch 1", master, tty=True)
    assert (shown.code, shown.out) == (0, done.out)
    assert shown.err.endswith("Job 1 was successful\n")
    done = commands.run("gnt-job wait 1", master)
    assert (done.code, done.out) == (0, "")
    done = commands.run("gnt-job wait 9", master)
    assert done.code == 1
    assert done.err == "Job 9 failed: Error checking job status: Job 9 lost\n"
    shown = commands.run("gnt-job watch 9", master, tty=True)
    assert "'gnt-job info 9' shows its messages" in shown.err
    assert shown.code == 1
