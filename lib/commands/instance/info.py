"""``info``: details of instances."""

from collections.abc import Mapping
from typing import Any, Final

from ganeti.base.constants import disks, exitcodes
from ganeti.base.errors import refusal
from ganeti.base.text import nicesort, units
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import info_tree, listing
from ganeti.commands.cli.output.table import timestamp
from ganeti.commands.cli.waiting import jobs, operation

# Disks in ``gnt-instance info``.

_STATES: Final = {name: number for number, name in disks.LDS_NAMES.items()}
_FAULTY: Final = _STATES["faulty"]
_MARKS: Final = {_FAULTY: " *MISSING DISK*", _STATES["unknown"]: " *UNCERTAIN STATE*"}


def disk_tree(title: str, disk: Mapping[str, Any]) -> info_tree.Pairs:
    """Return the tree of one disk and its children."""
    kind = disk["dev_type"]
    pairs = info_tree.Pairs(
        [(title, f"{kind}, size {units.format_size(disk['size'])}")]
    )
    if disk.get("spindles") is not None:
        pairs.append(("spindles", disk["spindles"]))
    if title.startswith("disk/"):
        pairs.append(("access mode", disk["mode"]))
    pairs += _place(kind, disk)
    for key, where in (("pstatus", "on primary"), ("sstatus", "on secondary")):
        if disk[key]:
            pairs.append((where, _device_status(kind, disk[key])))
    pairs += _problem(disk)
    if disk.get("params"):
        pairs.append(("parameters", disk["params"]))
    pairs.append(("name", disk["name"]))
    pairs.append(("UUID", disk["uuid"]))
    if disk["children"]:
        children = [
            disk_tree(f"child {index}", child)
            for index, child in enumerate(disk["children"])
        ]
        pairs.append(("child devices", children))
    return pairs


def _problem(disk: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the lines of a mirror that is not complete on both nodes."""
    problem = (disk.get("drbd_info") or {}).get("problem")
    return problem_lines("mirror", problem) if problem else []


def problem_lines(title: str, problem: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the lines of a problem, and of the command that mends it."""
    lines = [(title, problem["text"])]
    if problem["command"]:
        lines.append(("to mend it", problem["command"]))
    return lines


def _place(kind: str, disk: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the location of a disk's data."""
    info = disk.get("drbd_info")
    if kind == "drbd" and info:
        return [
            ("nodeA", f"{info['primary_node']}, minor={info['primary_minor']}"),
            ("nodeB", f"{info['secondary_node']}, minor={info['secondary_minor']}"),
            ("port", info["port"]),
        ]
    logical_id = disk["logical_id"]
    if kind == "plain" and len(logical_id) == 2:
        return [("logical_id", "/".join(map(str, logical_id)))]
    return [("logical_id", str(list(logical_id)))] if logical_id else []


def _device_status(kind: str, status: list[Any]) -> str:
    path, major, minor, percent, estimate, degraded, ldisk = status
    if not path:
        return "not active"
    numbers = ":".join("N/A" if n is None else str(n) for n in (major, minor))
    text = f"{path} ({numbers})"
    if kind == "drbd":
        text += _sync(percent, estimate)
        text += ", status *DEGRADED*" if degraded else ", status ok"
        text += _MARKS.get(ldisk, "")
    elif kind == "plain" and ldisk == _FAULTY:
        text += " *FAILED* (failed drive?)"
    return text


def _sync(percent: float | None, estimate: float | None) -> str:
    if percent is None:
        return " in sync"
    left = "unknown" if estimate is None else f"{estimate}s"
    return f" *RECOVERING* {percent:5.2f}%, ETA {left}"


# The JSON form of ``info``: rows in wire form become objects with named fields.

_NIC: Final = ("name", "uuid", "ip", "mac", "mode", "link", "vlan", "network")
_STATUS: Final = (
    "dev_path",
    "major",
    "minor",
    "sync_percent",
    "estimated_time",
    "is_degraded",
    "ldisk_status",
)


def instance_json(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of one instance."""
    return {
        **data,
        "nics": [dict(zip(_NIC, nic, strict=False)) for nic in data["nics"]],
        "disks": [_disk(disk) for disk in data["disks"]],
    }


def _disk(disk: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **disk,
        "pstatus": _status(disk["pstatus"]),
        "sstatus": _status(disk["sstatus"]),
        "children": [_disk(child) for child in disk["children"]],
    }


def _status(row: list[Any] | None) -> dict[str, Any] | None:
    return dict(zip(_STATUS, row, strict=False)) if row else None


_VNC_BASE_PORT: Final = 5900
_ANY_ADDRESS: Final = "0.0.0.0"


def run(ctx: CommandContext) -> int:
    """Show instances."""
    opts = ctx.opts
    if bool(ctx.args) == opts.show_all:
        raise refusal("please name instances, or use --all to really show all of them")
    # Without locks it does not wait for jobs: it shows the present configuration and
    # the present answers of the nodes.
    infos = jobs.run(ctx, operation.fill(ctx, use_locking=False))
    if not infos:
        if opts.json:
            listing.print_json(ctx, [])
        else:
            ctx.out("No instances.")
        return exitcodes.EXIT_FAILURE
    # The answer has named instances in the order of the names.
    names = list(infos) if ctx.args else sorted(infos, key=nicesort.key)
    if opts.json:
        listing.print_json(ctx, [instance_json(infos[name]) for name in names])
        return exitcodes.EXIT_SUCCESS
    shown: Any = [instance_tree(infos[name], static=opts.static) for name in names]
    ctx.out(
        info_tree.render(
            info_tree.with_numerals(shown) if opts.roman_integers else shown
        )
    )
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
