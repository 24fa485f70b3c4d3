"""Who is asked to pass on the list of permitted callers, in which order."""

import pytest

from fakes import clusters
from fakes.rpc import FakeRunner, failure
from ganeti.daemons.masterd.duties import callers
from ganeti.decisions.quorum import Term
from ganeti.model.objects import Update

MASTER, SECOND, THIRD, FOURTH = map(clusters.node_uuid, (1, 2, 3, 4))


@pytest.fixture
def snapshot():
    made = clusters.snapshot(nodes=4)
    candidates = {MASTER, SECOND}
    changes = [
        Update("nodes", uuid, node.replace(master_candidate=uuid in candidates))
        for uuid, node in made.nodes.items()
    ]
    cluster = made.cluster.replace(
        master_node=MASTER, candidate_certs={MASTER: "AA", SECOND: "BB"}
    )
    changes.append(Update("cluster", "", cluster))
    return made.apply(changes, revision=made.revision + 1)


def asked(snapshot, answers, refused=(FOURTH,)):
    seen = []

    def relay(node, args):
        seen.append((node, args))
        return answers[node]

    runner = FakeRunner(lambda: snapshot, {"callers_relay": relay})
    callers.restore_access(runner, snapshot, Term(5, MASTER), list(refused))
    return seen


def test_a_candidate_relays_the_list(snapshot):
    ((node, args),) = asked(snapshot, {SECOND: None})
    assert node == SECOND
    target = snapshot.nodes[FOURTH]
    assert list(args) == [
        [5, MASTER],
        [FOURTH, target.name, target.primary_ip],
        {MASTER: "AA", SECOND: "BB"},
    ]


def test_other_nodes_follow_and_a_failure_names_the_command(snapshot, caplog):
    answers = {SECOND: failure("refused too"), THIRD: failure("away")}
    assert [node for node, _args in asked(snapshot, answers)] == [SECOND, THIRD]
    assert "gnt-node add --readd" in caplog.text
    assert "refused too" in caplog.text


def test_nodes_that_refuse_the_master_are_not_asked(snapshot):
    answers = {THIRD: None}
    seen = asked(snapshot, answers, refused=(SECOND, FOURTH))
    assert [node for node, _args in seen] == [THIRD, THIRD]


def test_offline_nodes_are_not_asked_and_the_command_is_named(snapshot, caplog):
    changes = [
        Update("nodes", uuid, snapshot.nodes[uuid].replace(offline=True))
        for uuid in (SECOND, THIRD)
    ]
    assert asked(snapshot.apply(changes), {}) == []
    assert "node4.example.com refuses the certificate" in caplog.text
    assert "no other node is online" in caplog.text


def test_one_node_that_passes_the_list_on_is_enough(snapshot, caplog):
    answers = {SECOND: None, THIRD: None}
    assert [node for node, _args in asked(snapshot, answers)] == [SECOND]
    assert "readd" not in caplog.text
