"""Instances without named nodes: the master's own allocator, on real daemons."""

import collections
import json

import pytest

ADD = ("gnt-instance", "add", "-s", "8M", "-H", "fake", "--no-nics")
ADD += ("-o", "tiny+default", "--no-install", "--no-start")


@pytest.fixture(scope="module")
def cluster(cluster_of):
    return cluster_of(3)


def where(cluster):
    """Return the primary node by instance."""
    text = cluster.check("gnt-instance", "list", "--no-headers", "-o", "name,pnode")
    return dict(line.split() for line in text.splitlines())


def test_new_instances_spread_and_leave_an_evacuated_node(cluster) -> None:
    assert "hail" in cluster.check("gnt-cluster", "info")
    for name in ("one.vc.test", "two.vc.test", "three.vc.test"):
        cluster.check(*ADD, "-t", "sharedfile", name)
    before = where(cluster)
    assert len(set(before.values())) == 3, before
    cluster.check("gnt-node", "evacuate", "-f", "-p", "node2")
    after = where(cluster)
    assert "node2.vc.test" not in after.values()
    moved = [name for name in after if after[name] != before[name]]
    assert [before[name] for name in moved] == ["node2.vc.test"]


def test_too_large_instances_are_refused_with_reasons(cluster) -> None:
    found = cluster.run(*ADD, "-t", "sharedfile", "-B", "memory=9999G", "big.vc.test")
    assert found.code == 1
    assert "FailMem: 3" in found.output
    assert "largest memory of the policy: wanted at most 32768 MiB" in found.output


def test_a_dry_run_explains_and_makes_nothing(cluster) -> None:
    words = (*ADD, "-t", "sharedfile", "--dry-run", "--explain", "--json")
    told = json.loads(cluster.check(*words, "maybe.vc.test"))
    (allocator,) = told["allocators"]
    (instance,) = allocator["instances"]
    assert told["nodes"] == instance["nodes"]
    assert "maybe.vc.test" not in where(cluster)
    large = cluster.run(*words, "-B", "memory=9999G", "maybe.vc.test")
    assert large.code == 1
    assert "largest memory of the policy" in large.output


def test_several_at_once(cluster, tmp_path) -> None:
    one = {
        "mode": "create",
        "disk_template": "diskless",
        "disks": [],
        "nics": [],
        "os_type": "tiny+default",
        "hypervisor": "fake",
        "no_install": True,
        "start": False,
    }
    names = [f"batch{k}.vc.test" for k in range(3)]
    text = json.dumps([one | {"instance_name": name} for name in names])
    path = tmp_path / "batch.json"
    path.write_text(text)
    cluster.check("gnt-instance", "batch-create", str(path))
    found = where(cluster)
    assert set(names) <= set(found)
    counts = collections.Counter(found.values())
    assert max(counts.values()) - min(counts.values()) <= 1, counts
