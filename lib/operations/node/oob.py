"""OP_OOB_COMMAND: control nodes through their out-of-band helper."""

import contextlib
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes, query
from ganeti.base.constants.protocols import oob
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup, params
from ganeti.operations.base import ALL, Context, LogicalUnit
from ganeti.operations.node import checks, death, role
from ganeti.protocols.rpc import calls

#: Commands that would stop the master itself.
_DEADLY: Final = (oob.OOB_POWER_OFF, oob.OOB_POWER_CYCLE)
#: command -> power state that is recorded afterwards
_RECORDED: Final = {oob.OOB_POWER_ON: True, oob.OOB_POWER_OFF: False}
_BAD_HEALTH: Final = (oob.OOB_STATUS_WARNING, oob.OOB_STATUS_CRITICAL)
#: Characters of an invalid value that a message shows.
_SHOWN_CHARS: Final = 200
Row = list[tuple[int, Any]]
#: Valid output of a helper and empty, or None and a problem.
Answer = tuple[Any, str]
#: Node uuid -> answer of its helper.
Answers = dict[str, Answer]
_log = logging.getLogger(__name__)


class Lost(str):
    """Problem of a call whose connection broke: its helpers may go on."""

    __slots__ = ()


#: Machines that one node call switches off or resets; their new state is recorded when
#: it ends, so that a crash of the master forgets few.
_SWITCHED: Final = 32
#: The same for machines that are switched on, one after the other.
_SWITCHED_ON: Final = 8
#: Seconds that a node call may take beside its helpers.
_CALL_S: Final = 60.0
#: Longest time limit of a helper, and longest pause between two, in seconds.
_MAX_S: Final = 3600
#: Looks at a machine that is to go off, and seconds between two: some controllers
#: answer before the power is gone.
_LOOKS: Final = 4
_LOOK_S: Final = 5.0
#: Seconds that a node daemon has to answer.
_ANSWER_S: Final = 2.0


class Order(msgspec.Struct, frozen=True):
    """An order to switch nodes off that is under way, for a restarted master daemon.

    Attributes:
        nodes: their uuids.
        candidates: those that were master candidates.
        master: the node that runs their helpers.
    """

    nodes: list[str]
    candidates: list[str]
    master: str


