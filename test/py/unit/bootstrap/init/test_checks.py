"""Prerequisites of a new cluster: each one that is not met has its message."""

import os
import socket

import pytest

from fakes.processes import FakeRunner
from ganeti import _buildconf
from ganeti.base import daemon_users, errors
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.bootstrap.init import checks
from ganeti.bootstrap.options import InitOptions

NODE, CLUSTER = "n1.example.com", "c1.example.com"
HOSTS = {NODE: "192.0.2.1", CLUSTER: "192.0.2.100"}
#: Their addresses of the other family, which a resolver names first.
HOSTS_6 = {NODE: "2001:db8::1", CLUSTER: "2001:db8::100"}
VGS = "vgs --noheadings --nosuffix --units=m -ovg_size xenvg"


class Machine:
    """A machine; names and answers of addresses can be changed."""

    def __init__(self, folder):
        self.paths = Paths(str(folder / "n1"), NODE)
        os.makedirs(self.paths.data_dir)
        self.hosts = dict(HOSTS)
        self.own = {"192.0.2.1", "198.51.100.1", HOSTS_6[NODE]}
        self.pings = []
        self.is_used = False
        self.process = FakeRunner(vgs=(0, " 20480.00\n", ""))

    def lookup(self, name, _paths, want=socket.AF_UNSPEC):
        if name not in self.hosts:
            raise errors.ResolverError(name, 1, "no such host")
        both = [HOSTS_6[name], self.hosts[name]]
        return name, [
            address for address in both if want in (0, netutils.family(address))
        ]

    def ping(self, address, port, **options):
        self.pings.append((address, port, options))
        return self.is_used

    def gather(self, **options):
        options = {
            "cluster_name": CLUSTER,
            "enabled_hypervisors": ("fake",),
            "enabled_disk_templates": ("diskless",),
            "modify_ssh_setup": False,
            **options,
        }
        return checks.gather(self.paths, self.process, InitOptions(**options))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    actual = Machine(tmp_path)
    monkeypatch.setattr(checks.netutils, "lookup_host", actual.lookup)
    monkeypatch.setattr(checks.netutils, "tcp_ping", actual.ping)
    monkeypatch.setattr(
        checks.netutils, "owns_address", lambda address: address in actual.own
    )
    return actual


def test_a_machine_that_is_ready(machine):
    host = machine.gather()
    assert (host.hostname, host.primary_ip) == (NODE, "192.0.2.1")
    assert (host.cluster_name, host.master_ip) == (CLUSTER, "192.0.2.100")
    assert host.secondary_ip == "192.0.2.1"
    assert (host.netmask, host.family) == (32, socket.AF_INET)
    ((address, port, options),) = machine.pings
    assert (address, port) == ("192.0.2.100", 1811)
    assert options == {"timeout_s": 5.0, "live_port_needed": True}
    assert machine.process.commands == []


def test_addresses_are_of_the_family_that_was_asked_for(machine):
    host = machine.gather(primary_ip_version=6, secondary_ip="198.51.100.1")
    assert (host.primary_ip, host.master_ip) == (HOSTS_6[NODE], HOSTS_6[CLUSTER])
    assert (host.netmask, host.family) == (128, socket.AF_INET6)
    assert host.secondary_ip == "198.51.100.1"


def test_a_machine_whose_daemons_lack_their_users_is_refused(machine, monkeypatch):
    text = "no user {}"
    monkeypatch.setattr(daemon_users, "obstacle", lambda name, _: text.format(name))
    monkeypatch.setattr(checks.Services, "has", lambda _self, name: "mond" not in name)
    with pytest.raises(
        errors.OpPrereqError, match=r"n1\.example\.com: ganeti-confd would"
    ):
        machine.gather()
    defaults = machine.paths.at("/etc/default/ganeti")
    os.makedirs(os.path.dirname(defaults))
    with open(defaults, "w") as stream:
        stream.write("CONFD_ARGS=--allow-root\nRAPI_ARGS=--allow-root\n")
    machine.gather()


@pytest.mark.parametrize(
    "name", ["store.db", "config.data", "server.pem", "ssconf_cluster_name"]
)
def test_a_machine_of_a_cluster_is_refused(machine, name):
    with open(machine.paths.data(name), "w"):
        pass
    with pytest.raises(errors.OpPrereqError, match=f"already in a cluster.*{name}"):
        machine.gather()


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ({NODE: None}, f"{NODE}: its address cannot be found: no such host"),
        ({CLUSTER: None}, f"{CLUSTER}: its address cannot be found"),
        ({NODE: "192.0.2.7"}, "resolves to 192.0.2.7, which is not an address of"),
        ({CLUSTER: "192.0.2.1"}, "is the address of this node"),
    ],
)
def test_names_must_have_the_right_addresses(machine, hosts, text):
    hosts = {**machine.hosts, **hosts}
    machine.hosts = {name: ip for name, ip in hosts.items() if ip}
    with pytest.raises(errors.OpPrereqError, match=text):
        machine.gather()


def test_a_real_machine_needs_an_address_beyond_loopback(machine):
    machine.hosts[NODE] = "127.0.1.1"
    machine.own.add("127.0.1.1")
    paths = Paths(hostname=NODE)
    with pytest.raises(errors.OpPrereqError, match=r"loopback address 127\.0\.1\.1"):
        checks.own_name(paths, socket.AF_INET)
    assert checks.own_name(machine.paths, socket.AF_INET) == (NODE, "127.0.1.1")


def test_the_clusters_address_must_be_unused(machine):
    machine.is_used = True
    with pytest.raises(errors.OpPrereqError, match="already in use, a machine answers"):
        machine.gather()


