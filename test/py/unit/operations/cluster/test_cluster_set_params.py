"""Cluster settings: every parameter is checked and stored."""

import msgspec
import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants.parameters import hvparams
from ganeti.master.locking import Level
from ganeti.model import opcodes

MASTER = clusters.node_uuid(1)


def engine_with(*extra, script=None, root="/nonexistent/n1", **cluster):
    return Engine(
        clusters.snapshot(nodes=2, extra=extra, **cluster),
        SUCCESSFUL_ACTS | {"hooks_runner": []} | (script or {}),
        root=root,
    )


def modify(engine, **options):
    return engine.run({"OP_ID": "OP_CLUSTER_SET_PARAMS", **options})


MINMAX = clusters.EXAMPLE["cluster"]["ipolicy"]["minmax"][0]
#: parameter -> (given, field of the record, stored)
STORED = {
    "candidate_pool_size": (5, "candidate_pool_size", 5),
    "max_running_jobs": (7, "max_running_jobs", 7),
    "max_tracked_jobs": (8, "max_tracked_jobs", 8),
    "maintain_node_health": (True, "maintain_node_health", True),
    "node_death": (True, "node_death", True),
    "rapi_require_authentication": (True, "rapi_require_authentication", True),
    "prealloc_wipe_disks": (True, "prealloc_wipe_disks", True),
    "modify_etc_hosts": (False, "modify_etc_hosts", False),
    "enabled_user_shutdown": (True, "enabled_user_shutdown", True),
    "use_external_mip_script": (True, "use_external_mip_script", True),
    "default_iallocator_params": ({"a": 1}, "default_iallocator_params", {"a": 1}),
    "default_iallocator": (
        "relocate= : allocate = hail,,hail: hail",
        "default_iallocator",
        "hail:allocate=hail:relocate=",
    ),
    "mac_prefix": ("AA:BB:CC", "mac_prefix", "aa:bb:cc"),
    "master_netdev": ("eth7", "master_netdev", "eth7"),
    "master_netmask": (24, "master_netmask", 24),
    "install_image": ("http://x/y", "install_image", "http://x/y"),
    "zeroing_image": ("/srv/zero", "zeroing_image", "/srv/zero"),
    "diagnose_data_collector_filename": (
        "check-psu",
        "diagnose_data_collector_filename",
        "check-psu",
    ),
    "instance_communication_network": ("", "instance_communication_network", ""),
    "uid_pool": ([[9, 12], [1, 1]], "uid_pool", ((1, 1), (9, 12))),
    "add_uids": ([[5, 6]], "uid_pool", ((5, 6),)),
    "reserved_lvs": (["^xen.*"], "reserved_lvs", ("^xen.*",)),
    "automation_limits": (
        {"moved-share": 5, "quiet-time": None},
        "automation_limits",
        {"moved-share": 5.0},
    ),
    "maint_round_delay": (60, "maintenance", {"roundDelay": 60}),
    "maint_balance": (True, "maintenance", {"balance": True}),
    "maint_balance_threshold": (0.5, "maintenance", {"balanceThreshold": 0.5}),
    "maint_balance_load": (True, "maintenance", {"balanceLoad": True}),
    "maint_balance_disk_moves": (True, "maintenance", {"balanceDiskMoves": True}),
    "maint_repairs": (True, "maintenance", {"repairs": True}),
    "commit_policy": ("availability", "commit_policy", "availability"),
    "confd_hmac": ("both", "confd_hmac", "both"),
    "confd_detect_replays": (True, "confd_detect_replays", True),
    "compression_tools": (["gzip", "lzop"], "compression_tools", ("gzip", "lzop")),
    "hidden_os": ([["add", "tiny"]], "hidden_os", ("tiny",)),
    "blacklisted_os": ([["add", "tiny"]], "blacklisted_os", ("tiny",)),
    "enabled_disk_templates": (["file"], "enabled_disk_templates", ("file",)),
    "file_storage_dir": ("/srv/f/", "file_storage_dir", "/srv/f"),
    "shared_file_storage_dir": ("/srv/s", "shared_file_storage_dir", "/srv/s"),
    "gluster_storage_dir": ("/srv/g", "gluster_storage_dir", "/srv/g"),
    "vg_name": ("", "volume_group_name", None),
    "drbd_helper": ("", "drbd_usermode_helper", None),
    "enabled_hypervisors": (["fake"], "enabled_hypervisors", ("fake",)),
    "osparams": ({"tiny": {"a": "b"}}, "osparams", {"tiny": {"a": "b"}}),
    "osparams_private_cluster": (
        {"tiny": {"pw": "x"}},
        "osparams_private_cluster",
        {"tiny": {"pw": "x"}},
    ),
    "os_hvp": (
        {"tiny": {"kvm": {"acpi": "false"}}},
        "os_hvp",
        {"tiny": {"kvm": {"acpi": False}}},
    ),
}
#: parameter -> (given, part of the record, expected value)
MERGED = {
    "beparams": ({"memory": "1g"}, lambda c: c.beparams["default"]["minmem"], 1024),
    "nicparams": ({"link": "br9"}, lambda c: c.nicparams["default"]["link"], "br9"),
    "ndparams": ({"ssh_port": "2222"}, lambda c: c.ndparams["ssh_port"], 2222),
    "hvparams": (
        {"kvm": {"acpi": "false"}},
        lambda c: c.hvparams["kvm"]["acpi"],
        False,
    ),
    "diskparams": (
        {"drbd": {"resync-rate": "5"}},
        lambda c: c.diskparams["drbd"]["resync-rate"],
        5,
    ),
    "ipolicy": ({"vcpu-ratio": "8"}, lambda c: c.ipolicy["vcpu-ratio"], 8.0),
    "hv_state": (
        {"kvm": {"mem_total": 5}},
        lambda c: c.hv_state_static["kvm"]["mem_total"],
        5,
    ),
    "disk_state": (
        {"plain": {"xenvg": {"disk_total": 5}}},
        lambda c: c.disk_state_static["plain"]["xenvg"]["disk_total"],
        5,
    ),
    "enabled_data_collectors": (
        {"drbd": False},
        lambda c: c.data_collectors["drbd"]["active"],
        False,
    ),
    "data_collector_interval": (
        {"drbd": 9},
        lambda c: c.data_collectors["drbd"]["interval"],
        9,
    ),
}
POLICY = {**clusters.EXAMPLE["cluster"]["ipolicy"], "disk-templates": ["file"]}
#: Tested by themselves, or not offered.
OTHERS = {
    "force",
    "remove_uids",
}


