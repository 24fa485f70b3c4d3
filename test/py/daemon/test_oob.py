"""Power of virtual machines: ``gnt-cluster epo``, ``gnt-node power`` and verification.

The helper is that of virtual clusters, which ends each process of a node.
"""

import os
import pathlib
import signal
import threading

import pytest

from fakes import oob_helpers
from fakes.patience import PATIENCE_S, until

pytestmark = pytest.mark.daemon
ADD = (
    *("gnt-instance", "add", "-t", "sharedfile", "-s", "8M", "-B", "memory=64M"),
    *("-H", "fake", "-o", "tiny+default", "--no-nics", "--no-install"),
)
#: Instance -> its node, and whether it should run.
INSTANCES = {"one": ("node1", True), "two": ("node2", True), "down": ("node3", False)}


@pytest.fixture(scope="module")
def cluster(cluster_of):
    made = cluster_of(3)
    for name, (node, runs) in INSTANCES.items():
        made.check(*ADD, "-n", node, f"{name}.vc.test")
        if runs:  # without an OS, nothing is started
            made.check("gnt-instance", "start", f"{name}.vc.test")
    return made


def table(cluster, program, fields, *names, node="node1"):
    words = (program, "list", "--no-headers", "--separator=|", "-o", fields)
    text = cluster.check(*words, *names, node=node)
    return [line.split("|") for line in text.splitlines()]


def nodes(cluster):
    return table(cluster, "gnt-node", "name,offline,powered,tags")


def states(cluster):
    return {
        name.split(".")[0]: status
        for name, status in table(cluster, "gnt-instance", "name,status")
    }


def pids_of(cluster, node, name, *arguments):
    """Return the process numbers of a program that runs with some arguments."""
    return [
        process.pid
        for process in cluster.processes(node)
        if process.name == name and set(arguments) <= set(process.arguments)
    ]


def are_off(cluster):
    return all(
        cluster.control.processes_on(cluster.node(name)) == []
        for name in ("node2", "node3")
    )


def assert_all_is_off(cluster):
    assert nodes(cluster) == [
        ["node1.vc.test", "N", "Y", ""],
        ["node2.vc.test", "Y", "N", "ganeti:epo"],
        ["node3.vc.test", "Y", "N", "ganeti:epo"],
    ]
    assert are_off(cluster)
    assert states(cluster)["one"] == "ERROR_down"


def assert_all_is_back(cluster):
    assert nodes(cluster) == [[f"node{n}.vc.test", "N", "Y", ""] for n in (1, 2, 3)]
    assert states(cluster) == {"one": "running", "two": "running", "down": "ADMIN_down"}
    cluster.check("gnt-cluster", "watcher", "continue")
    cluster.wait_until_clean()


@pytest.mark.sampled
def test_an_emergency_and_the_way_back_survive_crashes_of_the_master(cluster, helper):
    """The master daemon is killed while the helper of node3 is at work, both ways."""
    begun = pathlib.Path(cluster.directory) / "begun"
    helper(
        f'case "$1 $2" in "power-o"*" node3"*) if [ ! -e {begun} ]; then'
        f" : >{begun}; sleep 600; fi ;; esac\n"
        'exec "$real" "$@"'
    )
    for way in ((), ("--on",)):
        begun.unlink(missing_ok=True)
        words = ("gnt-cluster", "epo", "-f", "--power-delay=0", *way, "--all")
        # The cut order ends with its helper. The next one has the usual limit, since a
        # helper that works may take longer than this on a busy machine.
        command = (*words, "--oob-timeout=15")
        results = []

        def first(command=command, results=results):
            results.append(cluster.run(*command, timeout_s=PATIENCE_S))

        thread = threading.Thread(target=first)
        thread.start()
        until("the helper of node3 has begun", begun.exists)
        cluster.command("kill", "node1", "ganeti-masterd")
        thread.join()
        assert results[0].failed
        # The other nodes are off: they cannot vote, and are known to be down.
        options = ("--no-voting", "--yes-do-it", "--require-majority")
        cluster.check("daemon-util", "start", "ganeti-masterd", *options)
        again = cluster.run(*words, timeout_s=PATIENCE_S)
        assert not again.failed, again.output
        (assert_all_is_back if way else assert_all_is_off)(cluster)


