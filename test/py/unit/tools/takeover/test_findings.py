"""Parts of a cluster that this release does not offer."""

import pytest

from fakes import cluster, old_cluster
from ganeti.hypervisor import DRIVERS
from ganeti.tools import old_config
from ganeti.tools.takeover import findings

STAYS = "stays in use, but cannot be changed, because gnt-network is not offered"


def of(data):
    changes = old_config.parse(data, "config.data", check=False)
    return findings.of_configuration(old_config.snapshot_of(changes), DRIVERS)


def test_an_offered_cluster_has_notes_only() -> None:
    assert of(old_cluster.debian()) == findings.Findings(
        [],
        [f"network lan: {STAYS}"],
    )


def test_disks_and_hypervisors_that_are_not_offered_are_obstacles() -> None:
    data = cluster.example_data()
    data["cluster"]["enabled_hypervisors"] = ["xen-pvm", "kvm"]
    data["cluster"]["instance_communication_network"] = "comm"
    (instance,) = data["instances"].values()
    instance["hypervisor"] = "xen-pvm"
    next(iter(data["nodes"].values()))["offline"] = True
    obstacles, notes = of(data)
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
