"""Passes over what no incident concerns: repairs of instances, and balance.

A pass follows the decisions about incidents of the round, and takes only nodes that
these leave. Its jobs become part of the round, in one commit with it, so that the death
of the master daemon or of this program leaves no job behind twice.
"""

import dataclasses
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.automation.autorepair.recorder import load
from ganeti.automation.maintenance.diagnoses import (
    LOAD_PATH,
    XEN_LOAD_PATH,
    Diagnosis,
    Place,
    domain_loads_of,
    load_of,
)
from ganeti.automation.maintenance.instances import Advanced
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants.protocols import mond
from ganeti.decisions.htools.model.cluster import DataError
from ganeti.decisions.repair import balancing, rounds
from ganeti.decisions.repair.balancing import Bounds, Step
from ganeti.decisions.repair.duties import ANY_GAIN_FACTOR, Duties
from ganeti.decisions.repair.incidents import MaintenanceState
from ganeti.decisions.repair.journal import Decision, Item
from ganeti.decisions.repair.limits import Act, Automation

_log = logging.getLogger(__name__)

_NANOSECONDS: Final = 1_000_000_000
_REPAIR: Final = "repair instances"

#: Calls a method of the master daemon.
Call = Callable[[str, Sequence[Any]], Any]
#: Returns the reports at a path of agents, and problems; see
#: `ganeti.automation.maintenance.diagnoses`.
Poll = Callable[[Mapping[str, Place], str], tuple[dict[str, Diagnosis], dict[str, str]]]
#: Members of the request of a plan that are about load.
_Loads = Mapping[str, Mapping[str, Any]]
#: Does the next step of instances on nodes with some names.
Repair = Callable[[Collection[str]], Advanced]


class Surroundings(NamedTuple):
    """Input of a pass.

    Attributes:
        cluster: its name.
        nodes: by UUID.
        places: of the agents of all nodes that are not offline, by UUID.
        automation: limits.
        round: UUID of the round.
        doubtful: UUIDs of nodes whose diagnosis cannot be used.
        is_xen: all instances are domains of Xen.
    """

    cluster: str
    nodes: Mapping[str, rounds.NodeView]
    places: Mapping[str, Place]
    automation: Automation
    round: str
    doubtful: AbstractSet[str] = frozenset()
    is_xen: bool = False


class _Unplanned(Exception):
    """Balancing ends in this pass; the text says why."""


