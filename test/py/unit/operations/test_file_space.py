"""Disk files that cannot fit into the free space of their directory are refused."""

import pytest

from fakes import clusters
from fakes.engine import creation
from fakes.reservations import engine, refused, the_instance

N1, N2, N3 = (clusters.node_uuid(number) for number in (1, 2, 3))


@pytest.fixture
def eng():
    """An engine with an instance of one disk of 1 GiB; 3 GiB are free on its node."""
    eng = engine()
    eng.nodes.space = 4096
    eng.run(new([1024]))
    return eng


def new(sizes, **params):
    disks = [{"size": size} for size in sizes]
    return {**creation(), "nics": [{}], "disks": disks, **params}


def test_a_creation_is_refused_before_anything_is_made(eng):
    files, before = dict(eng.nodes.files), eng.snapshot
    error = refused(
        eng,
        new([2048, 2048], instance_name="b"),
        r"instance b: needs 4096 MiB for disks of template file in /srv/\S+ on node node1.example.com, which has 3072 MiB free",
    )
    assert error.args[1] == "insufficient_resources"
    assert (eng.nodes.files, eng.snapshot) == (files, before)
    eng.run(new([3072], instance_name="b", beparams={"maxmem": 128, "minmem": 128}))


@pytest.mark.parametrize(
    "change",
    [
        {"OP_ID": "OP_INSTANCE_GROW_DISK", "disk": 0, "amount": 3073},
        {"OP_ID": "OP_INSTANCE_SET_PARAMS", "disks": [["add", -1, {"size": 3073}]]},
    ],
    ids=["grow", "add"],
)
def test_growth_and_new_disks_are_refused(eng, change):
    name = the_instance(eng).name
    before = eng.snapshot
    refused(eng, {**change, "instance_name": name}, r"needs 3073 MiB .* 3072 MiB free")
    assert eng.snapshot is before


def test_a_lost_disk_is_not_made_again_where_it_does_not_fit(eng):
    name = the_instance(eng).name
    eng.run({"OP_ID": "OP_INSTANCE_SHUTDOWN", "instance_name": name})
    eng.nodes.files.clear()
    eng.nodes.space = 1000
    wire = {"OP_ID": "OP_INSTANCE_RECREATE_DISKS", "instance_name": name}
    refused(eng, wire, r"needs 1024 MiB .* 1000 MiB free")
    assert eng.nodes.files == {}
    eng.nodes.space = 1024
    eng.run(wire)
    assert list(eng.nodes.files.values()) == [1024]


def test_the_allocator_leaves_out_nodes_without_the_space():
    eng = engine()
    full = {N1, N3}
    answer = eng.nodes.free_space
    eng.nodes.free_space = lambda node: 1000 if node in full else answer(node)
    for number in range(3):
        wire = new([1024], instance_name=f"i{number}", iallocator="hail")
        del wire["pnode"]
        assert eng.run(wire) == ["node2.example.com"]
    full.add(N2)
    wire["instance_name"] = "last"
    refused(eng, wire, r"last: needs 1024 MiB .* no node has more than 1000 MiB free")
