"""The answer about copies on master candidates: each key, and copies of gone nodes."""

import concurrent.futures
import pathlib
import types

import pytest

from fakes import clusters
from fakes.rpc import FakeRunner, failure
from ganeti.base.pathutils import Paths
from ganeti.daemons.masterd.duties import followers
from ganeti.daemons.masterd.methods.copies import query_copies
from ganeti.decisions.quorum import Term
from ganeti.store import CopyState, choice
from ganeti.store.etcd import parse

NOWHERE = Paths(root="/nowhere/n1", hostname="n1")


@pytest.fixture
def snapshot():
    return clusters.snapshot(nodes=3).at(revision=40, term=7)


def deps_of(snapshot, copies, exposure="", paths=NOWHERE):
    store = types.SimpleNamespace(exposure=lambda: exposure, term=Term(7, "owner"))
    config = types.SimpleNamespace(snapshot=lambda: snapshot)
    return types.SimpleNamespace(
        store=store, config=config, paths=paths, copies=lambda: copies
    )


def ask(snapshot, copies, exposure=""):
    return query_copies(deps_of(snapshot, copies, exposure))


def row(node, revision, lag, trouble=""):
    return {
        "name": node.name,
        "is_current": not lag,
        "revision": revision,
        "lag": lag,
        "trouble": trouble,
        "wants_restart": trouble == "refused",
    }


def test_copies_are_listed_by_name_with_their_lag(snapshot):
    first, second, third = sorted(snapshot.nodes.values(), key=lambda node: node.name)
    answer = ask(
        snapshot,
        {
            third.uuid: CopyState(False, -1, "refused", wants_restart=True),
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
        "store": "file",
        "confd": {"hmac": "sha1", "detect_replays": False},
        "copies": [
            row(first, 40, 0),
            row(second, 37, 3),
            row(third, -1, 40, "refused"),
        ],
    }


def test_a_copy_that_is_ahead_for_a_moment_has_no_lag(snapshot):
    (uuid, *_rest) = snapshot.nodes
    (actual,) = ask(snapshot, {uuid: CopyState(True, 41)})["copies"]
    assert (actual["revision"], actual["lag"]) == (41, 0)


def test_a_node_that_was_removed_is_left_out(snapshot):
    assert ask(snapshot, {"gone": CopyState(False, 1)})["copies"] == []


def test_a_store_in_etcd_has_an_address_and_files_that_follow(snapshot, tmp_path):
    paths = Paths(root=str(tmp_path / "n1"), hostname="n1")
    pathlib.Path(paths.data_dir).mkdir(parents=True)
    choice.write(paths, choice.prepare(parse("etcd://a,b:1/mine")))
    deps = deps_of(snapshot, {}, paths=paths)
    with concurrent.futures.ThreadPoolExecutor(1) as deps.slow:
        answer = query_copies(deps).future.result()
    assert answer["store"] == "etcd://a:2379,b:1/mine"


def test_candidates_are_asked_how_far_they_follow(snapshot):
    first, second = (
        uuid for uuid in sorted(snapshot.nodes) if uuid != snapshot.cluster.master_node
    )
    answers = {first: {"revision": 40}, second: {"revision": 38}}
    nodes = FakeRunner(
        lambda: snapshot, {"store_status": lambda node, *_args: answers[node]}
    )
    states = followers.ask(nodes, snapshot)
    assert states[first] == CopyState(True, 40)
    assert states[second][:2] == (False, 38)
    answers[first] = {"revision": "many"}
    assert followers.ask(nodes, snapshot)[first][:2] == (False, -1)
    nodes = FakeRunner(lambda: snapshot, {"store_status": failure("silent")})
    assert followers.ask(nodes, snapshot)[first] == CopyState(False, -1, "silent")


def test_only_other_candidates_that_are_online_are_asked(snapshot):
    first, second = (
        node
        for uuid, node in sorted(snapshot.nodes.items())
        if uuid != snapshot.cluster.master_node
    )
    snapshot = clusters.changed(snapshot, first.replace(offline=True))
    nodes = FakeRunner(lambda: snapshot, {"store_status": {"revision": 10**6}})
    assert followers.ask(nodes, snapshot) == {second.uuid: CopyState(True, 10**6)}
    # A query waits for the answers.
    assert nodes.limits["store_status"] == {3.0}
    snapshot = clusters.changed(snapshot, second.replace(master_candidate=False))
    assert followers.ask(nodes, snapshot) == {}
    assert len(nodes.calls) == 1
