"""Repairs by tags on real daemons: every run of harep takes instances one step further."""

import contextlib

import pytest

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
    """Run harep; return what it prints."""
    return cluster.check("harep", f"--job-delay={delay}")


def records(cluster, name):
    """Return the fields of the tags that record repairs, pending ones first."""
    tags = cluster.check("gnt-instance", "list-tags", name).split()
    actual = [tag.removeprefix(P).split(":") for tag in tags if tag.startswith(P)]
    return sorted(fields for fields in actual if fields[0] in ("pending", "result"))


def ended(cluster, name):
    """Wait for the job of the only repair that pends; return how it ended."""
    ((state, *_rest, jobs),) = records(cluster, name)
    assert state == "pending"
    with contextlib.closing(cluster.luxi()) as client:
        return patience.job_status(client, int(jobs.split("+")[-1]))


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
