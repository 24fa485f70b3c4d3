"""Command table of ``gnt-network``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli import param_options, rows
from ganeti.commands.cli.model import Argument, Command, Program, option

_ADD_RESERVED: Final = option(
    "--add-reserved-ips",
    "comma-separated list of addresses that instances do not get",
    "string",
    convert=param_options.addresses,
)
_REMOVE_RESERVED: Final = option(
    "--remove-reserved-ips",
    "comma-separated list of reserved addresses that instances may get again",
    "string",
    convert=param_options.addresses,
)
_GATEWAY: Final = option(
    "--gateway", "IPv4 address of the router inside the network", "string"
)
_NETWORK6: Final = option(
    "--network6", "IPv6 network, such as 2001:db8:1::/64", "string"
)
_GATEWAY6: Final = option("--gateway6", "IPv6 address of the router", "string")
_NO_CONFLICTS_CHECK: Final = option(
    "--no-conflicts-check",
    "skip the check for addresses of the network that are in use outside of it",
    clears="conflicts_check",
)

COMMANDS: Final = (
    Command(
        "add",
        "create a network",
        arguments=(Argument("network"),),
        options=(
            o.DRY_RUN,
            option(
                "--network", "IPv4 network, such as 192.0.2.0/24 (required)", "string"
            ),
            _GATEWAY,
            _ADD_RESERVED,
            o.MAC_PREFIX,
            _NETWORK6,
            _GATEWAY6,
            _NO_CONFLICTS_CHECK,
            o.TAGS._replace(convert=param_options.listed),
            *o.JOB,
        ),
        opcodes=("OP_NETWORK_ADD",),
        requires=(("network", "The --network option must be given"),),
        exits=((1, "--network is missing, or failure"),),
    ),
    *rows.tag_commands(Argument("network")),
    Command(
        "connect",
        "connect a network to groups",
        arguments=(Argument("network"), Argument("group", minimum=0, maximum=None)),
        options=(
            _NO_CONFLICTS_CHECK,
            o.NIC_PARAMETERS._replace(field=None),
            o.PRIORITY,
            *o.PLANNED,
        ),
        run="commands.network.commands:connect",
        opcodes=("OP_NETWORK_CONNECT",),
    ),
    Command(
        "disconnect",
        "disconnect a network from groups",
        arguments=(Argument("network"), Argument("group", minimum=0, maximum=None)),
        options=(o.PRIORITY, *o.PLANNED),
        run="commands.network.commands:disconnect",
        opcodes=("OP_NETWORK_DISCONNECT",),
    ),
    Command(
        "info",
        "show network details",
        arguments=(Argument("network", minimum=0, maximum=None),),
        options=(o.JSON,),
        run="commands.network.commands:info",
    ),
    rows.list_objects(
        "network",
        "list networks",
        run="commands.lists:networks",
        fields=("name", "network", "gateway", "mac_prefix", "group_list", "tags"),
    ),
    rows.list_fields("network"),
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
        run="commands.network.commands:modify",
        opcodes=("OP_NETWORK_SET_PARAMS",),
        exits=((1, "nothing to change, or failure"),),
    ),
    Command(
        "remove",
        "remove a network",
        arguments=(Argument("network"),),
        options=(o.FORCE, o.DRY_RUN, *o.JOB),
        opcodes=("OP_NETWORK_REMOVE",),
    ),
    Command(
        "rename",
        "rename a network",
        arguments=(
            Argument(
                "network", minimum=2, maximum=2, fields=("network_name", "new_name")
            ),
        ),
        options=(o.DRY_RUN, *o.JOB),
        opcodes=("OP_NETWORK_RENAME",),
    ),
)

PROGRAM: Final = Program(
    "gnt-network", "Network administration", COMMANDS, tag_kind="network"
)
