"""Nodes that refuse the term of the master: its acts wait, and they are led back.

Others missed a promotion, and obey the present master nevertheless.
"""

import contextlib
import os
import signal

import pytest

from fakes.patience import until
from ganeti.base.filesystem import pidfile
from ganeti.decisions.quorum import Term
from ganeti.protocols import rpc
from ganeti.store.database import Database

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(600)]
#: No candidates.
OTHERS = ("node4", "node5")


@pytest.fixture(scope="module")
def cluster(cluster_of):
    """Three candidates and two other nodes."""
    made = cluster_of(5)
    made.check("gnt-cluster", "modify", "-C", "3")
    for node in ("node4", "node5"):
        made.check("gnt-node", "modify", "-C", "no", made.node(node).name)
    made.wait_until_clean()
    return made


def uuid_of(cluster, node, master="node1"):
    with cluster.luxi(master) as client:
        rows = client.call("QueryNodes", [[], ["name", "uuid"], False])
    return dict(rows)[cluster.node(node).name]


def present_term(cluster):
    path = str(cluster.paths("node1").store_db)
    with contextlib.closing(Database(path, create=False)) as db:
        return db.position().term


def ask(cluster, caller, node, procedure, *args, term=None):
    """Call a node with the certificate of another one, and any term."""
    there = cluster.node(node)
    target = rpc.Target(uuid_of(cluster, node), there.name, there.address, 1811)
    runner = rpc.StaticRunner([target], cluster.paths(caller), term)
    with contextlib.closing(runner):
        return runner.call(procedure, [target.uuid], args)[target.uuid]


def give_term(cluster, node, ahead=5):
    """Have a node follow a master that nobody elected; return its term."""
    term = Term(present_term(cluster).number + ahead, uuid_of(cluster, "node2"))
    assert ask(cluster, "node2", node, "version", term=term).payload
    return term


@contextlib.contextmanager
def frozen(cluster, *names):
    pids = [
        pidfile.read_pid(cluster.paths(name).pid_file("ganeti-noded")) for name in names
    ]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def term_of_node(cluster, node):
    return cluster.file("/var/lib/ganeti/term", node).read_text()


def master_log(cluster):
    return cluster.file("/var/log/ganeti/master-daemon.log", "node1").read_text()


@pytest.mark.sampled
def test_a_node_with_a_later_term_is_led_back(cluster):
    before = present_term(cluster)
    other = give_term(cluster, "node4", 500_000)
    assert other.owner in term_of_node(cluster, "node4")
    refused = ask(cluster, "node1", "node4", "version", term=before)
    assert refused.deposed
    # Whatever calls it next has it led back.
    cluster.run("gnt-node", "list", "-o", "name,mfree")
    until("the term", lambda: before.owner in term_of_node(cluster, "node4"))
    cluster.wait_until_clean()
    assert present_term(cluster) == before
    again = ask(cluster, "node2", "node4", "version", term=Term(1, other.owner))
    assert again.deposed


def test_a_restart_of_the_node_daemon_keeps_the_term_after_that(cluster):
    give_term(cluster, "node5")
    cluster.run("gnt-node", "list", "-o", "name,mfree")
    owner = present_term(cluster).owner
    until("the term", lambda: owner in term_of_node(cluster, "node5"))
    cluster.check("daemon-util", "stop", "ganeti-noded", node="node5")
    cluster.check("daemon-util", "start", "ganeti-noded", node="node5")
    cluster.wait_until_clean()


def test_candidates_vouch_for_the_master_alone(cluster):
    term = give_term(cluster, "node4", 1)
    second = uuid_of(cluster, "node2")
    wanted = Term(term.number - 1, second)
    review = ask(cluster, "node2", "node4", "term_review", tuple(wanted))
    assert review.payload, review.fail_msg
    node4 = cluster.node("node4")
    place = (uuid_of(cluster, "node4"), node4.name, node4.address)
    for name in ("node1", "node2", "node3"):
        uuid = uuid_of(cluster, name)
        answer = ask(
            cluster, "node2", name, "term_confirm", wanted, uuid, review.payload, place
        )
        assert "has promised term" in answer.fail_msg
    # Nobody speaks for another node, nor asks in its name.
    first = uuid_of(cluster, "node1")
    answer = ask(cluster, "node2", "node4", "term_vouch", first, review.payload)
    assert f"the caller is {second}" in answer.fail_msg
    answer = ask(cluster, "node2", "node4", "term_review", (wanted.number, first))
    assert "is not the caller's" in answer.fail_msg
    assert second in term_of_node(cluster, "node4")
    # One word of three is no majority, and counts once.
    for _ in range(3):
        answer = ask(cluster, "node2", "node4", "term_vouch", second, review.payload)
        assert answer.payload is False
    answer = ask(cluster, "node2", "node3", "term_review", tuple(wanted))
    assert "master candidate" in answer.fail_msg

    def is_led_back():
        # Not more often than every 10 s, which another test may have begun.
        cluster.run("gnt-node", "list", "-o", "name,mfree")
        return first in term_of_node(cluster, "node4")

    until("the term", is_led_back)


def test_acts_wait_until_a_majority_confirms_the_term(cluster):
    """Node4 refuses the term; node5, which does not, is to get a file."""
    tags = cluster.file("/var/lib/ganeti/ssconf_cluster_tags", "node5")
    cluster.check("daemon-util", "stop", "ganeti-noded", node="node5")
    cluster.check("gnt-cluster", "add-tags", "late")
    give_term(cluster, "node4", 7)
    with frozen(cluster, "node2", "node3"):

        def is_waiting():
            # Not more often than every 10 s, which another test may have begun.
            cluster.run("gnt-node", "list", "-o", "name,mfree")
            return waits(cluster, "term-resets")

        until("a call waits", is_waiting)
        # The file is sent again and again until the node takes it.
        cluster.check("daemon-util", "start", "ganeti-noded", node="node5")
        until(
            "the sender waits, or has sent",
            lambda: waits(cluster, "ssconf-write") or "late" in tags.read_text(),
        )
        assert "late" not in tags.read_text()
    until("the file", lambda: "late" in tags.read_text())
    cluster.wait_until_clean()


