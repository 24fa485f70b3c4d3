"""Taps of guests: requests to the kernel, connections to networks, and their ends.

The kernel is a model: it accepts the requests that a test expects, and no others.
"""

import contextlib
import errno
import fcntl
import os
import socket
import struct

import pytest

from fakes import nodes
from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.model.objects.filled import NicX
from ganeti.node.hypervisor import NodeEffects, networks
from ganeti.node.hypervisor.kvm import files
from ganeti.node.hypervisor.kvm.devices import taps

# From linux/if_tun.h.
TAP, NO_PI, VNET_HDR, MULTI_QUEUE = 0x2, 0x1000, 0x4000, 0x100
INTERFACES = {"gnt0": 7, "br0": 3, "br1": 4}


def nic(mode="bridged", link="br0", **more):
    params = {"mode": mode, "link": link, "vlan": ""}
    mac = "aa:00:00:00:00:01"
    return NicX(mac=mac, uuid=nodes.UUID.format(50), nicparams=params, **more)


class Kernel:
    """Devices for taps and for virtio in the kernel.

    Attributes:
        requests: (name, flags) of each request for a tap.
        opened: descriptors by device.
        missing: device that does not exist.
    """

    def __init__(self):
        self.requests, self.opened = [], {"/dev/net/tun": [], "/dev/vhost-net": []}
        self.missing = self.refuses_after = None

    def open(self, path, flags, *mode):
        if path not in self.opened:
            return _open(path, flags, *mode)
        assert flags == os.O_RDWR | os.O_CLOEXEC
        if path == self.missing:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self.opened[path].append(_open("/dev/null", os.O_RDWR))
        return self.opened[path][-1]

    def ioctl(self, fd, number, request):
        assert (fd, number) == (self.opened["/dev/net/tun"][-1], 0x400454CA)
        if len(self.requests) == self.refuses_after:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        assert len(request) == 40
        name, flags = struct.unpack("16sH22x", request)
        name = name.rstrip(b"\0")
        self.requests.append((name.decode(), flags))
        return name.replace(b"%d", b"0").ljust(40, b"\0")

    def left_open(self):
        actual = []
        for fd in (fd for fds in self.opened.values() for fd in fds):
            with contextlib.suppress(OSError):
                os.fstat(fd)
                actual.append(fd)
        return actual


_open = os.open


@pytest.fixture
def kernel(monkeypatch):
    made = Kernel()
    monkeypatch.setattr(taps.os, "open", made.open)
    monkeypatch.setattr(fcntl, "ioctl", made.ioctl)
    yield made
    for fd in made.left_open():
        os.close(fd)


@pytest.mark.parametrize(
    ("params", "flags"),
    [
        ({}, VNET_HDR),
        ({"nic_type": "paravirtual", "vnet_hdr": True}, VNET_HDR),
        ({"vnet_hdr": False}, 0),
        ({"nic_type": "e1000", "vnet_hdr": True, "virtio_net_queues": 4}, 0),
    ],
)
def test_a_tap_has_headers_only_for_virtio(kernel, params, flags):
    tap = taps.open_tap(nic(), params, "web1")
    assert kernel.requests == [("gnt%d", TAP | NO_PI | flags)]
    assert (tap.name, tap.fds, tap.vhost_fds) == (
        "gnt0",
        tuple(kernel.opened["/dev/net/tun"]),
        (),
    )
    tap.close()
    assert kernel.left_open() == []


def test_all_queues_belong_to_one_tap(kernel):
    params = {"virtio_net_queues": 3, "vhost_net": True}
    tap = taps.open_tap(nic(), params, "web1")
    flags = TAP | NO_PI | VNET_HDR | MULTI_QUEUE
    assert kernel.requests == [("gnt%d", flags), ("gnt0", flags), ("gnt0", flags)]
    assert (len(tap.fds), len(tap.vhost_fds)) == (3, 3)
    assert tap.vhost_fds == tuple(kernel.opened["/dev/vhost-net"])
    tap.close()
    assert kernel.left_open() == []


