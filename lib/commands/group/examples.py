"""Examples of ``gnt-group`` for its help and its manual page."""

from typing import Final

from ganeti.commands.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "add": (
        Example(
            "gnt-group add --alloc-policy=last_resort rack2",
            "a group that is only used when the others are full",
        ),
    ),
    "assign-nodes": (
        Example("gnt-group assign-nodes rack2 node3 node4", "move nodes into a group"),
    ),
    "list": (
        Example("gnt-group list", "all groups"),
        Example(
            "gnt-group list -o name,node_list,pinst_list",
            "nodes and instances of all groups",
        ),
    ),
    "info": (
        Example(
            "gnt-group info default",
            "parameters of a group, with inherited values marked",
        ),
    ),
    "modify": (
        Example(
            "gnt-group modify --alloc-policy=unallocable rack2",
            "place no new instances in a group",
        ),
        Example(
            "gnt-group modify --node-parameters ssh_port=2222 rack2",
            "set a parameter for all nodes of a group",
        ),
    ),
    "evacuate": (
        Example(
            "gnt-group evacuate --to default rack2", "move all instances out of a group"
        ),
    ),
    "rename": (Example("gnt-group rename rack2 hall2", "change the name of a group"),),
    "remove": (Example("gnt-group remove rack2", "remove an empty group"),),
}
