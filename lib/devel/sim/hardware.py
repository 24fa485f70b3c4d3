"""The machines of a simulated cluster: power, network, guests and disks.

This is the truth, which the configuration of the cluster only claims. Machines are
named as their nodes. Nothing here decides; `ganeti.devel.sim.nodes` answers node calls
from it, `ganeti.devel.sim.events` changes it.
"""

import collections
import dataclasses
import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

#: MiB per second that a mirror copies, and a migration sends.
COPY_MIB_S: Final = 100.0
SEND_MIB_S: Final = 1000.0


class Helper(enum.StrEnum):
    """Behaviour of the out-of-band helper of a machine."""

    HONEST = "honest"
    #: Reports success and "off", and does nothing.
    LIES = "lies"
    #: Ends with an error.
    FAILS = "fails"
    #: Switches the machine off and does not report that it is off.
    DOUBTS = "doubts"
    #: Does not end within its time limit.
    HANGS = "hangs"
    #: Prints something else than its command documents.
    GARBLES = "garbles"


@dataclasses.dataclass
class Machine:
    """A node as it is.

    Attributes:
        name: of the node.
        memory_mib, disk_mib, cpus: its resources.
        own_memory_mib: memory that the host itself needs.
        is_on: it has power.
        is_frozen: it computes nothing, but its guests continue with it.
        has_daemon: its node daemon answers.
        slowness: factor of the duration of everything that it does.
        helper: behaviour of its out-of-band helper.
        boots: number of its starts.
        diagnosis: data that its diagnosis reports.
        forges: its signature of a report is wrong.
        repairs: its repair command succeeds.
        starts: its emulators start.
        has_heartbeat: it writes heartbeats to shared storage while it computes.
        clock_off_s: by how much its clock is wrong.
        load: of its CPUs besides its guests; None if it cannot report its load.
        is_full: its disks have no free space.
    """

    name: str
    memory_mib: int
    disk_mib: int
    cpus: int
    own_memory_mib: int = 0
    is_on: bool = True
    is_frozen: bool = False
    has_daemon: bool = True
    slowness: float = 1.0
    helper: Helper = Helper.HONEST
    boots: int = 1
    diagnosis: dict[str, Any] = dataclasses.field(
        default_factory=lambda: {"status": "Ok"}
    )
    forges: bool = False
    repairs: bool = True
    starts: bool = True
    has_heartbeat: bool = False
    clock_off_s: float = 0.0
    load: float | None = 0.0
    is_full: bool = False

    @property
    def boot_id(self) -> str:
        """The id of its present boot."""
        return f"{self.name}/{self.boots}"

    @property
    def is_awake(self) -> bool:
        """Whether it computes."""
        return self.is_on and not self.is_frozen


class Guest(NamedTuple):
    """A running guest."""

    instance: str
    machine: str
    memory_mib: int
    vcpus: int


class Disk(NamedTuple):
    """A disk: uuid and names of the machines with a copy."""

    uuid: str
    machines: tuple[str, ...]
    size_mib: int