def waits(cluster, thread):
    """Return whether a thread of the master daemon has waited for the candidates."""
    return any(
        f"/{thread} " in line and "calls that act on nodes wait" in line
        for line in master_log(cluster).splitlines()
    )


def test_readd_leads_a_node_back_that_knows_other_candidates(cluster):
    """It was away, and offline, while the candidates changed and another one led it."""
    name = cluster.node("node5").name
    owner = present_term(cluster).owner
    give_term(cluster, "node5")
    cluster.check("gnt-node", "modify", "-f", "-O", "yes", name)
    known = cluster.file("/var/lib/ganeti/ssconf_master_candidates_certs", "node5")
    known.chmod(0o600)
    known.write_text("".join(f"{uuid_of(cluster, n)}={'0' * 40}\n" for n in OTHERS))
    cluster.check("daemon-util", "stop", "ganeti-noded", node="node5")
    cluster.check("daemon-util", "start", "ganeti-noded", node="node5")
    cluster.check("gnt-node", "add", "--readd", name)
    assert owner in term_of_node(cluster, "node5")
    cluster.wait_until_clean()


# Nodes that missed a promotion.


@pytest.fixture
def four_nodes(cluster_of):
    """Four nodes: two candidates and two others."""
    made = cluster_of(4)
    made.check("gnt-cluster", "modify", "-C", "2")
    for node in ("node3", "node4"):
        made.check("gnt-node", "modify", "-C", "no", made.node(node).name)
    made.wait_until_clean()
    return made


def listed(cluster, node):
    """Return the UUIDs of the permitted callers that a node knows."""
    path = cluster.file("/var/lib/ganeti/ssconf_master_candidates_certs", node)
    return {line.partition("=")[0] for line in path.read_text().split()}


def promoted_behind_the_back_of_node4(four_nodes):
    """Make node3 the master while node4 is away."""
    four_nodes.check("daemon-util", "stop", "ganeti-noded", node="node4")
    four_nodes.check("gnt-node", "modify", "-C", "yes", four_nodes.node("node3").name)
    third = uuid_of(four_nodes, "node3")
    until("node3 lists itself", lambda: third in listed(four_nodes, "node3"))
    four_nodes.check("gnt-cluster", "master-failover", node="node3")
    assert third not in listed(four_nodes, "node4")
    return third


@pytest.mark.sampled
def test_it_learns_of_the_promotion_through_another_candidate(four_nodes):
    third = promoted_behind_the_back_of_node4(four_nodes)
    four_nodes.check("daemon-util", "start", "ganeti-noded", node="node4")
    until("node4 lists node3", lambda: third in listed(four_nodes, "node4"))
    four_nodes.wait_until_clean("node3")
    name = four_nodes.node("node4").name
    four_nodes.check("gnt-node", "modify", "-C", "yes", name, node="node3")
    four_nodes.wait_until_clean("node3")


@pytest.mark.sampled
def test_a_node_that_accepts_nobody_is_added_again(four_nodes):
    third = promoted_behind_the_back_of_node4(four_nodes)
    path = four_nodes.file("/var/lib/ganeti/ssconf_master_candidates_certs", "node4")
    path.chmod(0o644)
    path.write_text(f"{third}={':'.join(['00'] * 20)}\n")
    four_nodes.check("daemon-util", "start", "ganeti-noded", node="node4")
    log = four_nodes.file("/var/log/ganeti/master-daemon.log", "node3")
    until("the log names the command", lambda: "--readd" in log.read_text())
    name = four_nodes.node("node4").name
    four_nodes.check(
        "gnt-node", "add", "--readd", "--no-ssh-key-check", name, node="node3"
    )
    four_nodes.wait_until_clean("node3")


@pytest.mark.sampled
def test_a_candidate_that_was_away_gets_its_rights_when_it_returns(four_nodes):
    uuid = uuid_of(four_nodes, "node4")
    four_nodes.check("daemon-util", "stop", "ganeti-noded", node="node4")
    result = four_nodes.run("gnt-cluster", "modify", "-C", "4")
    assert not result.failed, result.output
    assert "the master daemon tries again" in result.output
    assert uuid not in listed(four_nodes, "node1")
    assert not four_nodes.file("/var/lib/ganeti/server-key.pem", "node4").exists()
    four_nodes.check("daemon-util", "start", "ganeti-noded", node="node4")
    for node in ("node1", "node2", "node3", "node4"):
        until(f"{node} lists node4", lambda node=node: uuid in listed(four_nodes, node))
    assert four_nodes.file("/var/lib/ganeti/server-key.pem", "node4").exists()
    four_nodes.wait_until_clean()
    # It gets back the secrets that it loses later.
    lost = [
        four_nodes.file(f"/var/lib/ganeti/{name}", "node4")
        for name in ("server-key.pem", "rapi.pem", "cluster-domain-secret")
    ]
    before = [path.read_bytes() for path in lost]
    for path in lost:
        path.unlink()
    four_nodes.check("daemon-util", "stop", "ganeti-masterd")
    four_nodes.check("daemon-util", "start", "ganeti-masterd")
    until("node4 has the secrets", lambda: all(path.exists() for path in lost))
    assert [path.read_bytes() for path in lost] == before
    four_nodes.wait_until_clean()