@pytest.mark.sampled
def test_the_role_moves_before_the_master_goes_off_and_stays_there(cluster):
    """The command is killed on the new master while that takes the role."""
    log = cluster.file("/var/log/ganeti/epo.log", "node2")
    results = []

    def first():
        words = ("gnt-cluster", "epo", "-f", "node1", "node3")
        results.append(cluster.run(*words, timeout_s=PATIENCE_S))

    def taking():
        return pids_of(cluster, "node2", "gnt-cluster", "--become-master")

    thread = threading.Thread(target=first)
    thread.start()
    pids = until("node2 begins to take the role", taking)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    # The old master daemon does not end, so the command waits for it in the middle.
    (old,) = pids_of(cluster, "node1", "ganeti-masterd")
    os.kill(old, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    text = "Setting master to node2"
    until("node2 takes the role", lambda: log.exists() and text in log.read_text())
    for pid in taking():
        os.kill(pid, signal.SIGKILL)
    os.kill(old, signal.SIGCONT)
    thread.join()
    assert results[0].code == 1
    go_on = results[0].stderr.splitlines()[-1].partition("type there: ")[2]
    assert go_on == "gnt-cluster epo --become-master node1.vc.test node3.vc.test"
    words = ("gnt-cluster", "epo", "--force", *go_on.split()[2:])
    cluster.check(*words, node="node2", timeout_s=PATIENCE_S)
    off = ["Y", "N", "ganeti:epo"]

    def roles():
        fields = "name,offline,powered,tags,role"
        return table(cluster, "gnt-node", fields, node="node2")

    assert roles() == [
        ["node1.vc.test", *off, "O"],
        ["node2.vc.test", "N", "Y", "", "M"],
        ["node3.vc.test", *off, "O"],
    ]
    assert cluster.control.processes_on(cluster.node("node1")) == []
    on = ("gnt-cluster", "epo", "-f", "--on", "--power-delay=0", "--all")
    cluster.check(*on, node="node2", timeout_s=PATIENCE_S)
    assert [row[-1] for row in roles()] == ["C", "M", "C"]
    cluster.wait_until_clean("node2")
    cluster.check("gnt-cluster", "master-failover", node="node1")
    assert_all_is_back(cluster)


@pytest.mark.sampled
def test_power_of_one_node_and_its_record(cluster):
    off = cluster.run("gnt-node", "power", "-f", "off", "node3")
    assert (off.code, off.stdout.split()[-2:]) == (0, ["node3.vc.test", "invoked"])
    assert "'node3.vc.test' is now recorded as powered off" in off.stdout
    verified = cluster.run("gnt-cluster", "verify").output
    assert "recorded power state" not in verified
    cluster.command("power", "on", "node3")
    verified = cluster.run("gnt-cluster", "verify").output
    assert "node node3.vc.test: recorded power state (off) does not match" in verified
    status = cluster.run("gnt-node", "power", "status")
    assert "does not match actual power state (True)" in status.stdout
    cluster.check("gnt-node", "modify", "--node-powered=yes", "node3")
    cluster.check("gnt-node", "modify", "-f", "-O", "no", "node3")
    cluster.wait_until_clean()


def test_a_node_that_may_be_on_is_not_marked_offline(cluster, helper):
    helper(
        'case "$1" in power-off) echo no route >&2; exit 1 ;; esac\nexec "$real" "$@"'
    )
    off = cluster.run("gnt-node", "power", "-f", "off", "node2")
    assert (off.code, off.stdout.split()[-2:]) == (1, ["node2.vc.test", "(nodata)"])
    assert "Node 'node2.vc.test' is not marked offline" in off.stdout
    flags = table(cluster, "gnt-node", "offline,powered,master_candidate", "node2")
    assert flags == [["N", "Y", "Y"]]
    cluster.wait_until_clean()


def test_dead_controllers_are_named_and_do_not_delay_the_others(cluster, helper):
    # The others answer at once: the real helper has to be loaded, which may take longer.
    helper('case "$2" in node2*) sleep 600 ;; esac\necho \'{"powered": true}\'')
    status = cluster.run("gnt-node", "power", "--oob-timeout=10", "status")
    assert status.code == 1
    rows = [line.split() for line in status.stdout.splitlines()[-3:]]
    assert rows == [
        ["node1.vc.test", "powered"],
        ["node2.vc.test", "(nodata)"],
        ["node3.vc.test", "powered"],
    ]
    assert (
        "node 'node2.vc.test': OOB program execution timeout exceeded, OOB program"
        " execution aborted" in status.stdout
    )


def test_a_helper_that_others_could_replace_is_not_run(cluster, helper):
    helper(": >$0.ran")
    path = pathlib.Path(cluster.directory) / "odd-power"
    os.chmod(path, 0o757)
    status = cluster.run("gnt-node", "power", "status", "node2")
    assert status.code == 1
    assert "can be written by others than its owner (mode 0757)" in status.stdout
    assert not pathlib.Path(f"{path}.ran").exists()
    verified = cluster.run("gnt-cluster", "verify").output
    assert "OOB program" in verified
    assert "can be written by others" in verified


def test_a_node_that_opted_out_is_left_alone(cluster):
    cluster.check("gnt-node", "modify", "--node-parameters=oob_program=!", "node3")
    try:
        assert "node3" not in cluster.check("gnt-node", "power", "status")
        assert "node3" not in cluster.check("gnt-node", "health")
        assert "powered" not in cluster.check("gnt-node", "info", "node3")
        for words in (("power", "-f", "off"), ("power", "status"), ("health",)):
            result = cluster.run("gnt-node", *words, "node3")
            assert result.code == 1
            assert "Node node3.vc.test does not support OOB commands" in result.stderr
        assert table(cluster, "gnt-node", "offline", "node3") == [["N"]]
        refused = cluster.run("gnt-node", "modify", "--node-powered=no", "node3")
        assert "has no out-of-band helper" in refused.stderr
    finally:
        cluster.check(
            "gnt-node", "modify", "--node-parameters=oob_program=default", "node3"
        )


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root")
def test_the_shipped_helper_switches_isolated_nodes(cluster_of):
    """Isolated nodes have no environment of a virtual cluster: root's rules hold."""
    isolated = cluster_of(2, "fake", "--isolated")
    settings = "/etc/ganeti/oob-vcluster.conf"
    text = f"[*]\\ndirectory = {isolated.directory}\\n"
    for node in ("node1", "node2"):
        write = f"umask 077; printf '{text}' > {settings}"
        assert not isolated.run("sh", "-c", write, node=node).failed
    program = oob_helpers.BIN / "oob-vcluster"
    isolated.check("gnt-cluster", "modify", f"--node-parameters=oob_program={program}")

    def power(*words):
        return isolated.run("gnt-node", "power", "--force", *words)

    def is_powered():
        done = isolated.run("gnt-node", "power", "--no-headers", "status", "node2")
        return done.output.split()[-1]

    assert not isolated.run("sh", "-c", 'test -z "$GANETI_ROOTDIR"').failed
    assert is_powered() == "powered"
    assert not power("off", "node2").failed
    assert is_powered() == "unpowered"
    assert isolated.control.processes_on(isolated.node("node2")) == []
    assert not power("on", "node2").failed
    assert is_powered() == "powered"
    state = pathlib.Path(isolated.directory) / "vcluster.json"
    state.chmod(0o666)
    done = power("off", "node2")
    assert done.failed
    assert "can be written by others than its owner (mode 0666)" in done.output
    state.chmod(0o600)
    assert is_powered() == "powered"
