"""Examples of ``gnt-node`` for its help and its manual page."""

from typing import Final

from ganeti.commands.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "add": (
        Example(
            "gnt-node add node2.example.com",
            "add a machine; asks to confirm its host key",
        ),
        Example("gnt-node add --readd node2", "add it again after a repair"),
        Example(
            "gnt-node add -s 192.0.2.12 -g rack2 node4.example.com",
            "with an address for replication, in another node group",
        ),
    ),
    "list": (
        Example("gnt-node list", "names, disk, memory, instances"),
        Example("gnt-node list -o name,mfree,dfree,role", "free memory and disk space"),
        Example(
            "gnt-node list --no-headers --separator=: -o +group", "output for scripts"
        ),
        Example(
            "gnt-node list -F 'not offline and mfree > 1024'",
            "only nodes that match a filter",
        ),
    ),
    "info": (Example("gnt-node info node2", "state and parameters of a node"),),
    "modify": (
        Example(
            "gnt-node modify -O yes node2", "node2 is dead: do not contact it any more"
        ),
        Example("gnt-node modify -O no node2", "node2 is repaired"),
        Example("gnt-node modify -D yes node2", "place no new instances on it"),
        Example(
            "gnt-node modify --node-parameters spindle_count=4 node2",
            "change a node parameter",
        ),
    ),
    "evacuate": (
        Example(
            "gnt-node evacuate -f -p node2",
            "primary instances move to nodes that the default allocator chooses",
        ),
        Example("gnt-node evacuate -f -s -n node3 node2", "mirrors move to node3"),
    ),
    "failover": (
        Example(
            "gnt-node failover -f node2",
            "start the instances of a dead node elsewhere",
        ),
    ),
    "migrate": (
        Example(
            "gnt-node migrate -f node2",
            "move running instances away without interruption",
        ),
    ),
    "remove": (Example("gnt-node remove node4", "remove a node without instances"),),
    "power": (
        Example(
            "gnt-node power status",
            "power state of all nodes with an out-of-band helper",
        ),
        Example("gnt-node power -f off node2", "mark it offline and switch it off"),
    ),
    "powercycle": (
        Example("gnt-node powercycle -f node2", "reset a node that does not respond"),
    ),
    "health": (Example("gnt-node health node2", "health of its hardware"),),
    "list-drbd": (
        Example(
            "gnt-node list-drbd node2",
            "minors of its kernel, with the disks that use them",
        ),
    ),
    "list-storage": (
        Example(
            "gnt-node list-storage -t file",
            "file storage directories with their free space",
        ),
    ),
    "modify-storage": (
        Example(
            "gnt-node modify-storage --allocatable no node2 lvm-pv /dev/sdc",
            "place nothing new on a disk that shows errors",
        ),
    ),
    "repair-storage": (
        Example(
            "gnt-node repair-storage node2 lvm-vg xenvg",
            "take missing disks out of a volume group, with their volumes",
        ),
    ),
    "volumes": (
        Example(
            "gnt-node volumes node2",
            "logical volumes, with the instances that use them",
        ),
    ),
    "restricted-command": (
        Example(
            "gnt-node restricted-command -M lsblk node2", "run an approved command"
        ),
    ),
    "add-tags": (Example("gnt-node add-tags node2 rack:7", "tag a node"),),
}
