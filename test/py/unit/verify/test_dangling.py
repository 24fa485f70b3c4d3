"""Nodes of no group, and instances that are nowhere."""

import pytest

from fakes import clusters
from ganeti.verify import Report, cluster

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
