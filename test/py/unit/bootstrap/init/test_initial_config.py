"""The first records of a cluster: complete, typed, checked."""

import dataclasses
import json
import os
import pathlib

import pytest

from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.constants.parameters import hvparams
from ganeti.base.pathutils import Paths
from ganeti.bootstrap.init import checks, initial_config
from ganeti.bootstrap.options import InitOptions
from ganeti.master import config
from ganeti.model import objects
from ganeti.protocols.ssh import keys

DEFAULT_KERNEL = hvparams.HYPERVISOR["kvm"]["kernel_path"].default
SPEC = pathlib.Path(__file__).parents[4] / "data" / "spec"
FACTS = initial_config.MasterHost(
    hostname="node1.vc.test",
    primary_ip="127.1.0.11",
    secondary_ip="127.1.0.11",
    cluster_name="cluster.vc.test",
    master_ip="127.1.0.1",
    netmask=32,
    family=2,
)


def options(**more):
    given = {
        "cluster_name": "cluster",
        "enabled_hypervisors": ("fake",),
        "enabled_disk_templates": ("diskless",),
    }
    return InitOptions(**(given | more))


def make(**more):
    return initial_config.make(options(**more), FACTS, 1000.0)


def test_the_first_configuration_is_whole_and_verifies():
    first = make()
    snapshot = objects.Snapshot().apply(
        config.initial_changes(first.cluster, first.group, first.node)
    )
    assert config.verify(snapshot) == []
    assert config.ssconf_values(snapshot)["master_node"] == "node1.vc.test"
    assert first.node.master_candidate
    assert first.cluster.master_node == first.node.uuid
    assert first.cluster.ctime == first.group.mtime == 1000.0


def test_the_cluster_has_the_documented_fields_and_defaults():
    example = json.loads((SPEC / "objects.json").read_text())["example_config"]
    first = make(
        enabled_hypervisors=("kvm",),
        enabled_disk_templates=("drbd", "plain"),
        hvparams={"kvm": {"kernel_path": "/boot/vmlinuz-3-kvmU"}},
    )
    actual = objects.to_dict(first.cluster)
    assert set(example["cluster"]) <= set(actual)
    for name in (
        "mac_prefix",
        "volume_group_name",
        "drbd_usermode_helper",
        "beparams",
        "ipolicy",
        "candidate_pool_size",
        "max_running_jobs",
        "max_tracked_jobs",
        "compression_tools",
        "data_collectors",
        "ssh_key_type",
        "ssh_key_bits",
    ):
        assert actual[name] == example["cluster"][name], name


def test_reading_needs_credentials_in_a_new_cluster_alone():
    assert make().cluster.rapi_require_authentication
    is_open = make(rapi_require_authentication=False).cluster
    record = objects.to_dict(is_open)
    # A record of an earlier release, or of Ganeti, has no such member.
    assert "rapi_require_authentication" not in record
    assert not objects.from_dict(objects.Cluster, record).rapi_require_authentication


def test_guests_boot_from_disk_where_the_default_kernel_is_missing():
    def kernel_path(has_kernel, **more):
        host = dataclasses.replace(FACTS, has_default_kernel=has_kernel)
        first = initial_config.make(options(**more), host, 1000.0)
        return first.cluster.hvparams["kvm"]["kernel_path"]

    assert kernel_path(True) == DEFAULT_KERNEL
    assert kernel_path(False) == ""
    for path in ("/boot/vmlinuz", DEFAULT_KERNEL):
        given = {"kvm": {"kernel_path": path}}
        assert kernel_path(False, hvparams=given) == path


def test_given_parameters_get_their_types():
    cluster = make(
        beparams={"memory": "1g", "vcpus": "2"},
        ndparams={"ssh_port": "2022"},
        nicparams={"mode": "routed", "link": "100"},
        diskparams={"drbd": {"resync-rate": "100"}},
        hvparams={"fake": {"migration_mode": "non-live"}},
    ).cluster
    backend = cluster.beparams["default"]
    assert (backend["minmem"], backend["maxmem"], backend["vcpus"]) == (1024, 1024, 2)
    assert cluster.ndparams["ssh_port"] == 2022
    assert cluster.nicparams["default"]["mode"] == "routed"
    assert cluster.diskparams["drbd"]["resync-rate"] == 100
    assert cluster.hvparams["fake"]["migration_mode"] == "non-live"
    assert cluster.volume_group_name is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "fast"), ({"drbd": {"metavg": "small"}}, "small")],
    ids=["default", "given"],
)
def test_mirrors_keep_their_metadata_in_the_group_of_the_cluster(given, expected):
    templates = ("drbd", "plain")
    made = make(vg_name="fast", diskparams=given, enabled_disk_templates=templates)
    assert made.cluster.diskparams["drbd"]["metavg"] == expected