class OobCommand(LogicalUnit[opcodes.OobCommand]):
    """Unit that runs the helpers on the master, for many nodes in parallel.

    Machines are switched on one after the other, with a pause between their starts.
    """

    def check_arguments(self) -> None:
        """Check the times."""
        if not 1 <= self.op.timeout <= _MAX_S:
            raise self.prereq(
                f"timeout: wanted 1 to {_MAX_S} seconds, found {self.op.timeout}"
            )
        delay = self.op.power_delay
        if not (math.isfinite(delay) and 0 <= delay <= _MAX_S):
            raise self.prereq(
                f"power_delay: wanted 0 to {_MAX_S} seconds, found {delay}"
            )
        if self.op.mark_offline and self.op.command != oob.OOB_POWER_OFF:
            raise self.prereq(
                f"mark_offline: only with {oob.OOB_POWER_OFF}, found {self.op.command}"
            )

    def expand_names(self) -> None:
        """Lock the nodes, or all nodes if others may be promoted."""
        op, named = self.op, self.op.node_names or self.op.node_uuids
        self.is_everybody = not named
        self.named = frozenset(
            lookup.expand_nodes(self.ctx.snapshot, op.node_names, op.node_uuids)
            if named
            else ()
        )
        promotes = op.mark_offline and op.auto_promote
        names = sorted(self.named) if named and not promotes else ALL
        self.locks.names[Level.NODE] = names
        if op.mark_offline:
            self.locks.names[Level.NODE_RES] = names

    def check_prereq(self) -> None:
        """Refuse to stop the master, or to power off nodes that are not offline."""
        snapshot = self.ctx.snapshot
        command, master = self.op.command, snapshot.cluster.master_node
        nodes = set(self.ctx.locks.owned(Level.NODE)) & set(snapshot.nodes)
        if not self.is_everybody:
            nodes &= self.named
        if command in _DEADLY and master in nodes:
            if not self.is_everybody:
                raise self.prereq(self._by_hand(master))
            nodes.discard(master)
        self.nodes = lookup.sort_nodes(snapshot, nodes)
        is_free = self.op.ignore_status or self.op.mark_offline
        if command == oob.OOB_POWER_OFF and not is_free:
            for uuid in self.nodes:
                if not snapshot.nodes[uuid].offline:
                    raise self.prereq(
                        f"node {snapshot.nodes[uuid].name}: must be marked offline"
                        " before it is powered off",
                        ecodes.ECODE_STATE,
                    )
        if self.op.node_death:
            for uuid in self.nodes:
                death.check(self.ctx, snapshot.nodes[uuid])
        if self.op.mark_offline and not self.op.auto_promote:
            role.check_pool(snapshot, [snapshot.nodes[uuid] for uuid in self.nodes])

    def _by_hand(self, master: str) -> str:
        snapshot = self.ctx.snapshot
        node = snapshot.nodes[master]
        program = params.oob_program(snapshot, node)
        hint = ""
        if program:
            hint = f"; run it by hand: {program} {self.op.command} {node.name}"
        return f"node {node.name}: is the master, {self.op.command} is refused{hint}"

    def execute(self) -> list[Row]:
        """Return name and result per node."""
        snapshot = self.ctx.snapshot
        able = [
            u for u in self.nodes if checks.supports_oob(snapshot, snapshot.nodes[u])
        ]
        #: Those that a helper may still switch off.
        self.unknown: set[str] = set()
        with contextlib.ExitStack() as stack:
            if self.op.mark_offline:
                candidates = role.candidates_of(snapshot, able)
                order = Order(able, candidates, snapshot.cluster.master_node)
                self.ctx.save_resumption(msgspec.to_builtins(order))
                # Their votes would be missing for the commits that mark them.
                stack.enter_context(role.without_votes(self.ctx, able, self.unknown))
            answers = self._switch_all(able)
        return [
            [
                (query.RS_NORMAL, snapshot.nodes[uuid].name),
                answers.get(uuid, (query.RS_UNAVAIL, None)),
            ]
            for uuid in self.nodes
        ]

    def resume(self) -> list[Row]:
        """Record which nodes a cut order has switched off; the others get votes back.

        Helpers may have outlived the master daemon. The node on which they ran answers
        when they have ended; without its answer, a node does not get its vote back.
        """
        order, nodes = (
            msgspec.convert(self.ctx.resumption, Order),
            self.ctx.snapshot.nodes,
        )
        left = [u for u in order.nodes if u in nodes and not nodes[u].offline]
        where = nodes.get(order.master)
        asker = None if where is None or where.offline else where.uuid
        given: Answers = dict.fromkeys(left, (None, Lost()))
        reports = self._look(given, left, asker)
        results = {u: _proved(given[u], reports[u], wants_proof=True) for u in left}
        results |= self._answering(results)
        self._record([uuid for uuid, (_, problem) in results.items() if not problem])
        unknown = [uuid for uuid in left if reports[uuid][1]]
        role.restore(self.ctx, order.candidates, unknown)
        role.settle(self.ctx, order.candidates, order.nodes)
        if any(problem for _, problem in results.values()):
            raise errors.OpExecError(
                "the master daemon was restarted while nodes were being switched off;"
                " those that are not marked offline may be on: run the command again"
            )
        return [
            [(query.RS_NORMAL, nodes[uuid].name), (query.RS_NORMAL, None)]
            for uuid in order.nodes
            if uuid in nodes
        ]

    def _switch_all(self, able: Sequence[str]) -> dict[str, tuple[int, Any]]:
        answers: dict[str, tuple[int, Any]] = {}
        for index, wave in enumerate(self._waves(able)):
            if index and self._pause_s:
                self.ctx.pause(self._pause_s)
            answers.update(self._switch(wave))
        return answers

    @property
    def _pause_s(self) -> float:
        is_on = self.op.command == oob.OOB_POWER_ON
        return self.op.power_delay if is_on else 0.0

    def _waves(self, able: Sequence[str]) -> list[Sequence[str]]:
        """Return the nodes of each node call, in order."""
        if self.op.command in (oob.OOB_POWER_STATUS, oob.OOB_HEALTH):
            return [able] if able else []
        size = _SWITCHED_ON if self._pause_s else _SWITCHED
        return [able[at : at + size] for at in range(0, len(able), size)]

    def _switch(self, wave: Sequence[str]) -> dict[str, tuple[int, Any]]:
        """Run the helpers of some nodes; record what became of each."""
        results = run_helpers(
            self.ctx, wave, self.op.command, self.op.timeout, self._pause_s
        )
        if self.op.command == oob.OOB_POWER_OFF:
            results = self._confirmed(results)
            if self.op.mark_offline:
                results |= self._answering(results)
        answers: dict[str, tuple[int, Any]] = {}
        done = []
        for uuid, (payload, problem) in results.items():
            name = self.ctx.snapshot.nodes[uuid].name
            answers[uuid] = (query.RS_NORMAL, payload)
            if problem:
                self._failed(name, problem)
                answers[uuid] = (query.RS_NODATA, None)
            else:
                done.append(uuid)
        if self.op.command in _RECORDED:
            self._record(done)
        for uuid in done:
            self._report(self.ctx.snapshot.nodes[uuid], answers[uuid][1])
        return answers

    def _failed(self, name: str, problem: str) -> None:
        """Warn of a node whose helper failed.

        Raises:
            OpExecError: the job is that of a node's death, which waits for a proof.
        """
        if self.op.node_death:
            raise errors.OpExecError(f"node {name}: {problem}")
        self.ctx.log.warn(f"Out-of-band RPC failed on node '{name}': {problem}")
        if self.op.mark_offline:
            self.ctx.log.warn(
                f"Node '{name}' is not marked offline, because nothing proves that it"
                " is off",
                hint=f"if it is, run gnt-node modify --offline=yes {name}",
            )

    def _confirmed(self, results: Answers) -> Answers:
        """Ask the helpers of nodes that were switched off whether these are off.

        A controller may complain about a machine that is off already. One that hangs
        is not asked again.
        """
        wants_proof = self.op.mark_offline or self.op.node_death
        asked = [
            uuid
            for uuid, (_, problem) in results.items()
            if not problem or (wants_proof and problem != oob.OOB_TIMED_OUT)
        ]
        reports = self._look(results, asked)
        self.unknown.update(
            uuid
            for uuid in asked
            if isinstance(results[uuid][1], Lost) and reports[uuid][1]
        )
        return {
            uuid: _proved(result, reports.get(uuid), wants_proof=wants_proof)
            for uuid, result in results.items()
        }

    def _look(
        self, results: Answers, asked: Sequence[str], asker: str | None = None
    ) -> Answers:
        """Ask helpers for power states, and again where an order may have succeeded.

        Args:
            results: of the orders to switch nodes off.
            asked: the nodes.
            asker: the node on which the helpers run, the master if None.
        """
        reports: Answers = {}
        for look in range(_LOOKS):
            if look:
                self.ctx.pause(_LOOK_S)
            command, timeout_s = oob.OOB_POWER_STATUS, self.op.timeout
            reports |= run_helpers(self.ctx, asked, command, timeout_s, asker=asker)
            asked = [
                uuid for uuid in asked if _may_go_off(results[uuid][1], reports[uuid])
            ]
            if not asked:
                break
        return reports

    def _answering(self, results: Answers) -> Answers:
        """Return the nodes that answer although their helpers say that they are off.

        Such a helper switches another machine, so it proves nothing.
        """
        off = [uuid for uuid, (_, problem) in results.items() if not problem]
        answers = (
            self.ctx.rpc.call_nodes(off, calls.version(), timeout_s=_ANSWER_S)
            if off
            else {}
        )
        return {
            uuid: (None, "its helper says that it is off, but its node daemon answers")
            for uuid, answer in answers.items()
            if answer.refused or not answer.is_silent
        }

    def _record(self, done: Sequence[str]) -> None:
        """Store and log the new power state of nodes, in one commit.

        That of a dead node is recorded when it is marked offline, on a later proof.
        """
        if self.op.node_death:
            return
        if self.op.mark_offline:
            new = role.mark(self.ctx, done)
        else:
            is_on = _RECORDED[self.op.command]
            nodes = self.ctx.snapshot.nodes
            changed = [uuid for uuid in done if nodes[uuid].powered != is_on]
            if not changed:
                return
            with self.ctx.config.edit(self.ctx.owner) as edit:
                new = [
                    edit.update(edit.snapshot.nodes[uuid].replace(powered=is_on))
                    for uuid in changed
                ]
        for node in new:
            log_power_change(self.ctx, node)

    def _report(self, node: objects.Node, payload: Any) -> None:
        """Log a power state that differs from the record, and bad health."""
        if self.op.command == oob.OOB_POWER_STATUS:
            if difference := power_difference(node, payload):
                self.ctx.log.warn(difference)
        elif self.op.command == oob.OOB_HEALTH:
            for item, status in payload:
                if status in _BAD_HEALTH:
                    text = f"Item '{item}' on node '{node.name}' has status '{status}'"
                    self.ctx.log.warn(text)
                    _log.warning("%s: %s", self.ctx.owner, text)


