"""Losses of running guests on their nodes, and guests that are stuck."""

import pytest

from fakes import clusters
from ganeti.decisions.verify import Report, guest_files, node_answer, storage

N1, N2 = clusters.node_uuid(1), clusters.node_uuid(2)


def made():
    """Return a cluster with five instances on its first node, and these."""
    given = [
        ("kvm", {"firmware": "uefi"}),
        ("kvm", {"tpm": True}),
        ("kvm", {"shared_directories": "data=/srv/data"}),
        ("kvm", {}),
        ("fake", {}),
    ]
    guests = [
        clusters.instance(number, primary=1, hypervisor=name, hvparams=params)
        for number, (name, params) in enumerate(given, 1)
    ]
    return clusters.snapshot(nodes=2, extra=guests), guests


def test_guests_of_kvm_are_asked_for():
    _snapshot, guests = made()
    assert guest_files.owners(guests) == [each.name for each in guests[:4]]


def test_a_lost_file_is_an_error_of_its_instance():
    snapshot, guests = made()
    report = Report()
    first, second = guests[0].name, guests[1].name
    lost = {
        N1: {first: ["firmware"], second: ["firmware", "tpm"], "other": ["tpm"]},
        # This node has no word about instances of another.
        N2: {first: ["tpm"]},
    }
    guest_files.judge(report, snapshot, guests, lost)
    actual = [(item.severity, item.name, item.text) for item in report.take()]
    assert [row[:2] for row in actual] == [
        ("ERROR", first),
        ("ERROR", second),
        ("ERROR", second),
    ]
    assert actual[0][2].startswith(
        "node node1.example.com has lost the file of its UEFI variables, which"
    )
    assert "of its TPM data, which" in actual[2][2]
    assert ["cannot migrate" in row[2] for row in actual] == [False, False, True]
    assert not report.is_clean


def test_a_process_that_was_killed_is_an_error_with_its_remedy():
    snapshot, guests = made()
    report = Report()
    lost = {N1: {guests[1].name: ["tpm-process"], guests[2].name: ["shares"]}}
    lost[N1][guests[3].name] = ["control"]
    guest_files.judge(report, snapshot, guests, lost)
    first, second, third = report.take()
    assert [each.name for each in (first, second, third)] == [
        each.name for each in guests[1:4]
    ]
    assert "can neither migrate nor" in third.text
    remedies = [f"'gnt-instance reboot {each.name}' mends that" for each in guests[1:3]]
    assert first.text.endswith(f"the guest has no TPM; {remedies[0]}")
    assert second.text.endswith(f"has lost a directory; {remedies[1]}")


def test_a_guest_that_is_stuck_is_a_warning():
    """One that computes looks the same, so the cluster is no worse for it."""
    snapshot, guests = made()
    report = Report()
    guest_files.judge(report, snapshot, guests, {N1: {guests[3].name: ["stuck"]}})
    (stuck,) = report.take()
    assert (stuck.severity, stuck.code) == ("WARNING", "EINSTANCEDOWN")
    assert stuck.name == guests[3].name
    assert stuck.text.startswith("node node1.example.com has seen no input or output")
    assert report.is_clean


def test_kinds_of_a_later_release_are_ignored_one_by_one():
    """The rest of the answer stays as it is."""
    snapshot, guests = made()
    second, third = guests[1].name, guests[2].name
    value = {second: ["clock", "tpm-process"], third: ["clock"]}
    good, wrong = node_answer.clean({"guest-files": value, "exports": {"a": "new"}})
    assert (wrong, good["exports"]) == ([], {"a": "new"})
    report = Report()
    guest_files.judge(report, snapshot, guests, {N1: good["guest-files"]})
    storage.judge_exports(report, snapshot, {N1: good["exports"] | {"b": "foreign"}})
    lost, left = report.take()
    assert (lost.name, "of its TPM any more" in lost.text) == (second, True)
    assert "/b is no export" in left.text


@pytest.mark.parametrize(
    "value", [{"web1": ["x" * 65]}, {"web1": [1]}, {"a" * 256: ["tpm"]}, ["web1"]]
)
def test_answers_of_another_form_are_left_out(value):
    good, wrong = node_answer.clean({"guest-files": value})
    assert (good, wrong) == ({}, ["guest-files"])
