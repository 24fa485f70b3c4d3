"""The state of nodes during a dry run: running guests and usable disks.

Acts of a plan are not sent to nodes. `SimulatedNodes` keeps their effects and applies
them to the answers of later reads, so later checks of a plan agree with its earlier
acts. The memory and disk space that acts would take is unknown: checks of later opcodes
see the present amounts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base.constants.protocols import oob
from ganeti.operations.mcpu.dry_run_policy import Args, device_path
from ganeti.protocols.rpc import Result


class SimulatedNodes:
    """The state of nodes after the acts of a plan, for its later reads."""

    def __init__(self) -> None:
        #: (node uuid, instance name) -> wire form of an instance that would run there,
        #: or None
        self._guests: dict[tuple[str, str], Mapping[str, Any] | None] = {}
        #: (node uuid, disk) -> whether the disk would be usable there
        self._disks: dict[tuple[str, str], bool] = {}
        #: Name of a node -> whether it would be on.
        self._powered: dict[str, bool] = {}

    # Acts
    def record(self, procedure: str, node: str, args: Args) -> None:
        """Apply an act."""
        if procedure in _RUNS:
            runs = _RUNS[procedure](args)
            guest = next(arg for arg in args if isinstance(arg, Mapping))
            self._guests[node, guest["name"]] = guest if runs else None
        elif procedure in _USABLE:
            self._disks[node, _key(args[0])] = _USABLE[procedure]
        elif procedure == "run_oob_many" and args[1] in _POWERS:
            self._powered |= {name: _POWERS[args[1]] for _program, name in args[0]}
        elif procedure in _COMPLETE:
            for disk in _COMPLETE[procedure](args):
                for place in disk.get("nodes") or (node,):
                    self._disks[place, _key(disk)] = True

    # Reads
    def adjust(self, node: str, args: Args, answer: Result) -> Result:
        """Return the answer of a read, adjusted to the acts so far."""
        adjust = _ADJUST.get(answer.call)
        payload = _SAME if adjust is None else adjust(self, node, args, answer)
        if payload is _SAME:
            return answer
        return Result(answer.call, answer.node, payload)

    def _guest_info(self, node: str, args: Args, _answer: Result) -> Any:
        if (node, args[0]) not in self._guests:
            return _SAME
        guest = self._guests[node, args[0]]
        return {} if guest is None else _info(guest)

    def _all_info(self, node: str, args: Args, answer: Result) -> Any:
        changed = self._known_guests(node, args[0])
        if answer.failed or not changed:
            return _SAME
        running = {name: _info(guest) for name, guest in changed.items() if guest}
        kept = {k: v for k, v in (answer.payload or {}).items() if k not in changed}
        return kept | running

    def _names(self, node: str, args: Args, answer: Result) -> Any:
        changed = self._known_guests(node, args[0])
        if answer.failed or not changed:
            return _SAME
        kept = [name for name in answer.payload or () if name not in changed]
        return sorted([*kept, *(name for name, guest in changed.items() if guest)])

    def _known_guests(
        self, node: str, hypervisors: Sequence[str]
    ) -> dict[str, Mapping[str, Any] | None]:
        return {
            name: guest
            for (place, name), guest in self._guests.items()
            if place == node and (guest is None or guest["hypervisor"] in hypervisors)
        }

    def _power(self, _node: str, args: Args, answer: Result) -> Any:
        """Return power states with those that the acts so far would lead to."""
        helpers, command = args[0], args[1]
        names = [name for _program, name in helpers]
        if command != oob.OOB_POWER_STATUS or self._powered.keys().isdisjoint(names):
            return _SAME
        real = answer.payload or [[False, answer.fail_msg]] * len(names)
        return [
            [True, {oob.OOB_POWER_STATUS_POWERED: self._powered[name]}]
            if name in self._powered
            else row
            for name, row in zip(names, real, strict=True)
        ]

    def _allowed(self, node: str, args: Args, _answer: Result) -> Any:
        """Return null for a guest that would run on the node."""
        return None if self._guests.get((node, args[0]["name"])) else _SAME

    def _transfers(self, _node: str, args: Args, _answer: Result) -> Any:
        """Return the successful end of transfers that a plan has started."""
        if not all(name is None or name.startswith("planned-") for name in args[0]):
            return _SAME
        return [
            {"listen_port": 1, "exit_status": 0, "recent_output": []}
            for _name in args[0]
        ]

    def _status(self, node: str, args: Args, _answer: Result) -> Any:
        usable = self._disks.get((node, _key(args[0])))
        if usable is None:
            return _SAME
        return _healthy(args[0]) if usable else None

    def _statuses(self, node: str, args: Args, answer: Result) -> Any:
        states = [self._disks.get((node, _key(disk))) for disk in args[0]]
        if all(usable is None for usable in states):
            return _SAME
        real = answer.payload or [[False, answer.fail_msg]] * len(states)
        return [
            row
            if usable is None
            else ([True, _healthy(disk)] if usable else [False, "not assembled"])
            for disk, usable, row in zip(args[0], states, real, strict=True)
        ]

    def _sizes(self, node: str, args: Args, answer: Result) -> Any:
        states = [self._disks.get((node, _key(disk))) for disk in args[0]]
        if not any(states):
            return _SAME
        real = answer.payload or [None] * len(states)
        return [
            [disk["size"] * 1024 * 1024, None] if usable else row
            for disk, usable, row in zip(args[0], states, real, strict=True)
        ]


_SAME: Final = object()
#: Out-of-band commands: whether the machine is on afterwards.
_POWERS: Final = {oob.OOB_POWER_OFF: False, oob.OOB_POWER_ON: True}
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
#: Acts after which the data of mirrors is copied: the mirrors.
_COMPLETE: Final[Mapping[str, Callable[[Args], Sequence[Mapping[str, Any]]]]] = {
    "blockdev_addchildren": lambda args: args[:1],
    "drbd_attach_net": lambda args: args[0],
}
_ADJUST: Final[Mapping[str, Callable[[SimulatedNodes, str, Args, Result], Any]]] = {
    "all_instances_info": SimulatedNodes._all_info,  # noqa: SLF001 - a table of its methods
    "blockdev_find": SimulatedNodes._status,  # noqa: SLF001
    "blockdev_getdimensions": SimulatedNodes._sizes,  # noqa: SLF001
    "blockdev_getmirrorstatus_multi": SimulatedNodes._statuses,  # noqa: SLF001
    "hotplug_supported": SimulatedNodes._allowed,  # noqa: SLF001
    "impexp_status": SimulatedNodes._transfers,  # noqa: SLF001
    "instance_info": SimulatedNodes._guest_info,  # noqa: SLF001
    "instance_left": SimulatedNodes._guest_info,  # noqa: SLF001
    "instance_list": SimulatedNodes._names,  # noqa: SLF001
    "instance_migratable": SimulatedNodes._allowed,  # noqa: SLF001
    "run_oob_many": SimulatedNodes._power,  # noqa: SLF001
    "migration_info": SimulatedNodes._allowed,  # noqa: SLF001
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
