"""Why something was done: from the command line to the job and to the node."""

import json
import socket
import subprocess

import pytest

from fakes.patience import job_status, until

NAME = "reasons.vc.test"
ADD = ("gnt-instance", "add", "-t", "diskless", "-H", "fake", "--no-nics")
ADD += ("-o", "tiny+default", "--no-install", "--no-start", "-n", "node2", NAME)


@pytest.fixture(scope="module")
def instance(vcluster):
    vcluster.check(*ADD)
    yield vcluster
    vcluster.check("gnt-instance", "remove", "-f", NAME)


@pytest.mark.timeout(600)
def test_a_reason_goes_from_the_command_to_the_node(instance):
    instance.check("gnt-instance", "startup", "--reason", "after maintenance", NAME)
    path = instance.file(f"/var/run/ganeti/instance-reason/{NAME}", "node2")
    trail = json.loads(path.read_text())
    assert [entry[:2] for entry in trail[:2]] == [
        ["gnt:user", "after maintenance"],
        ["gnt:client:gnt-instance", "startup"],
    ]
    source, text, when = trail[2]
    assert source == "gnt:opcode:instance_startup"
    job, index = text.split(";")
    assert index == "index=0"
    assert trail[0][2] <= trail[1][2] <= when
    with instance.luxi() as client:
        number = int(job.removeprefix("job="))
        ((ops,),) = client.call("QueryJobs", [[number], ["ops"]])
    assert ops[0]["reason"] == trail[:-1]
    assert trail[-1][0] == "gnt:daemon:noded:start"


@pytest.mark.timeout(600)
def test_what_an_instance_leaves_goes_with_it(instance):
    name = "gone.vc.test"
    instance.check(*ADD[:-1], name)
    instance.check("gnt-instance", "startup", name)
    run = instance.file("/var/run/ganeti", "node2")
    trail = run / "instance-reason" / name
    assert trail.exists()
    # A link that a job left which did not come to its end.
    link = run / "instance-disks" / f"{name}:0"
    link.symlink_to("/nowhere/disk0")
    kept = run / "instance-disks" / f"{NAME}:0"
    kept.symlink_to("/nowhere/disk0")
    # Files of an instance that was never in the node's list stay for an hour.
    listed = instance.file("/var/lib/ganeti", "node2") / "ssconf_instance_list"
    until("the node knows it", lambda: name in listed.read_text().split())
    instance.check("gnt-instance", "remove", "-f", name)
    until("what is left to go", lambda: not (trail.exists() or link.is_symlink()))
    assert kept.is_symlink()
    kept.unlink()


@pytest.mark.timeout(600)
def test_jobs_made_by_jobs_inherit_the_reason(instance):
    instance.check("gnt-cluster", "verify", "--reason", "every night")
    with instance.luxi() as client:
        rows = client.call("QueryJobs", [None, ["id", "ops"]])
    trails = [
        [entry[:2] for entry in ops[0]["reason"]]
        for _job, ops in sorted(rows, key=lambda row: int(row[0]))
        if ops[0]["OP_ID"] == "OP_CLUSTER_VERIFY_GROUP"
    ]
    sources = [source for source, _ in trails[-1]]
    assert trails[-1][0] == ["gnt:user", "every night"]
    assert sources[1:] == [
        "gnt:client:gnt-cluster",
        "gnt:opcode:cluster_verify",
        "gnt:opcode:cluster_verify_group",
    ]


@pytest.mark.timeout(600)
def test_watch_shows_lines_as_they_are_logged_and_ends_with_the_job(instance):
    rounds = {
        "OP_ID": "OP_TEST_DELAY",
        "duration": 0.001,
        "repeat": 2,
        "on_master": True,
    }
    endless = {
        "OP_ID": "OP_TEST_DELAY",
        "duration": 600,
        "on_master": True,
        "interruptible": True,
    }
    node = instance.node("node1")
    with instance.luxi() as client:
        job = client.call("SubmitJob", [[rounds, endless]])
    with (
        subprocess.Popen(
            instance.control.argv(node, ["gnt-job", "watch", str(job)]),
            env=instance.control.environment(node),
            stdout=subprocess.PIPE,
            text=True,
        ) as watching,
        instance.luxi() as client,
    ):
        assert watching.stdout.readline() == f"Output from job {job} follows\n"
        lines = iter(watching.stdout.readline, "")
        assert any("iteration 3/3" in line for line in lines)
        # Between two opcodes it is queued for a moment.
        assert job_status(client, job, ("running",)) == "running"
        end_delay(client, job)
        watching.stdout.read()
    assert watching.returncode == 0
    with instance.luxi() as client:
        assert client.call("QueryJobs", [[job], ["status"]]) == [["success"]]


def end_delay(client, job):
    """Wake the second opcode of a job, which waits for somebody to come."""

    def place():
        ((logs,),) = client.call("QueryJobs", [[job], ["oplog"]])
        return [row[3][0] for row in logs[1] if row[2] == "delay-test"]

    (path,) = until("the delay waits", place)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
