"""Shared answers, never older than the question, and the answer about copies."""

import concurrent.futures
import pathlib
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import pytest

from fakes import clusters
from fakes.rpc import FakeRunner, failure
from ganeti.base.pathutils import Paths
from ganeti.daemons.masterd import deps
from ganeti.daemons.masterd import deps as followers
from ganeti.daemons.masterd.deps import SharedAnswers
from ganeti.daemons.masterd.methods.queries import query_copies
from ganeti.decisions.quorum import Term
from ganeti.store import CopyState, choice
from ganeti.store.etcd import parse

LIMIT_S = 30


class Work:
    """Computations that wait until the test lets them go on."""

    def __init__(self):
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.count = 0

    def __call__(self):
        self.count += 1
        number = self.count
        self.begun.release()
        assert self.may_end.acquire(timeout=LIMIT_S)
        return number


@pytest.fixture
def executor():
    with ThreadPoolExecutor(8) as executor:
        yield executor


@pytest.fixture
def work():
    return Work()


@pytest.fixture
def patient(monkeypatch):
    monkeypatch.setattr(deps, "_PATIENCE_S", LIMIT_S)


def test_who_asks_during_the_work_gets_the_next_answer_with_the_others(
    executor, work, patient
):
    answers = SharedAnswers()
    first = answers.ask(executor, "a", work)
    assert work.begun.acquire(timeout=LIMIT_S)
    later = [answers.ask(executor, "a", work) for _ in range(5)]
    work.may_end.release(2)
    assert first.result(LIMIT_S) == 1
    assert [each.result(LIMIT_S) for each in later] == [2] * 5
    assert answers._subjects == {}


def test_other_questions_have_other_answers(executor, work):
    answers = SharedAnswers()
    both = [answers.ask(executor, key, work) for key in "ab"]
    work.may_end.release(2)
    assert sorted(each.result(LIMIT_S) for each in both) == [1, 2]


def test_a_slow_answer_does_not_delay_the_next_one(executor, work, monkeypatch):
    monkeypatch.setattr(deps, "_PATIENCE_S", 0.001)
    answers = SharedAnswers()
    first = answers.ask(executor, "a", work)
    assert work.begun.acquire(timeout=LIMIT_S)
    second = answers.ask(executor, "a", work)
    assert work.begun.acquire(timeout=LIMIT_S)
    assert not first.done()
    work.may_end.release(2)
    assert {first.result(LIMIT_S), second.result(LIMIT_S)} == {1, 2}


def test_an_error_is_the_answer_of_all_and_not_of_later_ones(executor, work, patient):
    answers = SharedAnswers()

    def fail():
        work()
        raise ValueError("no")

    first = answers.ask(executor, "a", work)
    assert work.begun.acquire(timeout=LIMIT_S)
    later = [answers.ask(executor, "a", fail) for _ in range(2)]
    work.may_end.release(2)
    assert first.result(LIMIT_S) == 1
    for each in later:
        assert isinstance(each.exception(LIMIT_S), ValueError)
    work.may_end.release()
    assert answers.ask(executor, "a", work).result(LIMIT_S) == 3


def test_an_executor_that_has_ended_leaves_nothing(work):
    answers, executor = SharedAnswers(), ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(RuntimeError):
        answers.ask(executor, "a", work)
    assert answers._subjects == {}


# The answer about copies on master candidates: each key, and copies of gone nodes.

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
    states = followers.ask_followers(nodes, snapshot)
    assert states[first] == CopyState(True, 40)
    assert states[second][:2] == (False, 38)
    answers[first] = {"revision": "many"}
    assert followers.ask_followers(nodes, snapshot)[first][:2] == (False, -1)
    nodes = FakeRunner(lambda: snapshot, {"store_status": failure("silent")})
    assert followers.ask_followers(nodes, snapshot)[first] == CopyState(
        False, -1, "silent"
    )


def test_only_other_candidates_that_are_online_are_asked(snapshot):
    first, second = (
        node
        for uuid, node in sorted(snapshot.nodes.items())
        if uuid != snapshot.cluster.master_node
    )
    snapshot = clusters.changed(snapshot, first.replace(offline=True))
    nodes = FakeRunner(lambda: snapshot, {"store_status": {"revision": 10**6}})
    assert followers.ask_followers(nodes, snapshot) == {
        second.uuid: CopyState(True, 10**6)
    }
    # A query waits for the answers.
    assert nodes.limits["store_status"] == {3.0}
    snapshot = clusters.changed(snapshot, second.replace(master_candidate=False))
    assert followers.ask_followers(nodes, snapshot) == {}
    assert len(nodes.calls) == 1
