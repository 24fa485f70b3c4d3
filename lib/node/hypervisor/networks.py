"""Networks of a node, and how the node's end of a NIC joins one. For all hypervisors.

The end is an interface that exists already. Needs root. Specified in the hypervisor
document, section 2.5.
"""

import contextlib
import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ganeti.base import errors, process
from ganeti.base.net import netutils
from ganeti.node.hypervisor.base import NodeEffects, vlans

if TYPE_CHECKING:
    from ganeti.model.objects.filled import InstanceX, NicX


def check_link(nic: "NicX", instance: str) -> None:
    """Refuse a NIC whose bridge or switch does not exist on this node.

    Raises:
        HypervisorError: names the NIC and the link.
    """
    mode, link = nic.nicparams.get("mode"), nic.nicparams.get("link")
    if mode in {"bridged", "openvswitch"} and not exists(str(link)):
        raise errors.HypervisorError(
            f"instance {instance}: NIC {nic.name or nic.mac}: {mode} link {link} does"
            " not exist on this node"
        )


def exists(interface: str) -> bool:
    """Return whether this node has an interface."""
    try:
        return socket.if_nametoindex(interface) > 0
    except OSError:
        return False


def environment(
    instance: "InstanceX", nic: "NicX", index: int, interface: str
) -> dict[str, str]:
    """Return the environment of a NIC's network script."""
    params = nic.nicparams
    mode, link = str(params.get("mode") or ""), str(params.get("link") or "")
    env = {
        "PATH": process.SAFE_PATH,
        "INSTANCE": instance.name,
        "MAC": nic.mac,
        "MODE": mode,
        "INTERFACE": interface,
        "INTERFACE_INDEX": str(index),
        "INTERFACE_UUID": nic.uuid,
        "TAGS": " ".join(instance.tags),
    }
    optional = {
        "IP": nic.ip,
        "INTERFACE_NAME": nic.name,
        "LINK": link,
        "VLAN": params.get("vlan"),
        "BRIDGE": link if mode == "bridged" else None,
    }
    env |= {key: str(value) for key, value in optional.items() if value}
    if nic.netinfo is not None:
        env |= nic.netinfo.environment()
    return env


def join_network(effects: NodeEffects, env: Mapping[str, str]) -> None:
    """Connect an interface to its network, without the administrator's script.

    Raises:
        HypervisorError: names the interface and the failed step.
    """
    with _translated(env):
        {"bridged": _bridge, "routed": _route, "openvswitch": _switch}[env["MODE"]](
            effects, env
        )


