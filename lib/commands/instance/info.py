"""``info``: details of instances."""

from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.base.text import nicesort
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import info_tree, listing, roman
from ganeti.commands.cli.output.text import timestamp
from ganeti.commands.cli.waiting import jobs
from ganeti.commands.instance import info_json
from ganeti.commands.instance.disks.disk_info import disk_tree, problem_lines

_VNC_BASE_PORT: Final = 5900
_ANY_ADDRESS: Final = "0.0.0.0"


def run(ctx: CommandContext) -> int:
    """Show instances."""
    opts = ctx.opts
    if bool(ctx.args) == opts.show_all:
        raise errors.OpPrereqError(
            "please name instances, or use --all to really show all of them",
            ecodes.ECODE_INVAL,
        )
    # Without locks it does not wait for jobs: it shows the present configuration and
    # the present answers of the nodes.
    operation = jobs.op(
        "OP_INSTANCE_QUERY_DATA",
        instances=ctx.args,
        static=opts.static,
        use_locking=False,
    )
    infos = jobs.run(ctx, operation)
    if not infos:
        if opts.json:
            listing.print_json(ctx, [])
        else:
            ctx.out("No instances.")
        return exitcodes.EXIT_FAILURE
    # The answer has named instances in the order of the names.
    names = list(infos) if ctx.args else sorted(infos, key=nicesort.key)
    if opts.json:
        listing.print_json(ctx, [info_json.instance(infos[name]) for name in names])
        return exitcodes.EXIT_SUCCESS
    shown: Any = [instance_tree(infos[name], static=opts.static) for name in names]
    ctx.out(info_tree.render(roman.convert(shown) if opts.roman_integers else shown))
    return exitcodes.EXIT_SUCCESS


def _unfinished(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the line of an instance whose OS script was interrupted."""
    if not data.get("unfinished"):
        return []
    if data.get("half_renamed"):
        return [("Rename", "not finished, rename the instance to its present name")]
    return [("Creation", "not finished, reinstall or remove the instance")]


def _problems(data: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return what a running guest lacks, with the commands that mend it."""
    rows = [problem_lines("problem", each) for each in data.get("problems") or ()]
    return [("Problems", [info_tree.Pairs(row) for row in rows])] if rows else []


def _reservation(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the lines of a forthcoming instance."""
    if not data.get("forthcoming"):
        return []
    expires = data.get("expires")
    return [
        ("Forthcoming", "resources are reserved, nothing is created yet"),
        ("Reservation expires", timestamp(expires) if expires else "never"),
        ("Reservation owner", data.get("owner") or "-"),
        ("Reservation priority", data.get("reservation_priority") or "normal"),
    ]


def _reported(data: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the addresses that the guest reports of itself, if it does."""
    reported = data.get("guest_addresses")
    if not reported:
        return []
    rows = [
        info_tree.Pairs(
            [
                ("interface", row["name"]),
                ("MAC", row["mac"] or "-"),
                ("addresses", ", ".join(row["addresses"]) or "-"),
            ]
        )
        for row in reported
    ]
    return [("Addresses reported by the guest", rows)]


def instance_tree(data: Mapping[str, Any], *, static: bool) -> info_tree.Pairs:
    """Return the tree of one instance."""
    state = f"configured to be {data['config_state']}"
    if not static:
        silent = data.get("silent_node")
        state += (
            f", actual state is unknown: node {silent} does not answer"
            if silent
            else f", actual state is {data['run_state']}"
        )
    pairs = info_tree.Pairs(
        [
            ("Instance name", data["name"]),
            ("UUID", data["uuid"]),
            ("Serial number", data["serial_no"]),
            ("Creation time", timestamp(data["ctime"])),
            ("Modification time", timestamp(data["mtime"])),
            ("State", state),
            *_problems(data),
            *_unfinished(data),
            *_reservation(data),
            ("Nodes", _nodes(data)),
            ("Operating system", data["os"]),
            (
                "Operating system parameters",
                info_tree.with_defaults(data["os_actual"], data["os_instance"]),
            ),
        ]
    )
    pairs.append(("Allocated network port", data["network_port"]))
    pairs.append(("Hypervisor", data["hypervisor"]))
    pairs += _reported(data)
    console = _vnc(data)
    if console:
        pairs.append(("console connection", console))
    pairs += [
        (
            "Hypervisor parameters",
            info_tree.with_defaults(data["hv_actual"], data["hv_instance"]),
        ),
        ("Back-end parameters", _backend(data)),
        (
            "NICs",
            [
                _nic(index, nic, own)
                for index, (nic, own) in enumerate(
                    zip(data["nics"], data["nics_own"], strict=True)
                )
            ],
        ),
        ("Disk template", data["disk_template"]),
        *_disk_parameters(data),
        (
            "Disks",
            [disk_tree(f"disk/{i}", disk) for i, disk in enumerate(data["disks"])],
        ),
    ]
    return pairs


def _nodes(data: Mapping[str, Any]) -> list[info_tree.Pairs]:
    secondaries = ", ".join(
        f"{name} (group {group}, group UUID {uuid})"
        for name, group, uuid in zip(
            data["snodes"],
            data["snodes_group_names"],
            data["snodes_group_uuids"],
            strict=True,
        )
    )
    group = f"{data['pnode_group_name']} (UUID {data['pnode_group_uuid']})"
    return [
        info_tree.Pairs([("primary", data["pnode"]), ("group", group)]),
        info_tree.Pairs([("secondaries", secondaries)]),
    ]


def _backend(data: Mapping[str, Any]) -> dict[str, Any]:
    filled = info_tree.with_defaults(data["be_actual"], data["be_instance"])
    if "maxmem" in filled:
        filled["memory"] = f"default ({data['be_actual']['maxmem']})"
    return filled


def _vnc(data: Mapping[str, Any]) -> str:
    address = data["hv_actual"].get("vnc_bind_address")
    port, node = data["network_port"], data["pnode"]
    if not address:
        return ""
    if address.startswith("/"):
        return f"vnc to {node}:{address}"
    if port is None:
        return ""
    display = port - _VNC_BASE_PORT
    if address == _ANY_ADDRESS:
        return f"vnc to {node}:{port} (display {display})"
    return f"vnc to {address}:{port} (node {node}) (display {display})"


def _disk_parameters(data: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return what the disks have from group and cluster, by template."""
    inherited = {
        template: info_tree.with_defaults(filled, {})
        for template, filled in data["diskparams"].items()
        if filled
    }
    return [("Disk parameters", inherited)] if inherited else []


def _nic(index: int, nic: Any, own: Mapping[str, Any]) -> info_tree.Pairs:
    name, uuid, address, mac, mode, link, vlan, network, _ = nic
    inherited = ", ".join(key for key in ("mode", "link", "vlan") if key not in own)
    return info_tree.Pairs(
        [
            (f"nic/{index}", ""),
            ("MAC", mac),
            ("IP", address),
            ("mode", mode),
            ("link", link),
            ("vlan", vlan),
            *([("from the cluster", inherited)] if inherited else []),
            ("network", network),
            ("UUID", uuid),
            ("name", name),
        ]
    )
