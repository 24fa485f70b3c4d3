"""One simulation: a described cluster, events, and what becomes of it."""

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from ganeti.decisions.repair import journal
from ganeti.devel.sim import description as descriptions
from ganeti.devel.sim import events as event_forms
from ganeti.devel.sim.automatons import WATCHER_S, Automatons
from ganeti.devel.sim.description import ClusterDescription
from ganeti.devel.sim.events import Event
from ganeti.devel.sim.hardware import Guest, Hardware
from ganeti.devel.sim.invariants import Invariants
from ganeti.devel.sim.leadership import Leadership
from ganeti.devel.sim.master import Master
from ganeti.devel.sim.nodes import mirrors
from ganeti.devel.sim.people import People
from ganeti.devel.sim.scheduler import Scheduler
from ganeti.devel.sim.store import Data
from ganeti.devel.sim.timeline import Line, Timeline
from ganeti.model.objects import Instance
from ganeti.store import Change

#: Begin of simulations, seconds since 1970.
BEGIN: Final = 1_700_000_000.0
#: See `gc.set_threshold`; the values are those of the master daemon.
_GC_THRESHOLDS: Final = 100_000, 20, 50
#: Reports of progress in one simulation.
_PARTS: Final = 100


def _ignore(_seconds: float) -> None:
    """Do nothing."""


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Let the garbage collector run as seldom as in the master daemon.

    The records of a large cluster are never garbage; by default it visits them with
    every second answer to a query.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


