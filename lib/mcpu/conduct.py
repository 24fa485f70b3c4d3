"""How a plan treats each node call: asked for real, or noted and answered as if done.

A call that only reads goes to the nodes, so that checks see the cluster as it is. A
call that acts is never sent: it gets the answer of a node where all went well, and
`Beliefs` remembers what it would have changed, so that a later read of the same plan
agrees with it. What a plan cannot know is how much memory and space the acts would
take; checks of a later opcode see the present amounts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.rpc import Result, table

Args = Sequence[Any]


class Conduct(NamedTuple):
    """One procedure in a plan.

    Attributes:
        reads: whether a call only reads, or a function of its arguments that tells.
        answer: (node uuid, arguments) -> payload of a call that acts.
        why: of an answer other than null.
    """

    reads: bool | Callable[[Args], bool] = False
    answer: Callable[[str, Args], Any] = lambda _node, _args: None
    why: str = "a node answers null when all went well"

    def only_reads(self, args: Args) -> bool:
        """Tell whether a call with these arguments changes nothing on a node."""
        return self.reads(args) if callable(self.reads) else self.reads


#: Calls that act and whose success is null.
_ACTING: Final = (
    "accept_instance",
    "blockdev_addchildren",
    "blockdev_close",
    "blockdev_convert",
    "blockdev_convert_part",
    "blockdev_image",
    "blockdev_open",
    "blockdev_remove",
    "blockdev_removechildren",
    "blockdev_rename",
    "blockdev_setinfo",
    "blockdev_shutdown",
    "blockdev_wipe",
    "drbd_attach_net",
    "drbd_disconnect_net",
    "export_remove",
    "file_storage_dir_create",
    "file_storage_dir_remove",
    "file_storage_dir_rename",
    "finalize_export",
    "hotplug_device",
    "impexp_abort",
    "impexp_cleanup",
    "import_start",
    "instance_balloon_memory",
    "instance_finalize_migration_dst",
    "instance_finalize_migration_src",
    "instance_metadata_modify",
    "instance_migrate",
    "instance_os_add",
    "instance_reboot",
    "instance_run_rename",
    "instance_shutdown",
    "instance_start",
    "jobqueue_purge",
    "jobqueue_set_drain_flag",
    "jobqueue_update",
    "node_activate_master_ip",
    "node_change_master_netmask",
    "node_configure_ovs",
    "node_deactivate_master_ip",
    "node_demote_from_mc",
    "node_ssh_keys_renew",
    "node_start_master_daemons",
    "node_stop_master",
    "resize_disk",
    "set_watcher_pause",
    "storage_execute",
    "storage_modify",
    "store_apply",
    "store_install",
    "store_purge",
    "test_delay",
    "upload_file",
    "upload_file_single",
    "write_ssconf_files",
    "x509_cert_remove",
)
#: Out-of-band commands that only ask the helper.
_OOB_QUESTIONS: Final = frozenset(("health", "power-status"))


def _nothing_failed(_node: str, _args: Args) -> list[Any]:
    return []


def _assembled(_node: str, args: Args) -> list[Any]:
    disk, instance, on_primary, index = args[:4]
    if not on_primary:
        return [True, True]
    link = f"/var/run/ganeti/instance-disks/{instance['name']}:{index}"
    return [device_path(disk), link, None]


def device_path(disk: Mapping[str, Any]) -> str:
    """Return where a disk will most likely be found once it is assembled."""
    kind, address = disk.get("dev_type"), disk.get("logical_id") or ("", "")
    if kind == "plain":
        return f"/dev/{address[0]}/{address[1]}"
    if kind == "drbd":
        return "/dev/drbd"
    return str(address[1])


def _mirrored(_node: str, _args: Args) -> list[Any]:
    return [True, 100]


#: Every procedure that is neither all reading nor answered with null.
_SPECIAL: Final = {
    "blockdev_assemble": Conduct(answer=_assembled, why="where the disk will be"),
    "blockdev_create": Conduct(why="file disks and volumes keep the name given"),
    "blockdev_grow": Conduct(reads=lambda args: bool(args[2]), why="unless dry run"),
    "blockdev_pause_resume_sync": Conduct(
        answer=lambda _node, args: [[True, None] for _disk in args[0]],
        why="every disk obeyed",
    ),
    "blockdev_snapshot": Conduct(
        answer=lambda _node, args: [args[0]["logical_id"][0], args[1]],
        why="the volume group of the disk and the name given",
    ),
    "drbd_wait_sync": Conduct(answer=_mirrored, why="nothing is left to be copied"),
    "etc_hosts_modify": Conduct(
        answer=lambda _node, _args: True, why="true is success"
    ),
    "export_start": Conduct(
        answer=lambda _node, _args: "planned-export", why="name of a transfer"
    ),
    "hooks_runner": Conduct(answer=_nothing_failed, why="no script said anything"),
    "instance_get_migration_status": Conduct(
        answer=lambda _node, _args: {"status": "completed"}, why="the guest has moved"
    ),
    "jobqueue_rename": Conduct(
        answer=lambda _node, args: [None for _pair in args[0]], why="null per file"
    ),
    "node_crypto_tokens": Conduct(
        reads=lambda args: all(row[1] == "get" for row in args[0]),
        answer=lambda _node, args: [[row[0], "planned-token"] for row in args[0]],
        why="a new token is made, which cannot be known before",
    ),
    "node_ensure_daemon": Conduct(
        answer=lambda _node, _args: True, why="the daemon obeyed"
    ),
    "node_leave_cluster": Conduct(
        answer=lambda _node, _args: "Shutdown scheduled", why="the documented text"
    ),
    "node_powercycle": Conduct(
        answer=lambda _node, _args: "Reboot scheduled", why="the node will reset itself"
    ),
    "node_ssh_key_add": Conduct(answer=_nothing_failed, why="no node failed"),
    "node_ssh_key_remove": Conduct(answer=_nothing_failed, why="no warnings"),
    "os_export": Conduct(
        answer=lambda _node, _args: "planned-archive", why="path of an archive"
    ),
    "repair_command": Conduct(answer=lambda _node, _args: "", why="nothing was said"),
    "restricted_command": Conduct(
        answer=lambda _node, _args: "", why="nothing was said"
    ),
    "run_oob": Conduct(
        reads=lambda args: args[1] in _OOB_QUESTIONS,
        why="helpers say nothing when they switch power",
    ),
    "x509_cert_create": Conduct(
        answer=lambda _node, _args: ["planned-certificate", ""],
        why="name of a certificate to come",
    ),
}

#: Every procedure of `ganeti.rpc.PROCEDURES`.
CONDUCT: Final[Mapping[str, Conduct]] = {
    **dict.fromkeys(table.READING, Conduct(reads=True)),
    **dict.fromkeys(_ACTING, Conduct()),
    **_SPECIAL,
}


class Beliefs:
    """What the acts of a plan would have changed on nodes, as later reads see it."""

    def __init__(self) -> None:
        #: (node uuid, instance name) -> its wire form if it would run there, else None
        self._guests: dict[tuple[str, str], Mapping[str, Any] | None] = {}
        #: (node uuid, disk) -> whether it would be usable there
        self._disks: dict[tuple[str, str], bool] = {}

    # Acts
    def note(self, procedure: str, node: str, args: Args) -> None:
        """Take note of an act."""
        if procedure in _RUNS:
            runs = _RUNS[procedure](args)
            guest = next(arg for arg in args if isinstance(arg, Mapping))
            self._guests[node, guest["name"]] = guest if runs else None
        elif procedure in _USABLE:
            self._disks[node, _key(args[0])] = _USABLE[procedure]

    # Reads
    def adjust(self, node: str, args: Args, found: Result) -> Result:
        """Return the answer of a read as it would be after the acts so far."""
        adjust = _ADJUST.get(found.call)
        payload = _SAME if adjust is None else adjust(self, node, args, found)
        if payload is _SAME:
            return found
        return Result(found.call, found.node, payload)

    def _guest_info(self, node: str, args: Args, _found: Result) -> Any:
        if (node, args[0]) not in self._guests:
            return _SAME
        guest = self._guests[node, args[0]]
        return {} if guest is None else _info(guest)

    def _all_info(self, node: str, args: Args, found: Result) -> Any:
        changed = self._known_guests(node, args[0])
        if found.failed or not changed:
            return _SAME
        running = {name: _info(guest) for name, guest in changed.items() if guest}
        kept = {k: v for k, v in (found.payload or {}).items() if k not in changed}
        return kept | running

    def _names(self, node: str, args: Args, found: Result) -> Any:
        changed = self._known_guests(node, args[0])
        if found.failed or not changed:
            return _SAME
        kept = [name for name in found.payload or () if name not in changed]
        return sorted([*kept, *(name for name, guest in changed.items() if guest)])

    def _known_guests(
        self, node: str, hypervisors: Sequence[str]
    ) -> dict[str, Mapping[str, Any] | None]:
        return {
            name: guest
            for (place, name), guest in self._guests.items()
            if place == node and (guest is None or guest["hypervisor"] in hypervisors)
        }

    def _allowed(self, node: str, args: Args, _found: Result) -> Any:
        """Return null for a guest that would run there."""
        return None if self._guests.get((node, args[0]["name"])) else _SAME

    def _status(self, node: str, args: Args, _found: Result) -> Any:
        usable = self._disks.get((node, _key(args[0])))
        if usable is None:
            return _SAME
        return _healthy(args[0]) if usable else None

    def _statuses(self, node: str, args: Args, found: Result) -> Any:
        wanted = [self._disks.get((node, _key(disk))) for disk in args[0]]
        if all(usable is None for usable in wanted):
            return _SAME
        real = found.payload or [[False, found.fail_msg]] * len(wanted)
        return [
            row
            if usable is None
            else ([True, _healthy(disk)] if usable else [False, "not assembled"])
            for disk, usable, row in zip(args[0], wanted, real, strict=True)
        ]

    def _sizes(self, node: str, args: Args, found: Result) -> Any:
        wanted = [self._disks.get((node, _key(disk))) for disk in args[0]]
        if not any(wanted):
            return _SAME
        real = found.payload or [None] * len(wanted)
        return [
            [disk["size"] * 1024 * 1024, None] if usable else row
            for disk, usable, row in zip(args[0], wanted, real, strict=True)
        ]


_SAME: Final = object()
#: Acts on guests: whether the guest runs on the node afterwards.
_RUNS: Final[Mapping[str, Callable[[Args], bool]]] = {
    "instance_finalize_migration_dst": lambda args: bool(args[2]),
    "instance_finalize_migration_src": lambda args: not args[1],
    "instance_migrate": lambda _args: False,
    "instance_reboot": lambda _args: True,
    "instance_shutdown": lambda _args: False,
    "instance_start": lambda _args: True,
}
#: Acts on disks: whether the disk is usable on the node afterwards.
_USABLE: Final = {
    "blockdev_assemble": True,
    "blockdev_create": True,
    "blockdev_remove": False,
    "blockdev_shutdown": False,
}
_ADJUST: Final[Mapping[str, Callable[[Beliefs, str, Args, Result], Any]]] = {
    "all_instances_info": Beliefs._all_info,  # noqa: SLF001 - a table of its methods
    "blockdev_find": Beliefs._status,  # noqa: SLF001
    "blockdev_getdimensions": Beliefs._sizes,  # noqa: SLF001
    "blockdev_getmirrorstatus_multi": Beliefs._statuses,  # noqa: SLF001
    "hotplug_supported": Beliefs._allowed,  # noqa: SLF001
    "instance_info": Beliefs._guest_info,  # noqa: SLF001
    "instance_list": Beliefs._names,  # noqa: SLF001
    "instance_migratable": Beliefs._allowed,  # noqa: SLF001
    "migration_info": Beliefs._allowed,  # noqa: SLF001
}


def _key(disk: Mapping[str, Any]) -> str:
    return str(disk.get("uuid") or f"{disk.get('dev_type')}:{disk.get('logical_id')}")


def _info(guest: Mapping[str, Any]) -> dict[str, Any]:
    filled = guest["beparams"]
    return {
        "memory": filled.get("maxmem", 0),
        "vcpus": filled.get("vcpus", 0),
        "state": 0,
        "time": 0.0,
    }


def _healthy(disk: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "dev_path": device_path(disk),
        "major": None,
        "minor": None,
        "sync_percent": None,
        "estimated_time": None,
        "is_degraded": False,
        "ldisk_status": 1,
    }