def test_an_open_vswitch_link_has_its_own_default():
    nic = make(nicparams={"mode": "openvswitch"}).cluster.nicparams["default"]
    assert nic["link"] == "switch1"


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"enabled_hypervisors": ()}, "enabled hypervisors.*found none"),
        ({"enabled_disk_templates": ("x",)}, "enabled disk templates.*found x"),
        ({"hvparams": {"qemu": {}}}, "hypervisor parameters.*found qemu"),
        ({"hvparams": {"fake": {"speed": 1}}}, "speed"),
        ({"beparams": {"minmem": 512}}, "minimum memory 512 MiB is above"),
        ({"nicparams": {"mode": "magic"}}, "found 'magic'"),
        ({"nicparams": {"link": ""}}, "wanted a bridge"),
        ({"nicparams": {"vlan": "5000"}}, "found 5000"),
        ({"diskparams": {"plain": {"stripes": 0}}}, "wanted 1 to 128, found 0"),
        ({"diskparams": {"tape": {}}}, "disk parameters.*found tape"),
        ({"ipolicy": {"colour": 1}}, "instance policy.*found colour"),
        ({"ipolicy": {"disk-templates": ["plain"]}}, "found plain"),
        ({"mac_prefix": "aa:bb"}, "MAC prefix"),
        ({"candidate_pool_size": 0}, "candidate pool size"),
        ({"uid_pool": ((9, 5),)}, "lower bound 9 above higher bound 5"),
        ({"uid_pool": ((20, 30), (1, 20))}, "ranges 1-20 and 20-30 overlap"),
        ({"uid_pool": ((5, 2**33),)}, "5-8589934592 is not within 0-"),
        ({"ssh_key_type": "rsa", "ssh_key_bits": 64}, "at least 1024 bits"),
    ],
)
def test_what_is_wrong_is_named(wrong, problem):
    refusals = (errors.OpPrereqError, errors.TypeEnforcementError)
    with pytest.raises(refusals, match=problem):
        make(**wrong)


def test_ranges_of_uids_are_sorted():
    assert make(uid_pool=((20, 30), (1, 9))).cluster.uid_pool == ((1, 9), (20, 30))


@pytest.fixture
def paths(tmp_path):
    root = tmp_path / "node1.vc.test"
    for name in ("etc/ssh", "var/lib/ganeti"):
        (root / name).mkdir(parents=True)
    (root / "etc/hosts").write_text(
        "127.201.0.11 node1.vc.test node1\n127.201.0.1 cluster.vc.test cluster\n"
    )
    actual = Paths(root=str(root), hostname="node1.vc.test")
    pair = keys.generate("rsa", 1024)
    keys.save(pair, keys.host_key_path(actual.sshd_dir, "rsa"))
    return actual


def test_facts_are_found_out(paths):
    facts = checks.gather(
        paths, FakeRunner(), options(enabled_disk_templates=("file", "sharedfile"))
    )
    assert facts.cluster_name == "cluster.vc.test"
    assert facts.master_ip == "127.201.0.1"
    assert facts.primary_ip == facts.secondary_ip == "127.201.0.11"
    assert facts.file_storage_dir == "/srv/ganeti/file-storage"
    assert [line.split()[0] for line in facts.host_keys] == ["ssh-rsa"]
    assert facts.netmask == 32
    assert facts.has_default_kernel == os.path.isfile(DEFAULT_KERNEL)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"cluster_name": "node1"}, "is the address of this node"),
        ({"primary_ip_version": 5}, "wanted 4 or 6, found 5"),
        ({"secondary_ip": "::1"}, "wanted an IPv4 address"),
        ({"secondary_ip": "192.0.2.99"}, "is not an address of this machine"),
        ({"master_netmask": 0}, "found 0"),
        ({"vg_name": "xenvg"}, "no enabled disk template uses it"),
        ({"default_iallocator": "magic"}, "magic: no such program"),
        ({"default_iallocator": "hail, magic"}, "magic: no such program"),
        (
            {"enabled_disk_templates": ("file",), "file_storage_dir": "here"},
            "wanted an absolute path, found 'here'",
        ),
    ],
)
def test_requests_that_do_not_fit_the_machine_are_refused(paths, wrong, problem):
    with pytest.raises(errors.OpPrereqError, match=problem):
        checks.gather(paths, FakeRunner(), options(**wrong))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((5, "", "Volume group not found"), "volume group xenvg: Volume group not"),
        ((0, " 1024.00\n", ""), "wanted at least 20480 MiB, found 1024"),
    ],
)
def test_lvm_templates_need_a_volume_group(paths, answer, problem):
    wanted = options(enabled_disk_templates=("plain",))
    with pytest.raises(errors.OpPrereqError, match=problem):
        checks.gather(paths, FakeRunner(vgs=answer), wanted)
    checks.gather(paths, FakeRunner(vgs=(0, "90000.00\n", "")), wanted)


