"""Allocators learn the same of the cluster directly as from a request."""

import dataclasses

import msgspec
import pytest

from fakes import allocators, clusters
from ganeti.base import errors
from ganeti.decisions.htools.hail import request
from ganeti.master import iallocator
from ganeti.master.iallocator import requests
from ganeti.model import objects
from ganeti.protocols.rpc.answers import Guest, Host, NodeInfo, Space

OTHER_GROUP = "00000000-0000-4000-8000-0000000000a1"
SHARES = {"shared_directories": "d=/srv/d"}
SHARING = {"hypervisor": "kvm", "hvparams": SHARES}
DISKS = "00000000-0000-4000-8000-0000000002%02x"
RUNNING = {
    clusters.node_uuid(1): {
        "inst1.example.com": Guest(memory=100),
        "inst2.example.com": Guest(memory=5000),
        "unknown.example.com": Guest(memory=7),
    },
    "a node that was removed": {"inst1.example.com": Guest(memory=1)},
}


def report(**hypervisor):
    numbers = {"memory_total": 8192, "memory_free": 4000, "memory_dom0": 512}
    numbers |= {"cpu_total": 8, "cpu_dom0": 2}
    space = {"storage_size": 90000, "storage_free": 80000}
    return NodeInfo("boot", [Space(**space)], [Host(**numbers | hypervisor)])


def disk(number, template, *, nodes=(), size=1024, **changes):
    return objects.Disk(
        dev_type=template,
        logical_id=(*nodes, 1, 2, 3, "secret") if nodes else ("vg", f"lv{number}"),
        size=size,
        uuid=DISKS % number,
        serial_no=1,
        nodes=nodes,
        **changes,
    )


def instance(number, *disks, primary=1, **changes):
    uuids = [item.uuid for item in disks]
    return clusters.instance(number, primary, disks=uuids, **changes)


def varied():
    """Return a cluster with one of each kind of node and instance."""
    one, two, four = (clusters.node_uuid(n) for n in (1, 2, 4))
    pairs = [disk(1, "drbd", nodes=(two, one)), disk(2, "drbd", nodes=(one, two))]
    split = disk(3, "drbd", nodes=(one, four))
    plain = [disk(4, "plain", spindles=2), disk(5, "plain", spindles=1, size=5)]
    mixed = [disk(6, "plain"), disk(7, "file")]
    shared = [disk(n, "drbd", nodes=(one, two)) for n in (8, 9)]
    extra = [
        *(clusters.node(n) for n in (1, 2)),
        clusters.node(3, tags=["z", "a"], ndparams={"exclusive_storage": True}),
        clusters.node(4, group=OTHER_GROUP),
        clusters.node(5, ndparams={"spindle_count": 3, "exclusive_storage": True}),
        clusters.node(6, drained=True, master_candidate=False),
        clusters.node(7, offline=True, master_candidate=False),
        clusters.node(8, vm_capable=False),
        clusters.group("other", OTHER_GROUP, alloc_policy="last_resort", tags=["g"]),
        *(*pairs, split, *plain, *mixed),
        instance(1, *pairs, beparams={"maxmem": 2000, "vcpus": 3}),
        instance(2, split, admin_state="down", tags=["svc:b", "svc:a"]),
        instance(3, *plain, primary=3, admin_state="offline"),
        instance(4, *mixed, primary=2, beparams={"spindle_use": 4}),
        instance(5, primary=2, forthcoming=True),
        instance(6, primary=6),
        instance(7, primary=7),
        *(*shared, instance(8, shared[0], **SHARING)),
        instance(9, shared[1], admin_state="down", **SHARING),
    ]
    return clusters.snapshot(
        nodes=0, extra=extra, tags=["t2", "t1"], enabled_hypervisors=["kvm"]
    )


def both(known, snapshot, memory=4096, **hypervisor):
    """Return the cluster as read directly, and as read from a request."""
    reports = {clusters.node_uuid(n): report(**hypervisor) for n in (1, 2, 3, 4, 6, 8)}
    direct = known.read(snapshot, reports, RUNNING, static_memory=memory)
    data = iallocator.build(snapshot, allocators.allocate(), reports, RUNNING)
    return direct, request.read_cluster(data, static_memory=memory)


def change(snapshot, table, record):
    key = getattr(record, "uuid", "") if table != "cluster" else ""
    return snapshot.apply([objects.Update(table, key, record)])


@pytest.mark.parametrize("memory", [0, 4096])
def test_what_is_read_directly_equals_what_the_request_says(memory):
    direct, through = both(iallocator.ClusterCache(), varied(), memory)
    assert direct == through
    assert sum(node.offline for node in direct.nodes) == 4
    assert any(item.secondary >= 0 and not item.movable for item in direct.instances)


def test_memory_of_the_node_itself_is_set_for_kvm_alone():
    snapshot = change(
        varied(), "cluster", clusters.cluster(enabled_hypervisors=["fake"])
    )
    direct, through = both(iallocator.ClusterCache(), snapshot)
    assert direct == through
    assert {node.node_memory for node in direct.nodes} == {0, 512}


