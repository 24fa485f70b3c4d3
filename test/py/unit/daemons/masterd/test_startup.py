"""May this node be master: own files, configuration, votes, copies, the store in etcd."""

import threading
from types import SimpleNamespace

import pytest

from fakes import clusters, etcd_servers
from fakes.rpc import FakeRunner
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.tls import authority
from ganeti.daemons.mains import maintd, masterd
from ganeti.daemons.masterd import startup
from ganeti.daemons.masterd.startup import Refusal
from ganeti.decisions.quorum import Term
from ganeti.model.objects import Update
from ganeti.protocols.rpc import voting
from ganeti.protocols.rpc.procedure import Result
from ganeti.protocols.rpc.voting import Count, Verdict
from ganeti.store.etcd import Claim, open_etcd, parse

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
                actual = Count(own, missing, total).verdict
                assert (actual is Verdict.WON) == (own > total / 2)
                if actual is Verdict.LOST:
                    assert own + missing <= total / 2


def test_votes_are_gathered_from_all_nodes():
    snapshot = clusters.snapshot(
        nodes=3, extra=[clusters.node(4, offline=True, master_candidate=False)]
    )

    def answer(node, _args):
        if node == clusters.node_uuid(2):
            text = "does not accept this certificate"
            return Result("master_node_name", "node2", fail_msg=text, refused=True)
        return ME if node == clusters.node_uuid(1) else "node3.example.com"

    runner = FakeRunner(lambda: snapshot, {"master_node_name": answer})
    refusing = {clusters.node_uuid(1), "not asked this time"}
    votes = voting.gather(runner, snapshot.nodes, refusing)
    assert refusing == {clusters.node_uuid(2), "not asked this time"}
    assert votes == {
        clusters.node_uuid(1): ME,
        clusters.node_uuid(2): None,
        clusters.node_uuid(3): "node3.example.com",
        clusters.node_uuid(4): None,
    }
    assert voting.count(votes, ME) == Count(1, 2, 4)


def test_a_lost_vote_has_a_code_of_its_own_in_the_maintenance_daemon():
    with pytest.raises(startup.NotMaster, match="votes: ") as caught:
        startup.vote(
            lambda: {"a": ME, "b": "other", "c": "other"}, ME, pause=lambda _s: None
        )
    assert caught.value.why is Refusal.LOST
    assert startup.EXIT_CODES[Refusal.LOST] == 1
    assert maintd._EXIT_CODES == {**startup.EXIT_CODES, Refusal.LOST: 11}


def test_undecided_vote_is_repeated_and_then_given_up():
    pauses = []
    with pytest.raises(startup.NotMaster, match="--no-voting") as caught:
        startup.vote(lambda: {"a": ME, "b": None}, ME, pause=pauses.append)
    assert caught.value.why is Refusal.FAILED
    assert pauses == [10.0] * 5


def test_a_master_that_others_no_longer_accept_is_not_sent_to_no_voting():
    with pytest.raises(startup.NotMaster) as caught:
        startup.vote(
            lambda: {"a": ME, "b": None, "c": None},
            ME,
            pause=lambda _s: None,
            refusing={"b", "c"},
        )
    text = str(caught.value)
    assert "2 did not answer, 2 of them because this node is no candidate" in text
    assert f"gnt-node add --readd {ME} on the master" in text
    assert "--no-voting" not in text


def test_vote_that_becomes_decided():
    rounds = iter([{"a": ME, "b": None}, {"a": ME, "b": ME}])
    pauses = []
    startup.vote(lambda: next(rounds), ME, pause=pauses.append)
    assert pauses == [10.0]


@pytest.mark.parametrize(
    ("answering", "asked"),
    [("abc", [{"a", "b", "c"}]), ("ab", [{"a", "b", "c"}, {"d"}])],
    ids=["decided without it", "not decided"],
)
def test_a_node_that_has_just_not_answered_is_asked_only_if_needed(answering, asked):
    calls = []

    def gather(nodes):
        calls.append(set(nodes))
        return {node: ME if node in answering else None for node in nodes}

    ask = startup.asking(gather, "abcd", ME, {"d", "unknown"})
    votes = ask()
    assert calls == asked
    assert votes == {node: ME if node in answering else None for node in "abcd"}
    ask()
    assert calls[len(asked) :] == [set("abcd")]


