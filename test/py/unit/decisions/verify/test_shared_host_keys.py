"""Nodes with the same SSH host keys, and those without recorded ones, are reported."""

import pytest

from fakes import clusters
from ganeti.decisions.verify import cluster
from ganeti.decisions.verify.report import Report
from ganeti.model.objects import Update

COMMAND = "run gnt-cluster renew-crypto --new-ssh-host-keys"


def lines(*host_keys, **settings):
    """Return the warnings about nodes with these keys."""
    snapshot = clusters.snapshot(nodes=len(host_keys), **settings)
    snapshot = snapshot.apply(
        Update("nodes", node.uuid, node.replace(ssh_host_keys=own))
        for node, own in zip(
            sorted(snapshot.nodes.values(), key=lambda node: node.name),
            host_keys,
            strict=True,
        )
    )
    report = Report()
    cluster.shared_host_keys(report, snapshot)
    reported = report.take()
    assert report.is_clean  # warnings
    return [finding.text for finding in reported]


def test_nodes_with_own_keys_are_right():
    assert lines(("a", "b"), ("c",)) == []


@pytest.mark.parametrize(
    ("own", "settings"), [(((),), {}), (((), ()), {"modify_ssh_setup": False})]
)
def test_one_node_alone_and_unmanaged_keys_are_right(own, settings):
    assert lines(*own, **settings) == []


def test_nodes_of_earlier_releases_are_reported():
    (line,) = lines((), (), ("x",))
    assert "node1.example.com, node2.example.com" in line
    assert "node3" not in line
    assert line.endswith(COMMAND)


def test_nodes_that_share_a_key_are_reported_once():
    (line,) = lines(("a", "b"), ("c",), ("a", "b", "d"))
    assert "nodes node1.example.com, node3.example.com share SSH host keys" in line
    assert line.endswith(COMMAND)