class Hardware:
    """All machines.

    Attributes:
        machines: by name.
        version: number of changes.
        guests: (instance, machine) -> guest.
        cuts: pairs (from, to) of machines between which no packet arrives.
        on_note: called with an object and a text when something visible happens.
        on_twice: called with the instance that runs on two machines, and these.
        powered_off: (time, machine) of helpers that switched a machine off.
    """

    def __init__(self, machines: Sequence[Machine], now: Callable[[], float]) -> None:
        self.machines = {machine.name: machine for machine in machines}
        self.version = 0
        self.guests: dict[tuple[str, str], Guest] = {}
        self._on_machine: dict[str, dict[str, Guest]] = {
            machine.name: {} for machine in machines
        }
        #: The guests of a machine by name, until they change.
        self._sorted: dict[str, tuple[Guest, ...]] = {}
        self._places: dict[str, set[str]] = {}
        self._memory: collections.Counter[str] = collections.Counter()
        #: (machine, uuid of the disk) -> MiB that it takes there.
        self._disks: dict[tuple[str, str], int] = {}
        self._space: collections.Counter[str] = collections.Counter()
        self.cuts: set[tuple[str, str]] = set()
        self.powered_off: list[tuple[float, str]] = []
        self.on_note: Callable[[str, str], None] = _ignore
        self.on_twice: Callable[[str, Sequence[str]], None] = _ignore
        self._now = now
        #: (disk, machine) -> end of its copying; infinity while it is cut off.
        self._stale: dict[tuple[str, str], float] = {}

    # Network
    def reaches(self, source: str, target: str) -> bool:
        """Return whether a machine gets answers from another one."""
        if not (self._is_awake(source) and self._is_awake(target)):
            return False
        # An answer needs the way back, too.
        pairs = {(source, target), (target, source)}
        return source == target or not pairs & self.cuts

    def _is_awake(self, name: str) -> bool:
        machine = self.machines.get(name)
        return machine is not None and machine.is_awake

    def answers(self, source: str, target: str) -> bool:
        """Return whether the node daemon of a machine answers another one."""
        return self.reaches(source, target) and self.machines[target].has_daemon

    def cut(self, name: str, others: Sequence[str], direction: str) -> None:
        """Let no packets through between a machine and others.

        Args:
            name: of the machine.
            others: names of the others.
            direction: ``in``, ``out`` or ``both``, seen from the machine.
        """
        for other in others:
            if direction in ("out", "both"):
                self.cuts.add((name, other))
            if direction in ("in", "both"):
                self.cuts.add((other, name))

    def join(self, name: str) -> None:
        """Mend all cuts of a machine."""
        self.cuts = {pair for pair in self.cuts if name not in pair}

    # Power
    def power_off(self, name: str, why: str) -> None:
        """Take the power; guests and the frozen state are lost."""
        machine = self.machines[name]
        if not machine.is_on:
            return
        machine.is_on = machine.is_frozen = False
        self.on_note(name, f"is off ({why})")
        for guest in self.on_machine(name):
            self._stop(guest, f"lost with {name}")

    def power_on(self, name: str) -> None:
        """Give power; the machine boots, its guests are not started."""
        machine = self.machines[name]
        if machine.is_on:
            return
        machine.is_on, machine.has_daemon = True, True
        machine.boots += 1
        self.on_note(name, "is on")

    def on_machine(self, name: str) -> Sequence[Guest]:
        """Return the guests of a machine, by name."""
        known = self._sorted.get(name)
        if known is None:
            known = self._sorted[name] = tuple(sorted(self._on_machine[name].values()))
        return known

    # Guests
    def places(self, instance: str) -> list[str]:
        """Return the machines that run a guest."""
        return sorted(self._places.get(instance, ()))

    def start(self, guest: Guest) -> bool:
        """Start a guest; return false if there is no memory for it."""
        if (guest.instance, guest.machine) in self.guests:
            return True
        if guest.memory_mib > self.free_memory(guest.machine):
            return False
        self._add(guest)
        self.on_note(guest.instance, f"runs on {guest.machine}")
        places = self.places(guest.instance)
        if len(places) > 1:
            self.on_twice(guest.instance, places)
        return True

    def stop(self, instance: str, machine: str) -> None:
        """Stop a guest."""
        guest = self.guests.get((instance, machine))
        if guest is not None:
            self._stop(guest, "stopped")

    def _stop(self, guest: Guest, why: str) -> None:
        self._drop(guest)
        self.on_note(guest.instance, f"runs no longer on {guest.machine}: {why}")

    def migrate(self, instance: str, source: str, target: str) -> bool:
        """Move a running guest; return whether it has arrived."""
        guest = self.guests.get((instance, source))
        if guest is None or not self.reaches(source, target):
            return False
        if guest.memory_mib > self.free_memory(target):
            return False
        self._drop(guest)
        self._add(guest._replace(machine=target))
        self.on_note(instance, f"has moved from {source} to {target}")
        return True

    def _add(self, guest: Guest) -> None:
        self.version += 1
        self.guests[guest.instance, guest.machine] = guest
        self._on_machine[guest.machine][guest.instance] = guest
        self._sorted.pop(guest.machine, None)
        self._places.setdefault(guest.instance, set()).add(guest.machine)
        self._memory[guest.machine] += guest.memory_mib

    def _drop(self, guest: Guest) -> None:
        self.version += 1
        del self.guests[guest.instance, guest.machine]
        del self._on_machine[guest.machine][guest.instance]
        self._sorted.pop(guest.machine, None)
        self._places[guest.instance].discard(guest.machine)
        self._memory[guest.machine] -= guest.memory_mib

    def free_memory(self, name: str) -> int:
        """Return the free memory of a machine in MiB."""
        machine = self.machines[name]
        return machine.memory_mib - machine.own_memory_mib - self._memory[name]

    # Disks
    def has_disk(self, machine: str, disk: str) -> bool:
        """Return whether a machine has a disk, by its UUID."""
        return (machine, disk) in self._disks

    def disk_mib(self, machine: str, disk: str) -> int:
        """Return the space that a disk takes on a machine."""
        return self._disks.get((machine, disk), 0)

    def put_disk(self, machine: str, disk: str, mib: int) -> None:
        """Have a disk on a machine."""
        self._space[machine] += mib - self.disk_mib(machine, disk)
        self._disks[machine, disk] = mib

    def drop_disk(self, machine: str, disk: str) -> None:
        """Remove a disk from a machine."""
        self._space[machine] -= self._disks.pop((machine, disk), 0)

    def free_space(self, name: str) -> int:
        """Return the free disk space of a machine in MiB."""
        machine = self.machines[name]
        return 0 if machine.is_full else machine.disk_mib - self._space[name]

    # Mirrors
    def mirror_left(self, disk: Disk, machine: str) -> tuple[bool, float | None]:
        """Return whether the copy of a machine is complete, and else what is left.

        What is left is in seconds, None while the machines do not reach each other.
        """
        until = self._stale.get((disk.uuid, machine))
        if until is None:
            return True, None
        left = until - self._now()
        if left <= 0:
            del self._stale[disk.uuid, machine]
            return True, None
        return False, None if left == float("inf") else left

    def note_writes(self, disks: Iterator[tuple[Disk, str]]) -> None:
        """Note that guests have written; copies that are cut off become old.

        Args:
            disks: mirrored disks with the machines where their guests run.
        """
        for disk, place in disks:
            if self._stale.get((disk.uuid, place)) == float("inf"):
                # Its guest runs here, so this copy is the present one now.
                del self._stale[disk.uuid, place]
            for other in disk.machines:
                if other == place:
                    continue
                key = disk.uuid, other
                if not self.reaches(place, other):
                    self._stale[key] = float("inf")
                # It is reached again: what it missed is copied from now on.
                elif self._stale.get(key) == float("inf"):
                    slow = max(self.machines[m].slowness for m in (place, other))
                    left = disk.size_mib / COPY_MIB_S * slow
                    self._stale[key] = self._now() + left

    def begin_copy(self, disk: Disk, machine: str) -> None:
        """Begin to copy a whole disk to a machine that has none of it."""
        slow = max(self.machines[name].slowness for name in disk.machines)
        self._stale[disk.uuid, machine] = (
            self._now() + disk.size_mib / COPY_MIB_S * slow
        )


def _ignore(*_args: Any) -> None:
    """Do nothing."""
