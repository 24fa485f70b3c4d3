"""Allocators learn a node's resources from its report, and the space of its disks."""

import dataclasses

import msgspec
import pytest

from fakes import clusters
from ganeti.master.iallocator import node_resources

STORAGE = {"storage_size": 9000, "storage_free": 8000}
HYPERVISOR = {
    "memory_total": 16384,
    "memory_dom0": 512,
    "memory_free": 4000,
    "cpu_total": 8,
    "cpu_dom0": 1,
}
REPORT = ["boot", [STORAGE], [HYPERVISOR]]


def node(**changes):
    first = clusters.snapshot().nodes[clusters.node_uuid(1)]
    return msgspec.structs.replace(first, **changes)


def test_each_number_of_the_report_has_its_place():
    assert node_resources.read(node(), REPORT) == node_resources.NodeResources(
        total_memory=16384,
        reserved_memory=512,
        free_memory=4000,
        total_disk=9000,
        free_disk=8000,
        total_cpus=8,
        reserved_cpus=1,
    )


@pytest.mark.parametrize("changes", [{"offline": True}, {"vm_capable": False}])
def test_a_node_without_instances_has_no_resources_whatever_it_reports(changes):
    assert node_resources.read(node(**changes), REPORT) is None


def test_a_node_that_did_not_answer_has_no_resources():
    assert node_resources.read(node(), None) is None


@pytest.mark.parametrize("storage", [[], [None], [{}], None])
def test_a_node_without_storage_has_no_disk_but_its_memory(storage):
    actual = node_resources.read(node(), ["boot", storage, [HYPERVISOR]])
    assert (actual.total_disk, actual.free_disk) == (0, 0)
    assert (actual.free_memory, actual.total_cpus) == (4000, 8)


@pytest.mark.parametrize("hypervisors", [[], [None], [{}], None])
def test_a_node_without_a_hypervisor_has_no_memory_but_its_disk(hypervisors):
    actual = node_resources.read(node(), ["boot", [STORAGE], hypervisors])
    numbers = dataclasses.asdict(actual)
    assert {name for name, number in numbers.items() if number} == {
        "total_disk",
        "free_disk",
    }


@pytest.mark.parametrize("name", sorted(HYPERVISOR))
def test_a_number_that_is_unknown_counts_as_nothing(name):
    report = ["boot", [STORAGE], [HYPERVISOR | {name: None}]]
    actual = dataclasses.asdict(node_resources.read(node(), report))
    assert [number for number in actual.values() if not number] == [0]


def test_the_first_storage_and_the_first_hypervisor_count():
    second = {"storage_size": 1, "storage_free": 1}
    report = ["boot", [STORAGE, second], [HYPERVISOR, {"memory_free": 1}]]
    assert node_resources.read(node(), report) == node_resources.read(node(), REPORT)


@pytest.mark.parametrize(
    ("template", "sizes", "space"),
    [
        ("plain", (1024, 512), 1536),
        ("file", (1024,), 1024),
        ("drbd", (1024,), 1024 + 128),
        ("drbd", (1024, 512), 1536 + 256),
        ("drbd", (), 0),
        ("diskless", (1024,), 0),
    ],
)
def test_disks_take_their_sizes_and_mirrored_ones_their_metadata(
    template, sizes, space
):
    assert node_resources.disk_space(template, sizes) == space