def test_every_parameter_of_the_opcode_is_covered_here():
    common = {field.name for field in msgspec.structs.fields(opcodes.Opcode)}
    fields = {field.name for field in msgspec.structs.fields(opcodes.ClusterSetParams)}
    assert fields - common == set(STORED) | set(MERGED) | OTHERS


@pytest.mark.parametrize("name", STORED)
def test_settings_are_stored(name):
    given, field, stored = STORED[name]
    engine = engine_with(ipolicy=POLICY)
    assert modify(engine, **{name: given}) is None
    assert getattr(engine.snapshot.cluster, field) == stored


@pytest.mark.parametrize("name", MERGED)
def test_tables_are_merged_and_typed(name):
    given, get, expected = MERGED[name]
    engine = engine_with()
    modify(engine, **{name: given})
    assert get(engine.snapshot.cluster) == expected


REFUSED = [
    ({"mac_prefix": "aa:bb"}, "wanted three octets"),
    ({"mac_prefix": "01:00:00"}, "group addresses"),
    ({"master_netdev": ""}, "name of an interface"),
    ({"master_netmask": 33}, "wanted 1 to 32"),
    ({"install_image": "relative"}, "absolute path or a URL"),
    ({"default_iallocator": "hial"}, "hial: no such program .* did you mean hail"),
    ({"default_iallocator": "hail,nope"}, "default_iallocator: nope: no such program"),
    (
        {"default_iallocator": "alocate=hail"},
        "type .*'alocate'.* did you mean allocate",
    ),
    ({"default_iallocator": "hail:hail"}, "all other types is given twice"),
    ({"default_iallocator": "relocate=:relocate="}, "relocate is given twice"),
    ({"instance_communication_network": "n"}, "communication is not offered"),
    ({"maint_round_delay": 0}, "wanted 1 to 604800 seconds, found 0"),
    ({"maint_round_delay": 604801}, "wanted 1 to 604800 seconds, found 604801"),
    ({"maint_balance_threshold": -0.1}, "wanted a gain of 0 to 1000, found -0.1"),
    ({"maint_balance_threshold": 1001.0}, "wanted a gain of 0 to 1000, found 1001"),
    ({"diagnose_data_collector_filename": "../x"}, "without directory"),
    ({"diagnose_data_collector_filename": ".."}, "without directory"),
    ({"uid_pool": [[5, 4]]}, "found 5-4, which is reversed"),
    ({"uid_pool": [[1, 9], [20, 30], [9, 12]]}, "ranges 1-9 and 9-12 overlap"),
    ({"add_uids": [[1, 90], [3, 4]]}, "ranges 1-90 and 3-4 overlap"),
    ({"remove_uids": [[1, 2]]}, "is not in the pool"),
    ({"reserved_lvs": ["("]}, "regular expression '\\(': missing \\)"),
    ({"compression_tools": ["none"]}, "other than none"),
    ({"hidden_os": [["attach", "x"]]}, "wanted add or remove"),
    ({"enabled_data_collectors": {"bogus": True}}, "unknown"),
    ({"data_collector_interval": {"drbd": 0}}, "above 0"),
    ({"enabled_disk_templates": []}, "at least one template"),
    ({"file_storage_dir": ""}, "must be set while file disks"),
    ({"file_storage_dir": "x"}, "absolute path"),
    ({"file_storage_dir": "/srv/../etc"}, r"without \.\., found '/srv/../etc'"),
    ({"file_storage_dir": "/etc"}, "outside of the system directory /etc, found"),
    ({"shared_file_storage_dir": "/usr/lib/x"}, "system directory /usr/lib, found"),
    ({"gluster_storage_dir": "/"}, "system directory /, found"),
    ({"vg_name": "xenvg"}, "no enabled disk template"),
    ({"drbd_helper": "/bin/true"}, "drbd disks are not enabled"),
    ({"ipolicy": {"disk-templates": ["plain"]}}, "that are not enabled"),
    ({"ipolicy": {"std": "default"}}, "no level above"),
    (
        {"ipolicy": {"std": {**MINMAX["min"], "cpu-count": 99}}},
        "not within any of the bounds",
    ),
    ({"enabled_hypervisors": []}, "at least one hypervisor"),
    ({"enabled_hypervisors": ["fake"]}, "is used by instances inst1"),
    ({"beparams": {"minmem": 4096}}, "is above the maximum"),
    ({"beparams": {"auto_balance": "1"}}, "auto_balance: wanted true or false"),
    ({"ndparams": {"ssh_port": 99999}}, "ssh_port: wanted a port from 1 to 65535"),
    ({"ndparams": {"oob_program": "bin/x"}}, "oob_program: wanted an absolute path"),
    ({"ipolicy": {"vcpu-ratio": -1}}, "vcpu-ratio: wanted a number from 0"),
    ({"ipolicy": {"spindle-ratio": "nan"}}, "spindle-ratio: wanted a number"),
    ({"ipolicy": {"std": {"memory-size": 1 << 40}}}, "std/memory-size"),
    ({"nicparams": {"mode": "pool"}}, "wanted one of bridged"),
    ({"nicparams": {"link": ""}}, "must be set in mode"),
    ({"nicparams": {"ip": "1.2.3.4"}}, "unknown"),
    ({"ndparams": {"bogus": 1}}, "unknown"),
    ({"hvparams": {"qemu": {}}}, "not a hypervisor"),
    ({"hvparams": {"kvm": {"acpi": "maybe"}}}, "wanted true or false"),
    ({"hvparams": {"kvm": {"kernel_path": "x"}}}, "absolute path"),
    (
        {"os_hvp": {"tiny": {"kvm": {"migration_port": 1}}}},
        "only be set for the whole cluster",
    ),
    ({"nicparams": {"vlan": "9999"}}, "wanted VLANs from 1 to 4094, found 9999"),
    ({"nicparams": {"link": "br0\nx"}}, "wanted as link a name of letters"),
    ({"diskparams": {"drbd": {"bogus": 1}}}, "unknown"),
    ({"diskparams": {"plain": {"stripes": 0}}}, "wanted 1 to 128, found 0"),
    (
        {"diskparams": {"plain": {"stripes": 2, "stripe_size": 96}}},
        "stripe_size: wanted 0, or a power of two from 4 to 1048576 .KiB., found 96",
    ),
    (
        {"diskparams": {"drbd": {"meta-stripe_size": 64, "data-stripes": 2}}},
        "meta-stripe_size: 64 needs meta-stripes of 2 or more, found 1",
    ),
    ({"diskparams": {"drbd": {"c-max-rate": -1}}}, "wanted 250 to 4194304, found -1"),
    ({"diskparams": {"drbd": {"metavg": "../x"}}}, "wanted a name .* found '../x'"),
    ({"diskparams": {"drbd": {"net-custom": "x\ny"}}}, "of printable characters"),
    ({"diskparams": {"gluster": {"host": ""}}}, "wanted a name of letters"),
    ({"hv_state": {"qemu": {}}}, "not a hypervisor"),
]


