"""Examples of ``gnt-group`` for its help and its manual page."""

from typing import Final

from ganeti.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "add": (
        Example(
            "gnt-group add --alloc-policy=last_resort rack2",
            "used only when other groups are full",
        ),
    ),
    "assign-nodes": (
        Example("gnt-group assign-nodes rack2 node3 node4", "move nodes into it"),
    ),
    "list": (
        Example("gnt-group list", "all groups"),
        Example("gnt-group list -o name,node_list,pinst_list", "what they contain"),
    ),
    "info": (Example("gnt-group info default", "parameters, and which are its own"),),
    "modify": (
        Example(
            "gnt-group modify --alloc-policy=unallocable rack2", "no new instances"
        ),
        Example(
            "gnt-group modify --node-parameters ssh_port=2222 rack2",
            "for all of its nodes",
        ),
    ),
    "evacuate": (
        Example("gnt-group evacuate --to default rack2", "move all of its instances"),
    ),
    "rename": (Example("gnt-group rename rack2 hall2", "a new name"),),
    "remove": (Example("gnt-group remove rack2", "once it is empty"),),
}