def _powered(answer: Answer) -> bool | None:
    """Return the power state in the answer of a helper; None if it has none."""
    payload, problem = answer
    if problem:
        return None
    powered: bool | None = payload.get(oob.OOB_POWER_STATUS_POWERED)
    return powered


def _may_go_off(problem: str, report: Answer) -> bool:
    """Return whether a later power status may show that a machine is off."""
    if isinstance(problem, Lost) and report[1]:
        # The daemon that was cut comes back, or a helper ends.
        return True
    is_ordered = not problem or isinstance(problem, Lost)
    return is_ordered and _powered(report) is True


def _proved(result: Answer, report: Answer | None, *, wants_proof: bool) -> Answer:
    """Return what became of an order to switch off, with a later power status."""
    problem = result[1]
    powered = None if report is None else _powered(report)
    if powered is False and (wants_proof or not problem):
        return (report[0] if report and wants_proof else None), ""
    if problem:
        return None, problem
    if powered:
        return None, "its helper has switched it off, but reports that it is on"
    if wants_proof:
        why = f" ({report[1]})" if report and report[1] else ""
        return None, f"its helper does not confirm that it is off{why}"
    return result


def run_helpers(
    ctx: Context,
    nodes: Sequence[str],
    command: str,
    timeout_s: float,
    pause_s: float = 0.0,
    *,
    asker: str | None = None,
) -> Answers:
    """Run the helpers of nodes on the master, in parallel.

    Args:
        ctx: of the unit.
        nodes: uuids of nodes that have a helper.
        command: see ``oob.protocols.oob``.
        timeout_s: of each helper.
        pause_s: between the starts of two helpers.
        asker: another node to run them on.

    Returns:
        node uuid -> (valid output, empty) or (None, problem), in the given order.
    """
    if not nodes:
        return {}
    snapshot = ctx.snapshot
    records = [snapshot.nodes[uuid] for uuid in nodes]
    # A question waits for the end of earlier orders.
    is_question = command == oob.OOB_POWER_STATUS
    rounds = math.ceil(len(nodes) / oob.OOB_AT_ONCE) + is_question
    place = asker or snapshot.cluster.master_node
    answer = ctx.rpc.call_node(
        place,
        calls.run_oob_many(
            [(params.oob_program(snapshot, node), node.name) for node in records],
            command,
            timeout_s,
            pause_s,
        ),
        timeout_s=_CALL_S + rounds * timeout_s + len(nodes) * pause_s,
    )
    problem = answer.fail_msg
    if problem and answer.is_lost:
        problem = Lost(problem)
    if not problem and len(answer.payload) != len(nodes):
        problem = f"wanted {len(nodes)} results, found {len(answer.payload)}"
    if problem:
        return dict.fromkeys(nodes, (None, problem))
    return {
        uuid: _checked(command, succeeded, value)
        for uuid, (succeeded, value) in zip(nodes, answer.payload, strict=True)
    }


