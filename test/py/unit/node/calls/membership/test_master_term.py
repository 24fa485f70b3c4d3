"""A deposed master is not obeyed; lists of permitted callers that others pass on."""

import os

import pytest

from fakes import nodes
from fakes.clusters import node_uuid
from ganeti.base import errors
from ganeti.decisions.quorum import MAX_JUMP, Term
from ganeti.node.calls.membership import master_term, relays
from ganeti.protocols.rpc import Result, Target


def test_only_root_reads_the_term(tmp_path):
    path = tmp_path / "term"
    master_term.TermGuard(str(path), "AA").check(Term(3))
    assert path.stat().st_mode & 0o7777 == 0o600


def test_a_new_authority_of_the_cluster_takes_the_term_over(tmp_path):
    path = str(tmp_path / "term")
    guard = master_term.TermGuard(path, "AA")
    guard.check(Term(3))
    assert master_term.TermGuard(path, "BB", "AA").seen == Term(3)
    guard.move_to("BB")
    assert guard.seen == Term(3)
    assert master_term.TermGuard(path, "BB").seen == Term(3)
    assert master_term.TermGuard(path, "AA").seen == Term()


def test_lower_terms_are_refused_and_higher_ones_remembered(tmp_path):
    guard = master_term.TermGuard(str(tmp_path / "term"), "AA")
    guard.check(Term(3))
    guard.check(Term(3))
    with pytest.raises(errors.TermError, match="term 2 is over"):
        guard.check(Term(2))
    guard.check(Term(9))
    assert guard.seen == Term(9)


def test_the_term_survives_a_restart_but_not_a_change_of_cluster(tmp_path):
    path = str(tmp_path / "term")
    master_term.TermGuard(path, "AA").check(Term(3))
    with pytest.raises(errors.TermError):
        master_term.TermGuard(path, "AA").check(Term(2))
    master_term.TermGuard(path, "BB").check(Term(1))


def test_a_broken_disk_does_not_stop_obedience(tmp_path, monkeypatch):
    guard = master_term.TermGuard(str(tmp_path / "term"), "AA")

    def fail(*_args):
        raise OSError(5, "no disk")

    monkeypatch.setattr(os, "rename", fail)
    guard.check(Term(3))
    with pytest.raises(errors.TermError):
        guard.check(Term(2))


def test_a_damaged_file_is_not_taken_for_none(tmp_path):
    (tmp_path / "term").write_text("{")
    with pytest.raises(errors.ConfigurationError, match="term"):
        master_term.TermGuard(str(tmp_path / "term"), "AA")


def test_an_equal_number_of_another_owner_is_refused(tmp_path):
    path = str(tmp_path / "term")
    master_term.TermGuard(path, "AA").check(Term(3, "a"))
    guard = master_term.TermGuard(path, "AA")
    assert guard.seen == Term(3, "a")
    with pytest.raises(errors.TermError, match="term 3 is over"):
        guard.check(Term(3, "b"))
    with pytest.raises(errors.TermError):
        guard.check(Term(3))


def test_a_file_of_an_earlier_release_has_a_number_alone(tmp_path):
    (tmp_path / "term").write_text('{"cluster": "AA", "term": 3}')
    guard = master_term.TermGuard(str(tmp_path / "term"), "AA")
    guard.check(Term(3, "a"))
    assert guard.seen == Term(3, "a")


def test_an_absurd_number_is_not_believed(tmp_path):
    guard = master_term.TermGuard(str(tmp_path / "term"), "AA")
    guard.check(Term(3, "a"))
    with pytest.raises(errors.RpcError, match="far above"):
        guard.check(Term(4 + MAX_JUMP, "a"))
    assert guard.seen == Term(3, "a")


CANDIDATES = frozenset(("a", "b", "c"))


@pytest.fixture
def ahead(tmp_path):
    guard = master_term.TermGuard(str(tmp_path / "term"), "AA")
    guard.check(Term(9, "c"))
    return guard


def test_a_majority_of_vouchers_resets_the_term_for_good(ahead, tmp_path):
    review = ahead.open_review(Term(3, "a"))
    assert not ahead.vouch("a", review, CANDIDATES)
    assert not ahead.vouch("a", review, CANDIDATES)
    assert ahead.seen == Term(9, "c")
    assert ahead.vouch("b", review, CANDIDATES)
    assert ahead.seen == Term(3, "a")
    assert master_term.TermGuard(str(tmp_path / "term"), "AA").seen == Term(3, "a")
    with pytest.raises(errors.RpcError, match="is over"):
        ahead.vouch("c", review, CANDIDATES)


def test_the_same_number_of_another_owner_is_reset_as_well(ahead):
    review = ahead.open_review(Term(9, "a"))
    ahead.vouch("a", review, CANDIDATES)
    assert ahead.vouch("b", review, CANDIDATES)
    ahead.check(Term(9, "a"))


def test_a_term_that_is_seen_meanwhile_ends_the_review(ahead):
    review = ahead.open_review(Term(3, "a"))
    ahead.vouch("a", review, CANDIDATES)
    ahead.check(Term(10, "b"))
    with pytest.raises(errors.RpcError, match="is over"):
        ahead.vouch("b", review, CANDIDATES)
    assert ahead.seen == Term(10, "b")


