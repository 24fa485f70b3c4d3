"""Rounds, one after another, over LUXI; and the status for readers."""

import dataclasses
import logging
import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.automation.autorepair.recorder import load
from ganeti.automation.maintenance.diagnoses import Diagnosis, Place, Steady
from ganeti.automation.maintenance.passes import Passes, Surroundings
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants.jobqueue import JOB_STATUS_ERROR, JOB_STATUS_SUCCESS
from ganeti.base.constants.protocols import mond
from ganeti.decisions.repair import rounds
from ganeti.decisions.repair.duties import Duties
from ganeti.decisions.repair.duties import read as read_duties
from ganeti.decisions.repair.incidents import Action, MaintenanceState, as_reported
from ganeti.decisions.repair.journal import MAINTD, JobEnd, Round, first_error
from ganeti.decisions.repair.limits import Automation
from ganeti.decisions.repair.rounds import Move, NodeView, Seen

_log = logging.getLogger(__name__)

_NODE: Final = (
    *("uuid", "name", "pip", "group.uuid", "offline", "drained", "role", "tags"),
)
_INSTANCES: Final = ("uuid", "pinst_list", "sinst_list")
_FINAL: Final = frozenset({"success", "error", "canceled"})
_MASTER: Final = "M"
#: Hypervisors whose guests do not run in the system of the agent.
_XEN: Final = frozenset({"xen-pvm", "xen-hvm"})
#: Seconds until the next round: while there is work, and after an error.
_WORKING_S: Final = 1.0
_ERROR_S: Final = 30.0
_LEAST_S: Final = 1.0
#: Moves that are planned at once.
_MAX_MOVES: Final = 50

#: Calls a method of the master daemon.
Call = Callable[[str, Sequence[Any]], Any]
#: Returns diagnoses and problems; see `ganeti.automation.maintenance.diagnoses`.
Poll = Callable[[Mapping[str, Place]], tuple[dict[str, Diagnosis], dict[str, str]]]


