"""Repairs by tags on real daemons: each run of harep or the watcher does one step."""

import contextlib
import pathlib
import sys

import pytest

import ganeti
from fakes import patience

P = "ganeti:watcher:autorepair:"
ADD = ("gnt-instance", "add", "-s", "8M", "-H", "fake", "-B", "memory=128M")
ADD += ("-o", "tiny+default", "--no-nics", "-n", "node3")
SHARED, FILE = "shared.vc.test", "file.vc.test"


@pytest.fixture(scope="module")
def cluster(cluster_of):
    made = cluster_of(3)
    made.check(*ADD, "-t", "sharedfile", SHARED)
    return made


@pytest.fixture
def marks(cluster):
    """Set flags of nodes, and take all of them back afterwards, and all tags."""
    marked = []

    def mark(node, flag, value="yes"):
        marked.append((node, flag))
        cluster.check("gnt-node", "modify", flag, value, node)

    yield mark
    for node, flag in marked:
        cluster.check(
            "gnt-node", "modify", "--force", "--auto-promote", flag, "no", node
        )
    for kind, name in (("cluster", ()), ("instance", (SHARED,))):
        actual = cluster.check(f"gnt-{kind}", "list-tags", *name).split()
        mine = [tag for tag in actual if tag.startswith(P)]
        if mine:
            cluster.check(f"gnt-{kind}", "remove-tags", *name, *mine)


def where(cluster):
    text = cluster.check("gnt-instance", "list", "--no-headers", "-o", "name,pnode")
    return dict(line.split() for line in text.splitlines())


def put(cluster, name, node):
    """Have an instance on a node."""
    if where(cluster)[name] != f"{node}.vc.test":
        cluster.check("gnt-instance", "migrate", "-f", "-n", node, name)


def step(cluster, delay=0):
    """Run harep, and wait for the jobs that change tags; return what it prints."""
    text = cluster.check("harep", f"--job-delay={delay}")
    wait_for_tags(cluster)
    return text


def wait_for_tags(cluster):
    """Wait for changes of tags: the note of a repair's job waits for the lock of that."""
    with contextlib.closing(cluster.luxi()) as client:
        for job, summaries in client.call("QueryJobs", [None, ["id", "summary"]]):
            if summaries[0].startswith("TAGS_"):
                patience.job_status(client, job)


def records(cluster, name):
    """Return the fields of the tags that record repairs, pending ones first."""
    wait_for_tags(cluster)
    tags = cluster.check("gnt-instance", "list-tags", name).split()
    actual = [tag.removeprefix(P).split(":") for tag in tags if tag.startswith(P)]
    return sorted(fields for fields in actual if fields[0] in ("pending", "result"))


def ended(cluster, name):
    """Wait for the job of the only repair that pends; return how it ended."""
    ((state, *_rest, jobs),) = records(cluster, name)
    assert state == "pending"
    with contextlib.closing(cluster.luxi()) as client:
        return patience.job_status(client, int(jobs.split("+")[-1]))


@pytest.mark.sampled
def test_a_drained_node_is_left_when_a_tag_allows_it(cluster, marks) -> None:
    put(cluster, SHARED, "node3")
    marks("node3", "-D")
    assert "repairs are not enabled" in step(cluster)
    assert records(cluster, SHARED) == []
    cluster.check("gnt-cluster", "add-tags", f"{P}migrate")
    assert "repair: migrate" in step(cluster)
    assert ended(cluster, SHARED) == "success"
    assert f'Moving {SHARED} from "Pending repair" to "Healthy"' in step(cluster)
    ((state, kind, _id, _time, result, _jobs),) = records(cluster, SHARED)
    assert (state, kind, result) == ("result", "migrate", "success")
    assert where(cluster)[SHARED] != "node3.vc.test"


