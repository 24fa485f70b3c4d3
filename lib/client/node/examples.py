"""Examples of ``gnt-node`` for its help and its manual page."""

from typing import Final

from ganeti.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "add": (
        Example(
            "gnt-node add node2.example.com", "take a machine in; asks for its host key"
        ),
        Example("gnt-node add --readd node2", "set it up again after a repair"),
        Example(
            "gnt-node add -s 192.0.2.12 -g rack2 node4.example.com",
            "with an address for replication, in another group",
        ),
    ),
    "list": (
        Example("gnt-node list", "names, disk, memory, instances"),
        Example("gnt-node list -o name,mfree,dfree,role", "where is room"),
        Example("gnt-node list --no-headers --separator=: -o +group", "for scripts"),
        Example("gnt-node list -F 'not offline and mfree > 1024'", "only some nodes"),
    ),
    "info": (Example("gnt-node info node2", "facts and parameters of a node"),),
    "modify": (
        Example("gnt-node modify -O yes node2", "node2 is dead: do not contact it"),
        Example("gnt-node modify -O no node2", "it is repaired"),
        Example("gnt-node modify -D yes node2", "no new instances on it"),
        Example(
            "gnt-node modify --node-parameters spindle_count=4 node2",
            "change a parameter",
        ),
    ),
    "evacuate": (
        Example(
            "gnt-node evacuate -f -p node2",
            "primary instances move to nodes that the default allocator chooses",
        ),
        Example("gnt-node evacuate -f -s -n node3 node2", "secondaries move to node3"),
    ),
    "failover": (
        Example(
            "gnt-node failover -f node2",
            "after its death: start its instances elsewhere",
        ),
    ),
    "migrate": (
        Example("gnt-node migrate -f node2", "empty it while its instances run on"),
    ),
    "remove": (Example("gnt-node remove node4", "once it has no instances"),),
    "power": (
        Example("gnt-node power status", "all nodes that have an out-of-band helper"),
        Example("gnt-node power -f off node2", "mark it offline and switch it off"),
    ),
    "powercycle": (Example("gnt-node powercycle -f node2", "the reset button"),),
    "health": (Example("gnt-node health node2", "what its hardware says"),),
    "list-storage": (
        Example("gnt-node list-storage -t file", "file directories with their room"),
    ),
    "volumes": (
        Example("gnt-node volumes node2", "logical volumes, and whose disks they are"),
    ),
    "restricted-command": (
        Example(
            "gnt-node restricted-command -M lsblk node2", "run an approved command"
        ),
    ),
    "add-tags": (Example("gnt-node add-tags node2 rack:7", "tag a node"),),
}
