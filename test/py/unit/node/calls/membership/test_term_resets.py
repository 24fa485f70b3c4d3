"""The word of a candidate about the master's term: who gives it, who takes it."""

import os

import pytest

from fakes import cluster, nodes
from fakes.clusters import node_uuid
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.decisions.quorum import Term
from ganeti.node.calls.membership import master_term
from ganeti.protocols import rpc
from ganeti.protocols.rpc import Result

MASTER, OTHER = node_uuid(1), node_uuid(2)
TERM = Term(4, MASTER)
TARGET = [node_uuid(3), "node3.example.com", "192.0.2.3"]
REVIEW = "0" * 32


@pytest.fixture
def node(tmp_path):
    made = nodes.make_node(tmp_path)
    os.makedirs(made.paths.data_dir)
    os.makedirs(made.paths.lock_dir, exist_ok=True)
    terms = master_term.TermGuard(made.paths.data("term"), "cluster")
    object.__setattr__(made, "terms", terms)
    digest = ":".join(["0A"] * 20)
    nodes.call(
        made,
        "write_ssconf_files",
        {
            "master_candidates_certs": f"{MASTER}={digest}\n{OTHER}-next={digest}",
            "master_candidates": "node1.example.com",
        },
    )
    return made


@pytest.fixture
def candidate(node, monkeypatch):
    """A node whose copy follows the master; calls of other nodes are recorded."""
    db = store.open_master(
        node.paths.store_db, replicate=None, clock=SystemClock(), term=TERM
    )
    db.commit(cluster.big(1, 1))
    db.close()
    node.terms.check(TERM)
    calls = []

    class Runner:
        def __init__(self, targets, _paths):
            self.targets = targets

        def call_node(self, uuid, request, *, timeout_s):
            assert timeout_s
            name = request.procedure.name
            calls.append((name, uuid, self.targets[0].address, *request.args))
            return Result(name, uuid, payload=True)

        def close(self):
            """Nothing to close."""

    monkeypatch.setattr(rpc, "StaticRunner", Runner)
    return node, calls


def confirm(node, term=TERM, voucher=OTHER, review=REVIEW, target=TARGET):
    return nodes.call(node, "term_confirm", list(term), voucher, review, target)


def test_a_candidate_vouches_for_the_term_that_it_follows(candidate):
    node, calls = candidate
    assert confirm(node) is True
    assert calls == [("term_vouch", TARGET[0], TARGET[2], OTHER, REVIEW)]


@pytest.mark.parametrize("term", [(3, MASTER), (5, MASTER), (4, OTHER)])
def test_not_for_another_term(candidate, term):
    node, calls = candidate
    with pytest.raises(errors.RpcError, match="has promised term 4"):
        confirm(node, term)
    assert calls == []


def test_not_when_the_daemon_has_seen_a_later_term(candidate):
    node, calls = candidate
    node.terms.check(Term(5, OTHER))
    with pytest.raises(errors.RpcError, match="has promised term"):
        confirm(node)
    assert calls == []


def test_a_node_without_a_copy_does_not_vouch(node):
    node.terms.check(TERM)
    with pytest.raises(errors.GenericError):
        confirm(node)


@pytest.mark.parametrize(
    "given",
    [
        {"term": (4, "")},
        {"term": (0, MASTER)},
        {"term": (10**15, MASTER)},
        {"voucher": f"{OTHER}\n"},
        {"review": "0" * 31},
        {"review": f"{REVIEW}\n"},
        {"target": ["node3", "node3", "192.0.2.3"]},
        {"target": [TARGET[0], "node3", "file:///etc"]},
    ],
)
def test_malformed_arguments_call_nobody(candidate, given):
    node, calls = candidate
    with pytest.raises(errors.RpcError):
        confirm(node, **given)
    assert calls == []


def test_a_node_counts_the_holders_of_listed_certificates(node):
    node.terms.check(Term(9, OTHER))
    review = nodes.call(node, "term_review", [4, MASTER])
    assert nodes.call(node, "term_vouch", MASTER, review) is False
    with pytest.raises(errors.RpcError, match="no master candidate"):
        nodes.call(node, "term_vouch", node_uuid(5), review)
    assert nodes.call(node, "term_vouch", OTHER, review) is True
    assert node.terms.seen == TERM


def test_a_candidate_keeps_what_its_copy_has_promised(node):
    node.terms.check(Term(9, OTHER))
    nodes.call(node, "write_ssconf_files", {"master_candidates": node.paths.hostname})
    with pytest.raises(errors.RpcError, match="is a master candidate"):
        nodes.call(node, "term_review", [4, MASTER])
