"""Answers of simulated nodes: to acting calls of a dry run, and to reads.

`ganeti.protocols.rpc.calls` declares the procedures, and whether a call only reads. A
dry run sends reading calls to the nodes, so checks see the real cluster. It never sends
an acting call, but returns the answer of a successful one. The functions that
declarations name for these purposes are here.

Guests and disks have one model for dry runs, for the simulator
(`ganeti.devel.sim.nodes`) and for tests: they have the state, as a `NodeState`. `act`
changes it as calls do, and `read` makes the answers of it.

`SimulatedNodes` is the state of a dry run. Its acts are not sent to nodes; it keeps
their effects, so later checks of a plan agree with its earlier acts. The memory and
disk space that acts would take is unknown: checks of later opcodes see the present
amounts.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from ganeti.base.constants.protocols import oob, ssh
from ganeti.base.tls import authority
from ganeti.protocols.rpc import Procedure, Result

Args = Sequence[Any]

#: Out-of-band commands that only read.
_OOB_QUESTIONS: Final = frozenset(("health", "power-status"))


def only_reads(row: Procedure[..., Any], args: Args) -> bool:
    """Return whether a call with these arguments changes nothing on a node."""
    return READS_IF[row.reads_if](args) if row.reads_if else row.reads


def answer(row: Procedure[..., Any], args: Args) -> Any:
    """Return the payload of a successful acting call."""
    if row.answer_from:
        return ANSWERS[row.answer_from](args)
    # The row is shared by all plans, and a caller may change its payload.
    return copy.deepcopy(row.answer)


def device_path(disk: Mapping[str, Any]) -> str:
    """Return the most likely path of a disk after its assembly."""
    kind, address = disk.get("dev_type"), disk.get("logical_id") or ("", "")
    if kind == "plain":
        return f"/dev/{address[0]}/{address[1]}"
    if kind == "drbd":
        return "/dev/drbd"
    return str(address[1])


def _assembled_device(args: Args) -> list[Any]:
    disk, instance, on_primary, index = args[:4]
    if not on_primary:
        return [True, True]
    link = f"/var/run/ganeti/instance-disks/{instance['name']}:{index}"
    return [device_path(disk), link, None]


def _snapshot_volume(args: Args) -> list[Any]:
    """Return the volume group of the disk, and the name given."""
    return [args[0]["logical_id"][0], args[1]]


def _new_tokens(args: Args) -> list[Any]:
    """Return placeholders: the new token is not known in advance."""
    _key, request = authority.new_request("planned")
    tokens = {ssh.CRYPTO_REQUEST: request.decode()}
    return [[row[0], tokens.get(row[1], "planned-token")] for row in args[0]]


#: Functions of the arguments that return whether the call only reads.
READS_IF: Final[Mapping[str, Callable[[Args], bool]]] = {
    "is_tried_only": lambda args: bool(args[2]),
    "gets_all_tokens": lambda args: all(row[1] == "get" for row in args[0]),
    "is_oob_question": lambda args: args[1] in _OOB_QUESTIONS,
}
#: Functions of the arguments that return the payload of an acting call.
ANSWERS: Final[Mapping[str, Callable[[Args], Any]]] = {
    "assembled_device": _assembled_device,
    "snapshot_volume": _snapshot_volume,
    "new_tokens": _new_tokens,
    "success_per_disk": lambda args: [[True, None] for _disk in args[0]],
    "success_per_helper": lambda args: [[True, None] for _helper in args[0]],
    "null_per_file": lambda args: [None for _pair in args[0]],
}


#: Stands for all that a state does not know.
UNKNOWN: Final = object()


class Failure(Exception):
    """An act that a node refuses; the text says why."""


class NodeState(Protocol):
    """The state of nodes, which it names as the caller of `act` and `read` does.

    Its acts may raise `Failure`. Guests and disks are in the form that nodes get.
    """

    def start_guest(self, node: str, guest: Mapping[str, Any]) -> None:
        """Have a guest on a node; it may run there already."""

    def stop_guest(self, node: str, guest: Mapping[str, Any]) -> None:
        """Have it there no longer; it may have ended already."""

    def make_disk(
        self, node: str, disk: Mapping[str, Any], *, is_primary: bool
    ) -> None:
        """Have a new disk on a node, the primary one of its instance or another."""

    def remove_disk(self, node: str, disk: Mapping[str, Any]) -> None:
        """Have it there no longer."""

    def guest_on(self, node: str, name: str) -> Any:
        """Return the information about a guest, {} if it does not run; or UNKNOWN."""

    def guests_on(self, node: str, hypervisors: Sequence[str]) -> Mapping[str, Any]:
        """Return the same of all guests that it knows, by name."""

    def disk_on(self, node: str, disk: Mapping[str, Any]) -> Any:
        """Return the status of a disk, None if it is not usable there; or UNKNOWN."""


def guest_info(memory_mib: int, vcpus: int, seconds: float = 1.0) -> dict[str, Any]:
    """Return what a node says of a guest that has run for some seconds."""
    return {"memory": memory_mib, "vcpus": vcpus, "state": 0, "time": seconds}


def disk_status(disk: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a node says of a disk that is in order."""
    return {
        "dev_path": device_path(disk),
        "major": None,
        "minor": None,
        "sync_percent": None,
        "estimated_time": None,
        "is_degraded": False,
        "ldisk_status": 1,
    }


