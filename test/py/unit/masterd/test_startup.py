"""May this node be master: own files, configuration, votes."""

import pytest

from fakes import clusters
from fakes.rpc import FakeRunner
from ganeti.masterd import startup
from ganeti.masterd.startup import Refusal
from ganeti.pathutils import Paths
from ganeti.rpc import voting
from ganeti.rpc.result import Result
from ganeti.rpc.voting import Copy, Count, Terms, Verdict

ME = "node1.example.com"


@pytest.mark.parametrize(
    ("own", "missing", "total", "verdict"),
    [
        (1, 0, 1, Verdict.WON),
        (1, 1, 2, Verdict.UNDECIDED),
        (2, 0, 2, Verdict.WON),
        (1, 0, 2, Verdict.LOST),
        (2, 1, 3, Verdict.WON),
        (1, 2, 3, Verdict.UNDECIDED),
        (1, 1, 3, Verdict.UNDECIDED),
        (1, 0, 3, Verdict.LOST),
        (0, 2, 3, Verdict.UNDECIDED),
        (0, 1, 3, Verdict.LOST),
        (2, 0, 4, Verdict.LOST),
        (2, 1, 4, Verdict.UNDECIDED),
        (3, 1, 4, Verdict.WON),
        (0, 3, 3, Verdict.UNDECIDED),
    ],
)
def test_more_than_half_of_all_nodes_decide(own, missing, total, verdict):
    assert Count(own, missing, total).verdict is verdict


def test_win_is_never_taken_from_fewer_than_half():
    for total in range(1, 12):
        for own in range(total + 1):
            for missing in range(total - own + 1):
                found = Count(own, missing, total).verdict
                assert (found is Verdict.WON) == (own > total / 2)
                if found is Verdict.LOST:
                    assert own + missing <= total / 2


def test_votes_are_gathered_from_all_nodes():
    snapshot = clusters.snapshot(
        nodes=3, extra=[clusters.node(4, offline=True, master_candidate=False)]
    )

    def answer(node, _args):
        if node == clusters.node_uuid(2):
            return Result("master_node_name", "node2", fail_msg="down")
        return ME if node == clusters.node_uuid(1) else "node3.example.com"

    runner = FakeRunner(lambda: snapshot, {"master_node_name": answer})
    votes = voting.gather(runner, snapshot.nodes)
    assert votes == {
        clusters.node_uuid(1): ME,
        clusters.node_uuid(2): None,
        clusters.node_uuid(3): "node3.example.com",
        clusters.node_uuid(4): None,
    }
    assert voting.count(votes, ME) == Count(1, 2, 4)


def test_terms_and_copies_of_those_who_answer():
    snapshot = clusters.snapshot(nodes=4)
    answers = {
        clusters.node_uuid(1): {"revision": 9, "term": 4, "digest": "aa", "seen": 4},
        clusters.node_uuid(2): {"revision": 0, "term": 0, "digest": "", "seen": 6},
        clusters.node_uuid(3): Result("store_status", "node3", fail_msg="down"),
        clusters.node_uuid(4): "odd",
    }
    script = {"store_status": lambda node, _args: answers[node]}
    runner = FakeRunner(lambda: snapshot, script)
    found = voting.gather_terms(runner, snapshot.nodes)
    assert found == Terms(6, {clusters.node_uuid(1): Copy(4, 9, "aa")})
    assert voting.gather_terms(runner, []) == Terms(0, {})


@pytest.mark.parametrize(
    ("other", "own", "newer"),
    [
        (Copy(4, 9, "aa"), Copy(4, 8, "bb"), True),
        (Copy(4, 8, "aa"), Copy(4, 8, "bb"), False),
        (Copy(5, 8, "aa"), Copy(4, 8, "bb"), True),
        # A restarted master has another term, but nothing new.
        (Copy(5, 8, "aa"), Copy(4, 8, "aa"), False),
        (Copy(5, 8, "aa"), Copy(4, 8), False),
        (Copy(5, 9, "aa"), Copy(4, 8), True),
        (Copy(3, 9, "aa"), Copy(4, 8, "bb"), False),
    ],
)
def test_which_copy_is_newer(other, own, newer):
    assert other.is_newer(own) is newer
    found = Terms(9, {"a": Copy(1, 1, "x"), "b": other})
    assert found.newer_than(own) == (("b", other) if newer else None)


def test_configuration_of_a_later_master_is_respected():
    snapshot = clusters.snapshot(nodes=3).at(8, 4)
    own, other = clusters.node_uuid(1), clusters.node_uuid(2)

    def check(found):
        startup.check_copies(Terms(9, found), snapshot)

    check({})
    check({own: Copy(4, 8, "aa"), other: Copy(4, 9, "bb")})
    check({own: Copy(4, 8, "aa"), other: Copy(5, 8, "aa")})
    with pytest.raises(startup.NotMaster, match="outdated"):
        check({own: Copy(4, 8, "aa"), other: Copy(5, 9, "bb")})
    with pytest.raises(startup.NotMaster, match="outdated"):
        check({other: Copy(5, 9, "bb")})


def test_undecided_vote_is_repeated_and_then_given_up():
    pauses = []
    with pytest.raises(startup.NotMaster, match="--no-voting") as caught:
        startup.vote(lambda: {"a": ME, "b": None}, ME, pause=pauses.append)
    assert caught.value.why is Refusal.FAILED
    assert pauses == [10.0] * 5


def test_vote_that_becomes_decided():
    rounds = iter([{"a": ME, "b": None}, {"a": ME, "b": ME}])
    pauses = []
    startup.vote(lambda: next(rounds), ME, pause=pauses.append)
    assert pauses == [10.0]


def test_lost_vote_is_final():
    with pytest.raises(startup.NotMaster, match=r"node2\.example\.com"):
        startup.vote(
            lambda: dict.fromkeys("abc", "node2.example.com"),
            ME,
            pause=lambda _s: pytest.fail("lost is lost"),
        )


@pytest.fixture
def paths(tmp_path):
    found = Paths(root=str(tmp_path / ME), hostname=ME)
    for name, text in (
        ("etc/hosts", f"127.0.0.1 {ME}\n"),
        ("var/lib/ganeti/ssconf_master_node", f"{ME}\n"),
    ):
        path = tmp_path / ME / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return found


def test_own_files(paths, tmp_path):
    startup.check_own_files(paths)
    file = tmp_path / ME / "var/lib/ganeti/ssconf_master_node"
    file.write_text("node2.example.com\n")
    with pytest.raises(startup.NotMaster) as caught:
        startup.check_own_files(paths)
    assert caught.value.why is Refusal.NOT_MASTER
    file.unlink()
    with pytest.raises(startup.NotMaster) as caught:
        startup.check_own_files(paths)
    assert caught.value.why is Refusal.NODE_SETUP


def test_configuration_must_name_this_node(paths):
    startup.check_configuration(clusters.snapshot(), paths)
    other = clusters.snapshot(master_node=clusters.node_uuid(2))
    with pytest.raises(startup.NotMaster) as caught:
        startup.check_configuration(other, paths)
    assert caught.value.why is Refusal.FAILED
