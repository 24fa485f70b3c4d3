"""Values of ssconf files."""

import json

from fakes import cluster
from ganeti.master import config
from ganeti.model.objects import CLUSTER_KEY, Network, Update
from ganeti.protocols import ssconf

NODE1 = "8d0a1b62-7c11-4c43-9a3e-11aa22bb3301"
NODE2 = "8d0a1b62-7c11-4c43-9a3e-11aa22bb3302"
WEB1 = "e19b7a34-0f4d-4d27-b6c2-70a1b2c3d401"


def simulation(**changes):
    base = cluster.example()
    return base.apply([Update("cluster", CLUSTER_KEY, base.cluster.replace(**changes))])


def test_there_is_a_value_for_each_file():
    spec = json.loads((cluster.SPEC / "ssconf.json").read_text())["files"]
    values = config.ssconf_values(cluster.example())
    assert sorted(values) == sorted(ssconf.KEYS)
    assert sorted(values) == sorted(row["name"] for row in spec)


def test_the_example_gives_these_values():
    values = config.ssconf_values(
        simulation(tags=("b", "a"), uid_pool=((4000, 4019), (9, 9)))
    )
    assert values["cluster_name"] == "cluster1.example.com"
    assert values["cluster_tags"] == "a\nb"
    assert values["enabled_user_shutdown"] == "False"
    assert values["gluster_storage_dir"] == ""
    assert values["hypervisor_list"] == "kvm"
    assert values["hvparams_kvm"].startswith("acpi=True\nboot_order=disk\n")
    assert values["hvparams_chroot"] == "init_script=/ganeti-chroot"
    assert values["hvparams_fake"] == "migration_mode=live"
    assert values["instance_list"] == "web1.example.com"
    assert values["master_candidates"] == "node1.example.com\nnode2.example.com"
    assert values["master_candidates_ips"] == "192.0.2.11\n192.0.2.12"
    assert values["master_candidates_certs"].startswith(f"{NODE1}=01:23:45:")
    assert values["master_netmask"] == "32"
    assert values["master_node"] == "node1.example.com"
    assert values["node_primary_ips"].startswith("node1.example.com 192.0.2.11\n")
    assert values["node_vm_capable"].endswith("node2.example.com=True")
    assert values["nodegroups"] == "c7e4d2f0-52b8-4a1e-9d60-6b1f2e3d4c01 default"
    assert values["networks"] == ""
    assert values["offline_nodes"] == ""
    assert values["primary_ip_family"] == "2"
    assert values["release_version"] == "3.1.1"
    assert values["ssh_ports"] == "node1.example.com=22\nnode2.example.com=22"
    assert values["uid_pool"] == "4000-4019\n9"


def test_nodes_are_in_natural_order_and_candidates_in_that_of_uuids():
    base = cluster.example()
    node = base.nodes[NODE2].replace(offline=True, master_candidate=False)
    snapshot = base.apply(
        [
            Update("nodes", "00", node.replace(uuid="00", name="node10.example.com")),
            Update(
                "nodes",
                "01",
                base.nodes[NODE2].replace(uuid="01", name="node9.example.com"),
            ),
        ]
    )
    values = config.ssconf_values(snapshot)
    assert values["node_list"].split("\n") == [
        f"node{number}.example.com" for number in (1, 2, 9, 10)
    ]
    assert values["offline_nodes"] == "node10.example.com"
    assert values["master_candidates"].split("\n")[0] == "node9.example.com"


def test_an_unknown_master_is_no_master():
    assert (
        config.ssconf_values(simulation(master_node="x"))["master_node"] == "NO MASTER"
    )


def test_the_tracker_returns_only_what_changed():
    tracker = config.SsconfTracker()
    snapshot = cluster.example()
    assert tracker.update(snapshot) == config.ssconf_values(snapshot)
    assert tracker.update(snapshot) == {}
    web1 = snapshot.instances[WEB1]
    snapshot = snapshot.apply([Update("instances", WEB1, web1.replace(tags=("x",)))])
    assert tracker.update(snapshot) == {}
    network = Network(name="lan", network="192.0.2.0/24", uuid="n", serial_no=1)
    snapshot = snapshot.apply(
        [
            Update("instances", WEB1, web1.replace(name="web2")),
            Update("networks", "n", network),
            Update(
                "nodes", NODE2, snapshot.nodes[NODE2].replace(ndparams={"ssh_port": 5})
            ),
        ]
    )
    assert tracker.update(snapshot) == {
        "instance_list": "web2",
        "networks": "n lan",
        "ssh_ports": "node1.example.com=22\nnode2.example.com=5",
    }
    assert tracker.values == config.ssconf_values(snapshot)


def test_the_tracker_does_not_look_at_instances_when_only_tags_change(monkeypatch):
    tracker = config.SsconfTracker()
    snapshot = cluster.example()
    tracker.update(snapshot)
    web1 = snapshot.instances[WEB1].replace(tags=("x",))
    changed = snapshot.apply([Update("instances", WEB1, web1)])
    assert changed.names("instances") is snapshot.names("instances")
