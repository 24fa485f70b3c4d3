"""``info``: the cluster's parameters."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.text import nicesort
from ganeti.commands.cli import ipolicy
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import info_tree, listing
from ganeti.commands.cli.output.table import timestamp
from ganeti.commands.cluster.automation import death_text, freeze_text, limits_text

#: Title and key of each cluster parameter, in the order of the output.
_DIAGNOSE: Final = "diagnose_data_collector_filename"
_PARAMETERS: Final = (
    ("candidate pool size", "candidate_pool_size"),
    ("maximal number of jobs running simultaneously", "max_running_jobs"),
    (
        "maximal number of jobs simultaneously tracked by the scheduler",
        "max_tracked_jobs",
    ),
    ("mac prefix", "mac_prefix"),
    ("master netdev", "master_netdev"),
    ("master netmask", "master_netmask"),
    ("use external master IP address setup script", "use_external_mip_script"),
    ("lvm volume group", "volume_group_name"),
    ("lvm reserved volumes", "reserved_lvs"),
    ("drbd usermode helper", "drbd_usermode_helper"),
    ("file storage path", "file_storage_dir"),
    ("shared file storage path", "shared_file_storage_dir"),
    ("gluster storage path", "gluster_storage_dir"),
    ("maintenance of node health", "maintain_node_health"),
    ("uid pool", "uid_pool"),
    ("default instance allocator", "default_iallocator"),
    ("default instance allocator parameters", "default_iallocator_params"),
    ("primary ip version", "primary_ip_version"),
    ("preallocation wipe disks", "prealloc_wipe_disks"),
    ("OS search path", "os_search_path"),
    ("ExtStorage Providers search path", "extstorage_search_path"),
    ("enabled disk templates", "enabled_disk_templates"),
    ("install image", "install_image"),
    ("instance communication network", "instance_communication_network"),
    ("zeroing image", "zeroing_image"),
    ("diagnose command", _DIAGNOSE),
    ("compression tools", "compression_tools"),
    ("enabled user shutdown", "enabled_user_shutdown"),
    ("modify ssh setup", "modify_ssh_setup"),
    ("remote API requires authentication", "rapi_require_authentication"),
    ("ssh_key_type", "ssh_key_type"),
    ("ssh_key_bits", "ssh_key_bits"),
)
_DUTIES: Final = (
    ("least seconds between two passes", "maint_round_delay"),
    ("balances the cluster", "maint_balance"),
    ("least gain of a move", "maint_balance_threshold"),
    ("considers the load of CPUs", "maint_balance_load"),
    ("may copy disks", "maint_balance_disk_moves"),
    ("repairs instances by their tags", "maint_repairs"),
)
_MICROSECONDS: Final = 1_000_000
#: Daemons whose work nobody does where their programs are not installed.
_DAEMONS: Final = (
    ("ganeti-rapi", "remote API"),
    ("ganeti-confd", "queries of the configuration over UDP"),
    ("ganeti-mond", "monitoring and data collectors"),
    ("ganeti-metad", "metadata for instances"),
    ("ganeti-maintd", "automatic repair and balancing"),
)


def run(ctx: CommandContext) -> None:
    """Show the cluster's parameters."""
    info = ctx.call("QueryClusterInfo")
    if ctx.opts.json:
        automation = _automation(ctx)
        more = {
            "automation_limits": automation.get("limits", {}),
            "automation_freeze": automation.get("freeze"),
            "node_death": automation.get("node_death", False),
            "node_deaths": _deaths(ctx),
        }
        listing.print_json(ctx, {**info, **more})
        return
    flags = ctx.call("QueryConfigValues", ["drain_flag", "watcher_pause"])
    shown = _tree(ctx, info, ctx.call("QueryCopies"))
    automation = _automation(ctx)
    if duties := _duties(info):
        shown.append(("Maintenance daemon", duties))
    if automation.get("limits"):
        shown.append(("Automation limits", limits_text(automation["limits"])))
    if deaths := _deaths(ctx):
        shown.append(
            ("Nodes that do not answer", [death_text(each) for each in deaths])
        )
    off = [*parts_off(info, *flags), *absent_daemons()]
    if not automation.get("node_death"):
        off.append("fencing of dead nodes (gnt-cluster modify --node-death=yes)")
    if automation.get("freeze"):
        off.append(freeze_text(automation["freeze"]))
    shown.append(("Parts that are off", off or "(none)"))
    ctx.out(
        info_tree.render(
            info_tree.with_numerals(shown) if ctx.opts.roman_integers else shown
        )
    )


def _duties(info: Mapping[str, Any]) -> info_tree.Pairs | None:
    """Return the settings of the maintenance daemon; None if nothing is switched on."""
    switches = ("maint_balance", "maint_repairs")
    if not any(info.get(name) for name in switches):
        return None
    return info_tree.Pairs((title, info.get(key)) for title, key in _DUTIES)


def _automation(ctx: CommandContext) -> Mapping[str, Any]:
    """Return the limits of automatons; a daemon of an earlier release has none."""
    try:
        answer: Mapping[str, Any] = ctx.call("QueryAutomation")
    except errors.RequestError:
        return {}
    return answer


def _deaths(ctx: CommandContext) -> Sequence[Mapping[str, Any]]:
    """Return the deaths of nodes; a daemon of an earlier release knows none."""
    try:
        answer: Sequence[Mapping[str, Any]] = ctx.call("QueryNodeDeaths", False)[
            "state"
        ]["deaths"]
    except errors.RequestError:
        return []
    return answer


def _words(items: Any) -> str:
    return ", ".join(map(str, items)) if items else "(none)"


def _plain(items: Any) -> str:
    return ", ".join(map(str, items or ()))