def act(state: NodeState, procedure: str, node: str, args: Args) -> bool:
    """Apply an act; return whether the model has it.

    Raises:
        Failure: the node refuses it.
    """
    if procedure not in _ACTS:
        return False
    _ACTS[procedure](state, node, args)
    return True


def read(
    state: NodeState, procedure: str, node: str, args: Args, real: Any = UNKNOWN
) -> Any:
    """Return the payload of a read; UNKNOWN if nothing of it is in the state.

    Args:
        state: of all nodes.
        procedure: any.
        node: that is asked.
        args: of the call.
        real: the payload of the real node, whose place the state takes in part; None if
            its answer was an error. Without it, the state knows everything.
    """
    reader = _READERS.get(procedure)
    return UNKNOWN if reader is None else reader(state, node, args, real)


def _guest(state: NodeState, node: str, args: Args, _real: Any) -> Any:
    return state.guest_on(node, args[0])


def _guests(state: NodeState, node: str, args: Args, real: Any) -> Any:
    known = state.guests_on(node, args[0])
    if real is UNKNOWN:
        return known
    # The node refused, or no act of the plan concerns it: its own answer stays.
    if real is None or not known:
        return UNKNOWN
    kept = {name: info for name, info in dict(real).items() if name not in known}
    return kept | {name: info for name, info in known.items() if info}


def _names(state: NodeState, node: str, args: Args, real: Any) -> Any:
    known = state.guests_on(node, args[0])
    running = [name for name, info in known.items() if info]
    if real is UNKNOWN:
        return running
    if real is None or not known:
        return UNKNOWN
    return sorted([*running, *(name for name in real if name not in known)])


def _disk(state: NodeState, node: str, args: Args, _real: Any) -> Any:
    return state.disk_on(node, args[0])


def _disks(state: NodeState, node: str, args: Args, real: Any) -> Any:
    return _rows(
        [state.disk_on(node, disk) for disk in args[0]],
        lambda status, _disk: [True, status] if status else [False, "not assembled"],
        args[0],
        real,
    )


def _sizes(state: NodeState, node: str, args: Args, real: Any) -> Any:
    known = [state.disk_on(node, disk) for disk in args[0]]
    if real is not UNKNOWN:
        # One that would not be usable may still have its size.
        known = [status or UNKNOWN for status in known]
    return _rows(
        known,
        lambda status, disk: [disk["size"] * 1024 * 1024, None] if status else None,
        args[0],
        real or [None] * len(known),
    )


def _rows(
    known: Sequence[Any],
    form: Callable[[Any, Mapping[str, Any]], Any],
    disks: Sequence[Mapping[str, Any]],
    real: Any,
) -> Any:
    if all(status is UNKNOWN for status in known):
        return UNKNOWN
    others = [None] * len(known) if real is UNKNOWN else real
    return [
        row if status is UNKNOWN else form(status, disk)
        for status, disk, row in zip(known, disks, others, strict=True)
    ]


