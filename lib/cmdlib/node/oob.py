"""OP_OOB_COMMAND: control nodes through their out-of-band helper."""

from collections.abc import Mapping
from typing import Any, Final

from ganeti import opcodes
from ganeti.cmdlib.base import ALL, LogicalUnit
from ganeti.cmdlib.node import checks
from ganeti.constants import ecodes
from ganeti.constants import oob as constants
from ganeti.constants import query as statuses
from ganeti.locking import Level
from ganeti.objects import lookup, params

#: Commands that would stop the master itself.
_DEADLY: Final = (constants.OOB_POWER_OFF, constants.OOB_POWER_CYCLE)
#: command -> power state that is recorded afterwards
_RECORDED: Final = {constants.OOB_POWER_ON: True, constants.OOB_POWER_OFF: False}
Row = list[tuple[int, Any]]


class OobCommand(LogicalUnit[opcodes.OobCommand]):
    """Unit that runs the helper on the master, for one node after the other."""

    def expand_names(self) -> None:
        """Lock the nodes."""
        named = self.op.node_names or self.op.node_uuids
        self.locks.names[Level.NODE] = (
            lookup.expand_nodes(
                self.ctx.snapshot, self.op.node_names, self.op.node_uuids
            )
            if named
            else ALL
        )
        self.is_everybody = not named

    def check_prereq(self) -> None:
        """Refuse to stop the master, or to power off nodes that are not offline."""
        snapshot = self.ctx.snapshot
        command, master = self.op.command, snapshot.cluster.master_node
        nodes = set(self.ctx.locks.owned(Level.NODE)) & set(snapshot.nodes)
        if command in _DEADLY and master in nodes:
            if not self.is_everybody:
                raise self.prereq(self._by_hand(master), ecodes.ECODE_INVAL)
            nodes.discard(master)
        self.nodes = lookup.sort_nodes(snapshot, nodes)
        if command == constants.OOB_POWER_OFF and not self.op.ignore_status:
            for uuid in self.nodes:
                if not snapshot.nodes[uuid].offline:
                    raise self.prereq(
                        f"node {snapshot.nodes[uuid].name}: must be marked offline"
                        " before it is powered off",
                        ecodes.ECODE_STATE,
                    )

    def _by_hand(self, master: str) -> str:
        snapshot = self.ctx.snapshot
        node = snapshot.nodes[master]
        program = params.fill_ndparams(snapshot, node)["oob_program"]
        hint = ""
        if checks.supports_oob(snapshot, node):
            hint = f"; run it by hand: {program} {self.op.command} {node.name}"
        return f"node {node.name}: is the master, {self.op.command} is refused{hint}"

    def execute(self) -> list[Row]:
        """Return name and result per node."""
        rows = []
        for number, uuid in enumerate(self.nodes):
            if number and self.op.command == constants.OOB_POWER_ON:
                self.ctx.pause(self.op.power_delay)
            rows.append(self._one(uuid))
        return rows

    def _one(self, uuid: str) -> Row:
        snapshot = self.ctx.snapshot
        node = snapshot.nodes[uuid]
        row: Row = [(statuses.RS_NORMAL, node.name)]
        if not checks.supports_oob(snapshot, node):
            return [*row, (statuses.RS_UNAVAIL, None)]
        answer = self.ctx.rpc.call_one(
            "run_oob",
            snapshot.cluster.master_node,
            params.fill_ndparams(snapshot, node)["oob_program"],
            self.op.command,
            node.name,
            self.op.timeout,
        )
        problem = answer.fail_msg or payload_problem(self.op.command, answer.payload)
        if problem:
            self.ctx.log.warn(
                f"Out-of-band RPC failed on node '{node.name}': {problem}"
            )
            return [*row, (statuses.RS_NODATA, None)]
        self._note(uuid, answer.payload)
        return [*row, (statuses.RS_NORMAL, answer.payload)]

    def _note(self, uuid: str, payload: Any) -> None:
        node = self.ctx.snapshot.nodes[uuid]
        command = self.op.command
        if command in _RECORDED and node.powered != _RECORDED[command]:
            with self.ctx.config.edit(self.ctx.owner) as edit:
                fresh = edit.snapshot.nodes[uuid]
                edit.update(fresh.replace(powered=_RECORDED[command]))
        elif command == constants.OOB_POWER_STATUS:
            is_powered = payload.get(constants.OOB_POWER_STATUS_POWERED)
            if is_powered is not None and is_powered != node.powered:
                self.ctx.log.warn(
                    f"Recorded power state ({node.powered}) of node '{node.name}' does"
                    f" not match actual power state ({is_powered})"
                )
        elif command == constants.OOB_HEALTH:
            for item, status in payload:
                if status in (
                    constants.OOB_STATUS_WARNING,
                    constants.OOB_STATUS_CRITICAL,
                ):
                    self.ctx.log.warn(
                        f"Item '{item}' on node '{node.name}' has status '{status}'"
                    )


def payload_problem(command: str, payload: Any) -> str | None:
    """Return the problem with the output of a helper, None if there is none."""
    if command == constants.OOB_HEALTH:
        return _health_problem(payload)
    if command == constants.OOB_POWER_STATUS:
        if isinstance(payload, Mapping):
            return None
        return f"expected an object for {command}, found {payload!r}"
    return None if payload is None else f"unexpected output of {command}: {payload!r}"


def _health_problem(payload: Any) -> str | None:
    if not isinstance(payload, (list, tuple)):
        return f"expected a list of health items, found {payload!r}"
    for row in payload:
        if not (isinstance(row, (list, tuple)) and len(row) == len(("item", "status"))):
            return f"expected [item, status], found {row!r}"
        if row[1] not in constants.OOB_STATUSES:
            return f"health item {row[0]!r} has the invalid status {row[1]!r}"
    return None
