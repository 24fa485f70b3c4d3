"""``renew-crypto`` and daemons that are killed: no node is lost, and it can be repeated."""

import contextlib
import random

import pytest

from fakes import seeds
from fakes.crash_points import MASTERD, NODED, NODES, CrashCluster, wait_for_job
from fakes.patience import until
from ganeti.base import errors
from ganeti.base.tls import x509

#: Daemons that are killed, and at how many steps each.
VICTIMS = {(MASTERD, "node1"): 8, (NODED, "node1"): 4, (NODED, "node2"): 4}
RENEWAL = {"OP_ID": "OP_CLUSTER_RENEW_CRYPTO", "node_certificates": True}


pytestmark = [pytest.mark.daemon, pytest.mark.sampled]


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