class Passes:
    """Plays passes.

    Attributes:
        is_settled: whether the next pass would do nothing, unless something changes.
    """

    def __init__(self, call: Call, loads: Poll, repair: Repair, clock: Clock) -> None:
        """Prepare.

        Args:
            call: calls the master daemon.
            loads: asks the agents for the load of CPUs.
            repair: repairs instances.
            clock: time of passes.
        """
        self._call = call
        self._loads = loads
        self._repair = repair
        self._clock = clock
        self._last: float | None = None
        #: Refusals of the last pass; they hold until the next one.
        self._items: Sequence[Item] = ()
        #: Input of the last plan without a move, and its items.
        self._vain: tuple[tuple[Any, ...], Sequence[Item]] = ((), ())
        self.is_settled = True

    def left_s(self, duties: Duties) -> float | None:
        """Return the seconds until the next pass; None if there is nothing to do."""
        if not (duties.balance or duties.repairs):
            self._last, self._items, self.is_settled = None, (), True
            return None
        self.is_settled = False
        if self._last is None:
            return 0.0
        # A clock of this kind never goes back.
        return max(0.0, self._last + duties.round_delay - self._clock.monotonic())

    def add(
        self, plan: rounds.Plan, duties: Duties, around: Surroundings
    ) -> rounds.Plan:
        """Return the plan of a round with the jobs and decisions of a pass, if due."""
        left_s = self.left_s(duties)
        if left_s is None or plan.is_waiting:
            return plan
        if left_s:
            return _with(plan, items=self._items)
        self._last = self._clock.monotonic()
        self.is_settled = True
        plan, held = self._with_repairs(plan, duties, around)
        items: list[Item] = list(held)
        if duties.balance and not held:
            plan, step = self._with_balance(plan, duties, around)
            items += step
        self._items = [item for item in items if item.decision is not Decision.CHOSEN]
        return _with(plan, items=items)

    # Repairs
    def _with_repairs(
        self, plan: rounds.Plan, duties: Duties, around: Surroundings
    ) -> tuple[rounds.Plan, Sequence[Item]]:
        """Return the plan with the jobs of repairs, without their nodes.

        The automatic repair reports its decisions itself; items say that it cannot.
        """
        if not duties.repairs:
            return plan, ()
        names = {around.nodes[uuid].name for uuid in plan.untouched}
        try:
            done = self._repair(names)
        except (errors.GenericError, DataError, OSError) as err:
            # Incidents must not wait for repairs.
            self._last = None
            _log.warning("repairs of instances: %s", err)
            text = str(err.args[0]) if err.args else str(err)
            return plan, (balancing.nothing(around.cluster, text, action=_REPAIR),)
        jobs = tuple(dict.fromkeys((*plan.state.jobs, *done.jobs)))
        state = msgspec.structs.replace(plan.state, jobs=jobs)
        free = {u for u in plan.free if around.nodes[u].name not in done.nodes}
        return dataclasses.replace(plan, state=state, free=frozenset(free)), ()

    # Balance
    def _with_balance(
        self, plan: rounds.Plan, duties: Duties, around: Surroundings
    ) -> tuple[rounds.Plan, Sequence[Item]]:
        """Return the plan with the jobs of balancing, and the decisions about it."""
        around = self._with_moves(plan, duties, around)
        # No move is allowed where not even a repair is.
        refusal = around.automation.refusal(Act.REPAIR, self._clock.time())
        if refusal is not None:
            return plan, (balancing.nothing(around.cluster, *reversed(refusal)),)
        try:
            free = self._free(plan, around)
            state, fixed, loads = self._loaded(plan.state, duties, around)
            step = self._step(duties, around, free, fixed, loads)
        except _Unplanned as err:
            return plan, (balancing.nothing(around.cluster, str(err)),)
        jobs = [*plan.jobs, *step.jobs]
        return dataclasses.replace(plan, state=state, jobs=jobs), step.items

    def _with_moves(
        self, plan: rounds.Plan, duties: Duties, around: Surroundings
    ) -> Surroundings:
        """Return the limits with the moves that this round has begun."""
        automation = around.automation
        if duties.repairs:
            automation = load(self._call) or automation
        for item in plan.items:
            if item.moves:
                automation = automation.with_move(item.name)
        return around._replace(automation=automation)

    def _free(self, plan: rounds.Plan, around: Surroundings) -> frozenset[str]:
        """Return the names of nodes that balancing may use."""
        answer = self._ask("QueryNodeDeaths", [False])
        dying = {death["node"] for death in answer["state"]["deaths"]}
        free = plan.free - dying - around.doubtful
        return frozenset(around.nodes[uuid].name for uuid in free)

    def _loaded(
        self, state: MaintenanceState, duties: Duties, around: Surroundings
    ) -> tuple[MaintenanceState, tuple[str, ...], _Loads]:
        """Return the state, the instances of unknown load, and the load of nodes.

        The load of an evacuated instance is known when all of the time that a report is
        about comes after its move.

        Raises:
            _Unplanned: a load is not known.
        """
        if not duties.balance_load:
            return msgspec.structs.replace(state, evacuated=()), (), {}
        path = XEN_LOAD_PATH if around.is_xen else LOAD_PATH
        read = domain_loads_of if around.is_xen else load_of
        reports, problems = self._loads(around.places, path)
        loads: dict[str, Any] = {}
        for uuid, place in sorted(around.places.items()):
            report = reports.get(uuid)
            load = None if report is None else read(report.data)
            if load is None:
                why = problems.get(uuid) or "it has no load of the CPUs"
                raise _Unplanned(f"node {place.name}: its load is not used: {why}")
            loads[place.name] = load
        oldest = min((r.timestamp for r in reports.values()), default=0) / _NANOSECONDS
        if oldest - mond.CPUAVGLOAD_WINDOW_SIZE >= state.mtime:
            state = msgspec.structs.replace(state, evacuated=())
        kind = "domain_loads" if around.is_xen else "loads"
        return state, state.evacuated, {kind: loads}

    def _step(
        self,
        duties: Duties,
        around: Surroundings,
        free: frozenset[str],
        fixed: tuple[str, ...],
        loads: _Loads,
    ) -> Step:
        """Plan, unless an earlier plan shows that there is nothing to do.

        Raises:
            _Unplanned: the master daemon cannot plan.
        """
        revision = around.automation.revision
        seen = (revision, free, fixed, duties)
        if not loads and self._vain[0] == seen:
            return Step((), self._vain[1], is_vain=True)
        threshold = duties.balance_threshold
        request = {
            "max_moves": -1,
            "min_gain": threshold,
            "min_gain_limit": _below(ANY_GAIN_FACTOR * threshold),
            "disk_moves": duties.balance_disk_moves,
            "nodes": sorted(free),
            "fixed": list(fixed),
            "first_set": True,
            "skip_silent": True,
            **loads,
        }
        try:
            answer = balancing.read(self._ask("PlanBalance", [request]))
        except msgspec.ValidationError as err:
            raise _Unplanned(f"cannot plan: {err}") from err
        now = self._clock.time()
        bounds = Bounds(around.automation, free, now, around.round)
        step = balancing.decide(answer, duties, bounds)
        self._vain = (seen, step.items) if step.is_vain else ((), ())
        return step

    def _ask(self, method: str, args: Sequence[Any]) -> Any:
        """Call the master daemon.

        Raises:
            _Unplanned: it refuses.
        """
        try:
            return self._call(method, args)
        except (errors.OpPrereqError, errors.RequestError) as err:
            raise _Unplanned(str(err.args[0])) from err


def _below(value: float) -> float:
    """Return the next smaller number: at the limit itself, any gain counts."""
    return math.nextafter(value, -math.inf)


def _with(plan: rounds.Plan, items: Sequence[Item]) -> rounds.Plan:
    return dataclasses.replace(plan, items=[*plan.items, *items])