@pytest.mark.parametrize("version", [0, 5, 46])
def test_versions_of_ip(machine, version):
    with pytest.raises(errors.OpPrereqError, match=f"wanted 4 or 6, found {version}"):
        machine.gather(primary_ip_version=version)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"secondary_ip": "x"}, "wanted an IPv4 address, found 'x'"),
        ({"secondary_ip": "2001:db8::1"}, "wanted an IPv4 address"),
        ({"secondary_ip": "192.0.2.8"}, "192.0.2.8: is not an address of this"),
        ({"primary_ip_version": 6}, "with IPv6 primary addresses, an IPv4 address"),
        ({"master_netmask": 0}, "prefix length of 1 to 32, found 0"),
        ({"master_netmask": 33}, "prefix length of 1 to 32, found 33"),
        ({"vg_name": "xenvg"}, "volume group xenvg: no enabled disk template uses it"),
    ],
)
def test_values_that_do_not_fit(machine, options, text):
    with pytest.raises(errors.OpPrereqError, match=text):
        machine.gather(**options)


@pytest.mark.parametrize("mask", [1, 24, 32])
def test_values_that_fit(machine, mask):
    host = machine.gather(master_netmask=mask, secondary_ip="198.51.100.1")
    assert (host.netmask, host.secondary_ip) == (mask, "198.51.100.1")


def test_a_volume_group_of_the_least_size_is_enough(machine):
    machine.gather(enabled_disk_templates=("plain",))
    assert machine.process.lines == [VGS]
    assert machine.process.commands[0][1]["timeout_s"] == 60


@pytest.mark.parametrize(
    ("answer", "options", "text"),
    [
        ((5, "", "no such group\n"), {}, "volume group xenvg: no such group"),
        ((0, "20479.9", ""), {}, "wanted at least 20480 MiB, found 20480"),
        ((0, "99999", ""), {"vg_name": ""}, "volume group: must be set"),
    ],
)
def test_volume_groups_that_cannot_be_used(machine, answer, options, text):
    machine.process.answers["vgs"] = answer
    with pytest.raises(errors.OpPrereqError, match=text):
        machine.gather(enabled_disk_templates=("drbd",), **options)


def test_lvm_that_is_not_installed(machine):
    def absent(_argv):
        raise errors.CommandError("vgs: not found")

    machine.process.answers["vgs"] = absent
    with pytest.raises(errors.OpPrereqError, match="LVM is not installed"):
        machine.gather(enabled_disk_templates=("plain",))


@pytest.mark.parametrize(
    ("templates", "given", "wanted"),
    [
        (("file",), {}, {"file": _buildconf.FILE_STORAGE_DIR}),
        (("file",), {"file_storage_dir": "/srv/disks"}, {"file": "/srv/disks"}),
        (("sharedfile",), {}, {"shared_file": _buildconf.SHARED_FILE_STORAGE_DIR}),
        (("sharedfile",), {"shared_file_storage_dir": "/srv/s"}, {"shared_file": "/srv/s"}),
        (("gluster",), {"gluster_storage_dir": "/srv/g"}, {"gluster": "/srv/g"}),
        (("gluster",), {}, {}),
    ],
)  # fmt: skip
def test_directories_of_enabled_templates_are_made(machine, templates, given, wanted):
    host = machine.gather(enabled_disk_templates=(*templates, "diskless"), **given)
    kinds = ("file", "shared_file", "gluster")
    fields = {kind: getattr(host, f"{kind}_storage_dir") for kind in kinds}
    assert fields == dict.fromkeys(kinds, "") | wanted
    for kind, path in wanted.items():
        local = machine.paths.at(path)
        # Volumes of Gluster are mounted there later.
        assert os.path.isdir(local) == (kind != "gluster")
        assert kind == "gluster" or os.stat(local).st_mode & 0o7777 == 0o750


def test_a_directory_below_the_root_of_a_node_is_rooted_once(machine):
    path = f"{machine.paths.root}/srv/disks"
    machine.gather(enabled_disk_templates=("file",), file_storage_dir=path)
    assert os.path.isdir(path)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_default_kernel_is_looked_for(machine, monkeypatch, tmp_path, is_there):
    monkeypatch.setattr(checks, "_DEFAULT_KERNEL", str(tmp_path / "vmlinuz"))
    if is_there:
        (tmp_path / "vmlinuz").touch()
    assert machine.gather().has_default_kernel == is_there


@pytest.mark.parametrize("path", ["disks", "/srv/../etc", "/srv//disks", "/srv/"])
def test_directories_need_one_absolute_form(machine, path):
    with pytest.raises(errors.OpPrereqError, match="wanted an absolute path"):
        machine.gather(enabled_disk_templates=("file",), file_storage_dir=path)


def test_a_directory_that_cannot_be_made(machine):
    with open(f"{machine.paths.root}/srv", "w"):
        pass
    with pytest.raises(errors.OpPrereqError, match="directory of file disks /srv/x: "):
        machine.gather(enabled_disk_templates=("file",), file_storage_dir="/srv/x")


def test_an_allocator_must_be_there(machine):
    with pytest.raises(errors.OpPrereqError, match="no such program in"):
        machine.gather(default_iallocator="nonesuch")
    assert machine.gather(default_iallocator="").default_iallocator == ""


def test_a_managed_ssh_setup_needs_the_host_key(machine):
    with pytest.raises(errors.OpPrereqError, match="SSH host keys: none in"):
        machine.gather(modify_ssh_setup=True)


def test_an_interface_that_is_missing_is_named_with_those_there_are():
    checks._check_netdev(InitOptions(cluster_name=CLUSTER, master_netdev="lo"))
    options = InitOptions(cluster_name=CLUSTER, master_netdev="nonesuch0")
    with pytest.raises(errors.OpPrereqError, match=r"'nonesuch0': no such.*found.*lo"):
        checks._check_netdev(options)
