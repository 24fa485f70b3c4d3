"""``renew-crypto`` with kill -9 at its steps: it can be repeated, nobody is locked out.

The steps are the lines that the command prints: at the n-th one, the command itself or a
daemon is killed. `test_renewal_crash` has finer steps of the node certificates alone.
"""

import contextlib
import itertools
import os
import random
import signal
import subprocess

import pytest

from fakes import seeds
from fakes.patience import until
from ganeti.base.filesystem import pidfile

pytestmark = [pytest.mark.daemon, pytest.mark.long, pytest.mark.timeout(1200)]

OPTIONS = (
    "--new-ssh-host-keys",
    "--new-ssh-keys",
    "--new-node-certificates",
    "--new-rapi-certificate",
    "--new-spice-certificate",
    "--new-confd-hmac-key",
    "--new-cluster-domain-secret",
)
NODES = ("node1", "node2", "node3")
COMMAND = ("the command", "node1")
VICTIMS = (
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
def cluster(cluster_of):
    made = cluster_of(3)
    made.wait_until_clean()
    return made


def renew_and_kill(cluster, option, victim, step):
    """Run a renewal and kill something at a line of its output; return whether."""
    node = cluster.node("node1")
    with subprocess.Popen(
        cluster.control.argv(node, ["gnt-cluster", "renew-crypto", "-f", option]),
        env=cluster.control.environment(node),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as running:
        for number, _line in enumerate(running.stdout, 1):
            if number == step:
                kill(cluster, running, victim)
                running.stdout.read()
                return True
    return False


def kill(cluster, running, victim):
    if victim == COMMAND:
        running.kill()
        return
    name, node = victim
    path = cluster.paths(node).pid_file(name)
    if pidfile.is_locked(path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pidfile.read_pid(path), signal.SIGKILL)


def play(cluster, option, victim, step):
    """Kill once, repeat as an administrator does, and check everything."""
    where = f"{option}: {victim[0]} on {victim[1]} killed at line {step}"
    was_killed = renew_and_kill(cluster, option, victim, step)
    if victim != COMMAND:
        # The watcher does that on a real node.
        for node in NODES:
            cluster.command("start", node)
    repeated = cluster.run("gnt-cluster", "renew-crypto", "-f", option, timeout_s=300)
    assert not repeated.failed, f"{where}: {repeated.output}"
    cluster.wait_until_clean()
    answer = cluster.run("gnt-cluster", "command", "true")
    assert not answer.failed, f"{where}: {answer.output}"
    for node in NODES:
        until(f"{where}: all daemons of {node}", lambda n=node: has_daemons(cluster, n))
    return was_killed


def has_daemons(cluster, node):
    names = ("ganeti-noded", "ganeti-confd")
    names += ("ganeti-masterd", "ganeti-rapi") if node == "node1" else ()
    return all(pidfile.is_locked(cluster.paths(node).pid_file(each)) for each in names)


def test_a_sample_of_kills_can_be_repeated(cluster, record_property):
    seed = seeds.given("RENEWAL_SEED")
    chance = random.Random(seed)
    points = list(itertools.product(OPTIONS, VICTIMS, range(1, LINES + 1)))
    done = 0
    for option, victim, step in chance.sample(points, SAMPLE):
        done += play(cluster, option, victim, step)
    record_property("figures", f"seed {seed}: {done} of {SAMPLE} points were reached")


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("victim", VICTIMS, ids="-".join)
@pytest.mark.parametrize("option", OPTIONS)
def test_every_kill_can_be_repeated(cluster, option, victim):
    for step in itertools.count(1):
        if not play(cluster, option, victim, step):
            return