@pytest.mark.parametrize(
    ("params", "count"),
    [
        ({"vhost_net": True}, 1),
        ({"vhost_net": False}, 0),
        ({"vhost_net": True, "nic_type": "e1000"}, 0),
    ],
)
def test_virtio_in_the_kernel_is_for_virtio_alone(kernel, params, count):
    assert len(taps.open_tap(nic(), params, "web1").vhost_fds) == count


def test_without_virtio_in_the_kernel_the_emulator_copies(kernel):
    kernel.missing = "/dev/vhost-net"
    tap = taps.open_tap(nic(), {"vhost_net": True, "virtio_net_queues": 2}, "web1")
    assert (len(tap.fds), tap.vhost_fds) == (2, ())


def test_a_kernel_that_runs_out_of_virtio_leaves_none_open(kernel, monkeypatch):
    def once(path, flags):
        fd = kernel.open(path, flags)
        if path == "/dev/vhost-net":
            kernel.missing = path
        return fd

    monkeypatch.setattr(taps.os, "open", once)
    tap = taps.open_tap(nic(), {"vhost_net": True, "virtio_net_queues": 2}, "web1")
    assert tap.vhost_fds == ()
    assert sorted(kernel.left_open()) == sorted(tap.fds)


@pytest.mark.parametrize("accepted", [0, 1])
def test_a_tap_that_cannot_be_made_names_its_nic_and_leaves_nothing(kernel, accepted):
    kernel.refuses_after = accepted
    with pytest.raises(errors.HypervisorError) as caught:
        taps.open_tap(nic(name="lan"), {"virtio_net_queues": 2}, "web1")
    text = str(caught.value)
    assert "instance web1: NIC lan: cannot create a tap: Operation not permit" in text
    assert kernel.left_open() == []


@pytest.fixture
def interfaces(monkeypatch):
    def index(name):
        if name not in INTERFACES:
            raise OSError(errno.ENODEV, "no interface with this name")
        return INTERFACES[name]

    monkeypatch.setattr(socket, "if_nametoindex", index)


@pytest.mark.usefixtures("interfaces")
@pytest.mark.parametrize("mode", ["bridged", "openvswitch"])
def test_a_network_that_is_not_there_is_named_with_the_nic(mode):
    networks.check_link(nic(mode, "br1"), "web1")
    with pytest.raises(
        errors.HypervisorError,
        match=f"web1: NIC aa:00:00:00:00:01: {mode} link br9 does not exist",
    ):
        networks.check_link(nic(mode, "br9"), "web1")
    # A routing table is no interface.
    networks.check_link(nic("routed", "100"), "web1")


@pytest.mark.usefixtures("interfaces")
def test_only_virtual_nodes_have_the_user_network(kernel, tmp_path):
    real, virtual = (
        NodeEffects(paths, FakeRunner(), nodes.CountedClock())
        for paths in (Paths(), Paths(str(tmp_path), "n1"))
    )
    inside = nic(link="user-network")
    assert taps.open_nic(virtual, inside, {}, "web1") is taps.NO_TAP
    with pytest.raises(errors.HypervisorError, match="user-network does not exist"):
        taps.open_nic(real, inside, {}, "web1")
    assert taps.open_nic(virtual, nic(), {}, "web1").name == "gnt0"
    assert taps.open_nic(real, nic(), {}, "web1").name == "gnt0"


# Connections
class Network:
    """Records changes of the kernel's network; accepts no other requests."""

    def __init__(self):
        self.links, self.routes, self.mtu = [], [], 9000
        self.vlans, self.filters_vlans, self.default_vlan = [], 1, 1

    def get_links(self, index):
        assert index in INTERFACES.values()
        return [Link(self, index)]

    def link(self, action, **changes):
        assert action == "set"
        self.links.append(changes)

    def vlan_filter(self, action, **changes):
        self.vlans.append((action, changes, len(self.links)))

    def route(self, action, **changes):
        assert action == "replace"
        self.routes.append(changes)


class Link:
    """One interface, a bridge."""

    def __init__(self, network, index):
        self._network, self._index = network, index

    def get_nested(self, *names):
        assert names == ("IFLA_LINKINFO", "IFLA_INFO_DATA")
        return self

    def get_attr(self, name):
        return {
            "IFLA_MTU": self._network.mtu + self._index,
            "IFLA_BR_VLAN_FILTERING": self._network.filters_vlans,
            "IFLA_BR_VLAN_DEFAULT_PVID": self._network.default_vlan,
        }[name]