@pytest.mark.parametrize("daemon", [masterd, maintd])
def test_both_daemons_take_the_silent_nodes_of_a_failover(daemon):
    options = daemon.build_parser().parse_args(["--not-answering", "one,two"])
    assert options.not_answering == {"one", "two"}
    assert daemon.build_parser().parse_args([]).not_answering == frozenset()


def test_lost_vote_is_final():
    with pytest.raises(startup.NotMaster, match=r"node2\.example\.com"):
        startup.vote(
            lambda: dict.fromkeys("abc", "node2.example.com"),
            ME,
            pause=lambda _s: pytest.fail("lost is lost"),
        )


@pytest.fixture
def paths(tmp_path):
    actual = Paths(root=str(tmp_path / ME), hostname=ME)
    for name, text in (
        ("etc/hosts", f"127.0.0.1 {ME}\n"),
        ("var/lib/ganeti/ssconf_master_node", f"{ME}\n"),
    ):
        path = tmp_path / ME / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return actual


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


def test_a_node_that_does_not_know_its_own_address_is_not_master(paths, tmp_path):
    strange = Paths(root=paths.root, hostname="node1.invalid")
    (tmp_path / ME / "var/lib/ganeti/ssconf_master_node").write_text("node1.invalid\n")
    (tmp_path / ME / "etc/hosts").write_text("")
    with pytest.raises(startup.NotMaster, match=r"node1\.invalid does not resolve"):
        startup.check_own_files(strange)


def test_configuration_must_name_this_node(paths):
    startup.check_configuration(clusters.snapshot(), paths)
    other = clusters.snapshot(master_node=clusters.node_uuid(2))
    with pytest.raises(startup.NotMaster) as caught:
        startup.check_configuration(other, paths)
    assert caught.value.why is Refusal.FAILED


def test_a_master_without_a_record_is_named_by_its_uuid(paths):
    gone = clusters.snapshot(master_node=clusters.node_uuid(9))
    with pytest.raises(startup.NotMaster, match=clusters.node_uuid(9)):
        startup.check_configuration(gone, paths)


@pytest.mark.parametrize(
    "error",
    [errors.StorageError("this copy lacks 3 changes"), errors.TermError("late")],
)
def test_a_copy_that_lost_changes_ends_the_election_at_once(error):
    def fail():
        raise error

    elector = SimpleNamespace(survey=fail)
    with pytest.raises(startup.NotMaster, match=str(error)) as caught:
        startup.elect(
            lambda _silent: elector,
            frozenset(),
            accept_loss=False,
            pause=lambda _s: pytest.fail("repeated"),
        )
    assert caught.value.why is Refusal.FAILED


class FakeElector:
    """Answers each survey from a list: is a majority there?"""

    def __init__(self, answers, silent):
        self._answers = answers
        self.silent = silent

    def survey(self):
        self._is_enough = self._answers.pop(0)
        return SimpleNamespace(
            is_enough=self._is_enough, shortage=lambda: "1 of 3 copies"
        )

    def elect(self, *, is_takeover, accept_loss):
        survey = SimpleNamespace(is_enough=self._is_enough)
        return Term(7, f"{is_takeover},{accept_loss}"), survey


def elect(answers, *, accept_loss=False):
    made, pauses = [], []

    def make(silent):
        made.append(FakeElector(answers, silent))
        return made[-1]

    elected = startup.elect(
        make, frozenset("x"), accept_loss=accept_loss, pause=pauses.append
    )
    return elected, [item.silent for item in made], pauses


def test_silent_nodes_are_asked_again_only_when_they_are_needed():
    won = startup.Elected(Term(7, "False,False"), is_forced=False)
    assert elect([True]) == (won, [frozenset("x")], [])
    elected, silent, pauses = elect([False, True])
    assert elected == won
    assert silent == [frozenset("x"), frozenset()]
    assert pauses == [10.0]


def test_an_election_without_a_majority_is_given_up():
    with pytest.raises(
        startup.NotMaster, match=r"1 of 3 copies.*--no-voting"
    ) as caught:
        elect([False] * 6)
    assert caught.value.why is Refusal.FAILED


