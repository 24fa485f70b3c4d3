"""The answer about copies on master candidates: each key, and copies of gone nodes."""

import types

import pytest

from fakes import clusters
from ganeti.masterd.copies import query_copies
from ganeti.quorum import Term
from ganeti.store import CopyState


@pytest.fixture
def snapshot():
    return clusters.snapshot(nodes=3).at(revision=40, term=7)


def ask(snapshot, copies, exposure=""):
    store = types.SimpleNamespace(
        copies=lambda: copies, exposure=lambda: exposure, term=Term(7, "owner")
    )
    config = types.SimpleNamespace(snapshot=lambda: snapshot)
    return query_copies(types.SimpleNamespace(store=store, config=config))


def row(node, revision, lag, trouble=""):
    return {
        "name": node.name,
        "is_current": not lag,
        "revision": revision,
        "lag": lag,
        "trouble": trouble,
    }


def test_copies_are_listed_by_name_with_their_lag(snapshot):
    first, second, third = sorted(snapshot.nodes.values(), key=lambda node: node.name)
    answer = ask(
        snapshot,
        {
            third.uuid: CopyState(False, -1, "silent"),
            second.uuid: CopyState(False, 37),
            first.uuid: CopyState(True, 40),
        },
        exposure="no majority",
    )
    assert answer == {
        "policy": snapshot.cluster.commit_policy,
        "revision": 40,
        "term": str(Term(7, "owner")),
        "warning": "no majority",
        "copies": [row(first, 40, 0), row(second, 37, 3), row(third, -1, 40, "silent")],
    }


def test_a_copy_that_is_ahead_for_a_moment_has_no_lag(snapshot):
    (uuid, *_rest) = snapshot.nodes
    (actual,) = ask(snapshot, {uuid: CopyState(True, 41)})["copies"]
    assert (actual["revision"], actual["lag"]) == (41, 0)


def test_a_node_that_was_removed_is_left_out(snapshot):
    assert ask(snapshot, {"gone": CopyState(False, 1)})["copies"] == []