@pytest.fixture
def network(monkeypatch, interfaces):
    made = Network()
    monkeypatch.setattr(netutils, "netlink_route", lambda: contextlib.nullcontext(made))
    return made


@pytest.fixture
def effects(tmp_path):
    runner = FakeRunner(ovs_vsctl=FakeRunner.DONE, kvm_vif_bridge=FakeRunner.DONE)
    made = NodeEffects(Paths(str(tmp_path), "n1"), runner, nodes.CountedClock())
    os.makedirs(made.paths.conf_dir)
    return made


def env(mode, link, **more):
    mac = "aa:00:00:00:00:01"
    names = {"INTERFACE": "gnt0", "MODE": mode, "LINK": link, "MAC": mac}
    return names | ({"BRIDGE": link} if mode == "bridged" else {}) | more


@pytest.mark.parametrize(
    ("mac", "wanted"),
    [
        ("aa:00:00:01:02:03", "fe:00:00:01:02:03"),
        ("FE:00:00:01:02:03", "fa:00:00:01:02:03"),
    ],
)
def test_a_tap_has_a_high_address_that_is_not_the_guests(mac, wanted):
    assert networks.tap_address(mac) == wanted


def test_a_bridged_tap_joins_its_bridge_with_the_bridges_mtu(effects, network):
    taps.connect(effects, env("bridged", "br1"))
    address = "fe:00:00:00:00:01"
    wanted = {
        "index": 7,
        "address": address,
        "mtu": 9004,
        "state": "up",
        "master": 4,
    }
    assert (network.links, network.routes) == ([wanted], [])
    assert effects.process.lines == []


@pytest.mark.parametrize(
    ("vlan", "default", "wanted"),
    [
        (".5", 1, ["del 1", "add 5 untagged"]),
        (":6:7", 1, ["del 1", "add 6", "add 7"]),
        (".5:6", 0, ["add 6", "add 5 untagged"]),
        (".1", 1, ["add 1 untagged"]),
        (".5:1", 1, ["add 1", "add 5 untagged"]),
    ],
)
def test_a_bridged_tap_is_in_its_vlans_alone(effects, network, vlan, default, wanted):
    network.default_vlan = default
    taps.connect(effects, env("bridged", "br1", VLAN=vlan))
    done = []
    for action, changes, links in network.vlans:
        info = changes["vlan_info"]
        untagged = " untagged" if info.get("pvid") else ""
        done.append(f"{action} {info['vid']}{untagged}")
        # In the bridge, and not up yet.
        assert (changes["index"], links) == (7, 1)
    assert done == wanted
    assert network.links[-1] == {"index": 7, "state": "up"}


def test_a_bridge_that_ignores_vlans_gets_no_nic_with_one(effects, network):
    network.filters_vlans = 0
    with pytest.raises(errors.HypervisorError) as failed:
        taps.connect(effects, env("bridged", "br1", VLAN=".5"))
    assert str(failed.value) == (
        "gnt0: wanted VLAN .5 on bridge br1, which does not filter VLANs on this node;"
        " switch that on in the network configuration (bridge_vlan_aware yes), or with:"
        " ip link set br1 type bridge vlan_filtering 1"
    )
    assert network.links == []


@pytest.mark.parametrize(
    ("link", "address", "routes"),
    [
        ("100", "192.0.2.7", [{"dst": "192.0.2.7/32", "oif": 7, "table": 100}]),
        ("", "2001:db8::7", [{"dst": "2001:db8::7/128", "oif": 7}]),
        ("main", "192.0.2.7", [{"dst": "192.0.2.7/32", "oif": 7}]),
        ("100", "", []),
    ],
)
def test_a_routed_tap_gets_the_route_of_its_address(
    effects, network, monkeypatch, link, address, routes
):
    switched = []
    monkeypatch.setattr(networks, "_set_if_there", lambda *args: switched.append(args))
    taps.connect(effects, env("routed", link, IP=address))
    assert network.links == [{"index": 7, "state": "up"}]
    assert network.routes == routes
    assert switched == [
        (f"/proc/sys/net/{family}/conf/gnt0/{name}", "1")
        for family in ("ipv4", "ipv6")
        for name in ("proxy_arp", "proxy_ndp", "forwarding")
    ]


