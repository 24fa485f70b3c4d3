"""Command table of ``gnt-network``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli.model import Argument, Command, Option, Program

_ADD_RESERVED: Final = Option(
    ("--add-reserved-ips",),
    "comma-separated list of addresses that instances do not get",
    dest="add_reserved_ips",
    kind="string",
)
_REMOVE_RESERVED: Final = Option(
    ("--remove-reserved-ips",),
    "comma-separated list of reserved addresses that instances may get again",
    dest="remove_reserved_ips",
    kind="string",
)
_GATEWAY: Final = Option(
    ("--gateway",),
    "IPv4 address of the router inside the network",
    dest="gateway",
    kind="string",
)
_NETWORK6: Final = Option(
    ("--network6",),
    "IPv6 network, such as 2001:db8:1::/64",
    dest="network6",
    kind="string",
)
_GATEWAY6: Final = Option(
    ("--gateway6",),
    "IPv6 address of the router",
    dest="gateway6",
    kind="string",
)
_NO_CONFLICTS_CHECK: Final = Option(
    ("--no-conflicts-check",),
    "skip the check for addresses of the network that are in use outside of it",
    dest="conflicts_check",
    sets=False,
    default=True,
)
_TAGS: Final = Argument("unknown", name="tag", minimum=0, maximum=None)

COMMANDS: Final = (
    Command(
        "add",
        "create a network",
        arguments=(Argument("network"),),
        options=(
            o.DRY_RUN,
            Option(
                ("--network",),
                "IPv4 network, such as 192.0.2.0/24 (required)",
                dest="network",
                kind="string",
            ),
            _GATEWAY,
            _ADD_RESERVED,
            o.MAC_PREFIX,
            _NETWORK6,
            _GATEWAY6,
            _NO_CONFLICTS_CHECK,
            o.TAGS,
            *o.JOB,
        ),
        run="commands.network.add:run",
        opcodes=("OP_NETWORK_ADD",),
        exits=((1, "--network is missing, or failure"),),
    ),
    Command(
        "add-tags",
        "add tags",
        arguments=(Argument("network"), _TAGS),
        options=(o.FROM, *o.JOB),
        run="commands.cli.tags:add_tags",
        opcodes=("OP_TAGS_SET",),
        exits=((1, "no tags given or failure"),),
    ),
    Command(
        "connect",
        "connect a network to groups",
        arguments=(Argument("network"), Argument("group", minimum=0, maximum=None)),
        options=(_NO_CONFLICTS_CHECK, o.NIC_PARAMETERS, o.PRIORITY, *o.PLANNED),
        run="commands.network.connections:connect",
        opcodes=("OP_NETWORK_CONNECT",),
    ),
    Command(
        "disconnect",
        "disconnect a network from groups",
        arguments=(Argument("network"), Argument("group", minimum=0, maximum=None)),
        options=(o.PRIORITY, *o.PLANNED),
        run="commands.network.connections:disconnect",
        opcodes=("OP_NETWORK_DISCONNECT",),
    ),
    Command(
        "info",
        "show network details",
        arguments=(Argument("network", minimum=0, maximum=None),),
        options=(o.JSON,),
        run="commands.network.info:run",
    ),
    Command(
        "list",
        "list networks",
        arguments=(Argument("network", minimum=0, maximum=None),),
        options=(*o.TABLE, *o.QUERY, o.JSON),
        run="commands.network.listing:list_objects",
        fields=("name", "network", "gateway", "mac_prefix", "group_list", "tags"),
        exits=((14, "unknown field"),),
    ),
    Command(
        "list-fields",
        "list available network fields",
        arguments=(Argument("unknown", name="field", minimum=0, maximum=None),),
        options=(*o.TABLE, o.JSON),
        run="commands.network.listing:list_fields",
        exits=((14, "unknown field"),),
    ),
    Command(
        "list-tags",
        "list tags, one per line, sorted",
        arguments=(Argument("network"),),
        options=(o.JSON,),
        run="commands.cli.tags:list_tags",
    ),
    Command(
        "modify",
        "change a network",
        arguments=(Argument("network"),),
        options=(
            o.DRY_RUN,
            _ADD_RESERVED,
            _REMOVE_RESERVED,
            _GATEWAY,
            o.MAC_PREFIX,
            _NETWORK6,
            _GATEWAY6,
            *o.JOB,
        ),
        run="commands.network.modify:run",
        opcodes=("OP_NETWORK_SET_PARAMS",),
        exits=((1, "nothing to change, or failure"),),
    ),
    Command(
        "remove",
        "remove a network",
        arguments=(Argument("network"),),
        options=(o.FORCE, o.DRY_RUN, *o.JOB),
        run="commands.network.remove:run",
        opcodes=("OP_NETWORK_REMOVE",),
    ),
    Command(
        "remove-tags",
        "remove tags",
        arguments=(Argument("network"), _TAGS),
        options=(o.FROM, *o.JOB),
        run="commands.cli.tags:remove_tags",
        opcodes=("OP_TAGS_DEL",),
        exits=((1, "no tags given, unknown tag or failure"),),
    ),
    Command(
        "rename",
        "rename a network",
        arguments=(Argument("network", minimum=2, maximum=2),),
        options=(o.DRY_RUN, *o.JOB),
        run="commands.network.rename:run",
        opcodes=("OP_NETWORK_RENAME",),
    ),
)

PROGRAM: Final = Program(
    "gnt-network", "Network administration", COMMANDS, tag_kind="network"
)
