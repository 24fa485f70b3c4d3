import pytest

from fakes import cluster
from ganeti.base import errors
from ganeti.model.objects import Update, lookup


@pytest.fixture
def snapshot():
    return cluster.example()


NODE1 = "8d0a1b62-7c11-4c43-9a3e-11aa22bb3301"


@pytest.mark.parametrize(
    "name",
    [
        "node1.example.com",
        NODE1,
        "node1",
        "node1.example",
        "NODE1",
        "Node1.Example.com",
    ],
)
def test_a_node_is_found_by_name_uuid_or_leading_components(snapshot, name):
    assert lookup.expand_node(snapshot, name) == NODE1


@pytest.mark.parametrize("name", ["node", "node1.ex", "example.com", "", "node3"])
def test_parts_of_components_are_no_names(snapshot, name):
    with pytest.raises(errors.OpPrereqError, match=rf"Node '{name}' not known") as info:
        lookup.expand_node(snapshot, name)
    assert info.value.args[1] == "unknown_entity"


def test_an_ambiguous_name_is_refused_and_says_what_it_could_be(snapshot):
    node = snapshot.nodes[NODE1].replace(uuid="x", name="node1.example.org")
    snapshot = snapshot.apply([Update("nodes", "x", node)])
    with pytest.raises(
        errors.OpPrereqError, match=r"node1\.example\.com, node1\.example\.org"
    ):
        lookup.expand_node(snapshot, "node1")
    assert lookup.find(snapshot, "nodes", "node1") is None
    assert lookup.expand_node(snapshot, "node1.example.org") == "x"


def test_groups_have_no_short_names(snapshot):
    key, group = next(iter(snapshot.nodegroups.items()))
    assert lookup.expand_group(snapshot, "default") == key
    snapshot = snapshot.apply(
        [Update("nodegroups", "g", group.replace(uuid="g", name="rack.one"))]
    )
    with pytest.raises(errors.OpPrereqError, match="Node group 'rack' not known"):
        lookup.expand_group(snapshot, "rack")
