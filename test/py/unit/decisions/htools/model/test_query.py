"""Clusters from answers of a master, over LUXI and over REST."""

from typing import Any

import pytest

from ganeti.decisions.htools.model import query
from ganeti.decisions.htools.model.cluster import Cluster, DataError

SPEC = {
    "memory-size": 128,
    "cpu-count": 1,
    "disk-size": 1024,
    "disk-count": 1,
    "nic-count": 1,
    "spindle-use": 1,
}
POLICY = {
    "std": SPEC,
    "minmax": [{"min": SPEC, "max": {**SPEC, "memory-size": 32768}}],
    "disk-templates": ["drbd", "plain"],
    "vcpu-ratio": 4.0,
    "spindle-ratio": 32.0,
}
GROUP = {
    "uuid": "u-1",
    "name": "default",
    "alloc_policy": "preferred",
    "ipolicy": POLICY,
    "tags": ["x"],
}
INFO = {
    "tags": ["t"],
    "ipolicy": POLICY,
    "master": "n1",
    "default_hypervisor": "kvm",
}


def node(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "mtotal": 16384,
        "mnode": 700,
        "mfree": 12000,
        "dtotal": 100000,
        "dfree": 90000,
        "ctotal": 8,
        "cnos": 1,
        "offline": False,
        "drained": False,
        "vm_capable": True,
        "ndp/spindle_count": 3,
        "group.uuid": "u-1",
        "tags": [],
        "ndp/exclusive_storage": False,
        "sptotal": None,
        "spfree": None,
        "ndp/cpu_speed": 1.5,
        **changes,
    }


def instance(**changes: Any) -> dict[str, Any]:
    return {
        "name": "i1",
        "disk_usage": 1152,
        "be/memory": 1024,
        "be/vcpus": 2,
        "status": "running",
        "pnode": "n1",
        "snodes": ["n2"],
        "tags": [],
        "be/auto_balance": True,
        "disk_template": "drbd",
        "be/spindle_use": 1,
        "disk.sizes": [1024],
        "disk.spindles": [None],
        "forthcoming": False,
        "oper_ram": 900,
        "hv/shared_directories": "",
        **changes,
    }


def read(
    nodes: list[dict[str, Any]] | None = None,
    instances: list[dict[str, Any]] | None = None,
    *,
    info: dict[str, Any] | None = None,
    offline: list[str] | None = None,
    static_memory: int = 4096,
) -> Cluster:
    answers = query.QueryAnswers(
        "LUXI x",
        [GROUP],
        [node("n1"), node("n2")] if nodes is None else nodes,
        [instance()] if instances is None else instances,
        info or INFO,
    )
    return query.read_cluster(
        answers, static_memory=static_memory, offline=offline or []
    )


def test_all_is_read() -> None:
    cluster = read()
    first, second = cluster.nodes
    assert (first.master, second.master) == (True, False)
    assert (first.total_memory, first.node_memory, first.free_memory) == (
        16384,
        4096,
        12000,
    )
    assert (first.spindles, first.free_spindles, first.cpu_speed) == (3, 0, 1.5)
    (item,) = cluster.instances
    assert (item.primary, item.secondary, item.memory, item.disk) == (0, 1, 900, 1152)
    assert item.spindles is None
    assert cluster.tags == ("t",)
    assert cluster.groups[0].policy.vcpu_ratio == 4


def test_a_node_without_kvm_or_so_configured_reports_its_own_memory() -> None:
    assert read(static_memory=0).nodes[0].node_memory == 700
    other = read(info={**INFO, "default_hypervisor": "xen-pvm"})
    assert other.nodes[0].node_memory == 700


@pytest.mark.parametrize("key", ["offline", "drained", "vm_capable"])
def test_an_unusable_node_is_offline_without_numbers(key: str) -> None:
    bad = node("n2", **{key: key != "vm_capable"}, mtotal=None, mfree=None)
    actual = read([node("n1"), bad]).nodes[1]
    assert actual.offline
    assert actual.total_memory == actual.free_memory == 0


def test_a_silent_node_must_be_marked_offline() -> None:
    silent = [node("n1"), node("n2.lab", mtotal=None, mfree=None, ctotal=None)]
    item = [instance(snodes=["n2.lab"])]
    with pytest.raises(
        DataError, match=r"LUXI x: node n2\.lab does not report mtotal: start"
    ):
        read(silent, item)
    assert query.silent(silent) == {"n2.lab"}
    assert read(silent, item, offline=["n2"]).nodes[1].offline