def test_a_setting_that_the_kernel_lacks_is_left_out(tmp_path):
    there = tmp_path / "there"
    there.write_text("0")
    networks._set_if_there(str(there), "1")
    networks._set_if_there(str(tmp_path / "none" / "missing"), "1")
    assert there.read_text() == "1"


def test_a_tap_joins_its_switch_with_its_vlans(effects, network):
    taps.connect(effects, env("openvswitch", "sw0", VLAN=".5:6"))
    assert network.links == [{"index": 7, "state": "up"}]
    [line] = effects.process.lines
    options = "tag=5 trunks=6 vlan_mode=native-untagged"
    join = "ovs-vsctl -- --if-exists del-port gnt0 -- add-port sw0 gnt0"
    assert line == f"{join} {options}"
    effects.process.answers["ovs-vsctl"] = (1, "", "no bridge named sw0")
    with pytest.raises(errors.HypervisorError, match=r"gnt0: ovs-vsctl .*named sw0"):
        taps.connect(effects, env("openvswitch", "sw0"))


def test_a_tap_leaves_its_switch_or_says_why_not(effects):
    networks.leave_switch(effects, "gnt0")
    assert effects.process.lines == ["ovs-vsctl --if-exists del-port gnt0"]
    effects.process.answers["ovs-vsctl"] = (1, "", "database is gone")
    with pytest.raises(errors.HypervisorError, match=r"gnt0: ovs-vsctl .*is gone"):
        networks.leave_switch(effects, "gnt0")


def test_a_script_of_the_administrator_connects_instead(effects, network):
    script = f"{effects.paths.conf_dir}/kvm-vif-bridge"
    with open(script, "w") as out:
        out.write("#!/bin/sh\n")
    # A file that cannot be executed is no script.
    os.chmod(script, 0o644)
    taps.connect(effects, env("bridged", "br1"))
    assert (len(network.links), effects.process.lines) == (1, [])
    os.chmod(script, 0o755)
    taps.connect(effects, env("bridged", "br1"))
    assert len(network.links) == 1
    [(argv, options)] = effects.process.commands
    assert list(argv) == [script]
    assert options["env"] == env("bridged", "br1")


def test_a_nic_of_the_user_network_is_not_connected(effects, network):
    taps.connect(effects, env("bridged", "user-network") | {"INTERFACE": ""})
    assert (network.links, effects.process.lines) == ([], [])


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"MODE": "tunnel"}, "gnt0: unknown mode or missing 'tunnel'"),
        ({"BRIDGE": "br9"}, "gnt0: cannot connect in mode bridged to br1: .*interface"),
    ],
)
def test_a_connection_that_fails_names_the_interface(effects, network, changes, text):
    with pytest.raises(errors.HypervisorError, match=text):
        taps.connect(effects, env("bridged", "br1") | changes)
    assert network.links == []


# Records
def test_the_tap_of_a_nic_is_known_by_index_and_by_uuid(tmp_path):
    guest = files.Files(Paths(str(tmp_path), "n1"), "web1")
    rows = {0: ("uuid-a", taps.Tap("gnt0", ())), 1: ("uuid-b", taps.NO_TAP)}
    taps.write_names(guest, rows)
    assert sorted(os.listdir(guest.nics)) == ["0", "uuid-a"]
    for key in ("0", "uuid-a"):
        assert taps.read_name(guest, key) == "gnt0"
    assert taps.read_name(guest, "1") is None
    with open(f"{guest.nics}/0", encoding="ascii") as reader:
        taps.write_names(guest, {0: ("uuid-c", taps.Tap("gnt5", ()))})
        # A reader at that time finds the whole old name, not an empty file.
        assert reader.read() == "gnt0"
    assert taps.read_name(guest, "0") == "gnt5"
