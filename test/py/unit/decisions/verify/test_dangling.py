"""Nodes of no group, and instances that are nowhere."""

import pytest

from fakes import clusters
from ganeti.decisions.verify import Report, cluster

NO_GROUP = "00000000-0000-4000-8000-0000000000ff"


def actual(*extra):
    report = Report()
    cluster.dangling(report, clusters.snapshot(nodes=2, instances=1, extra=extra))
    return [(f.code, f.name, f.text) for f in report.take()]


def test_a_cluster_in_order_has_none():
    assert actual() == []


@pytest.mark.parametrize("number", [1, 2])
def test_a_node_of_no_group_is_named_with_the_instances_on_it(number):
    lost = clusters.node(number, group=NO_GROUP)
    nodes, *instances = actual(lost)
    assert nodes[:2] == ("ECLUSTERDANGLINGNODES", lost.name)
    assert [row[:2] for row in instances] == (
        [("ECLUSTERDANGLINGINST", lost.name)] if number == 1 else []
    )
    assert all("inst1.example.com" in text for _code, _name, text in instances)


def test_an_instance_on_a_node_that_is_not_there_is_named_with_its_uuid():
    gone = clusters.node_uuid(7)
    ((code, name, text),) = actual(clusters.instance(1, primary_node=gone))
    assert (code, name) == ("ECLUSTERDANGLINGINST", gone)
    assert "inst1.example.com" in text


def test_disks_of_no_instance_are_named_the_largest_first():
    disks = [clusters.drbd_disk(f"d{n}", 1, 2, size=n * 1024) for n in range(1, 13)]
    owner = clusters.instance(1, disks=("d12",))
    snapshot = clusters.snapshot(nodes=2, instances=0, extra=[owner, *disks])
    lines = cluster.detached(snapshot)
    assert lines[0] == (
        "disk d11 (drbd, 11264 MiB) belongs to no instance; 'gnt-instance modify --disk"
        " d11:attach INSTANCE' attaches it"
    )
    assert [line.split()[1] for line in lines[:10]] == [
        f"d{n}" for n in range(11, 1, -1)
    ]
    assert lines[10:] == ["1 more disks belong to no instance"]