class Maintenance:
    """Plays rounds."""

    def __init__(
        self,
        call: Call,
        poll: Poll,
        clock: Clock,
        port: int,
        *,
        steady: Steady | None = None,
        passes: Passes | None = None,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        """Prepare.

        Args:
            call: calls the master daemon.
            poll: asks the agents.
            clock: time of rounds.
            port: of the agents.
            steady: knows earlier diagnoses; none by default.
            passes: over what no incident concerns; none by default.
            is_late: returns whether a poll went on without some answer.
        """
        self._call = call
        self._poll = poll
        self._clock = clock
        self._port = port
        self._state = MaintenanceState()
        self._steady = steady or Steady()
        self._passes = passes
        self._is_late = is_late
        self._problems: dict[str, str] = {}
        self._is_ending = threading.Event()

    def live(self) -> None:
        """Play rounds until `stop`."""
        wait_s = 0.0
        while not self._clock.wait(self._is_ending, wait_s):
            try:
                wait_s = self.round()
            except (errors.GenericError, OSError) as err:
                _log.warning("this round ended early: %s", err)
                wait_s = _ERROR_S
            except Exception:  # noqa: BLE001 - logged, and the daemon goes on
                _log.exception("this round failed")
                wait_s = _ERROR_S

    def stop(self) -> None:
        """End `live` after the present round."""
        self._is_ending.set()

    def status(self) -> MaintenanceState:
        """Return the state after the last round."""
        return self._state

    def round(self) -> float:
        """Play one round; return the seconds until the next one.

        Raises:
            GenericError: the master daemon does not answer, or refuses.
        """
        known = load(self._call)
        automation = known or Automation()
        state = self._read()
        # Before the nodes: of a job that has ended, the nodes then show the effect.
        ends = self._ends(state.jobs)
        ended = {job: None if e is None else not e.error for job, e in ends.items()}
        info = self._call("QueryClusterInfo", [])
        duties = read_duties(info)
        nodes = self._query(_NODE)
        places = {
            row["uuid"]: Place(row["name"], row["pip"], self._port)
            for row in nodes
            if not row["offline"]
        }
        diagnoses: dict[str, Any] = {}
        problems: dict[str, str] = {}
        if info.get("diagnose_data_collector_filename") or state.incidents:
            diagnoses, problems = self._steady.sift(*self._poll(places))
            self._show({places[each].name: text for each, text in problems.items()})
        views = {row["uuid"]: _view(row) for row in nodes}
        views |= self._with_instances(views, _to_empty(state, diagnoses))
        moves, unplanned = self._moves(state, views)
        number = str(uuid.uuid4())
        seen = Seen(
            now=self._clock.time(),
            nodes=views,
            reports=diagnoses,
            ended=ended,
            moves=moves,
            unplanned=unplanned,
            new_id=lambda: str(uuid.uuid4()),
            round=number,
            unused=problems,
            automation=automation,
        )
        plan = rounds.decide(state, seen)
        if self._passes is not None and known is not None:
            name = str(info.get("name", ""))
            around = Surroundings(
                name, views, places, automation, number, problems.keys(), _is_xen(info)
            )
            plan = self._passes.add(plan, duties, around)
        entry = Round(
            round=number,
            automaton=MAINTD,
            revision=automation.revision,
            items=tuple(plan.items),
            results=()
            if plan.is_waiting
            else tuple(end for _job, end in sorted(ends.items()) if end is not None),
        )
        if plan.state != state or plan.jobs:
            self._commit(state, plan, entry if known is not None else None)
        elif known is not None:
            self._call("RecordRound", [msgspec.to_builtins(entry)])
        for note in plan.notes:
            _log.info("%s", note)
        if plan.is_waiting or plan.jobs:
            return _WORKING_S
        return self._pause_s(info, duties)

    def _pause_s(self, info: Mapping[str, Any], duties: Duties) -> float:
        """Return the seconds until the next round if there is no work."""
        micros = info.get("data_collector_interval", {}).get("diagnose")
        seconds = micros / 1_000_000 if micros else float(mond.MOND_TIME_INTERVAL)
        if self._passes is not None:
            left_s = self._passes.left_s(duties)
            seconds = seconds if left_s is None else min(seconds, left_s)
        if self._is_late():
            # The answer must not be too old by the next round.
            seconds = min(seconds, float(mond.MOND_TIME_INTERVAL))
        return max(_LEAST_S, seconds)

    def _read(self) -> MaintenanceState:
        answer = self._call("QueryMaintenance", [])
        self._state = msgspec.convert(answer, MaintenanceState)
        return self._state

    def _commit(
        self, state: MaintenanceState, plan: rounds.Plan, entry: Round | None
    ) -> None:
        jobs = [
            {"ops": list(job.ops), "incident": job.incident, "is_tag": job.is_tag}
            for job in plan.jobs
        ]
        wanted = msgspec.to_builtins(plan.state)
        args = [state.serial_no, wanted, jobs]
        if entry is not None:
            args.append(msgspec.to_builtins(entry))
        answer = self._call("ChangeMaintenance", args)
        self._state = msgspec.convert(answer, MaintenanceState)

    def _show(self, problems: dict[str, str]) -> None:
        """Log why a node's diagnosis is not used, once."""
        for name, text in problems.items():
            if self._problems.get(name) != text:
                _log.warning("node %s: its diagnosis is not used: %s", name, text)
        self._problems = problems

    def _query(
        self, fields: Sequence[str], qfilter: Sequence[Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return fields of nodes."""
        answer = self._call("Query", ["node", list(fields), qfilter])
        return [
            dict(zip(fields, [value for _status, value in row], strict=True))
            for row in answer["data"]
        ]

    def _with_instances(
        self, views: Mapping[str, NodeView], wanted: Collection[str]
    ) -> dict[str, NodeView]:
        """Return nodes with their instances.

        Raises:
            ProtocolError: one has no answer; without instances it would count as empty.
        """
        present = sorted(set(wanted) & views.keys())
        if not present:
            return {}
        qfilter = ["|", *(["==", "uuid", uuid] for uuid in present)]
        rows = {row["uuid"]: row for row in self._query(_INSTANCES, qfilter)}
        missing = [views[uuid].name for uuid in present if uuid not in rows]
        if missing:
            raise errors.ProtocolError(
                f"node {missing[0]}: no answer about its instances"
            )
        return {
            uuid: dataclasses.replace(
                views[uuid],
                primaries=sorted(rows[uuid]["pinst_list"] or ()),
                secondaries=sorted(rows[uuid]["sinst_list"] or ()),
            )
            for uuid in present
        }

    def _ends(self, jobs: Sequence[int]) -> dict[int, JobEnd | None]:
        """Return the end of each job for the journal, None for one that runs."""
        if not jobs:
            return {}
        answer = self._call("QueryJobs", [list(jobs), ["status", "opresult"]])
        return {
            job: _end(job, *(row or (None, None)))
            for job, row in zip(jobs, answer, strict=True)
        }

    def _moves(
        self, state: MaintenanceState, nodes: Mapping[str, NodeView]
    ) -> tuple[dict[str, Move], dict[str, str]]:
        """Plan moves off the nodes to empty; return them, and why groups have none."""
        groups = {
            node.group
            for item in state.incidents
            if not item.state.is_final
            and item.action in (Action.EVACUATE, Action.EVACUATE_FAILOVER)
            and (node := nodes.get(item.node)) is not None
            and (node.drained or node.offline)
            and (node.primaries or node.secondaries)
        }
        by_name = {node.name: uuid_ for uuid_, node in nodes.items()}
        moves: dict[str, Move] = {}
        unplanned: dict[str, str] = {}
        for group in sorted(groups):
            request = {
                "group": group,
                "evacuate": True,
                "ignore_soft_errors": True,
                "max_moves": _MAX_MOVES,
            }
            try:
                answer = self._call("PlanBalance", [request])
            except errors.OpPrereqError as err:
                # One group must not keep the others from their repairs.
                unplanned[group] = str(err.args[0])
                continue
            for row in [row for part in answer["groups"] for row in part["moves"]]:
                names = {*row["from"], *row["to"]}
                if row["instance"] not in moves and names <= by_name.keys():
                    used = frozenset(by_name[name] for name in names)
                    moves[row["instance"]] = Move(row["instance"], row["opcodes"], used)
        return moves, unplanned


def _end(job: int, status: str | None, results: Any) -> JobEnd | None:
    if status is not None and status not in _FINAL:
        return None
    if status == JOB_STATUS_SUCCESS:
        return JobEnd(job=job, status=status)
    text = first_error(results) or f"ended as {status or 'lost'}"
    return JobEnd(job=job, status=JOB_STATUS_ERROR, error=text)


def _is_xen(info: Mapping[str, Any]) -> bool:
    """Return whether agents report the load of each guest, and only that counts."""
    used = info.get("enabled_hypervisors") or ()
    active = info.get("enabled_data_collectors") or {}
    is_collected = bool(active.get(mond.DATA_COLLECTOR_XEN_CPU_LOAD, True))
    return is_collected and bool(used) and _XEN.issuperset(used)


def _view(row: Mapping[str, Any]) -> NodeView:
    return NodeView(
        uuid=row["uuid"],
        name=row["name"],
        group=row["group.uuid"],
        offline=bool(row["offline"]),
        drained=bool(row["drained"]),
        is_master=row["role"] == _MASTER,
        tags=row["tags"] or (),
    )


def _to_empty(state: MaintenanceState, diagnoses: Mapping[str, Any]) -> set[str]:
    """Return the nodes that a round may empty: those with a fault, known or new."""
    return {item.node for item in state.incidents} | {
        uuid
        for uuid, data in diagnoses.items()
        if not (isinstance(data, Mapping) and data.get("status") == Action.OK)
    }


def incidents_of(state: MaintenanceState) -> list[dict[str, Any]]:
    """Return the incidents as readers see them."""
    return [as_reported(item) for item in state.incidents]