def test_a_machine_without_host_key_is_refused_unless_ssh_is_not_ours(paths):
    path = keys.host_key_path(paths.sshd_dir, "rsa")
    pathlib.Path(f"{path}.pub").unlink()
    with pytest.raises(errors.OpPrereqError, match="SSH host keys: none in"):
        checks.gather(paths, FakeRunner(), options())
    facts = checks.gather(paths, FakeRunner(), options(modify_ssh_setup=False))
    assert facts.host_keys == ()


def test_a_node_of_a_cluster_is_refused_first(paths):
    pathlib.Path(paths.server_pem).write_text("")
    with pytest.raises(errors.OpPrereqError, match="already in a cluster, the file"):
        checks.gather(paths, FakeRunner(), options(cluster_name="nowhere"))


KEYS = ("ssh-ed25519 DDDD", "ssh-rsa AAAA")


@pytest.mark.parametrize("ours", [True, False])
def test_the_first_node_and_group_have_their_documented_values(ours):
    host = dataclasses.replace(FACTS, secondary_ip="10.1.0.11", host_keys=KEYS)
    first = initial_config.make(options(modify_ssh_setup=ours), host, 1000.0)
    node, group = objects.to_dict(first.node), objects.to_dict(first.group)
    wanted = {
        "name": "node1.vc.test",
        "primary_ip": "127.1.0.11",
        "secondary_ip": "10.1.0.11",
        "master_candidate": True,
        "offline": False,
        "drained": False,
        "group": first.group.uuid,
        "master_capable": True,
        "vm_capable": True,
        "ndparams": {},
        "powered": True,
        "serial_no": 1,
        "ctime": 1000.0,
        "mtime": 1000.0,
    }
    assert {name: node[name] for name in wanted} == wanted
    # Host keys are recorded only where SSH is ours to set up.
    assert first.node.ssh_host_keys == (KEYS if ours else ())
    assert first.cluster.rsahostkeypub == "AAAA"
    wanted = {
        "name": "default",
        "alloc_policy": "preferred",
        "ipolicy": {},
        "diskparams": {},
        "ndparams": {},
        "networks": {},
        "serial_no": 1,
    }
    assert {name: group[name] for name in wanted} == wanted
    uuids = {first.node.uuid, first.group.uuid, first.cluster.uuid}
    assert len(uuids) == 3
    assert (first.cluster.serial_no, first.cluster.mtime) == (1, 1000.0)


@pytest.mark.parametrize(
    ("given", "prefix"),
    [
        (None, "aa:00:00"),
        ("AA:BB:CC", "aa:bb:cc"),
        ("10:00:00", "10:00:00"),
        ("fe:ff:ff", "fe:ff:ff"),
        ("00:16:3e", "00:16:3e"),
    ],
)
def test_addresses_of_nics_are_those_of_single_machines(given, prefix):
    assert initial_config.mac_prefix(options(mac_prefix=given)) == prefix


@pytest.mark.parametrize(
    "given", ["01:00:00", "11:00:00", "ff:00:00", "aa:00", "aa:00:00:00", "aa:00:0g"]
)
def test_addresses_of_many_machines_are_refused(given):
    with pytest.raises(errors.OpPrereqError) as caught:
        initial_config.mac_prefix(options(mac_prefix=given))
    assert caught.value.args == (
        (
            "MAC prefix: wanted three octets of a unicast address such as aa:00:00, found"
            f" {given!r}"
        ),
        "wrong_input",
    )


def test_keys_of_root_have_a_type_and_a_length():
    assert initial_config.ssh_key(options()) == ("rsa", 2048)
    given = options(ssh_key_type="ecdsa", ssh_key_bits=384)
    assert initial_config.ssh_key(given) == ("ecdsa", 384)
