"""The automatons of the master, as tasks: watcher, maintenance, deaths of nodes.

They are the loops of ``ganeti-watcher`` and ``ganeti-maintd`` around the same rounds.
The work of the watcher on daemons and files of a node is not simulated, nor are its
checks of disks, which activate disks alone.
"""

import dataclasses
import json
import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

from ganeti.automation.maintenance import diagnoses, instances, node_deaths, service
from ganeti.automation.maintenance.diagnoses import Diagnosis, Place, RefusedError
from ganeti.automation.maintenance.passes import Passes
from ganeti.automation.watcher import effects, group_part, master_part
from ganeti.base import errors, pathutils
from ganeti.base.constants.protocols import confd
from ganeti.base.process import Runner
from ganeti.decisions import watching
from ganeti.decisions.htools.model.cluster import DataError
from ganeti.decisions.repair import journal
from ganeti.decisions.repair.node_death import HOUR_S
from ganeti.devel.sim.hardware import Hardware, Machine
from ganeti.devel.sim.master import Client, Master
from ganeti.devel.sim.scheduler import Scheduler
from ganeti.model import objects
from ganeti.node.collectors import reports
from ganeti.protocols.ssconf import SimpleStore

_log = logging.getLogger(__name__)

#: Seconds between two runs of the watcher, as in the example of its cron job.
WATCHER_S: Final = 300.0
#: Seconds until its first run.
FIRST_WATCHER_S: Final = 20.0
_LOCK_S: Final = 30.0
_ERROR_S: Final = 3.0
_MAINTENANCE_ERROR_S: Final = 30.0
_ARCHIVE_AGE_S: Final = 6 * 3600
_ARCHIVE_S: Final = 60.0
_PORT: Final = 1815
_KEY: Final = b"key of a simulation"
_SUSPENDED: Final = "ganeti:watcher:autorepair:suspend:"
_NANOSECONDS: Final = 1_000_000_000


class GroupState:
    """The state of a group between two runs of the watcher; survives a crash."""

    def __init__(self, boot_ids: Mapping[str, str]) -> None:
        self.state = watching.GroupState({}, boot_ids)
        self.statuses: Mapping[str, str] = {}

    @property
    def is_clean(self) -> bool:
        """Whether no attempts are remembered."""
        return not self.state.instances

    def save(self, state: watching.GroupState) -> None:
        """Replace the state."""
        self.state = state

    def publish(self, statuses: Mapping[str, str], groups: Collection[str]) -> None:
        """Keep the status of each instance."""
        del groups
        self.statuses = statuses


class _Ssconf:
    """The ssconf files of the master, from the configuration."""

    def __init__(self, master: Master) -> None:
        self._master = master

    def master_node(self) -> str:
        """Return the name of the master node."""
        return self._master.machine()

    def nodegroups(self) -> dict[str, str]:
        """Return the names of groups by UUID."""
        groups = self._master.deps.config.snapshot().nodegroups
        return {uuid: group.name for uuid, group in groups.items()}


@dataclasses.dataclass(frozen=True)
class _Watch(effects.Watch):
    """A run of the watcher on the simulated master."""

    files: _Ssconf

    @property
    def ssconf(self) -> SimpleStore:
        """Return the files of the master."""
        return cast("SimpleStore", self.files)


class _Idle:
    """Knows whether the next round of an automaton could see anything new.

    A round without a decision about any object depends on the configuration and on
    what the nodes answer. While neither changes, its repetitions are the same. Times
    matter only to suspensions and to reservations, so clusters with these have no idle
    rounds.
    """

    def __init__(self, master: Master, hardware: Hardware, *, is_used: bool) -> None:
        self._master = master
        self._hardware = hardware
        self._is_used = is_used
        self._seen: tuple[objects.Snapshot, int, int] | None = None
        self._before = self._state()

    def _state(self) -> tuple[objects.Snapshot, int, int]:
        deps = self._master.deps
        return deps.config.snapshot(), self._hardware.version, deps.queue.last_id

    def begin(self) -> bool:
        """Return whether a round has to be computed; note what it sees."""
        self._before = self._state()
        return not self._is_used or self._seen != self._before

    def end(self, automatons: Collection[str]) -> None:
        """Note that a round has ended.

        Args:
            automatons: the names in the journal of those who took part.
        """
        deps = self._master.deps
        is_idle = (
            self._before == self._state()
            and not deps.queue.statistics().unfinished
            and not any(
                entry.items
                for (name, _scope), entry in deps.journal.last.items()
                if name in automatons
            )
            and not _is_timed(self._before[0])
        )
        self._seen = self._before if is_idle else None


