"""Parts of a cluster that this release does not offer."""

import pytest

from fakes import cluster, old_cluster
from ganeti.migration import old_config
from ganeti.migration.takeover import findings
from ganeti.node.hypervisor.registry import DRIVERS


def of(data, drivers=DRIVERS):
    changes = old_config.parse(data, "config.data", check=False)
    return findings.of_configuration(old_config.snapshot_of(changes), drivers)


def test_a_cluster_with_a_network_is_offered() -> None:
    data = old_cluster.debian()
    assert data["networks"]
    assert of(data) == findings.Findings([], [])


@pytest.mark.parametrize("hypervisor", ["chroot", "lxc"])
def test_instances_whose_runs_would_not_be_noticed_are_obstacles(hypervisor) -> None:
    data = cluster.example_data()
    data["cluster"]["enabled_hypervisors"] = ["kvm", hypervisor]
    (instance,) = data["instances"].values()
    instance["hypervisor"] = hypervisor
    instance["admin_state"] = "up"
    (obstacle,) = of(data).obstacles
    assert obstacle.startswith(f"instance web1.example.com: hypervisor {hypervisor}: ")
    assert "gnt-instance shutdown" in obstacle
    instance["admin_state"] = "down"
    assert of(data).obstacles == []


def test_disks_and_hypervisors_that_are_not_offered_are_obstacles() -> None:
    data = cluster.example_data()
    data["cluster"]["enabled_hypervisors"] = ["xen-pvm", "kvm"]
    data["cluster"]["instance_communication_network"] = "comm"
    (instance,) = data["instances"].values()
    instance["hypervisor"] = "xen-pvm"
    next(iter(data["nodes"].values()))["offline"] = True
    others = {name: driver for name, driver in DRIVERS.items() if name != "xen-pvm"}
    obstacles, notes = of(data, others)
    assert [line.partition(";")[0] for line in obstacles] == [
        "cluster: hypervisor xen-pvm is enabled but not offered",
        "instance web1.example.com: hypervisor xen-pvm is not offered",
    ]
    texts = " ".join(notes)
    for part in (
        "instance communication",
        "is offline and is not taken over",
    ):
        assert part in texts


@pytest.mark.parametrize("uuid", ["disks", "networks"])
def test_an_inconsistent_configuration_is_no_crash(uuid) -> None:
    data = old_cluster.debian()
    data[uuid] = {}
    assert of(data).obstacles == []