@pytest.fixture
def losing(cluster, command, marks):
    """Switch a node off; it is on again and empty afterwards."""
    lost = []

    def lose(node):
        lost.append(node)
        command(cluster.directory, "power", "off", node)
        marks(node, "-O")

    yield lose
    for node in lost:
        command(cluster.directory, "power", "on", node)


@pytest.fixture
def local(cluster):
    """An instance whose disk only one node has."""
    cluster.check(*ADD, "-t", "file", FILE)
    yield FILE
    cluster.check("gnt-instance", "remove", "-f", FILE)


def test_a_lost_node_costs_what_is_allowed_and_no_more(cluster, local, losing) -> None:
    put(cluster, SHARED, "node3")
    losing("node3")
    cluster.check("gnt-cluster", "add-tags", f"{P}failover")
    reported = step(cluster)
    assert f"{local}: its node is offline; this requires reinstall, but" in reported
    assert ended(cluster, SHARED) == "success"
    ((_state, kind, _id, _time, result, _jobs),) = records(cluster, local)
    assert (kind, result) == ("reinstall", "enoperm")
    cluster.check("gnt-instance", "add-tags", local, f"{P}reinstall")
    assert f"but for file disks only with the tag {P}reinstall-file" in step(cluster)
    assert records(cluster, local)[0][4] == "enoperm"
    cluster.check("gnt-cluster", "add-tags", f"{P}reinstall-file")
    assert f"{local}: its node is offline, repair: reinstall" in step(cluster)
    assert ended(cluster, local) == "success"
    assert "Healthy: 2" in step(cluster)
    assert "node3.vc.test" not in where(cluster).values()
    listed = cluster.check("gnt-instance", "list", "--no-headers", "-o", "status")
    assert listed.split() == ["running", "running"]


def test_a_repair_without_room_waits_for_room(cluster, marks) -> None:
    put(cluster, SHARED, "node3")
    cluster.check("gnt-group", "add", "alone")
    cluster.check("gnt-group", "assign-nodes", "--force", "alone", "node3")
    marks("node3", "-D")
    cluster.check("gnt-instance", "add-tags", SHARED, f"{P}migrate")
    step(cluster)
    assert ended(cluster, SHARED) == "error"
    ((*first, job),) = records(cluster, SHARED)
    assert "Pending repair: 1" in step(cluster)
    assert ended(cluster, SHARED) == "error"
    ((*again, jobs),) = records(cluster, SHARED)
    assert (first, jobs.split("+")[0]) == (again, job)
    # The third attempt is not due yet, unless tag and queue forget the second one.
    assert "no node has room, next attempt at" in step(cluster)
    assert records(cluster, SHARED) == [[*again, jobs]]
    cluster.check("gnt-group", "assign-nodes", "--force", "default", "node3")
    cluster.check("gnt-job", "archive", jobs.split("+")[1])
    changed = [P + ":".join([*again, value]) for value in (job, jobs)]
    cluster.check("gnt-instance", "add-tags", SHARED, changed[0])
    cluster.check("gnt-instance", "remove-tags", SHARED, changed[1])
    step(cluster)
    assert ended(cluster, SHARED) == "success"
    step(cluster)
    assert records(cluster, SHARED)[0][4] == "success"
    assert where(cluster)[SHARED] != "node3.vc.test"


def test_a_repair_that_fails_is_left_to_people(cluster, marks) -> None:
    put(cluster, SHARED, "node3")
    # It is there already, so this job fails.
    words = ("gnt-instance", "migrate", "-f", "--print-jobid", "-n", "node3", SHARED)
    refused = cluster.run(*words)
    assert refused.code == 1
    job = int(refused.stdout.split()[0])
    marks("node3", "-D")
    # This is the last of three attempts.
    pending = f"{P}pending:migrate:by-hand:1:{job}+{job}+{job}"
    cluster.check("gnt-instance", "add-tags", SHARED, pending)
    for _again in range(2):
        assert "Failure: 1" in step(cluster)
        ((state, _kind, name, _time, result, jobs),) = records(cluster, SHARED)
        assert (state, name, result) == ("result", "by-hand", "failure")
        assert jobs == f"{job}+{job}+{job}"
    assert where(cluster)[SHARED] == "node3.vc.test"