@contextlib.contextmanager
def _translated(env: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except KeyError as err:
        raise errors.HypervisorError(
            f"{env['INTERFACE']}: unknown mode or missing {err}"
        ) from err
    except OSError as err:
        raise errors.HypervisorError(
            f"{env['INTERFACE']}: cannot connect in mode {env['MODE']} to"
            f" {env.get('LINK')}: {err}"
        ) from err


def _bridge(effects: NodeEffects, env: Mapping[str, str]) -> None:
    del effects
    with netutils.netlink_route() as ip:
        tap = socket.if_nametoindex(env["INTERFACE"])
        bridge = socket.if_nametoindex(env["BRIDGE"])
        link = ip.get_links(bridge)[0]
        vlan = env.get("VLAN", "")
        default = _default_vlan(link, env) if vlan else 0
        # With a VLAN it is up at last: until then no frame gets into another one.
        ip.link(
            "set",
            index=tap,
            address=tap_address(env["MAC"]),
            mtu=link.get_attr("IFLA_MTU"),
            master=bridge,
            **({} if vlan else {"state": "up"}),
        )
        if vlan:
            _join_vlans(ip, tap, vlan, default)
            ip.link("set", index=tap, state="up")


def _default_vlan(bridge: Any, env: Mapping[str, str]) -> int:
    """Return the VLAN that a bridge gives its new ports, 0 for none.

    Raises:
        HypervisorError: the bridge does not filter VLANs.
    """
    values = bridge.get_nested("IFLA_LINKINFO", "IFLA_INFO_DATA")
    if not values.get_attr("IFLA_BR_VLAN_FILTERING"):
        raise errors.HypervisorError(
            f"{env['INTERFACE']}: wanted VLAN {env['VLAN']} on bridge {env['BRIDGE']},"
            " which does not filter VLANs on this node; switch that on in the network"
            " configuration (bridge_vlan_aware yes), or with: ip link set"
            f" {env['BRIDGE']} type bridge vlan_filtering 1"
        )
    return int(values.get_attr("IFLA_BR_VLAN_DEFAULT_PVID"))


def _join_vlans(ip: Any, tap: int, vlan: str, default: int) -> None:
    """Make a port of a bridge a member of its VLANs, and of no other ones."""
    untagged, tagged = vlans(vlan)
    if default and str(default) not in (untagged, *tagged):
        ip.vlan_filter("del", index=tap, vlan_info={"vid": default})
    for number in tagged:
        ip.vlan_filter("add", index=tap, vlan_info={"vid": int(number)})
    if untagged:
        ip.vlan_filter("add", index=tap, vlan_info={"vid": int(untagged), "pvid": True})


def tap_address(mac: str) -> str:
    """Return the address of the node's end of a NIC, higher than those of cards.

    A bridge takes the lowest address of its ports. With a random address of a tap, the
    start or stop of a guest can change that of the node, and other nodes reach neither
    the node nor the cluster for some seconds. libvirt has the same rule.
    """
    first = "fa" if mac.lower().startswith("fe") else "fe"
    return f"{first}{mac[2:]}"


def _route(effects: NodeEffects, env: Mapping[str, str]) -> None:
    """Switch on proxy ARP and NDP, and route the guest's address to the tap."""
    del effects
    interface = env["INTERFACE"]
    for family in ("ipv4", "ipv6"):
        base = f"/proc/sys/net/{family}/conf/{interface}"
        for name in ("proxy_arp", "proxy_ndp", "forwarding"):
            _set_if_there(f"{base}/{name}", "1")
    with netutils.netlink_route() as ip:
        tap = socket.if_nametoindex(interface)
        ip.link("set", index=tap, state="up")
        table = {"table": int(env["LINK"])} if env.get("LINK", "").isdigit() else {}
        if address := env.get("IP"):
            length = 128 if ":" in address else 32
            ip.route("replace", dst=f"{address}/{length}", oif=tap, **table)


def _set_if_there(path: str, value: str) -> None:
    with (
        contextlib.suppress(FileNotFoundError),
        open(path, "w", encoding="ascii") as out,
    ):
        out.write(value)


def _switch(effects: NodeEffects, env: Mapping[str, str]) -> None:
    interface = env["INTERFACE"]
    with netutils.netlink_route() as ip:
        ip.link("set", index=socket.if_nametoindex(interface), state="up")
    result = effects.process.run(
        [
            *("ovs-vsctl", "--", "--if-exists", "del-port", interface),
            *("--", "add-port", env["LINK"], interface),
            *vlan_options(env.get("VLAN", "")),
        ]
    )
    if result.failed:
        raise errors.HypervisorError(
            f"{interface}: ovs-vsctl {result.reason}: {result.output.strip()}"
        )


def leave_switch(effects: NodeEffects, interface: str) -> None:
    """Remove a tap from its switch; do nothing if it has left already.

    Raises:
        HypervisorError: the switch cannot be changed.
    """
    try:
        result = effects.process.run(
            ["ovs-vsctl", "--if-exists", "del-port", interface]
        )
    except errors.CommandError as err:
        raise errors.HypervisorError(f"{interface}: {err}") from err
    if result.failed:
        raise errors.HypervisorError(
            f"{interface}: ovs-vsctl {result.reason}: {result.output.strip()}"
        )


def vlan_options(vlan: str) -> list[str]:
    """Return options of a switch's port for ``.N``, ``:A:B`` or ``.N:A:B``."""
    tag, trunks = vlans(vlan)
    options = [f"tag={tag}"] if tag else []
    if trunks:
        options.append(f"trunks={','.join(trunks)}")
        if tag:
            options.append("vlan_mode=native-untagged")
    return options
