"""Network of isolated nodes: a bridge here, one veth pair and one bridge per node."""

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from ganeti.base import errors
from ganeti.devel.vcluster.layout import GUEST_BRIDGE, Layout, Node

#: Suffix of the machine's own address on the bridge.
_HOST_SUFFIX: Final = "0.254"
PREFIX: Final = 16
#: MAC address that no interface has: a partition sends packets to it.
_NOBODY: Final = "02:00:00:00:00:ee"
_EEXIST: Final = 17
_ENOENT: Final = 2


def host_interface(layout: Layout, node: Node) -> str:
    """Return the name of this machine's end of a node's veth pair."""
    return f"{layout.bridge[:9]}n{layout.nodes.index(node) + 1}"


def hardware_address(layout: Layout, node: Node) -> str:
    """Return a node's own MAC address.

    It stays the same after a power cycle, since neighbours cache the old one.
    """
    second = int(layout.network.split(".")[1])
    high, low = divmod(layout.nodes.index(node) + 1, 256)
    return f"02:67:76:{second:02x}:{high:02x}:{low:02x}"


@contextlib.contextmanager
def _route(pid: int | None = None) -> Iterator[Any]:
    """Open a netlink socket here, or in the network namespace of a process."""
    netns = None if pid is None else f"/proc/{pid}/ns/net"
    with IPRoute(netns=netns) as route:
        yield route


def up(layout: Layout) -> None:
    """Create the bridge with this machine's own address."""
    with _route() as route:
        try:
            route.link("add", ifname=layout.bridge, kind="bridge")
        except NetlinkError as err:
            if err.code != _EEXIST:
                raise errors.OpExecError(
                    f"bridge {layout.bridge}: cannot be created: {err}"
                ) from err
        index = route.link_lookup(ifname=layout.bridge)[0]
        route.link("set", index=index, state="up")
        with contextlib.suppress(NetlinkError):
            address = f"{layout.network}.{_HOST_SUFFIX}"
            route.addr("add", index=index, address=address, prefixlen=PREFIX)


def down(layout: Layout) -> None:
    """Remove the bridge; veth pairs vanish with their nodes."""
    with _route() as route:
        for index in route.link_lookup(ifname=layout.bridge):
            with contextlib.suppress(NetlinkError):
                route.link("del", index=index)


def plug_in(layout: Layout, node: Node, pid: int) -> None:
    """Set up ``lo``, ``eth0`` and the bridge of guests in a process's namespace.

    As on a machine that an administrator prepared, the bridge has the address.
    """
    card = host_interface(layout, node), hardware_address(layout, node)
    _plug_in(layout, card, node.address, pid)


def plug_in_server(layout: Layout, number: int, address: str, pid: int) -> None:
    """Do the same for a server of etcd, counted from 0."""
    second = int(layout.network.split(".")[1])
    card = f"{layout.bridge[:9]}e{number + 1}", f"02:67:77:{second:02x}:00:{number:02x}"
    _plug_in(layout, card, address, pid)


def _plug_in(layout: Layout, card: tuple[str, str], address: str, pid: int) -> None:
    """Connect a namespace by a veth pair: its name here, and the MAC address there."""
    name, hardware = card
    with _route() as route:
        for index in route.link_lookup(ifname=name):
            route.link("del", index=index)
        peer = {"ifname": "eth0", "net_ns_pid": pid}
        route.link("add", ifname=name, kind="veth", peer=peer)
        index = route.link_lookup(ifname=name)[0]
        bridge = route.link_lookup(ifname=layout.bridge)[0]
        route.link("set", index=index, master=bridge, state="up")
    with _route(pid) as route:
        route.link("set", index=route.link_lookup(ifname="lo")[0], state="up")
        route.link("add", ifname=GUEST_BRIDGE, kind="bridge")
        bridge = route.link_lookup(ifname=GUEST_BRIDGE)[0]
        route.link("set", index=bridge, address=hardware, state="up")
        inner = route.link_lookup(ifname="eth0")[0]
        route.link("set", index=inner, master=bridge, state="up")
        route.addr("add", index=bridge, address=address, prefixlen=PREFIX)


def cut(pid: int, addresses: list[str]) -> None:
    """Drop packets from a namespace to some addresses, without an error."""
    with _route(pid) as route:
        index = route.link_lookup(ifname=GUEST_BRIDGE)[0]
        for address in addresses:
            route.neigh(
                "replace", dst=address, lladdr=_NOBODY, ifindex=index, state="permanent"
            )


def join(pid: int, addresses: list[str]) -> None:
    """Undo `cut`."""
    with _route(pid) as route:
        index = route.link_lookup(ifname=GUEST_BRIDGE)[0]
        for address in addresses:
            try:
                route.neigh("del", dst=address, ifindex=index)
            except NetlinkError as err:
                if err.code != _ENOENT:
                    raise