_ACTS: Final[Mapping[str, Callable[[NodeState, str, Args], None]]] = {
    "blockdev_create": lambda state, node, args: state.make_disk(
        node, args[0], is_primary=args[3]
    ),
    "blockdev_remove": lambda state, node, args: state.remove_disk(node, args[0]),
    "instance_shutdown": lambda state, node, args: state.stop_guest(node, args[0]),
    "instance_start": lambda state, node, args: state.start_guest(node, args[0]),
}
_READERS: Final[Mapping[str, Callable[[NodeState, str, Args, Any], Any]]] = {
    "all_instances_info": _guests,
    "blockdev_find": _disk,
    "blockdev_getdimensions": _sizes,
    "blockdev_getmirrorstatus_multi": _disks,
    "instance_info": _guest,
    "instance_left": _guest,
    "instance_list": _names,
}
#: Reads that the model answers.
READS: Final = frozenset(_READERS)


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
        if act(self, procedure, node, args):
            return
        if procedure in _RUNS:
            guest = next(arg for arg in args if isinstance(arg, Mapping))
            change = self.start_guest if _RUNS[procedure](args) else self.stop_guest
            change(node, guest)
        elif procedure in _USABLE:
            self._disks[node, _key(args[0])] = _USABLE[procedure]
        elif procedure == "run_oob_many" and args[1] in _POWERS:
            self._powered |= {name: _POWERS[args[1]] for _program, name in args[0]}
        elif procedure in _COMPLETE:
            for disk in _COMPLETE[procedure](args):
                for place in disk.get("nodes") or (node,):
                    self._disks[place, _key(disk)] = True

    def start_guest(self, node: str, guest: Mapping[str, Any]) -> None:
        """See `NodeState`."""
        self._guests[node, guest["name"]] = guest

    def stop_guest(self, node: str, guest: Mapping[str, Any]) -> None:
        """See `NodeState`."""
        self._guests[node, guest["name"]] = None

    def make_disk(
        self, node: str, disk: Mapping[str, Any], *, is_primary: bool
    ) -> None:
        """See `NodeState`."""
        del is_primary
        self._disks[node, _key(disk)] = True

    def remove_disk(self, node: str, disk: Mapping[str, Any]) -> None:
        """See `NodeState`."""
        self._disks[node, _key(disk)] = False

    # Reads
    def adjust(self, node: str, args: Args, answer: Result) -> Result:
        """Return the answer of a read, adjusted to the acts so far."""
        own = _ADJUST.get(answer.call)
        if own is not None:
            payload = own(self, node, args, answer)
        else:
            real = self._real(answer, args)
            payload = read(self, answer.call, node, args, real)
        if payload is UNKNOWN:
            return answer
        return Result(answer.call, answer.node, payload)

    def _real(self, answer: Result, args: Args) -> Any:
        if answer.call == "blockdev_getmirrorstatus_multi" and not answer.payload:
            # The plan may know some of the disks, although the node reports none.
            return [[False, answer.fail_msg]] * len(args[0])
        if answer.failed:
            return None
        return answer.payload or ()

    def guest_on(self, node: str, name: str) -> Any:
        """See `NodeState`."""
        guest: Any = self._guests.get((node, name), UNKNOWN)
        return guest if guest is UNKNOWN else _info(guest)

    def guests_on(self, node: str, hypervisors: Sequence[str]) -> Mapping[str, Any]:
        """See `NodeState`."""
        return {
            name: _info(guest)
            for (place, name), guest in self._guests.items()
            if place == node and (guest is None or guest["hypervisor"] in hypervisors)
        }

    def disk_on(self, node: str, disk: Mapping[str, Any]) -> Any:
        """See `NodeState`."""
        usable = self._disks.get((node, _key(disk)))
        if usable is None:
            return UNKNOWN
        return disk_status(disk) if usable else None

    def _power(self, _node: str, args: Args, answer: Result) -> Any:
        """Return power states with those that the acts so far would lead to."""
        helpers, command = args[0], args[1]
        names = [name for _program, name in helpers]
        if command != oob.OOB_POWER_STATUS or self._powered.keys().isdisjoint(names):
            return UNKNOWN
        real = answer.payload or [[False, answer.fail_msg]] * len(names)
        return [
            [True, {oob.OOB_POWER_STATUS_POWERED: self._powered[name]}]
            if name in self._powered
            else row
            for name, row in zip(names, real, strict=True)
        ]

    def _allowed(self, node: str, args: Args, _answer: Result) -> Any:
        """Return null for a guest that would run on the node."""
        return None if self._guests.get((node, args[0]["name"])) else UNKNOWN

    def _transfers(self, _node: str, args: Args, _answer: Result) -> Any:
        """Return the successful end of transfers that a plan has started."""
        if not all(name is None or name.startswith("planned-") for name in args[0]):
            return UNKNOWN
        return [
            {"listen_port": 1, "exit_status": 0, "recent_output": []}
            for _name in args[0]
        ]


#: Out-of-band commands: whether the machine is on afterwards.
_POWERS: Final = {oob.OOB_POWER_OFF: False, oob.OOB_POWER_ON: True}
#: Further acts on guests: whether the guest runs on the node afterwards.
_RUNS: Final[Mapping[str, Callable[[Args], bool]]] = {
    "instance_finalize_migration_dst": lambda args: bool(args[2]),
    "instance_finalize_migration_src": lambda args: not args[1],
    "instance_migrate": lambda _args: False,
    "instance_reboot": lambda _args: True,
}
#: Further acts on disks: whether the disk is usable on the node afterwards.
_USABLE: Final = {
    "blockdev_assemble": True,
    "blockdev_shutdown": False,
}
#: Acts after which the data of mirrors is copied: the mirrors.
_COMPLETE: Final[Mapping[str, Callable[[Args], Sequence[Mapping[str, Any]]]]] = {
    "blockdev_addchildren": lambda args: args[:1],
    "drbd_attach_net": lambda args: args[0],
}
_ADJUST: Final[Mapping[str, Callable[[SimulatedNodes, str, Args, Result], Any]]] = {
    "hotplug_supported": SimulatedNodes._allowed,  # noqa: SLF001 - a table of its methods
    "impexp_status": SimulatedNodes._transfers,  # noqa: SLF001
    "instance_migratable": SimulatedNodes._allowed,  # noqa: SLF001
    "migration_info": SimulatedNodes._allowed,  # noqa: SLF001
    "run_oob_many": SimulatedNodes._power,  # noqa: SLF001
}


def _key(disk: Mapping[str, Any]) -> str:
    return str(disk.get("uuid") or f"{disk.get('dev_type')}:{disk.get('logical_id')}")


def _info(guest: Mapping[str, Any] | None) -> dict[str, Any]:
    if guest is None:
        return {}
    filled = guest["beparams"]
    return guest_info(filled.get("maxmem", 0), filled.get("vcpus", 0), 0.0)