def test_a_word_counts_for_one_review_and_from_a_candidate_only(ahead):
    first = ahead.open_review(Term(3, "a"))
    ahead.vouch("a", first, CANDIDATES)
    second = ahead.open_review(Term(3, "a"))
    with pytest.raises(errors.RpcError, match="is over"):
        ahead.vouch("b", first, CANDIDATES)
    with pytest.raises(errors.RpcError, match="no master candidate"):
        ahead.vouch("d", second, CANDIDATES)
    assert not ahead.vouch("b", second, CANDIDATES)
    assert ahead.seen == Term(9, "c")


def test_a_term_that_is_admitted_needs_no_review(ahead):
    for term in (Term(9, "c"), Term(10, "a")):
        with pytest.raises(errors.RpcError, match="not refused"):
            ahead.open_review(term)
    with pytest.raises(errors.RpcError, match="is over"):
        ahead.vouch("a", "", CANDIDATES)


# A list of permitted callers that another node passes on.

MASTER, OTHER = node_uuid(3), node_uuid(1)
OLD, NEW = (":".join([byte] * 20) for byte in ("0A", "1B"))
LIST = {OTHER: OLD, MASTER: NEW}


@pytest.fixture
def node(tmp_path):
    made = nodes.make_node(tmp_path)
    os.makedirs(made.paths.data_dir)
    os.makedirs(made.paths.lock_dir, exist_ok=True)
    terms = master_term.TermGuard(made.paths.data("term"), "cluster")
    terms.check(Term(4, OTHER))
    object.__setattr__(made, "terms", terms)
    nodes.call(
        made, "write_ssconf_files", {"master_candidates_certs": f"{OTHER}={OLD}"}
    )
    return made


def adopt(node, term=(5, MASTER), callers=LIST):
    nodes.call(node, "callers_adopt", list(term), dict(callers))


def listed(node):
    return node.ssconf.master_candidates_certs()


def test_the_list_of_a_new_master_is_taken(node):
    adopt(node)
    assert listed(node) == LIST
    # The master shows its term itself, with the certificate that is accepted now.
    assert node.terms.seen == Term(4, OTHER)


@pytest.mark.parametrize("term", [(3, MASTER), (4, MASTER), (10**15, MASTER)])
def test_that_of_a_replaced_or_impossible_master_is_not(node, term):
    with pytest.raises(errors.GenericError, match="term"):
        adopt(node, term)
    assert listed(node) == {OTHER: OLD}


def test_a_late_list_of_a_listed_master_is_not_taken(node):
    adopt(node)
    demoted = {MASTER: NEW}
    nodes.call(
        node, "write_ssconf_files", {"master_candidates_certs": f"{MASTER}={NEW}"}
    )
    with pytest.raises(errors.RpcError, match="already"):
        adopt(node)
    assert listed(node) == demoted


@pytest.mark.parametrize(
    "callers",
    [
        {OTHER: OLD},
        {**LIST, "x": NEW},
        {**LIST, f"{OTHER}\n": NEW},
        {**LIST, node_uuid(2): f"{NEW}\n{node_uuid(4)}={NEW}"},
        {**LIST, node_uuid(2): NEW.lower()},
        {},
    ],
)
@pytest.mark.parametrize("call", ["adopt", "relay"])
def test_a_damaged_list_changes_nothing(node, callers, call):
    with pytest.raises(errors.RpcError, match="permitted callers"):
        if call == "adopt":
            adopt(node, callers=callers)
        else:
            target = [node_uuid(4), "node4", "192.0.2.4"]
            nodes.call(node, "callers_relay", [5, MASTER], target, callers)
    assert listed(node) == {OTHER: OLD}


@pytest.mark.parametrize(
    "target", [["node4", "node4", "192.0.2.4"], [node_uuid(4), "node4", "file:///etc"]]
)
def test_only_a_node_at_an_address_is_called(node, target):
    with pytest.raises(errors.RpcError, match="no node"):
        nodes.call(node, "callers_relay", [5, MASTER], target, LIST)


class Runner:
    """A caller of other nodes, with one answer."""

    def __init__(self, answer):
        self.answer, self.targets, self.calls, self.is_closed = answer, [], [], False

    def __call__(self, targets, paths):
        self.targets.append((targets, paths))
        return self

    def call_node(self, node, request, *, timeout_s):
        name = request.procedure.name
        self.calls.append((name, node, request.args, timeout_s))
        return self.answer

    def close(self):
        self.is_closed = True


def relay(node, monkeypatch, answer):
    runner = Runner(answer)
    monkeypatch.setattr(relays.rpc, "StaticRunner", runner)
    monkeypatch.setattr(relays.rpc, "node_port", lambda: 1811)
    target = [node_uuid(4), "node4", "192.0.2.4"]
    nodes.call(node, "callers_relay", [5, MASTER], target, LIST)
    return runner


def test_a_list_is_passed_on_to_the_node(node, monkeypatch):
    runner = relay(node, monkeypatch, Result("callers_adopt", "node4", None))
    target = Target(node_uuid(4), "node4", "192.0.2.4", 1811)
    assert runner.targets == [([target], node.paths)]
    expected = ("callers_adopt", node_uuid(4), ((5, MASTER), LIST), 10.0)
    assert runner.calls == [expected]
    assert runner.is_closed


def test_a_node_that_does_not_take_the_list_is_reported(node, monkeypatch):
    refused = Result("callers_adopt", "node4", None, fail_msg="old term")
    text = "permitted callers not replaced: .*old term"
    with pytest.raises(errors.RpcError, match=text):
        relay(node, monkeypatch, refused)