# The watcher does the same by itself
def watch(cluster, *argv):
    """Run the watcher; return the lines that it logs about repairs."""
    log = cluster.file("/var/log/ganeti/watcher.log")
    before = log.stat().st_size if log.exists() else 0
    words = argv or ("ganeti-watcher",)
    cluster.run(*words, "--no-verify-disks", timeout_s=patience.PATIENCE_S)
    lines = log.read_bytes()[before:].decode().splitlines()
    return "\n".join(line for line in lines if "autorepair: " in line)


def jobs_of(cluster, summary):
    """Return the ids of the jobs with an opcode."""
    with contextlib.closing(cluster.luxi()) as client:
        answer = client.call("Query", ["job", ["id"], ["=[]", "summary", summary]])
    return {int(cell[1]) for (cell,) in answer["data"]}


def test_the_watcher_repairs_what_tags_allow_and_its_jobs_name_them(
    cluster, marks
) -> None:
    put(cluster, SHARED, "node3")
    marks("node3", "-D")
    assert "Needs repair: 1" in watch(cluster)
    assert records(cluster, SHARED) == []
    cluster.check("gnt-cluster", "add-tags", f"{P}migrate")
    text = watch(cluster)
    assert f"{SHARED}: its primary node is drained, repair: migrate" in text
    assert ended(cluster, SHARED) == "success"
    ((*fields, job),) = records(cluster, SHARED)
    trail = cluster.check("gnt-job", "info", job)
    assert f"{P}{':'.join(fields)}: its primary node is drained" in trail
    assert f"permitted by {P}migrate of the cluster" in trail
    assert "Healthy: 1" in watch(cluster)
    ((state, kind, _id, _time, result, jobs),) = records(cluster, SHARED)
    assert (state, kind, result, jobs) == ("result", "migrate", "success", job)
    assert where(cluster)[SHARED] != "node3.vc.test"


#: The watcher, ended without any cleaning up after it has submitted so many jobs.
CUT = """
import os, sys
sys.path.insert(0, {tree!r})
from ganeti.protocols import luxi
from ganeti.automation.watcher import main
left, call = {number}, luxi.Client.call
def cut(self, method, *args, **named):
    global left
    answer = call(self, method, *args, **named)
    left -= method == "SubmitJob"
    if not left:
        os._exit(9)
    return answer
luxi.Client.call = cut
sys.exit(main.main())
"""


@pytest.mark.sampled
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_watcher_that_is_killed_repairs_once(cluster, marks, tmp_path, number):
    """It dies after the pending tag, after the repair's job, after the new tag."""
    put(cluster, SHARED, "node3")
    marks("node3", "-D")
    cluster.check("gnt-cluster", "add-tags", f"{P}migrate")
    summary = f"INSTANCE_MIGRATE({SHARED})"
    before = jobs_of(cluster, summary)
    script = tmp_path / "cut.py"
    tree = str(pathlib.Path(ganeti.__file__).parent.parent)
    script.write_text(CUT.format(tree=tree, number=number))
    assert "Healthy" not in watch(cluster, sys.executable, str(script))
    begun = jobs_of(cluster, summary) - before
    assert len(begun) == (number > 1)
    # Perhaps while the job runs, perhaps later: it makes no difference.
    watch(cluster)
    (job,) = jobs_of(cluster, summary) - before
    with contextlib.closing(cluster.luxi()) as client:
        assert patience.job_status(client, job) == "success"
    for _again in range(2):
        watch(cluster)
        ((state, _kind, _id, _time, result, *jobs),) = records(cluster, SHARED)
        assert (state, result, jobs) == ("result", "success", [str(job)])
    assert jobs_of(cluster, summary) - before == {job}
    assert where(cluster)[SHARED] != "node3.vc.test"
