"""Reasons against nodes: all of them, as data and as text."""

import json
import sys

import pytest

from fakes import placement
from ganeti.commands.htools import hail
from ganeti.decisions.htools.hail import answer
from ganeti.decisions.htools.rules import reasons


def solved(asked, nodes=4, changes=(), instances=None, **options):
    """Solve a request about nodes n1, n2, ..., of which some are changed."""
    live = {f"n{k}": placement.node() for k in range(1, nodes + 1)}
    for name, values in dict(changes).items():
        live[name] |= values
    data = placement.request(live, asked, instances or {})
    return answer.solve(data, answer.SolverOptions(**options))


def explained(*args, **kwargs):
    (one,) = solved(*args, **kwargs).explanation()
    return one


def test_a_node_without_memory_is_reported_with_what_is_wanted_and_found():
    asked = placement.allocation("plain", memory=4096)
    result = explained(asked, changes={"n3": {"free_memory": 1024}})
    assert result.nodes
    (reason,) = result.reasons
    assert reason.data() == {
        "node": "n3",
        "role": "primary",
        "kind": "FailMem",
        "check": "free memory",
        "relation": "more than",
        "wanted": 4096,
        "found": 1024,
        "unit": "MiB",
    }
    assert result.lines()[1] == (
        "  n3: free memory: wanted more than 4096 MiB, found 1024 MiB"
    )


def test_nodes_that_are_possible_have_no_reason():
    assert explained(placement.allocation("drbd")).reasons == ()


def test_a_node_that_is_no_secondary_has_its_own_error():
    asked = placement.allocation("drbd", disks=[{"size": 5000, "mode": "rw"}])
    asked["disk_space_total"] = 5128
    result = explained(asked, changes={"n2": {"free_disk": 5000}})
    assert [(r.node, r.check) for r in result.reasons] == [("n2", "free disk")]
    assert (result.reasons[0].wanted, result.reasons[0].actual) == (5128, 5000)


def test_offline_nodes_and_policies():
    asked = placement.allocation("plain", vcpus=9)
    result = explained(asked, nodes=2, changes={"n2": {"offline": True}})
    assert result.nodes == ()
    assert result.lines() == [
        "Instance new: no place",
        "  n1: largest vcpus of the policy: wanted at most 8, found 9",
        "  n2: state: wanted online and not drained, found offline or drained",
    ]


def test_a_template_that_the_policy_forbids():
    (reason,) = explained(placement.allocation("rbd"), nodes=1).reasons
    assert reason.actual == "rbd"
    assert "drbd" in str(reason.wanted)


def test_the_loss_of_a_node_counts_only_when_it_is_tested():
    there = {"i": placement.instance("sharedfile", nodes=["n1"], memory=10000)}
    asked = placement.allocation("sharedfile", memory=10000)
    result = explained(asked, nodes=2, instances=there)
    kinds = [(reason.node, reason.kind) for reason in result.reasons]
    assert kinds == [("n1", "FailMem"), ("n2", "FailN1")]
    (lost,) = [reason for reason in result.reasons if reason.kind == "FailN1"]
    text = str(lost.actual)
    assert text.startswith("too little for the instances of node n")
    group = text.partition(" of group ")[2]
    assert group
    assert "n2" in text
    bold = explained(asked, nodes=2, instances=there, capacity_checks=False)
    assert [reason.node for reason in bold.reasons] == ["n1"]


def test_a_pair_needs_a_second_node():
    (reason,) = explained(placement.allocation("drbd"), nodes=1).reasons
    assert reason.check == "secondary node"


def test_nodes_with_the_same_reason_share_a_line():
    result = explained(placement.allocation("plain", memory=20000))
    assert reasons.lines(result.reasons) == [
        "n1, n2, n3, n4: free memory: wanted more than 20000 MiB, found 15360 MiB"
    ]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("template", ["drbd", "plain", "sharedfile"])
def test_every_node_is_chosen_possible_or_has_a_reason(seed, template):
    data = placement.some_cluster(seed, template)
    result = answer.solve(data, answer.SolverOptions())
    for one in result.explanation():
        refused = {reason.node for reason in one.reasons if reason.role == "primary"}
        assert not set(one.nodes[:1]) & refused
        assert one.nodes or one.reasons
        json.dumps(one.data())


def run_hail(monkeypatch, capsys, path, *words):
    monkeypatch.setattr(sys, "argv", ["hail", *words, str(path)])
    assert hail.main() == 0
    return capsys.readouterr()


def test_hail_explains_beside_its_answer(monkeypatch, capsys, tmp_path):
    path = tmp_path / "request.json"
    live = {name: placement.node() for name in ("n1", "n2", "n3")}
    live["n2"] |= {"total_memory": 1224, "free_memory": 200}
    path.write_text(
        json.dumps(placement.request(live, placement.allocation("plain", memory=2048)))
    )
    plain = run_hail(monkeypatch, capsys, path)
    reported = run_hail(monkeypatch, capsys, path, "--explain")
    assert plain.out == reported.out
    assert plain.err == ""
    assert reported.err.splitlines() == [
        "Instance new: n3",
        "  n2: free memory: wanted more than 2048 MiB, found 200 MiB",
        "  n1: score with the instance there: wanted less than 2.265519819, found 2.265519819",
    ]
    (one,) = json.loads(run_hail(monkeypatch, capsys, path, "--explain", "--json").err)
    assert (one["instance"], one["nodes"]) == ("new", ["n3"])
    assert one["reasons"][0]["wanted"] == 2048
