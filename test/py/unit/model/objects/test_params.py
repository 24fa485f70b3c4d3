from fakes import cluster
from ganeti.model.objects import CLUSTER_KEY, Update, params

GROUP = "c7e4d2f0-52b8-4a1e-9d60-6b1f2e3d4c01"


def simulation(**changes):
    base = cluster.example()
    return base.apply([Update("cluster", CLUSTER_KEY, base.cluster.replace(**changes))])


def web1(snapshot, **changes):
    return next(iter(snapshot.instances.values())).replace(**changes)


def test_hvparams_go_cluster_os_with_variant_instance():
    snapshot = simulation(
        os_hvp={
            "debootstrap+default": {"kvm": {"kernel_args": "os", "acpi": False}},
            "debootstrap": {"kvm": {"boot_order": "never used"}},
        }
    )
    filled = params.fill_hvparams(
        snapshot, web1(snapshot, hvparams={"acpi": True, "migration_port": 1})
    )
    assert filled["kernel_args"] == "os"
    assert filled["acpi"] is True
    assert filled["boot_order"] == "disk"
    assert filled["migration_port"] == 8102  # only the cluster may set it


def test_beparams_and_nicparams_lay_overrides_over_the_cluster():
    snapshot = simulation()
    be = params.fill_beparams(snapshot, web1(snapshot))
    assert (be["maxmem"], be["minmem"], be["vcpus"]) == (512, 256, 1)
    assert "memory" not in be
    nic = web1(snapshot).nics[0].replace(nicparams={"vlan": ".5"})
    assert params.fill_nicparams(snapshot, nic) == {
        "mode": "bridged",
        "link": "br0",
        "vlan": ".5",
    }


def test_ndparams_go_cluster_group_node():
    snapshot = simulation()
    group = snapshot.nodegroups[GROUP].replace(
        ndparams={"ssh_port": 1, "cpu_speed": 2.0}
    )
    node = next(iter(snapshot.nodes.values())).replace(ndparams={"ssh_port": 5})
    snapshot = snapshot.apply([Update("nodegroups", GROUP, group)])
    filled = params.fill_ndparams(snapshot, node)
    assert (filled["ssh_port"], filled["cpu_speed"], filled["spindle_count"]) == (
        5,
        2.0,
        1,
    )


def test_diskparams_go_builtin_cluster_group():
    snapshot = simulation(diskparams={"plain": {"stripes": 2}})
    assert params.fill_diskparams(snapshot, GROUP, "plain") == {
        "stripes": 2,
        "stripe_size": 0,
    }
    assert params.fill_diskparams(snapshot, GROUP, "drbd")["protocol"] == "C"
    group = snapshot.nodegroups[GROUP].replace(diskparams={"plain": {"stripes": 3}})
    snapshot = snapshot.apply([Update("nodegroups", GROUP, group)])
    assert params.fill_diskparams(snapshot, GROUP, "plain")["stripes"] == 3


def test_osparams_go_os_variant_instance():
    snapshot = simulation(
        osparams={
            "debootstrap": {"a": "bare", "b": "bare", "c": "bare"},
            "debootstrap+default": {"b": "variant", "c": "variant"},
        }
    )
    filled = params.fill_osparams(snapshot, web1(snapshot, osparams={"c": "own"}))
    assert filled == {"a": "bare", "b": "variant", "c": "own"}


def test_a_groups_policy_replaces_whole_values():
    snapshot = simulation()
    group = snapshot.nodegroups[GROUP].replace(ipolicy={"disk-templates": ["plain"]})
    policy = params.group_ipolicy(snapshot, group)
    assert policy["disk-templates"] == ["plain"]
    assert policy["std"] == snapshot.cluster.ipolicy["std"]
