"""``renew-crypto`` and daemons that are killed: no node is lost, and it can be repeated."""

import contextlib
import itertools
import os
import random
import signal
import subprocess

import pytest

from fakes import seeds
from fakes.crash_points import MASTERD, NODED, NODES, CrashCluster, wait_for_job
from fakes.patience import until
from ganeti.base import errors
from ganeti.base.filesystem import pidfile
from ganeti.base.tls import x509

#: Daemons that are killed, and at how many steps each.
VICTIMS = {(MASTERD, "node1"): 8, (NODED, "node1"): 4, (NODED, "node2"): 4}
RENEWAL = {"OP_ID": "OP_CLUSTER_RENEW_CRYPTO", "node_certificates": True}

pytestmark = pytest.mark.daemon


@pytest.fixture(scope="module")
def cluster(new_directory):
    made = CrashCluster(new_directory())
    yield made
    made.close()


def renew(cluster, **parameters):
    """Run a renewal; return its status and errors, None if the master daemon ended."""
    with contextlib.suppress(errors.GenericError), cluster.client() as client:
        op = {"reason": [], **RENEWAL, **parameters}
        job = int(client.call("SubmitJob", [[op]]))
        wait_for_job(client, job)
        return tuple(client.call("QueryJobs", [[job], ["status", "opresult"]])[0])
    return None


def assert_success(outcome, where):
    assert outcome is not None, f"{where}: the master daemon ended"
    assert outcome[0] == "success", f"{where}: {outcome}"


def digests(cluster):
    return {
        node: x509.digest(x509.load_certificate(cluster.paths(node).client_pem))
        for node in NODES
    }


def assert_all_answer(cluster):
    def do():
        with cluster.client() as client:
            answer = client.call("Query", ["node", ["name", "bootid"], None])
        return all(status == 0 for row in answer["data"] for status, _ in row)

    until("all nodes answer the master", do)


def steps_of(cluster):
    """Return how many steps a whole renewal takes, by daemon."""
    before = {key: cluster.daemons[key].count for key in VICTIMS}
    assert_success(renew(cluster), "whole renewal")
    return {key: cluster.daemons[key].count - before[key] for key in VICTIMS}


@pytest.mark.sampled
@pytest.mark.timeout(600)
def test_a_daemon_killed_at_any_step_leaves_all_nodes_reachable(
    cluster, record_property
):
    seed = seeds.given("CRASH_SEED")
    record_property("figures", f"seed {seed}")
    chance = random.Random(seed)
    totals = steps_of(cluster)
    for (name, node), count in VICTIMS.items():
        assert totals[name, node] > count
        for acts in chance.sample(range(1, totals[name, node] + 1), count):
            play(cluster, name, node, acts)


def play(cluster, name, node, acts):
    victim = cluster.daemons[name, node]
    victim.end_after(acts)
    renew(cluster)
    victim.kill()
    cluster.start(name, node)
    if name == MASTERD:
        cluster.wait_for_master()
    else:
        cluster.wait_for_noded(node)
    where = f"{name} on {node} killed at step {acts}"
    assert_all_answer(cluster)
    before = digests(cluster)
    assert_success(renew(cluster), where)
    after = digests(cluster)
    assert not set(before.values()) & set(after.values()), where
    assert_all_answer(cluster)
    for other in NODES:
        path = cluster.paths(other).data("ssconf_master_candidates_certs")

        def is_listed(path=path):
            with open(path) as stream:
                lines = stream.read().split()
            return sorted(line.partition("=")[2] for line in lines) == sorted(
                after.values()
            )

        until(f"{where}: {other} lists the new certificates alone", is_listed)


# ``renew-crypto`` with kill -9 at its steps: it can be repeated, nobody is locked out.
#
# The steps are the lines that the command prints: at the n-th one, the command itself or a
# daemon is killed.

OPTIONS = (
    "--new-ssh-host-keys",
    "--new-ssh-keys",
    "--new-node-certificates",
    "--new-rapi-certificate",
    "--new-spice-certificate",
    "--new-confd-hmac-key",
    "--new-cluster-domain-secret",
)
SHORT_NAMES = ("node1", "node2", "node3")
COMMAND = ("the command", "node1")
VICTIMS_OF_STEPS = (
    COMMAND,
    ("ganeti-masterd", "node1"),
    ("ganeti-noded", "node1"),
    ("ganeti-noded", "node2"),
)
#: Most lines that a run prints, roughly; a later step is the end of the run.
LINES = 8
#: Points that the first test plays.
SAMPLE = 6


@pytest.fixture(scope="module")
def printing_cluster(cluster_of):
    made = cluster_of(3)
    made.wait_until_clean()
    return made


def renew_and_kill(printing_cluster, option, victim, step):
    """Run a renewal and kill something at a line of its output; return whether."""
    node = printing_cluster.node("node1")
    with subprocess.Popen(
        printing_cluster.control.argv(
            node, ["gnt-cluster", "renew-crypto", "-f", option]
        ),
        env=printing_cluster.control.environment(node),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as running:
        for number, _line in enumerate(running.stdout, 1):
            if number == step:
                kill(printing_cluster, running, victim)
                running.stdout.read()
                return True
    return False


def kill(printing_cluster, running, victim):
    if victim == COMMAND:
        running.kill()
        return
    name, node = victim
    path = printing_cluster.paths(node).pid_file(name)
    if pidfile.is_locked(path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pidfile.read_pid(path), signal.SIGKILL)


def play_printed(printing_cluster, option, victim, step):
    """Kill once, repeat as an administrator does, and check everything."""
    where = f"{option}: {victim[0]} on {victim[1]} killed at line {step}"
    was_killed = renew_and_kill(printing_cluster, option, victim, step)
    if victim != COMMAND:
        # The watcher does that on a real node.
        for node in SHORT_NAMES:
            printing_cluster.command("start", node)
    repeated = printing_cluster.run(
        "gnt-cluster", "renew-crypto", "-f", option, timeout_s=300
    )
    assert not repeated.failed, f"{where}: {repeated.output}"
    printing_cluster.wait_until_clean()
    answer = printing_cluster.run("gnt-cluster", "command", "true")
    assert not answer.failed, f"{where}: {answer.output}"
    for node in SHORT_NAMES:
        until(
            f"{where}: all daemons of {node}",
            lambda n=node: has_daemons(printing_cluster, n),
        )
    return was_killed


def has_daemons(printing_cluster, node):
    names = ("ganeti-noded", "ganeti-confd")
    names += ("ganeti-masterd", "ganeti-rapi") if node == "node1" else ()
    return all(
        pidfile.is_locked(printing_cluster.paths(node).pid_file(each)) for each in names
    )


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_sample_of_kills_can_be_repeated(printing_cluster, record_property):
    seed = seeds.given("RENEWAL_SEED")
    chance = random.Random(seed)
    points = list(itertools.product(OPTIONS, VICTIMS_OF_STEPS, range(1, LINES + 1)))
    done = 0
    for option, victim, step in chance.sample(points, SAMPLE):
        done += play_printed(printing_cluster, option, victim, step)
    record_property("figures", f"seed {seed}: {done} of {SAMPLE} points were reached")


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("victim", VICTIMS_OF_STEPS, ids="-".join)
@pytest.mark.parametrize("option", OPTIONS)
def test_every_kill_can_be_repeated(printing_cluster, option, victim):
    for step in itertools.count(1):
        if not play_printed(printing_cluster, option, victim, step):
            return