def test_a_newly_enabled_hypervisor_gets_its_default_parameters():
    engine = engine_with(clusters.instance(1))
    enabled = [*engine.snapshot.cluster.enabled_hypervisors, "chroot"]
    assert "chroot" not in engine.snapshot.cluster.hvparams
    modify(engine, enabled_hypervisors=enabled)
    known = engine.snapshot.cluster.hvparams["chroot"]
    assert known == {
        name: row.default for name, row in hvparams.HYPERVISOR["chroot"].items()
    }


def test_clients_that_send_empty_tables_of_collectors_add_none():
    engine = engine_with()
    before = engine.snapshot.cluster.data_collectors
    modify(
        engine,
        install_image="/srv/image",
        enabled_data_collectors={},
        data_collector_interval={},
    )
    assert engine.snapshot.cluster.data_collectors == before
    modify(engine, enabled_data_collectors={"drbd": False})
    assert set(engine.snapshot.cluster.data_collectors) == set(before)


def test_templates_enabled_without_a_directory_get_that_of_the_initialisation():
    engine = engine_with(
        enabled_disk_templates=("diskless",),
        file_storage_dir="",
        shared_file_storage_dir="",
        ipolicy={**POLICY, "disk-templates": ["diskless"]},
    )
    modify(engine, enabled_disk_templates=["diskless", "sharedfile"])
    cluster = engine.snapshot.cluster
    assert cluster.shared_file_storage_dir == _buildconf.SHARED_FILE_STORAGE_DIR
    assert cluster.file_storage_dir == ""
    modify(
        engine,
        enabled_disk_templates=["file"],
        file_storage_dir="/srv/f",
        ipolicy={"disk-templates": ["file"]},
    )
    assert engine.snapshot.cluster.file_storage_dir == "/srv/f"


