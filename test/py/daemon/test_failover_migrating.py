"""The master role moves while a guest of QEMU moves: it runs once, where recorded."""

import contextlib
import functools
import shutil

import pytest

from fakes import guests
from fakes.patience import despite, job_end, until
from ganeti.base import errors
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.qmp import Qmp

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.sampled,
    pytest.mark.skipif(
        not shutil.which("qemu-system-x86_64"), reason="needs an emulator"
    ),
]

GUEST = "web1.vc.test"
NODES = ("node1", "node2", "node3")
MIB = 1 << 20
calm = functools.partial(despite, errors.HypervisorError)


@pytest.fixture(scope="module")
def cluster(cluster_of):
    made = cluster_of(3, "kvm,fake")
    made.check("gnt-cluster", "modify", "-H", "kvm:migration_bandwidth=1")
    made.check(
        *("gnt-instance", "add", *guests.with_ballast(made.directory)),
        *("-t", "sharedfile", "-s", "32M", "-o", "tiny+default", "--no-nics"),
        *("-n", "node2", GUEST),
    )
    made.wait_until_clean()
    return made


@pytest.fixture(autouse=True)
def at_home(cluster):
    """Begin with the master on node1 and the guest on node2; all daemons run."""
    yield
    for name in NODES:
        cluster.command("start", name)
    # A node that was down may not know yet who is the master; node3 was up.
    master = cluster.check("gnt-cluster", "getmaster", node="node3")
    if "node1" not in master:
        getmaster = ("gnt-cluster", "getmaster")
        until(
            "node1 knows the master",
            lambda: cluster.check(*getmaster, node="node1") == master,
        )
        cluster.check("gnt-cluster", "master-failover", node="node1")
    move(cluster, "node2")


def move(cluster, node):
    """Migrate the guest to a node, fast."""
    [place] = states(cluster)
    if place != node:
        fast = ("gnt-cluster", "modify", "-H", "kvm:migration_bandwidth=256")
        cluster.check(*fast)
        cluster.check("gnt-instance", "migrate", "-f", "-n", node, GUEST)
        cluster.check(*fast[:-1], "kvm:migration_bandwidth=1")


def qmp(cluster, node):
    return Qmp(Files(cluster.paths(node), GUEST).control("qmp"), GUEST)


def states(cluster):
    """Return {node: state of the emulator that it runs}."""
    actual = {}
    for name in NODES:
        if Files(cluster.paths(name), GUEST).alive_pid() is not None:
            with qmp(cluster, name) as session:
                actual[name] = session.execute("query-status")["status"]
    return actual


def wait_for_arrival(cluster):
    """Wait until the guest waits at node3."""
    until("it waits", calm(lambda: states(cluster).get("node3") == "paused"))


def begin(cluster, source="node2"):
    """Begin a migration to node3; return its job when memory is being sent."""
    op = {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": GUEST, "reason": []}
    with contextlib.closing(cluster.luxi()) as client:
        op |= {"target_node": "node3.vc.test", "mode": "live"}
        job = client.call("SubmitJob", [[op]])

    def is_sent():
        with qmp(cluster, source) as session:
            return session.execute("query-migrate").get("status") == "active"

    until("the transfer begins", calm(is_sent))
    return job


def speed_up(cluster, source="node2"):
    with qmp(cluster, source) as session:
        values = {"max-bandwidth": 256 * MIB, "downtime-limit": 500}
        session.execute("migrate-set-parameters", values)


def is_sent(cluster):
    with qmp(cluster, "node2") as session:
        return session.execute("query-migrate").get("status") == "completed"


def fail_over(cluster, node):
    done = cluster.run("gnt-cluster", "master-failover", node=node)
    assert not done.failed, done.output


def field(cluster, names, node):
    words = ("gnt-instance", "list", "--no-headers", "-o", names, GUEST)
    return cluster.check(*words, node=node).split()


def kill_node(cluster):
    """End all daemons of the master; its guests would die with a real machine."""
    cluster.command("kill", "node1")


def leave(_cluster):
    """Leave the old master as it is: it hands the role over."""


@pytest.mark.parametrize("end", [leave, kill_node])
@pytest.mark.parametrize(
    "new", [pytest.param("node2", marks=pytest.mark.long), "node3"]
)
def test_the_new_master_goes_on_with_the_migration(cluster, end, new):
    job = begin(cluster)
    end(cluster)
    fail_over(cluster, new)
    log = cluster.check("gnt-job", "info", str(job), node=new)
    assert states(cluster).keys() == {"node2", "node3"}, log
    speed_up(cluster)
    with contextlib.closing(cluster.luxi(new)) as client:
        status, log = job_end(client, job)
    assert status == "success", log
    assert states(cluster) == {"node3": "running"}
    assert field(cluster, "pnode,status", new) == ["node3.vc.test", "running"]


@pytest.mark.long
def test_a_migration_that_ends_while_there_is_no_master_is_finished(cluster):
    job = begin(cluster)
    kill_node(cluster)
    speed_up(cluster)
    until("all is sent", calm(lambda: is_sent(cluster)))
    wait_for_arrival(cluster)
    assert states(cluster) == {"node2": "postmigrate", "node3": "paused"}
    fail_over(cluster, "node3")
    with contextlib.closing(cluster.luxi("node3")) as client:
        status, log = job_end(client, job)
    assert status == "success", log
    assert states(cluster) == {"node3": "running"}
    assert field(cluster, "pnode,status", "node3") == ["node3.vc.test", "running"]


def test_a_silent_source_is_named_with_the_command_that_ends_the_migration(cluster):
    move(cluster, "node1")
    job = begin(cluster, "node1")
    # The guest runs on, but nobody at its node answers.
    for daemon in ("ganeti-masterd", "ganeti-noded"):
        cluster.command("kill", "node1", daemon)
    speed_up(cluster, "node1")
    wait_for_arrival(cluster)
    fail_over(cluster, "node3")
    with contextlib.closing(cluster.luxi("node3")) as client:
        status, _log = job_end(client, job)
        [[result]] = client.call("QueryJobs", [[job], ["opresult"]])
    command = f"gnt-instance migrate --cleanup {GUEST}"
    assert status == "error"
    assert command in str(result)
    # Nobody knows what its source has decided, so it waits.
    assert states(cluster) == {"node1": "postmigrate", "node3": "paused"}
    cluster.command("start", "node1", "ganeti-noded")
    cluster.check("gnt-instance", "migrate", "-f", "--cleanup", GUEST, node="node3")
    assert states(cluster) == {"node3": "running"}
    assert field(cluster, "pnode,status", "node3") == ["node3.vc.test", "running"]