@pytest.mark.parametrize("key", ["offline", "vm_capable"])
def test_a_node_that_need_not_report_is_not_silent(key: str) -> None:
    nodes = [node("n1"), node("n2", **{key: key != "vm_capable"}, mfree=None)]
    assert query.silent(nodes) == set()


@pytest.mark.parametrize(
    ("status", "shares", "moves"),
    [
        ("running", "data:/srv/data", False),
        ("ERROR_up", "data:/srv/data", False),
        ("ADMIN_down", "data:/srv/data", True),
        ("running", "", True),
        ("running", None, True),
    ],
)
def test_a_guest_that_shares_directories_stays_while_it_runs(
    status: str, shares: str | None, moves: bool
) -> None:
    changes = {"status": status, "hv/shared_directories": shares}
    (item,) = read(instances=[instance(**changes)]).instances
    assert (item.movable, item.migrates) == (moves, moves)


def test_exclusive_storage_counts_its_spindles() -> None:
    whole = node("n1", **{"ndp/exclusive_storage": True}, sptotal=12, spfree=5)
    actual = read([whole, node("n2")]).nodes[0]
    assert (actual.spindles, actual.free_spindles) == (12, 5)


def test_a_stopped_instance_counts_with_its_maximum() -> None:
    item = instance(status="ADMIN_down", oper_ram=None)
    assert read(instances=[item]).instances[0].memory == 1024


@pytest.mark.parametrize(
    ("nodes", "instances", "reported"),
    [
        ([node("n1"), node("n1")], None, "node n1.name: wanted different names"),
        ([node("n1", dtotal=-5), node("n2")], None, "node n1.dtotal: wanted a number from 0, found -5"),
        ([node("n1", **{"group.uuid": "u-9"})], [], "node n1.group.uuid: wanted the uuid of a node group"),
        (None, [instance(pnode="n9")], "instance i1.pnode: wanted a known node, found 'n9'"),
        (None, [instance(snodes=["n1"])], "another node than the primary"),
        (None, [instance(status="odd")], "instance i1.status: wanted one of"),
        (None, [instance(**{"disk.sizes": [-1]})], "instance i1.disk.sizes: wanted a list of sizes"),
        (None, [instance(**{"be/vcpus": "two"})], "instance i1.be/vcpus: wanted a number"),
    ],
)  # fmt: skip
def test_contradictions_name_object_and_field(
    nodes: Any, instances: Any, reported: str
) -> None:
    with pytest.raises(DataError) as caught:
        read(nodes, instances)
    assert str(caught.value).startswith("LUXI x: ")
    assert reported in str(caught.value)


def test_tables_become_objects() -> None:
    table = {"data": [[[0, "a"], [2, None]]]}
    assert query.objects(table, ("x", "y"), "s") == [{"x": "a", "y": None}]


@pytest.mark.parametrize(
    "table", [None, [], {"data": 3}, {"data": [[[0, 1]]]}, {"data": [[1, 2]]}]
)
def test_what_is_no_table_is_refused(table: Any) -> None:
    with pytest.raises(DataError, match=r"^s: "):
        query.objects(table, ("x", "y"), "s")


def test_rest_objects_have_their_parameters_nested() -> None:
    nodes = [
        {
            **{k: v for k, v in node(name).items() if "/" not in k},
            "ndparams": {"spindle_count": 7, "exclusive_storage": False},
        }
        for name in ("n1", "n2")
    ]
    item = {
        **{k: v for k, v in instance(oper_ram=None).items() if "/" not in k},
        "beparams": {"vcpus": 2, "maxmem": 512, "auto_balance": False},
        "hvparams": {"shared_directories": "data:/srv/data"},
    }
    answers = query.from_rest("REST x", [GROUP], nodes, [item], info=INFO)
    cluster = query.read_cluster(answers, static_memory=0)
    assert [actual.spindles for actual in cluster.nodes] == [7, 7]
    assert cluster.nodes[0].cpu_speed == 1
    (actual,) = cluster.instances
    assert (actual.memory, actual.auto_balance, actual.spindle_use) == (512, False, 1)
    assert not actual.movable