@pytest.mark.parametrize(("options", "text"), REFUSED)
def test_wrong_settings_are_refused_and_change_nothing(options, text):
    engine = engine_with(clusters.instance(1))
    before = engine.snapshot
    refusals = (errors.OpPrereqError, errors.TypeEnforcementError)
    with pytest.raises(refusals, match=text):
        modify(engine, **options)
    assert engine.snapshot is before


def test_nodes_check_hypervisor_and_os_parameters():
    engine = engine_with(script={"hypervisor_validate_params": failure("no kernel")})
    with pytest.raises(errors.OpPrereqError, match="no kernel"):
        modify(engine, hvparams={"kvm": {"kernel_path": "/boot/x"}})
    engine = engine_with(script={"os_validate": failure("bad value")})
    with pytest.raises(errors.OpPrereqError, match="bad value"):
        modify(engine, osparams={"tiny": {"a": "b"}})
    ((_, args), _) = engine.rpc.called("os_validate")
    assert args == (False, "tiny", ["parameters"], {"a": "b"}, True)


def test_everything_is_locked_shared_and_the_hook_knows_the_volume_group(tmp_path):
    root = tmp_path / "n1"
    (root / "etc/ganeti/hooks/cluster-modify-pre.d").mkdir(parents=True)
    engine = engine_with(root=str(root))
    modify(engine, max_running_jobs=3)
    assert engine.locks.modes() == dict.fromkeys(
        (Level.INSTANCE, Level.NODEGROUP, Level.NODE), (None, True)
    )
    env = engine.rpc.called("hooks_runner")[0][1][2]
    assert env["GANETI_NEW_VG_NAME"] == "None"


