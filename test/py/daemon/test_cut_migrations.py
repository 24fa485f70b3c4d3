"""A migration of a guest of QEMU that is cut at its last moment leaves one guest.

A proxy between the emulators keeps what the target answers, so that the target has all
of the guest and the source does not know it.
"""

import contextlib
import functools
import os
import shutil
import signal
import socket
import threading

import pytest

from fakes import guests, nodes
from fakes.patience import despite, job_end, until
from ganeti.base import errors
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.moving import departure
from ganeti.node.hypervisor.kvm.qmp import Qmp

#: Guests migrate to fixed ports; addresses for each run keep runs apart.
TARGET, PROXY = (
    f"127.{net}.{os.getpid() // 250 % 250}.{os.getpid() % 250 + 1}" for net in (89, 90)
)
GUEST = "web1.vc.test"
MIB = 1 << 20
calm = functools.partial(despite, errors.HypervisorError)

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.skipif(
        not shutil.which("qemu-system-x86_64"), reason="needs an emulator"
    ),
]


class Proxy:
    """Forwards one connection; what the target answers waits until it is let go."""

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server((PROXY, port))
        self._answers = threading.Event()
        self._ends = ()
        self._threads = []
        self._run(self._accept)

    def _run(self, work, *args):
        thread = threading.Thread(target=work, args=args, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _accept(self):
        with contextlib.suppress(OSError):
            source, _ = self._listener.accept()
            target = socket.create_connection((TARGET, self._port))
            self._ends = (source, target)
            self._run(self._forward, source, target)
            self._run(self._answer, target, source)

    def _forward(self, origin, goal):
        with contextlib.suppress(OSError):
            while data := origin.recv(65536):
                goal.sendall(data)
            goal.shutdown(socket.SHUT_WR)

    def _answer(self, origin, goal):
        with contextlib.suppress(OSError):
            while data := origin.recv(65536):
                self._answers.wait()
                goal.sendall(data)

    def let_answer(self):
        self._answers.set()

    def cut(self):
        """End both connections, as a failing network device does."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._answers.set()

    def close(self):
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)
        for end in self._ends:
            end.close()


def state(paths, name=GUEST):
    """Return the state of the emulator on a node, None without one."""
    guest = Files(paths, name)
    if guest.alive_pid() is None:
        return None
    with Qmp(guest.control("qmp"), name) as qmp:
        return qmp.execute("query-status")["status"]


def word(node):
    return state(node.paths, "web1")


class Watch:
    """Looks at a guest on all nodes, and never sees it run twice."""

    def __init__(self, *places):
        self._places = places

    def words(self):
        seen = tuple(word(place) for place in self._places)
        assert seen.count("running") <= 1, seen
        return seen


@pytest.fixture
def directory():
    with guests.short_directory() as path:
        yield path


@pytest.fixture(params=[True, False], ids=["live", "non-live"])
def pair(request, directory):
    """Return source, target and record of a guest that is there but for an answer."""
    node, other = (nodes.make_node(directory, name) for name in ("n1", "n2"))
    port = 18120 + request.param
    params = guests.kvm_params(migration_port=port, migration_bandwidth=1000)
    record = guests.kvm_instance("web1", params)
    nodes.call(node, "instance_start", record, False, [])
    text = nodes.call(node, "migration_info", record)
    nodes.call(other, "accept_instance", record, text, TARGET)
    proxy = Proxy(port)
    nodes.call(node, "instance_migrate", "cluster", record, PROXY, request.param)
    until("the guest has arrived", calm(lambda: word(other) == "paused"))
    yield node, other, record, proxy
    proxy.close()


def ask(node, record):
    return nodes.call(node, "instance_get_migration_status", record)["status"]


def finish(node, other, record, *, success):
    ends = [
        (node, "instance_finalize_migration_src", (record, success, True)),
        (other, "instance_finalize_migration_dst", (record, "", success)),
    ]
    for place, name, args in reversed(ends) if success else ends:
        nodes.call(place, name, *args)


def test_a_connection_that_breaks_after_the_arrival_leaves_the_guest_at_its_source(
    pair,
):
    node, other, record, proxy = pair
    watch = Watch(node, other)
    assert watch.words()[1] == "paused"
    assert ask(node, record) == "active"
    proxy.cut()
    until(
        "the source knows it", lambda: watch.words() and ask(node, record) == "failed"
    )
    finish(node, other, record, success=False)
    assert watch.words() == ("running", None)


def test_a_source_that_hears_of_the_arrival_gives_the_guest_up(pair):
    node, other, record, proxy = pair
    watch = Watch(node, other)
    proxy.let_answer()
    until(
        "the source knows it", lambda: watch.words() and ask(node, record) != "active"
    )
    assert ask(node, record) == "completed"
    assert watch.words() == ("postmigrate", "paused")
    # Its rest is not taken for a later instance of its name.
    later = {**record, "uuid": nodes.UUID.format(201)}
    with pytest.raises(errors.HypervisorError, match="wanted no guest of another"):
        nodes.call(node, "instance_start", later, False, [])
    # Neither a reboot, a restart of the machine nor an abort brings it back there.
    for kind in ("soft", "hard"):
        with pytest.raises(errors.HypervisorError, match="has left this node"):
            nodes.call(node, "instance_reboot", record, kind, 1, [])
        assert watch.words() == ("postmigrate", "paused")
    guest = Files(node.paths, "web1")
    os.kill(guest.alive_pid(), signal.SIGKILL)
    until("the emulator ends", lambda: guest.alive_pid() is None)
    with pytest.raises(errors.HypervisorError, match="has left this node"):
        nodes.call(node, "instance_start", record, False, [])
    with pytest.raises(errors.HypervisorError, match="has left for the target"):
        nodes.call(node, "instance_finalize_migration_src", record, False, True)
    assert ask(node, record) == "completed"
    finish(node, other, record, success=True)
    assert watch.words() == (None, "running")
    # The node may have it again.
    nodes.call(node, "instance_start", record, False, [])


def test_an_abort_after_the_arrival_leaves_the_guest_at_its_source(pair):
    node, other, record, _proxy = pair
    watch = Watch(node, other)
    finish(node, other, record, success=False)
    assert watch.words() == ("running", None)


def test_a_guest_that_was_started_paused_stays_paused(directory):
    node, other = (nodes.make_node(directory, name) for name in ("n1", "n2"))
    params = guests.kvm_params(migration_port=18123, migration_bandwidth=1000)
    record = guests.kvm_instance("web1", params)
    nodes.call(node, "instance_start", record, True, [])
    text = nodes.call(node, "migration_info", record)
    nodes.call(other, "accept_instance", record, text, TARGET)
    nodes.call(node, "instance_migrate", "cluster", record, TARGET, True)
    until("all is sent", lambda: ask(node, record) == "completed")
    finish(node, other, record, success=True)
    assert (word(node), word(other)) == (None, "prelaunch")


# With all daemons
@pytest.fixture(scope="module")
def cluster(cluster_of):
    made = cluster_of(3, "kvm,fake")
    made.check("gnt-cluster", "modify", "-H", "kvm:migration_bandwidth=1")
    made.wait_until_clean()
    return made


def emulator(cluster, node):
    return Qmp(Files(cluster.paths(node), GUEST).control("qmp"), GUEST)


def progress(cluster):
    """Return the status of the migration, as its source reports it."""
    with emulator(cluster, "node2") as qmp:
        return qmp.execute("query-migrate").get("status")


def being_sent(cluster):
    """Create a guest that node2 sends slowly to node3; return the job."""
    cluster.check(
        *("gnt-instance", "add", *guests.with_ballast(cluster.directory)),
        *("-t", "sharedfile", "-s", "32M", "-o", "tiny+default", "--no-nics"),
        *("-n", "node2", GUEST),
    )
    op = {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": GUEST, "reason": []}
    with contextlib.closing(cluster.luxi()) as client:
        op |= {"target_node": "node3.vc.test", "mode": "live"}
        job = client.call("SubmitJob", [[op]])
    until("the transfer begins", calm(lambda: progress(cluster) == "active"))
    return job


def hurry(cluster):
    """Let the source send the rest at once."""
    with emulator(cluster, "node2") as qmp:
        values = {"max-bandwidth": 256 * MIB, "downtime-limit": 500}
        qmp.execute("migrate-set-parameters", values)


@pytest.fixture
def arrived(cluster):
    """Have a guest arrive at node3 while the node daemon of its source is dead.

    Return the states of the emulators, and the job.
    """
    job = being_sent(cluster)
    cluster.command("kill", "node2", "ganeti-noded")
    hurry(cluster)

    def states():
        seen = {}
        for name in ("node2", "node3"):
            place = Files(cluster.paths(name), GUEST)
            if place.alive_pid() is not None:
                with Qmp(place.control("qmp"), GUEST) as qmp:
                    seen[name] = qmp.execute("query-status")["status"]
        assert list(seen.values()).count("running") <= 1
        return seen

    until("the guest waits", calm(lambda: states().get("node3") == "paused"))
    yield states, job
    cluster.command("start", "node2")
    cluster.check("gnt-instance", "remove", "-f", "--shutdown-timeout=0", GUEST)


def ends_with_cleanup(cluster, job):
    with contextlib.closing(cluster.luxi()) as client:
        status, log = job_end(client, job)
        [[result]] = client.call("QueryJobs", [[job], ["opresult"]])
    assert status == "error", log
    assert f"gnt-instance migrate --cleanup {GUEST}" in str(result)


def place(cluster):
    words = ("gnt-instance", "list", "--no-headers", "-o", "pnode,status", GUEST)
    return cluster.check(*words).split()


AT_ONCE = ("--shutdown-timeout=0",)
CLEANUP = ("gnt-instance", "migrate", "-f", "--cleanup", GUEST)


@pytest.mark.sampled
def test_a_clean_up_lets_what_has_arrived_go_on(cluster, arrived):
    states, job = arrived
    ends_with_cleanup(cluster, job)
    assert states() == {"node2": "postmigrate", "node3": "paused"}
    # Nobody knows yet that the source has given it up.
    assert cluster.run(*CLEANUP).failed
    assert states()["node3"] == "paused"
    cluster.command("start", "node2", "ganeti-noded")
    cluster.check(*CLEANUP)
    assert states() == {"node3": "running"}
    assert place(cluster) == ["node3.vc.test", "running"]


def test_a_failover_removes_what_waits_and_boots_the_guest(cluster, arrived):
    """The source is lost before anybody has heard of the arrival from it."""
    states, job = arrived
    os.kill(Files(cluster.paths("node2"), GUEST).alive_pid(), signal.SIGKILL)
    ends_with_cleanup(cluster, job)
    assert states() == {"node3": "paused"}
    cluster.check("gnt-node", "modify", "-O", "yes", "node2")
    waiting = Files(cluster.paths("node3"), GUEST).alive_pid()
    cluster.check("gnt-instance", "failover", "-f", "-n", "node3", GUEST)
    assert states() == {"node3": "running"}
    assert Files(cluster.paths("node3"), GUEST).alive_pid() != waiting
    assert place(cluster) == ["node3.vc.test", "running"]
    cluster.command("start", "node2", "ganeti-noded")
    cluster.check("gnt-node", "modify", "-f", "-O", "no", "node2")


@pytest.fixture
def cut(cluster):
    """Return a function of the states of a guest that runs at node3, recorded at node2.

    The master and the node daemon of the source end while the guest is being sent. The
    last acts of that master follow without them: the source gives the guest up, and it
    goes on. Then the machine of the source ends.
    """
    job = being_sent(cluster)
    source = Files(cluster.paths("node2"), GUEST)
    cluster.command("kill", "node1", "ganeti-masterd")
    cluster.command("kill", "node2", "ganeti-noded")
    hurry(cluster)
    until("all is sent", calm(lambda: progress(cluster) == "completed"))
    departure.leave(source, has_all=True)
    with emulator(cluster, "node3") as qmp:
        qmp.execute("cont")
    os.kill(source.alive_pid(), signal.SIGKILL)
    cluster.command("start", "node1")
    ends_with_cleanup(cluster, job)

    def states():
        return {
            name: seen
            for name in ("node1", "node2", "node3")
            if (seen := state(cluster.paths(name)))
        }

    yield states
    cluster.command("start", "node2")
    cluster.check("gnt-instance", "remove", "-f", "--shutdown-timeout=0", GUEST)


@pytest.mark.sampled
def test_a_guest_that_runs_at_its_target_is_started_nowhere_else(cluster, cut):
    start_again = (
        ("gnt-instance", "failover", "-f", "-n", "node1", GUEST),
        ("gnt-instance", "startup", GUEST),
    )
    # Its machine comes back without the guest, and the watcher sees it down there.
    cluster.command("start", "node2", "ganeti-noded")
    cluster.check("ganeti-watcher", "--no-verify-disks")
    for words in start_again:
        assert_refused(cluster.run(*words))
    assert cut() == {"node3": "running"}
    # Or the source has died, and an administrator says so.
    cluster.command("kill", "node2", "ganeti-noded")
    cluster.check("gnt-node", "modify", "-O", "yes", "node2")
    assert_refused(cluster.run(*start_again[0]))
    cluster.check(*CLEANUP)
    assert cut() == {"node3": "running"}
    assert place(cluster) == ["node3.vc.test", "running"]
    # It goes on, also at the node that it has left.
    cluster.command("start", "node2", "ganeti-noded")
    cluster.check("gnt-node", "modify", "-f", "-O", "no", "node2")
    cluster.check("gnt-instance", "failover", "-f", "-n", "node2", *AT_ONCE, GUEST)
    assert cut() == {"node2": "running"}


def assert_refused(done):
    assert done.failed
    assert "but runs on node node3.vc.test" in done.output
    assert f"gnt-instance migrate --cleanup {GUEST}" in done.output