def test_every_change_is_noticed():
    known, snapshot = iallocator.ClusterCache(), varied()
    both(known, snapshot)
    one = snapshot.instances[clusters.instance_uuid(1)]
    first, split = snapshot.disks[DISKS % 1], snapshot.disks[DISKS % 3]
    cluster = snapshot.cluster
    changed = {"default": {**cluster.beparams["default"], "maxmem": 999}}
    for table, record in (
        ("instances", one.replace(beparams={"maxmem": 77})),
        ("instances", one.replace(primary_node=clusters.node_uuid(2))),
        ("disks", first.replace(size=4000)),
        ("disks", split.replace(nodes=(one.primary_node, clusters.node_uuid(2)))),
        ("cluster", cluster.replace(beparams=changed)),
        ("cluster", cluster.replace(hvparams={"kvm": SHARES})),
        ("cluster", cluster.replace(os_hvp={one.os: {"kvm": SHARES}})),
        ("instances", one.replace(hvparams=SHARES)),
        ("nodes", clusters.node(9)),
    ):
        after = change(snapshot, table, record)
        direct, through = both(known, after)
        assert direct == through
        assert direct != both(known, snapshot)[0]
    removed = snapshot.apply([objects.Update("instances", one.uuid, None)])
    assert len(both(known, removed)[0].instances) == 8


def test_a_running_guest_with_shared_directories_is_known_not_to_migrate():
    """It may be failed over, but balancing must not stop it."""
    direct, _through = both(iallocator.ClusterCache(), varied())
    kept = {item.name: (item.migrates, item.movable) for item in direct.instances}
    assert kept["inst8.example.com"] == (False, False)
    assert kept["inst9.example.com"] == kept["inst1.example.com"] == (True, True)


def test_unchanged_parts_are_not_made_again():
    known, snapshot = iallocator.ClusterCache(), varied()
    before = {item.name: item for item in both(known, snapshot)[0].instances}
    one = snapshot.instances[clusters.instance_uuid(1)]
    after = change(snapshot, "instances", one.replace(serial_no=9))
    now = {item.name: item for item in both(known, after)[0].instances}
    same = {name for name, item in now.items() if item is before[name]}
    # The one that changed; and what must not move is made of what is kept.
    assert same == set(now) - {"inst1.example.com", "inst2.example.com"}


def test_a_report_that_makes_no_sense_names_node_and_number():
    with pytest.raises(errors.OpPrereqError, match=r"node\d.*: total_memory: .* -5"):
        both(iallocator.ClusterCache(), varied(), memory_total=-5)


# Allocators learn a node's resources from its report, and the space of its disks.

STORAGE = {"storage_size": 9000, "storage_free": 8000}
HYPERVISOR = {
    "memory_total": 16384,
    "memory_dom0": 512,
    "memory_free": 4000,
    "cpu_total": 8,
    "cpu_dom0": 1,
}
REPORT = ["boot", [STORAGE], [HYPERVISOR]]


def read(made, report):
    """Read a report as a node sends it."""
    answer = None if report is None else msgspec.convert(report, NodeInfo)
    return requests.read_resources(made, answer)


def node(**changes):
    first = clusters.snapshot().nodes[clusters.node_uuid(1)]
    return msgspec.structs.replace(first, **changes)


def test_each_number_of_the_report_has_its_place():
    assert read(node(), REPORT) == requests.NodeResources(
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
    assert read(node(**changes), REPORT) is None


def test_a_node_that_did_not_answer_has_no_resources():
    assert read(node(), None) is None


@pytest.mark.parametrize("storage", [[], [None], [{}], None])
def test_a_node_without_storage_has_no_disk_but_its_memory(storage):
    actual = read(node(), ["boot", storage, [HYPERVISOR]])
    assert (actual.total_disk, actual.free_disk) == (0, 0)
    assert (actual.free_memory, actual.total_cpus) == (4000, 8)


@pytest.mark.parametrize("hypervisors", [[], [None], [{}], None])
def test_a_node_without_a_hypervisor_has_no_memory_but_its_disk(hypervisors):
    actual = read(node(), ["boot", [STORAGE], hypervisors])
    numbers = dataclasses.asdict(actual)
    assert {name for name, number in numbers.items() if number} == {
        "total_disk",
        "free_disk",
    }


@pytest.mark.parametrize("name", sorted(HYPERVISOR))
def test_a_number_that_is_unknown_counts_as_nothing(name):
    report = ["boot", [STORAGE], [HYPERVISOR | {name: None}]]
    actual = dataclasses.asdict(read(node(), report))
    assert [number for number in actual.values() if not number] == [0]


def test_the_first_storage_and_the_first_hypervisor_count():
    second = {"storage_size": 1, "storage_free": 1}
    report = ["boot", [STORAGE, second], [HYPERVISOR, {"memory_free": 1}]]
    assert read(node(), report) == read(node(), REPORT)


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
    assert requests.disk_space(template, sizes) == space
