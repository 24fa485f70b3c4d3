"""A deposed master is not obeyed."""

import os

import pytest

from ganeti.base import errors
from ganeti.decisions.quorum import MAX_JUMP, Term
from ganeti.node.calls.membership import master_term


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
