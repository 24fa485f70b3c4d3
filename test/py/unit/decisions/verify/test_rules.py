"""Stored rules and regular expressions that cannot be evaluated are warnings."""

from fakes import clusters
from ganeti.decisions.verify import cluster
from ganeti.decisions.verify.report import Report


def test_what_is_skipped_is_named_with_the_command_that_mends_it():
    snapshot = clusters.snapshot(nodes=1, reserved_lvs=["root.*", "(?!x)"])
    report = Report()
    cluster.rules(report, snapshot, {"u1": "predicate: wrong"})
    wrong, reserved = [finding.line() for finding in report.take()]
    assert wrong == (
        "  - WARNING: cluster : job filter u1 is skipped: predicate: wrong; replace it,"
        " or remove it with gnt-filter delete u1"
    )
    assert reserved == (
        "  - WARNING: cluster : reserved_lvs: an entry is skipped: regular expression"
        " '(?!x)': invalid perl operator: (?!; the syntax is RE2's, without look-around"
        " and references; replace it with gnt-cluster modify --reserved-lvs"
    )
    assert report.is_clean


def test_sound_rules_are_not_named():
    report = Report()
    cluster.rules(report, clusters.snapshot(nodes=1, reserved_lvs=["root.*"]), {})
    assert report.take() == []