def test_the_master_address_moves_with_its_interface():
    engine = engine_with()
    modify(engine, master_netdev="eth7")
    down = engine.rpc.called("node_deactivate_master_ip")
    up = engine.rpc.called("node_activate_master_ip")
    assert [args[0]["netdev"] for _, args in (*down, *up)] == ["br0", "eth7"]
    engine = engine_with(script={"node_deactivate_master_ip": failure("busy")})
    with pytest.raises(errors.OpExecError, match="busy"):
        modify(engine, master_netdev="eth7")
    modify(engine, master_netdev="eth7", force=True)
    assert engine.snapshot.cluster.master_netdev == "eth7"


def test_the_netmask_changes_in_place():
    engine = engine_with()
    modify(engine, master_netmask=24)
    assert engine.rpc.called("node_change_master_netmask") == [
        (MASTER, (32, 24, "192.0.2.100", "br0"))
    ]


def test_a_larger_pool_promotes_nodes():
    engine = engine_with(
        clusters.node(2, master_candidate=False),
        candidate_pool_size=1,
        script={
            "node_crypto_tokens": [["ssl", clusters.DIGEST]],
            "node_ssh_key_add": [],
        },
    )
    modify(engine, candidate_pool_size=2)
    assert engine.snapshot.nodes[clusters.node_uuid(2)].master_candidate


def test_edits_of_lists_and_pools_work_on_what_is_there():
    engine = engine_with(hidden_os=["a", "b"], uid_pool=[[1, 5], [7, 9]])
    modify(
        engine,
        hidden_os=[["remove", "a"], ["add", "c"]],
        remove_uids=[[1, 5]],
        add_uids=[[2, 3]],
    )
    cluster = engine.snapshot.cluster
    assert cluster.hidden_os == ("b", "c")
    assert cluster.uid_pool == ((2, 3), (7, 9))


def test_overrides_vanish_with_default_and_none():
    engine = engine_with(
        os_hvp={"tiny": {"kvm": {"acpi": False}}}, osparams={"tiny": {"a": "1"}}
    )
    modify(
        engine,
        os_hvp={"tiny": {"kvm": {"acpi": "default"}}},
        osparams={"tiny": {"a": None}},
    )
    assert engine.snapshot.cluster.os_hvp == {}
    assert engine.snapshot.cluster.osparams == {}


def test_overlaps_of_the_uid_pool_that_a_cluster_has_stay():
    engine = engine_with(uid_pool=[[1, 5], [4, 9]])
    engine.run({"OP_ID": "OP_CLUSTER_SET_PARAMS", "add_uids": [[20, 30]]})
    assert engine.snapshot.cluster.uid_pool == ((1, 5), (4, 9), (20, 30))
    with pytest.raises(errors.OpPrereqError, match="ranges 4-9 and 8-12 overlap"):
        engine.run({"OP_ID": "OP_CLUSTER_SET_PARAMS", "add_uids": [[8, 12]]})