def _tree(
    ctx: CommandContext, info: Mapping[str, Any], copies: Mapping[str, Any]
) -> info_tree.Pairs:
    enabled = info["enabled_hypervisors"]
    hvparams = {hv: info["hvparams"].get(hv, {}) for hv in enabled}
    bits, machine = info["architecture"]
    return info_tree.Pairs(
        [
            ("Cluster name", info["name"]),
            ("Cluster UUID", info["uuid"]),
            ("Creation time", timestamp(info["ctime"])),
            ("Modification time", timestamp(info["mtime"])),
            ("Master node", info["master"]),
            ("Architecture (this node)", f"{bits} ({machine})"),
            ("Tags", _words(nicesort.nice_names(info["tags"]))),
            ("Default hypervisor", info["default_hypervisor"]),
            ("Enabled hypervisors", _plain(enabled)),
            ("Hypervisor parameters", hvparams),
            ("OS-specific hypervisor parameters", info["os_hvp"]),
            ("OS parameters", info["osparams"]),
            ("Hidden OSes", _plain(info["hidden_os"])),
            ("Blacklisted OSes", _plain(info["blacklisted_os"])),
            ("Cluster parameters", _parameters(ctx, info)),
            ("Default node parameters", info["ndparams"]),
            ("Default instance parameters", info["beparams"]),
            ("Default nic parameters", info["nicparams"]),
            ("Default disk parameters", info["diskparams"]),
            (
                "Instance policy - limits for instances",
                ipolicy.to_tree(info["ipolicy"]),
            ),
            ("Data collectors", _collectors(info)),
            ("Copies of the configuration and jobs", _copies(copies)),
        ]
    )


def _parameters(ctx: CommandContext, info: Mapping[str, Any]) -> info_tree.Pairs:
    shown = {
        **info,
        "reserved_lvs": _words(info["reserved_lvs"]),
        "uid_pool": _uid_pool(info["uid_pool"]),
        "os_search_path": _plain(ctx.paths.os_search_path),
        "extstorage_search_path": _plain(ctx.paths.es_search_path),
        "enabled_disk_templates": _plain(info["enabled_disk_templates"]),
        "compression_tools": list(info["compression_tools"] or ()),
    }
    # Clients of Ganeti 3 have no such line, so it is left out while nothing is set.
    hidden = set() if shown.get(_DIAGNOSE) else {_DIAGNOSE}
    return info_tree.Pairs(
        (title, shown.get(key)) for title, key in _PARAMETERS if key not in hidden
    )


def _copies(copies: Mapping[str, Any]) -> info_tree.Pairs:
    """Return which master candidates have the newest changes."""
    others = {
        row["name"]: "current"
        if row["is_current"] and not row["lag"]
        else f"{row['lag']} revisions behind"
        + (f" ({row['trouble']})" if row["trouble"] else "")
        for row in copies["copies"]
    }
    # During an upgrade, the daemon of an earlier release answers without them.
    confd = copies.get("confd", {})
    return info_tree.Pairs(
        [
            ("store", copies["store"]),
            ("commit policy", copies["policy"]),
            ("master term", copies["term"]),
            ("signatures that confd accepts", confd.get("hmac")),
            ("confd answers each request only once", confd.get("detect_replays")),
            ("revision of the master", copies["revision"]),
            ("other candidates", others or "(none)"),
            ("warning", copies["warning"] or "(none)"),
        ]
    )


def parts_off(info: Mapping[str, Any], drained: bool, pause: float | None) -> list[str]:
    """Return the parts of the cluster that are off, and how to switch them on.

    Args:
        info: of the cluster.
        drained: whether the job queue refuses new jobs.
        pause: end of the watcher's pause, seconds since the epoch; None for no pause.
    """
    until = "" if pause is None else timestamp(pause)
    collectors = info["enabled_data_collectors"]
    idle = nicesort.nice_names(name for name, is_on in collectors.items() if not is_on)
    rows = (
        (drained, "job queue (drained; gnt-cluster queue undrain)"),
        (
            pause is not None,
            f"watcher (paused until {until}; gnt-cluster watcher continue)",
        ),
        (
            not info["default_iallocator"],
            "placement without -n or -I (gnt-cluster modify -I hail)",
        ),
        (
            not info["enabled_user_shutdown"],
            "shutdown from inside (gnt-cluster modify --user-shutdown=yes)",
        ),
        (
            not info["maintain_node_health"],
            (
                "maintenance of node health (gnt-cluster modify"
                " --maintain-node-health=yes)"
            ),
        ),
        (
            not info["modify_ssh_setup"],
            "management of SSH keys (set at gnt-cluster init)",
        ),
        (
            not info["rapi_require_authentication"],
            (
                "credentials for reading over the remote API (gnt-cluster modify"
                " --require-authentication=yes)"
            ),
        ),
        (bool(idle), f"data collectors {', '.join(idle)}"),
    )
    return [text for is_off, text in rows if is_off]


def absent_daemons(directory: str = _buildconf.SBINDIR) -> list[str]:
    """Return the parts of the cluster whose daemons are not installed here."""
    return [
        f"{purpose} ({name} is not part of this installation)"
        for name, purpose in _DAEMONS
        if not os.path.exists(os.path.join(directory, name))
    ]


def _uid_pool(ranges: list[list[int]]) -> str:
    return ", ".join(
        str(low) if low == high else f"{low}-{high}" for low, high in ranges
    )


def _collectors(info: Mapping[str, Any]) -> dict[str, Any]:
    intervals = info["data_collector_interval"]
    return {
        name: {
            "active": active,
            "interval": f"{intervals.get(name, 0) / _MICROSECONDS:.3f}s",
        }
        for name, active in info["enabled_data_collectors"].items()
    }
