"""A deposed master is not obeyed."""

import os

import pytest

from ganeti import errors
from ganeti.backend import master_term


def test_lower_terms_are_refused_and_higher_ones_remembered(tmp_path):
    guard = master_term.TermGuard(str(tmp_path / "term"), "AA")
    guard.check(3)
    guard.check(3)
    with pytest.raises(errors.TermError, match="term 2 is over"):
        guard.check(2)
    guard.check(9)
    assert guard.seen == 9


def test_the_term_survives_a_restart_but_not_a_change_of_cluster(tmp_path):
    path = str(tmp_path / "term")
    master_term.TermGuard(path, "AA").check(3)
    with pytest.raises(errors.TermError):
        master_term.TermGuard(path, "AA").check(2)
    master_term.TermGuard(path, "BB").check(1)


def test_a_broken_disk_does_not_stop_obedience(tmp_path, monkeypatch):
    guard = master_term.TermGuard(str(tmp_path / "term"), "AA")

    def fail(*_args):
        raise OSError(5, "no disk")

    monkeypatch.setattr(os, "rename", fail)
    guard.check(3)
    with pytest.raises(errors.TermError):
        guard.check(2)


def test_a_damaged_file_is_not_taken_for_none(tmp_path):
    (tmp_path / "term").write_text("{")
    with pytest.raises(errors.ConfigurationError, match="term"):
        master_term.TermGuard(str(tmp_path / "term"), "AA")
