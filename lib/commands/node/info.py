"""``info``: state and parameters of nodes."""

from typing import Any, Final

from ganeti.base.text import nicesort
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import info_tree, listing

FIELDS: Final = [
    "name",
    "pip",
    "sip",
    "pinst_list",
    "sinst_list",
    "master_candidate",
    "drained",
    "offline",
    "master_capable",
    "vm_capable",
    "powered",
    "ndparams",
    "custom_ndparams",
]


def run(ctx: CommandContext) -> None:
    """Show nodes."""
    listing.show_named(ctx, "node", FIELDS, _node)


def _node(node: dict[str, Any]) -> info_tree.Pairs:
    pairs = info_tree.Pairs(
        [
            ("Node name", node["name"]),
            ("primary ip", node["pip"]),
            ("secondary ip", node["sip"]),
            ("master candidate", node["master_candidate"]),
            ("drained", node["drained"]),
            ("offline", node["offline"]),
        ]
    )
    if node["powered"] is not None:
        pairs.append(("powered", node["powered"]))
    pairs.append(("master_capable", node["master_capable"]))
    pairs.append(("vm_capable", node["vm_capable"]))
    if node["vm_capable"]:
        pairs.append(("primary for instances", nicesort.nice_names(node["pinst_list"])))
        pairs.append(
            ("secondary for instances", nicesort.nice_names(node["sinst_list"]))
        )
    own = node["custom_ndparams"] or {}
    pairs.append(
        ("node parameters", info_tree.with_defaults(node["ndparams"] or {}, own))
    )
    return pairs
