"""Dead nodes on isolated machines: cuts of the network, lies, and masters that die."""

import json
import os
import pathlib

import pytest

from fakes.patience import until
from ganeti.node.storage import heartbeats

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.long,
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
]
GUEST = "web1.vc.test"
ADD = ("gnt-instance", "add", "--no-install", "-t", "sharedfile", "-s", "8m")
ADD += ("-o", "tiny+default", "--no-start", "-H", "fake")
DEAD = "node3"
NAME = "node3.vc.test"
OTHERS = "node1,node2,node4"
PHASES = ("suspected", "fencing", "fenced", "offline")


@pytest.fixture(scope="module")
def cluster(cluster_of):
    made = cluster_of(4, "fake", "--isolated", "--monitoring")
    made.check("gnt-cluster", "add-tags", "ganeti:watcher:autorepair:failover")
    made.check(*ADD, "-n", DEAD, GUEST)
    return made


@pytest.fixture(autouse=True)
def watched(cluster):
    """Nodes are watched during a test, the guest runs; afterwards all is as before."""
    if guest(cluster)[0] != NAME:
        cluster.check("gnt-instance", "migrate", "-f", "-n", DEAD, GUEST)
    cluster.check("gnt-instance", "startup", GUEST)
    limit = "--automation-limits=fenced-per-hour=1000"
    cluster.check("gnt-cluster", "modify", "--node-death=yes", limit)
    yield
    cluster.command("heal")
    cluster.check("gnt-cluster", "modify", "--node-death=no")
    until("nothing is remembered", lambda: deaths(cluster) == {})
    cluster.command("power", "on", DEAD)
    cluster.run("gnt-node", "modify", "--node-powered=yes", DEAD)
    cluster.run("gnt-node", "modify", "--offline=no", "--force", DEAD)


def guest(cluster):
    fields = ("gnt-instance", "list", "--no-headers", "-o", "pnode,status", GUEST)
    return cluster.check(*fields).split()


def runs_elsewhere(cluster):
    node, status = guest(cluster)
    return node != NAME and status == "running"


def deaths(cluster):
    info = json.loads(cluster.check("gnt-cluster", "info", "--json"))
    return {each["name"]: each for each in info["node_deaths"]}


def limit(cluster):
    return deaths(cluster).get(NAME, {}).get("limit")


def jobs(cluster, kind):
    """Return the jobs of a kind that succeeded, and were submitted because of a death."""
    text = cluster.check(
        *("gnt-job", "list", "--no-headers", "--separator=|", "-o", "id,status,summary")
    )
    rows = [line.split("|") for line in text.splitlines()]
    return {
        int(number)
        for number, status, summary in rows
        if (status, summary.startswith(kind)) == ("success", True)
        and f"death of {NAME}" in cluster.check("gnt-job", "info", number)
    }


def is_on(cluster):
    return cluster.control.is_powered(cluster.node(DEAD))


def restart_master(cluster):
    cluster.command("kill", "node1", "ganeti-masterd")
    cluster.check("daemon-util", "start", "ganeti-masterd")


def test_a_node_that_is_cut_off_from_all_is_fenced_before_its_guest_moves(cluster):
    cluster.command("partition", DEAD, OTHERS)
    until("the guest runs elsewhere", lambda: runs_elsewhere(cluster))
    assert not is_on(cluster)
    assert cluster.control.processes_on(cluster.node(DEAD)) == []


def test_a_node_that_only_the_master_cannot_reach_is_left_alone(cluster):
    before = jobs(cluster, "OOB_COMMAND")
    cluster.command("partition", DEAD, "node1")
    until("it is refused", lambda: limit(cluster) == "reached")
    assert "it answers" in deaths(cluster)[NAME]["reason"]
    assert is_on(cluster)
    cluster.command("heal")
    until("it is alive", lambda: deaths(cluster) == {})
    assert guest(cluster) == [NAME, "running"]
    assert jobs(cluster, "OOB_COMMAND") == before


def test_a_lying_helper_is_noticed_and_moves_nothing(cluster, helper):
    healed = pathlib.Path(cluster.directory) / "healed"
    asked = pathlib.Path(cluster.directory) / "asked"
    # It switches nothing off; the node is back when it says "off".
    helper(
        f'case "$1" in power-status) : >{asked}\n'
        f"while [ ! -e {healed} ]; do sleep 0.1; done\n"
        """echo '{"powered": false}' ;; esac"""
    )
    cluster.command("partition", DEAD, OTHERS)
    # Its job has looked at the node before.
    until("the helper is asked whether it is off", asked.exists)
    cluster.command("heal")
    healed.touch()
    until("the lie is noticed", lambda: limit(cluster) == "lying-helper")
    verified = cluster.run("gnt-cluster", "verify").output
    assert f"node {NAME} does not answer and is held; nothing is done" in verified
    assert is_on(cluster)
    # A fence records nothing, so calls reach the node.
    assert cluster.check("gnt-node", "list", "--no-headers", "-o", "powered", DEAD) == (
        "Y\n"
    )
    assert guest(cluster) == [NAME, "running"]


def test_a_heartbeat_unmasks_a_helper_that_lies_about_a_node_nobody_reaches(
    cluster, helper
):
    """Without it the guest would run twice: nobody else knows that the node lives."""
    helper("""[ "$1" != power-status ] || echo '{"powered": false}'""")
    file = pathlib.Path(cluster.directory) / "shared" / heartbeats.DIRECTORY / NAME
    until("the node writes heartbeats", file.exists)
    written = file.read_bytes()
    until("they go on", lambda: file.read_bytes() != written)
    cluster.command("partition", DEAD, OTHERS)
    until("the fence waits", lambda: limit(cluster) == "heartbeat")
    until("the lie is noticed", lambda: limit(cluster) == "lying-helper")
    assert "its heartbeat on shared storage" in deaths(cluster)[NAME]["reason"]
    assert is_on(cluster)
    cluster.command("heal")
    assert guest(cluster) == [NAME, "running"]


@pytest.mark.parametrize("phase", PHASES)
def test_a_master_that_dies_in_a_phase_does_nothing_twice(cluster, helper, phase):
    """Both daemons are killed; the new ones go on from the stored phase."""
    log = pathlib.Path(cluster.directory) / f"calls-{phase}"
    helper(f'echo "$*" >> {log}; exec "$real" "$@"')
    known = {kind: jobs(cluster, kind) for kind in ("NODE_SET", "INSTANCE_FAILOVER")}
    # A machine without power refuses no connections, unlike the namespace of a node.
    cluster.command("partition", DEAD, OTHERS)
    cluster.command("kill", DEAD)
    # A short phase may be over before it is seen.
    later = PHASES[PHASES.index(phase) :]

    def is_reached():
        known = deaths(cluster)
        return known[NAME]["phase"] in later if known else runs_elsewhere(cluster)

    until(f"it is {phase}", is_reached)
    cluster.command("kill", "node1", "ganeti-maintd")
    restart_master(cluster)
    cluster.check("daemon-util", "start", "ganeti-maintd")
    until("the guest runs elsewhere", lambda: runs_elsewhere(cluster))
    until("it is over", lambda: deaths(cluster) == {})
    for kind, before in known.items():
        assert len(jobs(cluster, kind) - before) == 1, kind
    assert not is_on(cluster)
