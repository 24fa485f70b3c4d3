"""Examples of ``gnt-network`` for its help and its manual page."""

from typing import Final

from ganeti.commands.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "add": (
        Example(
            "gnt-network add --network=192.0.2.0/24 --gateway=192.0.2.1 lan",
            "a network; its first and last address and the gateway are reserved",
        ),
        Example(
            "gnt-network add --network=198.51.100.0/24"
            " --add-reserved-ips=198.51.100.10,198.51.100.11"
            " --mac-prefix=aa:bb:cc dmz",
            "keep two addresses from instances, and use a prefix of MAC addresses",
        ),
    ),
    "connect": (
        Example(
            "gnt-network connect -N mode=bridged,link=br0 lan",
            "let instances of all node groups use a network",
        ),
        Example(
            "gnt-network connect -N mode=openvswitch,link=switch1,vlan=100 dmz rack2",
            "connect it to one node group, in VLAN 100 of a switch",
        ),
        Example(
            "gnt-network connect -N mode=routed,link=100 dmz rack3",
            "route its addresses to the guests, in routing table 100",
        ),
    ),
    "disconnect": (
        Example(
            "gnt-network disconnect dmz rack2",
            "end the use of a network in a node group",
        ),
    ),
    "info": (Example("gnt-network info lan", "a map of its addresses, and its users"),),
    "list": (
        Example("gnt-network list", "all networks"),
        Example(
            "gnt-network list -o name,free_count,inst_list",
            "free addresses and instances of all networks",
        ),
    ),
    "modify": (
        Example(
            "gnt-network modify --add-reserved-ips=192.0.2.20 lan",
            "keep an address from instances",
        ),
        Example("gnt-network modify --gateway=none lan", "remove the gateway"),
    ),
    "rename": (Example("gnt-network rename lan office", "change the name"),),
    "remove": (
        Example("gnt-network remove lan", "remove a network that no group uses"),
    ),
}