def test_the_operator_can_start_a_master_without_a_majority():
    forced = startup.Elected(Term(7, "True,True"), is_forced=True)
    assert elect([False], accept_loss=True)[0] == forced
    # With a majority nothing can be lost, so no revisions need to be left out.
    assert elect([True], accept_loss=True)[0] == forced._replace(is_forced=False)


def test_a_store_of_another_cluster_is_refused(paths):
    snapshot = clusters.snapshot()
    own = snapshot.cluster.master_node
    issuer = authority.create()
    for uuid in (own, clusters.node_uuid(77)):
        pair = authority.issue_with_key(
            issuer, name=ME, uuid=uuid, serial=1, validity_s=3600
        )
        files.write_file(paths.client_pem, pair.pem)
        if uuid == own:
            startup.check_configuration(snapshot, paths)
    with pytest.raises(startup.NotMaster) as caught:
        startup.check_configuration(snapshot, paths)
    assert caught.value.why is Refusal.FAILED
    text = str(caught.value)
    assert f"wanted {ME} with the uuid {clusters.node_uuid(77)}" in text
    assert f"found {own}: this is the store of another cluster" in text
    assert startup.ANOTHER_COPY in text


# Beginning as master with the store in etcd, with a real server.

CLOCK = SystemClock()


class Site(etcd_servers.Site):
    """The same, seen from its master, which opens its store."""

    def __init__(self, folder, servers):
        super().__init__(folder, servers)
        self.deposed = threading.Event()

    def open(self, paths=None, servers=None):
        return masterd.open_store(
            paths or self.paths, CLOCK, servers or self.servers, self.deposed.set
        )


@pytest.fixture
def site(tmp_path, etcd):
    return Site(tmp_path, etcd.servers())


def test_a_master_leads_and_records_its_term(site):
    opened, runner = site.open()
    runner.close()
    assert opened.term.owner == site.own.uuid
    assert site.leading() == opened.term
    assert opened.read("meta", "term") == str(opened.term).encode()
    opened.close()
    # It may be started again before another candidate takes over.
    assert site.leading().owner == site.own.uuid
    again, runner = site.open()
    runner.close()
    assert again.term > opened.term
    again.close()
    assert not site.deposed.is_set()


def test_the_master_that_has_the_lease_is_named(site):
    living = open_etcd(site.servers, clock=CLOCK, node=site.other.uuid)
    with pytest.raises(startup.NotMaster) as caught:
        site.open()
    assert caught.value.why is startup.Refusal.NOT_MASTER
    assert site.other.name in str(caught.value)
    assert site.other.uuid not in str(caught.value)
    assert site.leading().owner == site.other.uuid
    living.close()


def test_a_node_that_the_configuration_does_not_name_is_not_master(site):
    db = open_etcd(site.servers, clock=CLOCK, node=site.other.uuid)
    cluster = db.snapshot().cluster.replace(master_node=site.other.uuid)
    db.commit([Update("cluster", "", cluster)])
    before = db.snapshot().revision
    db.close()
    with pytest.raises(startup.NotMaster, match=site.other.name) as caught:
        site.open()
    assert caught.value.why is startup.Refusal.FAILED
    claim = Claim(is_forced=True)
    db = open_etcd(site.servers, clock=CLOCK, node=site.other.uuid, claim=claim)
    assert db.snapshot().revision == before
    db.close()


def test_a_stranger_does_not_even_ask_the_servers(site):
    strange = Paths(root=site.paths.root, hostname="node9.example.com")
    nowhere = parse("etcd://127.0.0.1:1")
    with pytest.raises(startup.NotMaster, match=r"node9.* is not a node of the") as no:
        site.open(strange, nowhere)
    assert no.value.why is startup.Refusal.FAILED


def test_a_master_learns_that_another_one_has_begun(site):
    opened, runner = site.open()
    claim = Claim(is_forced=True)
    newer = open_etcd(site.servers, clock=CLOCK, node=site.other.uuid, claim=claim)
    assert site.deposed.wait(60)
    for each in (newer, opened, runner):
        each.close()