def _is_timed(snapshot: objects.Snapshot) -> bool:
    """Return whether time alone can change what automatons have to do."""
    tagged: list[Any] = [snapshot.cluster, *snapshot.nodegroups.values()]
    tagged += snapshot.instances.values()
    return any(
        tag.startswith(_SUSPENDED) for item in tagged for tag in item.tags
    ) or any(item.forthcoming for item in snapshot.instances.values())


class Automatons:
    """The automatons of one cluster; each life of the master daemon has its tasks.

    Attributes:
        states: state of each group for the watcher, by machine and UUID.
    """

    def __init__(
        self, scheduler: Scheduler, hardware: Hardware, *, skips_idle: bool = True
    ) -> None:
        self._skips_idle = skips_idle
        self._scheduler = scheduler
        self._hardware = hardware
        self.states: dict[tuple[str, str], GroupState] = {}
        #: The watcher has run on the first master before the simulation begins.
        self._first_master = ""
        self._boot_ids = {
            m.name: m.boot_id for m in hardware.machines.values() if m.is_on
        }
        self._is_repairing = False

    def start(self, master: Master, first_watcher_s: float = FIRST_WATCHER_S) -> None:
        """Begin the tasks of a master."""
        # The lock of a master daemon that was killed is gone with its process.
        self._is_repairing = False
        master.spawn("watcher", lambda: self._watch(master), first_watcher_s)
        master.spawn("maintenance", lambda: self._maintain(master), 1.0)
        master.spawn("node deaths", lambda: self._watch_lives(master), 1.0)

    @contextmanager
    def _repairing(self, limit_s: float) -> Iterator[None]:
        """Hold the lock of automatic repair.

        Raises:
            LockError: another automaton had it for longer.
        """
        is_free = self._scheduler.sleep_until(lambda: not self._is_repairing, limit_s)
        if not is_free:
            raise errors.LockError("another automaton repairs instances")
        self._is_repairing = True
        try:
            yield
        finally:
            self._is_repairing = False

    # Watcher
    def _watch(self, master: Master) -> None:
        idle = _Idle(master, self._hardware, is_used=self._skips_idle)
        while True:
            begun = self._scheduler.now
            try:
                master.client().call("AutoArchiveJobs", [_ARCHIVE_AGE_S, _ARCHIVE_S])
                if idle.begin():
                    self._watcher_run(master)
                    if all(file.is_clean for file in self.states.values()):
                        idle.end((journal.WATCHER, journal.AUTOREPAIR))
            except (errors.GenericError, DataError) as err:
                _log.warning("watcher: %s", err)
            self._scheduler.sleep(max(1.0, begun + WATCHER_S - self._scheduler.now))

    def _watcher_run(self, master: Master) -> None:
        """Do what ``ganeti-watcher`` does on the master, in the same order."""
        watch = _Watch(
            settings=effects.Settings(verify_disks=False),
            paths=pathutils.Paths(root="/nonexistent", hostname=master.machine()),
            # These rounds run no program.
            process=cast("Runner", None),
            clock=self._scheduler,
            connect=master.client,
            files=_Ssconf(master),
        )
        client = master.client()
        master_part.release_expired(watch, client)
        try:
            with self._repairing(0.0):
                master_part.advance_repairs(client, self._scheduler)
        except errors.LockError as err:
            _log.info("watcher: %s", err)
        for group in sorted(watch.ssconf.nodegroups()):
            group_part.run(watch, group, self._state(master.machine(), group))

    def _state(self, machine: str, group: str) -> GroupState:
        """Return the state of a group in the files of a master."""
        self._first_master = self._first_master or machine
        # The files are those of a machine, so a new master begins without any.
        known = self._boot_ids if machine == self._first_master else {}
        return self.states.setdefault((machine, group), GroupState(known))

    # Maintenance
    def _maintain(self, master: Master) -> None:
        client = master.client()
        passes = Passes(
            client.call,
            lambda places, path: self._poll(master, places, path),
            lambda nodes: self._repair_within(client, nodes),
            self._scheduler,
        )
        maintenance = service.Maintenance(
            client.call,
            lambda places: self._poll(master, places),
            self._scheduler,
            _PORT,
            passes=passes,
        )
        idle, wait_s = _Idle(master, self._hardware, is_used=self._skips_idle), 1.0
        while True:
            try:
                if idle.begin():
                    wait_s = maintenance.round()
                    # A pass that is not due yet comes without any change.
                    if passes.is_settled:
                        idle.end((journal.MAINTD,))
            except errors.GenericError as err:
                _log.warning("maintenance: %s", err)
                wait_s = _MAINTENANCE_ERROR_S
            self._scheduler.sleep(wait_s)

    def _poll(
        self, master: Master, places: Mapping[str, Place], path: str = diagnoses.PATH
    ) -> tuple[dict[str, Diagnosis], dict[str, str]]:
        """Ask simulated agents; their answers are checked as real ones are."""
        good: dict[str, Diagnosis] = {}
        problems: dict[str, str] = {}
        for number, (uuid, place) in enumerate(sorted(places.items())):
            machine = self._hardware.machines[place.name]
            if not self._hardware.reaches(master.machine(), place.name):
                problems[uuid] = "there is no answer: the connection timed out"
                continue
            challenge = f"{number}"
            now = self._scheduler.time()
            data = machine.diagnosis
            if path == diagnoses.LOAD_PATH:
                data = self._load(machine)
            answer = _signed(machine, challenge, now, path, data)
            try:
                good[uuid] = diagnoses.check(
                    answer, _KEY, place.name, challenge, now, path=path
                )
            except RefusedError as err:
                problems[uuid] = str(err)
        return good, problems

    def _load(self, machine: Machine) -> dict[str, Any]:
        """Return the load of a machine, whose guests use their CPUs fully."""
        if machine.load is None:
            return {"error": "not enough samples yet to compute the load"}
        guests = sum(guest.vcpus for guest in self._hardware.on_machine(machine.name))
        return {"cpu_total": machine.load + guests}

    # Deaths of nodes
    def _watch_lives(self, master: Master) -> None:
        client = master.client()
        deaths = node_deaths.NodeDeaths(
            client.call,
            lambda node, since: self._repair_node(client, node, since),
            self._scheduler,
        )
        idle, wait_s = _Idle(master, self._hardware, is_used=self._skips_idle), 1.0
        while True:
            try:
                if idle.begin() or self._is_watched(master):
                    wait_s = deaths.round()
                    idle.end(())
            except (errors.GenericError, DataError, ValueError) as err:
                _log.warning("deaths of nodes: %s", err)
                wait_s = _ERROR_S
            self._scheduler.sleep(wait_s)

    def _is_watched(self, master: Master) -> bool:
        """Return whether time alone can change the state of deaths of nodes."""
        state = master.deps.config.node_deaths.state()
        first = min((when for when, _name in state.fenced), default=None)
        if state.deaths or state.mass_event is not None or self._scheduler.skew_s:
            return True
        return first is not None and not 0 <= self._scheduler.time() - first < HOUR_S

    def _repair_node(
        self, client: Client, node: str, since: float
    ) -> instances.Recovery:
        with self._repairing(_LOCK_S):
            return instances.advance(client, self._scheduler, node, since)

    def _repair_within(
        self, client: Client, nodes: Collection[str]
    ) -> instances.Advanced:
        with self._repairing(0.0):
            return instances.advance_within(client, self._scheduler, nodes)


def _signed(
    machine: Machine, challenge: str, now: float, path: str, data: dict[str, Any]
) -> bytes:
    """Return the answer of a machine's agent."""
    stamp = now + machine.clock_off_s
    report = {
        "name": path.rpartition("/")[2],
        "timestamp": int(stamp * _NANOSECONDS),
        "node": machine.name,
        "challenge": challenge,
        "data": data,
    }
    key = b"another key" if machine.forges else _KEY
    answer = reports.sealed(report, key, stamp, purpose=confd.PURPOSE_REPORT)
    return json.dumps(answer).encode()
