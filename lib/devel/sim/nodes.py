"""Node calls of a simulated cluster, answered from the state of its machines.

Acts that nobody simulates succeed, with the answers of `ganeti.protocols.rpc.calls` for
a dry run. A machine that is off, frozen or cut off does not answer, which takes the
time that a connection has. Effects on guests happen when the call arrives: an answer
can be lost.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.base.constants import disks, misc, versions
from ganeti.base.constants.protocols import oob
from ganeti.devel.sim.hardware import SEND_MIB_S, Disk, Guest, Hardware, Helper, Machine
from ganeti.devel.sim.scheduler import Scheduler
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations.mcpu import simulated_nodes
from ganeti.operations.mcpu.simulated_nodes import Failure
from ganeti.protocols.rpc import PROCEDURES, TIMEOUTS, Result, Runner, wire
from ganeti.protocols.rpc.procedure import OFFLINE_TEXT

Args = Sequence[Any]
#: Templates whose disks take space of the machines that have them.
_LOCAL: Final = frozenset({"drbd", "plain", "file"})
#: MiB of the metadata of a mirror.
_META_MIB: Final = 128
#: Seconds that acts take; those that are missing take none.
_DURATIONS: Final[Mapping[str, float]] = {
    "blockdev_create": 0.5,
    "instance_os_add": 60.0,
    "instance_reboot": 5.0,
    "instance_shutdown": 5.0,
    "instance_start": 2.0,
    "repair_command": 20.0,
}
#: Seconds that a helper takes for a command.
_HELPER_S: Final = 2.0
#: Seconds between two heartbeats on shared storage.
_BEAT_S: Final = 2.0
_LOST: Final = "the connection broke"
#: Status of the copy of a disk that is not complete.
_FAULTY: Final = 3


class SimulatedRunner(Runner):
    """Calls simulated machines.

    Args:
        hardware: the machines.
        scheduler: the time.
        snapshot: returns the newest configuration.
        master: returns the name of the machine that calls.
    """

    def __init__(
        self,
        hardware: Hardware,
        scheduler: Scheduler,
        snapshot: Callable[[], objects.Snapshot],
        master: Callable[[], str],
    ) -> None:
        self._hardware = hardware
        self._scheduler = scheduler
        self._snapshot = snapshot
        self._master = master
        self._moved: dict[str, bool] = {}
        #: Machine -> its guests, and the answer about them.
        self._infos: dict[str, tuple[Sequence[Guest], Mapping[str, Any]]] = {}

    def call(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Args | Callable[[str], Args] = (),
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Result]:
        """Call machines, see `Runner`."""
        row = PROCEDURES[procedure]
        snapshot, caller = self._snapshot(), self._master()
        answers = {node: Result(procedure, node) for node in nodes}
        called, seconds = [], 0.0
        shared = None if callable(args) or wire.differs_by_node(args) else args
        limit = float(TIMEOUTS[row.timeout]) if timeout_s is None else timeout_s
        for node in nodes:
            record = snapshot.nodes.get(node)
            name = record.name if record is not None else node
            if record is None or name not in self._hardware.machines:
                text = "not a node of this cluster"
                answers[node] = Result(procedure, name, fail_msg=text)
            elif params.is_silent(snapshot, record) and not row.accept_offline:
                answers[node] = Result(
                    procedure, name, fail_msg=OFFLINE_TEXT, offline=True
                )
            elif not self._hardware.answers(caller, name):
                answers[node] = _silent(procedure, name)
                seconds = max(seconds, min(limit, misc.RPC_CONNECT_TIMEOUT))
            else:
                called.append((node, name))
        for node, name in called:
            given = shared
            if given is None:
                own = args(node) if callable(args) else args
                given = tuple(wire.resolve(value, node) for value in own)
            answers[node] = self._answer(procedure, name, given)
            seconds = max(seconds, self._duration(procedure, name, given))
        if seconds:
            self._scheduler.sleep(seconds)
            for node, name in called:
                if not self._hardware.answers(caller, name) and not row.reads:
                    # Only the answer is lost: the effect stays.
                    answers[node] = _silent(procedure, name, _LOST)
        return answers

    def _duration(self, procedure: str, name: str, args: Args) -> float:
        seconds = _DURATIONS.get(procedure, 0.0)
        if procedure == "instance_migrate":
            seconds = args[1]["beparams"].get("maxmem", 0) / SEND_MIB_S
        elif procedure == "run_oob_many":
            hangs = (
                self._hardware.machines[target].helper is Helper.HANGS
                for _program, target in args[0]
            )
            seconds = args[2] if any(hangs) else _HELPER_S
        return seconds * self._hardware.machines[name].slowness

    def _answer(self, procedure: str, name: str, args: Args) -> Result:
        own, row = _ANSWERS.get(procedure), PROCEDURES[procedure]
        machine = self._hardware.machines[name]
        try:
            if own is not None:
                return Result(procedure, name, own(self, machine, args))
            if simulated_nodes.act(self, procedure, name, args):
                return Result(procedure, name, simulated_nodes.answer(row, args))
        except Failure as err:
            return Result(procedure, name, fail_msg=str(err))
        known = simulated_nodes.read(self, procedure, name, args)
        if known is not simulated_nodes.UNKNOWN:
            return Result(procedure, name, known)
        if procedure in _FIXED:
            return Result(procedure, name, _FIXED[procedure])
        if row.reads:
            return Result(procedure, name, fail_msg=f"{procedure} is not simulated")
        return Result(procedure, name, simulated_nodes.answer(row, args))

    # The node itself
    def _node_info(self, machine: Machine, args: Args) -> Any:
        units, hypervisors = args
        storage = [
            {
                "type": kind,
                "name": key,
                "storage_free": self._hardware.free_space(machine.name),
                "storage_size": machine.disk_mib,
            }
            for kind, key, _params in units or ()
        ]
        memory = {
            "memory_total": machine.memory_mib,
            "memory_free": self._hardware.free_memory(machine.name),
            "memory_dom0": machine.own_memory_mib,
            "cpu_total": machine.cpus,
            "cpu_nodes": 1,
            "cpu_sockets": 1,
            "cpu_dom0": 0,
            "hv_version": "7.2",
        }
        return [machine.boot_id, storage, [memory] if hypervisors else []]

    def _reaches(self, machine: Machine, args: Args) -> Any:
        names = {node.primary_ip: node.name for node in self._snapshot().nodes.values()}
        (places,) = args
        answers = []
        for address, _port, _ssh in places:
            target = names.get(address, "")
            answers.append(
                [
                    self._hardware.answers(machine.name, target),
                    self._hardware.reaches(machine.name, target),
                ]
            )
        return answers

    def _heartbeats(self, _machine: Machine, args: Args) -> Any:
        now_s = self._scheduler.monotonic()
        machines = [self._hardware.machines.get(name) for name in args[0]]
        return [
            [f"{machine.boots:032x}", int(now_s / _BEAT_S)]
            if machine is not None and machine.has_heartbeat and machine.is_awake
            else None
            for machine in machines
        ]

    def _helpers(self, _machine: Machine, args: Args) -> Any:
        helpers, command = args[0], args[1]
        return [list(self._helper(name, command)) for _program, name in helpers]

    def _helper(self, name: str, command: str) -> tuple[bool, Any]:
        """Return whether a helper succeeded, and its output or error."""
        target = self._hardware.machines[name]
        if target.helper is Helper.FAILS:
            return False, "the controller does not answer"
        if target.helper is Helper.HANGS:
            return False, oob.OOB_TIMED_OUT
        if target.helper is Helper.GARBLES:
            return True, ["Chassis Power is", command]
        if command == oob.OOB_POWER_STATUS:
            powered: bool | None = target.is_on
            if target.helper is Helper.LIES:
                powered = False
            elif target.helper is Helper.DOUBTS:
                powered = None
            return True, {oob.OOB_POWER_STATUS_POWERED: powered}
        if command == oob.OOB_HEALTH:
            return True, []
        if target.helper is not Helper.LIES:
            if command in (oob.OOB_POWER_OFF, oob.OOB_POWER_CYCLE):
                self._hardware.powered_off.append((self._scheduler.now, name))
                self._hardware.power_off(name, "by its helper")
            if command in (oob.OOB_POWER_ON, oob.OOB_POWER_CYCLE):
                self._hardware.power_on(name)
        return True, None

    def _repair(self, machine: Machine, _args: Args) -> Any:
        if not machine.repairs:
            raise Failure("the repair command ended with exit code 1")
        machine.diagnosis = {"status": "Ok"}
        return ""

    # Guests
    def guest_on(self, node: str, name: str) -> Any:
        """See `NodeState`."""
        guest = self._hardware.guests.get((name, node))
        return {} if guest is None else _info(guest)

    def guests_on(self, node: str, _hypervisors: Sequence[str]) -> Mapping[str, Any]:
        """See `NodeState`."""
        guests = self._hardware.on_machine(node)
        known = self._infos.get(node)
        # The tuple is made again when a guest of the machine changes.
        if known is None or known[0] is not guests:
            known = guests, {guest.instance: _info(guest) for guest in guests}
            self._infos[node] = known
        return known[1]

    def start_guest(self, node: str, guest: Mapping[str, Any]) -> None:
        """See `NodeState`."""
        filled = guest["beparams"]
        wanted = Guest(
            guest["name"],
            node,
            int(filled.get("maxmem", 128)),
            int(filled.get("vcpus", 1)),
        )
        if not self._hardware.machines[node].starts:
            raise Failure("the emulator ended with exit code 1")
        if not self._hardware.start(wanted):
            raise Failure(f"no memory for {wanted.instance}")

    def stop_guest(self, node: str, guest: Mapping[str, Any]) -> None:
        """See `NodeState`."""
        self._hardware.stop(guest["name"], node)

    def _migrate(self, machine: Machine, args: Args) -> Any:
        name, target = args[1]["name"], args[2]
        machines = {
            address: node.name
            for node in self._snapshot().nodes.values()
            for address in (node.primary_ip, node.secondary_ip, node.name)
        }
        goal = machines.get(target, "")
        self._moved[name] = bool(goal) and self._hardware.migrate(
            name, machine.name, goal
        )
        return None

    def _migration(self, _machine: Machine, args: Args) -> Any:
        has_moved = self._moved.get(args[0]["name"], False)
        return {"status": "completed" if has_moved else "failed"}

    # Disks
    def make_disk(
        self, node: str, disk: Mapping[str, Any], *, is_primary: bool
    ) -> None:
        """See `NodeState`."""
        if disk["dev_type"] not in _LOCAL:
            return
        need = disk["size"] + (_META_MIB if disk["dev_type"] == "drbd" else 0)
        present = self._hardware.disk_mib(node, disk["uuid"])
        if need - present > self._hardware.free_space(node):
            raise Failure("no space left in the volume group")
        self._hardware.put_disk(node, disk["uuid"], need)
        for child in disk["children"]:
            # Their space is that of the mirror.
            self._hardware.put_disk(node, child["uuid"], 0)
        if disk["dev_type"] == "drbd" and not is_primary:
            self._hardware.begin_copy(self._disk(disk), node)

    def remove_disk(self, node: str, disk: Mapping[str, Any]) -> None:
        """See `NodeState`."""
        for part in (disk, *disk["children"]):
            self._hardware.drop_disk(node, part["uuid"])

    def _disk(self, disk: Mapping[str, Any]) -> Disk:
        nodes = self._snapshot().nodes
        held = disk["logical_id"][:2] if disk["dev_type"] == "drbd" else disk["nodes"]
        names = tuple(nodes[uuid].name for uuid in held if uuid in nodes)
        return Disk(disk["uuid"], names, disk["size"])

    def disk_on(self, node: str, disk: Mapping[str, Any]) -> Any:
        """See `NodeState`."""
        is_shared = disk["dev_type"] not in _LOCAL
        if not is_shared and not self._hardware.has_disk(node, disk["uuid"]):
            return None
        return self._status(node, disk)

    def _status(self, node: str, disk: Mapping[str, Any]) -> dict[str, Any]:
        row = simulated_nodes.disk_status(disk)
        if disk["dev_type"] != "drbd":
            return row
        mirror = self._disk(disk)
        for name in mirror.machines:
            is_complete, left_s = self._hardware.mirror_left(mirror, name)
            is_own = name == node
            if is_own and left_s is None:
                # One that is not connected does not know of later writes.
                continue
            if is_complete and self._hardware.reaches(node, name):
                continue
            row["is_degraded"] = True
            if is_own:
                row["ldisk_status"] = _FAULTY
            if left_s is not None:
                row["estimated_time"] = left_s
                row["sync_percent"] = max(0.0, 99.0 - left_s)
        return row


def _silent(procedure: str, name: str, text: str = "no answer") -> Result:
    return Result(procedure, name, fail_msg=text, is_lost=text == _LOST, is_silent=True)


def _info(guest: Guest) -> dict[str, Any]:
    return simulated_nodes.guest_info(guest.memory_mib, guest.vcpus)


def mirrors(
    snapshot: objects.Snapshot, hardware: Hardware
) -> Iterator[tuple[Disk, str]]:
    """Yield the mirrored disks of running guests, with the machines of the guests."""
    for guest in hardware.guests.values():
        uuid = snapshot.uuid_of("instances", guest.instance)
        if uuid is None:
            continue
        for disk in snapshot.instance_disks(snapshot.instances[uuid]):
            if disk.dev_type in disks.DTS_INT_MIRROR:
                names = tuple(
                    snapshot.nodes[node].name
                    for node in disk.logical_id[:2]
                    if node in snapshot.nodes
                )
                yield Disk(disk.uuid, names, disk.size), guest.machine


#: Answers that depend on nothing.
_FIXED: Final[Mapping[str, Any]] = {
    "blockdev_grow": None,
    "bridges_exist": None,
    "drbd_helper": "/bin/true",
    "drbd_needs_activation": [],
    "hotplug_supported": None,
    "instance_migratable": None,
    "migration_info": "opaque",
    "os_validate": True,
    "version": versions.CONFIG_VERSION,
}
_Answer = Callable[[SimulatedRunner, Machine, Args], Any]
_ANSWERS: Final[Mapping[str, _Answer]] = {
    "instance_get_migration_status": SimulatedRunner._migration,  # noqa: SLF001
    "instance_migrate": SimulatedRunner._migrate,  # noqa: SLF001
    "node_heartbeats": SimulatedRunner._heartbeats,  # noqa: SLF001
    "node_info": SimulatedRunner._node_info,  # noqa: SLF001
    "node_reaches": SimulatedRunner._reaches,  # noqa: SLF001
    "repair_command": SimulatedRunner._repair,  # noqa: SLF001
    "run_oob_many": SimulatedRunner._helpers,  # noqa: SLF001
}