class InstanceEnd(msgspec.Struct, frozen=True, kw_only=True):
    """An instance at the end.

    Attributes:
        name: of the instance.
        before: machines that ran it at the begin.
        after: machines that run it at the end.
        primary: its primary node at the end.
        at_s: seconds after the begin at which it last began or ceased to run; None if
            it did neither.
        reason: why it does not run although it should; empty otherwise.
    """

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    primary: str
    at_s: float | None = None
    reason: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a simulation shows.

    Attributes:
        lines: the timeline.
        instances: those that have moved or do not run, by name.
        count: number of instances.
        problems: broken rules; empty unless this software is wrong.
        seconds: simulated time.
    """

    lines: tuple[Line, ...]
    instances: tuple[InstanceEnd, ...]
    count: int
    problems: tuple[str, ...]
    seconds: float


class Simulation:
    """A cluster in virtual time; used once."""

    def __init__(
        self,
        description: ClusterDescription,
        events: Sequence[Event],
        *,
        begin: float = BEGIN,
        skips_idle: bool = True,
    ) -> None:
        """Prepare.

        Args:
            description: the cluster at the begin.
            events: what happens.
            begin: seconds since 1970.
            skips_idle: rounds that would see the state of the last one, in which
                there was nothing to do, are not computed.

        Raises:
            OpPrereqError: the description is wrong, or an event names an object that
                the cluster lacks.
        """
        event_forms.check_names(events, descriptions.names(description))
        self._scheduler = Scheduler(begin)
        snapshot = descriptions.snapshot(description, begin)
        self._data = Data(snapshot)
        self.hardware = Hardware(
            descriptions.machines(description), lambda: self._scheduler.now
        )
        self._fill(description)
        self.timeline = Timeline(self._scheduler.monotonic, snapshot)
        self.invariants = Invariants(
            self.hardware, lambda: self._scheduler.now, snapshot
        )
        self.hardware.on_note = self._note
        self._data.on_commit = self._committed
        self._automatons = Automatons(
            self._scheduler, self.hardware, skips_idle=skips_idle
        )
        self._leadership = Leadership(
            self._scheduler,
            self.hardware,
            self._data,
            servers=descriptions.servers(description),
            # Asked later, since the people are made after it.
            master=lambda: self._people.master,
            start=self._start_master,
            report=self._report_event,
        )
        self._people = People(
            self._scheduler,
            self.hardware,
            self.invariants,
            leadership=self._leadership,
            start_master=self._start_master,
            report=self._report_event,
        )
        self._places = {
            item.name: tuple(self.hardware.places(item.name))
            for item in description.instances
        }
        for event in events:
            self._scheduler.at(event.at_s, functools.partial(self._do, event))
        self._up_since = begin
        #: Name of a machine or an instance -> time of its last change.
        self._changed_at: dict[str, float] = {}

    def _fill(self, description: ClusterDescription) -> None:
        """Put guests and disks on the machines."""
        for record in self._data.snapshot.disks.values():
            for node in record.nodes:
                name = self._data.snapshot.nodes[node].name
                extra = sum(child.size for child in record.children[1:])
                self.hardware.put_disk(name, record.uuid, record.size + extra)
                for child in record.children:
                    self.hardware.put_disk(name, child.uuid, 0)
        for item in description.instances:
            machine = self.hardware.machines[item.primary]
            runs = item.state == "up" if item.runs is None else item.runs
            if runs and machine.is_on:
                self.hardware.start(
                    Guest(item.name, item.primary, item.memory_mib, item.vcpus)
                )

    # Callbacks
    def _report_event(self, name: str, text: str) -> None:
        self.timeline.add("event", name, text)

    def _note(self, name: str, text: str) -> None:
        self._changed_at[name] = self._scheduler.monotonic()
        self.timeline.add("machine", name, text)
        self.invariants.check_fences()
        if name in self.hardware.machines:
            self._leadership.look()

    def _committed(self, changes: Sequence[Change]) -> None:
        self.invariants.take(changes, self._data.snapshot)
        self.timeline.take(changes)

    def _start_master(self) -> None:
        self._up_since = self._scheduler.now
        if self._people.master is not None and not self._people.master.is_dead:
            self.invariants.note_masters(self._people.master.machine())
        self._people.master = Master(self._scheduler, self.hardware, self._data)
        self._automatons.start(self._people.master)

    def _do(self, event: Event) -> None:
        self.timeline.add("event", "simulation", str(event))
        # Guests have written until now with the network as it was, and write on with
        # the new one.
        self._note_writes()
        self._people.do(event)
        self._leadership.look()
        # An event changes machines in ways that count no version, and idle automatons
        # have to look again.
        self.hardware.version += 1
        self._note_writes()

    def _note_writes(self) -> None:
        self.hardware.note_writes(mirrors(self._data.snapshot, self.hardware))

    # Running
    def run(
        self, seconds: float, on_progress: Callable[[float], None] = _ignore
    ) -> Report:
        """Simulate some time; return what happened.

        Args:
            seconds: how long.
            on_progress: called repeatedly with the simulated seconds.
        """
        begin = self._scheduler.now
        with _rare_collections():
            try:
                self._start_master()
                for part in range(1, _PARTS + 1):
                    self._scheduler.run(begin + seconds * part / _PARTS)
                    on_progress(self._scheduler.monotonic())
                self._check_end()
                return self._report(seconds)
            finally:
                # Threads of tasks that nobody ends would wait for their turn until the
                # process ends.
                self._scheduler.close()

    def _check_end(self) -> None:
        master = self._people.master
        # A new master needs some runs of the watcher until the journal has the reasons.
        is_settled = self._scheduler.now - self._up_since > 3 * WATCHER_S
        if master is None or master.is_dead or not is_settled:
            return
        if self.invariants.has_wrong_clock or master.deps.queue.is_drained:
            return
        since = self._scheduler.time() - 2 * WATCHER_S - _SLACK_S
        selection = journal.Selection(since=since, automaton=journal.AUTOREPAIR)
        entries = master.deps.journal.entries(selection)
        self.invariants.check_waits(self._data.snapshot, entries)

    def _report(self, seconds: float) -> Report:
        snapshot = self._data.snapshot
        ends = [
            self._end(record)
            for record in sorted(snapshot.instances.values(), key=lambda r: r.name)
        ]
        return Report(
            lines=tuple(self.timeline.lines),
            instances=tuple(
                end for end in ends if end.before != end.after or end.reason
            ),
            count=len(ends),
            problems=tuple(self.invariants.problems),
            seconds=seconds,
        )

    def _end(self, record: Instance) -> InstanceEnd:
        after = tuple(self.hardware.places(record.name))
        nodes = self._data.snapshot.nodes
        primary = nodes[record.primary_node].name
        is_missing = record.admin_state == "up" and primary not in after
        return InstanceEnd(
            name=record.name,
            before=self._places.get(record.name, ()),
            after=after,
            primary=primary,
            at_s=self._changed_at.get(record.name),
            reason=self._reason(record.name, primary) if is_missing else "",
        )

    def _reason(self, name: str, primary: str) -> str:
        """Return why an instance does not run, as the automatons say."""
        for kind, about in ((journal.INSTANCE, name), (journal.NODE, primary)):
            known = self.timeline.last_items.get((kind, about), {})
            for automaton in _BY_RANK:
                item = known.get(automaton)
                if item is not None and item.decision is not journal.Decision.CHOSEN:
                    why = f": {item.reason}" if item.reason else ""
                    text = f"{automaton}: {item.action} ({about}): {item.decision}{why}"
                    return self.timeline.plain(text)
        if not self.hardware.machines[primary].is_on:
            return f"its node {primary} is off, and no automaton has considered it"
        return "no automaton has considered it"


#: Automatons whose last word explains most, first.
_BY_RANK: Final = (
    journal.AUTOREPAIR,
    journal.MAINTD,
    journal.NODE_DEATH,
    journal.WATCHER,
)
#: Seconds that a run of the watcher may take.
_SLACK_S: Final = 120.0