def _checked(command: str, succeeded: bool, value: Any) -> Answer:
    if not succeeded:
        return None, str(value)
    problem = payload_problem(command, value)
    return (None, problem) if problem else (value, "")


def power_difference(node: objects.Node, payload: Mapping[str, Any]) -> str | None:
    """Return how an answer of power-status differs from the record, None if not."""
    is_powered = payload.get(oob.OOB_POWER_STATUS_POWERED)
    if is_powered is None or is_powered == node.powered:
        return None
    return (
        f"Recorded power state ({node.powered}) of node '{node.name}' does not match"
        f" actual power state ({is_powered})"
    )


def log_power_change(ctx: Context, node: objects.Node) -> None:
    """Log a new recorded power state, in the job and in the log of the daemon."""
    state = "on" if node.powered else "off"
    text = f"Node '{node.name}' is now recorded as powered {state}"
    ctx.log.info(text)
    _log.info("%s: %s", ctx.owner, text)


def payload_problem(command: str, payload: Any) -> str | None:
    """Return the problem with the output of a helper, None if there is none."""
    if command == oob.OOB_HEALTH:
        return _health_problem(payload)
    if command == oob.OOB_POWER_STATUS:
        return _status_problem(payload)
    if payload is None:
        return None
    return f"unexpected output of {command}: {_short(payload)}"


def _short(value: Any) -> str:
    """Return a value for a message: it came from a program and can be huge."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def _status_problem(payload: Any) -> str | None:
    if not isinstance(payload, Mapping):
        return f"expected an object for power-status, found {_short(payload)}"
    powered = payload.get(oob.OOB_POWER_STATUS_POWERED)
    if powered is not None and not isinstance(powered, bool):
        return f"expected true or false as 'powered', found {_short(powered)}"
    return None


def _health_problem(payload: Any) -> str | None:
    if not isinstance(payload, (list, tuple)):
        return f"expected a list of health items, found {_short(payload)}"
    for row in payload:
        if not (isinstance(row, (list, tuple)) and len(row) == len(("item", "status"))):
            return f"expected [item, status], found {_short(row)}"
        item, status = row
        if not (isinstance(item, str) and 0 < len(item) <= oob.OOB_ITEM_CHARS):
            return f"invalid name of a health item: {_short(item)}"
        if status not in oob.OOB_STATUSES:
            return f"health item {item!r} has the invalid status {_short(status)}"
    return None
