"""The numbers of a cluster's health count what their names say, per group and in sum."""

import msgspec
import pytest

from fakes.some_cluster import random_cluster
from ganeti.decisions.htools import tables
from ganeti.decisions.htools.model.cluster import Group, Instance, Node
from ganeti.decisions.htools.state import node_state
from ganeti.decisions.htools.tables import ClusterHealth


def node(name, *, offline=False, free=8192):
    return Node(
        name=name,
        group=0,
        total_memory=16384.0,
        node_memory=512,
        free_memory=free,
        total_disk=102400.0,
        free_disk=51200,
        cpus=8.0,
        offline=offline,
    )


def instance(name, primary, secondary, *, memory=1024, tag="svc:a", forthcoming=False):
    return Instance(
        name=name,
        memory=memory,
        disk=1024,
        vcpus=1,
        primary=primary,
        secondary=secondary,
        template="drbd",
        tags=(tag,),
        forthcoming=forthcoming,
    )


def state_of(nodes, instances):
    cluster = msgspec.structs.replace(
        random_cluster(1),
        groups=(Group("g", "u"),),
        nodes=tuple(nodes),
        instances=tuple(instances),
        tags=("htools:iextags:svc",),
    )
    return node_state.derive(cluster)


def counts(instances, nodes=None, **options):
    nodes = nodes or [node("n0"), node("n1"), node("n2")]
    return tables.cluster_health(state_of(nodes, instances), **options)


def test_a_healthy_group_has_no_bad_number():
    result = counts([instance("a", 0, 1), instance("b", 1, 2)])
    assert result == ClusterHealth(0, 0, 0, 0, 0)
    assert not result.bad


def test_a_node_fails_n1_if_its_instances_of_a_lost_node_leave_it_no_memory():
    nodes = [node("n0"), node("n1", free=1000), node("n2")]
    small = counts([instance("a", 0, 1, memory=999)], nodes)
    large = counts([instance("a", 0, 1, memory=1000)], nodes)
    assert (small.n1_fail, large.n1_fail) == (0, 1)
    assert large.bad


def test_an_offline_node_counts_as_offline_and_not_as_failing_n1():
    nodes = [node("n0"), node("n1", free=10, offline=True), node("n2")]
    result = counts([instance("a", 0, 1)], nodes)
    assert (result.n1_fail, result.offline_pri, result.offline_sec) == (0, 0, 1)


def test_each_primary_of_each_offline_node_counts_unless_it_is_forthcoming():
    nodes = [node("n0", offline=True), node("n1", offline=True), node("n2"), node("n3")]
    instances = [
        instance("a", 0, 2, tag="x"),
        instance("b", 0, 3, tag="x"),
        instance("c", 1, 2, tag="x"),
        instance("d", 2, 3, tag="x"),
        instance("e", 1, 3, tag="x", forthcoming=True),
    ]
    assert counts(instances, nodes).offline_pri == 3


def test_a_node_with_two_primaries_of_one_exclusion_tag_is_one_conflict():
    two = [instance(name, 0, 1) for name in "ab"]
    assert counts(two).conflict_tags == 1
    assert counts([*two, instance("c", 0, 1)]).conflict_tags == 1
    other = [instance("d", 1, 2, tag="svc:b"), instance("e", 1, 2, tag="svc:b")]
    assert counts([*two, *other]).conflict_tags == 2
    assert counts([instance("a", 0, 1), instance("b", 1, 0)]).conflict_tags == 0
    assert counts([instance(name, 0, 1, tag="other") for name in "ab"]).bad is False


def test_global_n1_is_not_a_number_where_it_is_not_tested():
    instances = [instance("a", 0, 1)]
    assert counts(instances).gn1_fail == 0
    untested = counts(instances, capacity_checks=False)
    assert untested.gn1_fail is None
    assert not untested.bad


@pytest.mark.parametrize("name", msgspec.structs.asdict(ClusterHealth(0, 0, 0, 0, 0)))
def test_each_number_alone_is_bad(name):
    result = msgspec.structs.replace(ClusterHealth(0, 0, 0, 0, 0), **{name: 1})
    assert result.bad


def test_the_sum_of_groups_adds_each_number():
    total = ClusterHealth(1, 2, 3, 4, 5) + ClusterHealth(10, 20, 30, 40, 50)
    assert total == ClusterHealth(11, 22, 33, 44, 55)


@pytest.mark.parametrize("untested", [(None, 5), (5, None), (None, None)])
def test_a_sum_with_a_group_that_was_not_tested_has_no_global_n1(untested):
    first, second = (ClusterHealth(0, 0, 0, 0, count) for count in untested)
    assert (first + second).gn1_fail is None


def test_a_group_keeps_its_name_and_has_the_score_of_its_state():
    alike = state_of([node("n0"), node("n1")], [])
    uneven = state_of([node("n0", free=100), node("n1")], [])
    result = tables.group_health(alike)
    assert (result.name, result.uuid) == ("g", "u")
    assert result.health == tables.cluster_health(alike)
    assert [item.name for item in result.part.nodes] == ["n0", "n1"]
    assert tables.group_health(uneven).score > result.score
