"""OP_GROUP_VERIFY_DISKS: find disks of a group that are missing or not assembled."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base.constants import disks
from ganeti.decisions.verify import mirrors
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.operations.base import LogicalUnit
from ganeti.operations.group.locks import GroupLocks
from ganeti.operations.instance.disks import volumes
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls, encode
from ganeti.protocols.rpc.answers import BlockDevice, DeviceRow

#: Result: node -> problem, instances to activate, instance -> [node, volume] missing.
Result = tuple[dict[str, str], list[str], dict[str, list[list[str]]]]
#: The row of a node that does not answer.
_SILENT: Final = (False, "no answer")
#: Node uuid -> its disks with their instances.
_Expected = Mapping[str, Sequence[tuple[objects.Instance, objects.Disk]]]


class GroupVerifyDisks(GroupLocks, LogicalUnit[opcodes.GroupVerifyDisks]):
    """Unit that checks the disks of instances whose disks should be assembled."""

    READS_ONLY = True

    def expand_names(self) -> None:
        """Lock the group; unless strict, only free locks of its members."""
        self.opportunistic = not self.op.is_strict
        super().expand_names()

    def execute(self) -> Result:
        """Ask each node about its expected disks, then evaluate the answers."""
        snapshot = self.ctx.snapshot
        disks_by_node = self._expected_disks(snapshot)
        if not disks_by_node:
            return {}, [], {}
        answers = self.ctx.rpc.call_nodes(
            sorted(disks_by_node),
            lambda uuid: calls.blockdev_getmirrorstatus_multi(
                [
                    encode.disk(snapshot, disk, owner)
                    for owner, disk in disks_by_node[uuid]
                ]
            ),
        )
        problems: dict[str, str] = {}
        inactive: set[str] = set()
        missing: dict[str, list[list[str]]] = {}
        for uuid, rows in sorted(disks_by_node.items()):
            answer, name = answers[uuid], snapshot.nodes[uuid].name
            if answer.offline:
                continue
            if answer.failed or len(answer.payload) != len(rows):
                problems[name] = answer.fail_msg or "malformed answer"
                continue
            for (owner, disk), (is_known, status) in zip(
                rows, answer.payload, strict=True
            ):
                if is_known and status is None and _can_be_missing(disk):
                    missing.setdefault(owner.name, []).append([name, volume(disk)])
                elif not is_known or _is_inactive(disk, status):
                    inactive.add(owner.name)
        alone, wrong = self._name_problems(snapshot, disks_by_node, answers)
        # An activation is of all disks of an instance.
        return problems, sorted((inactive | alone) - wrong), missing

    def _name_problems(
        self,
        snapshot: objects.Snapshot,
        disks_by_node: _Expected,
        answers: Mapping[str, rpc.Answer[list[DeviceRow]]],
    ) -> tuple[set[str], set[str]]:
        """Log the problems of mirrors.

        Return the instances that activation mends, and those whose guest would go on
        with the wrong data after it.
        """
        by_instance: dict[str, dict[str, list[Any]]] = {}
        for uuid, rows in disks_by_node.items():
            payload = answers[uuid].payload or ()
            known = payload if len(payload) == len(rows) else [_SILENT] * len(rows)
            for (owner, _disk), row in zip(rows, known, strict=True):
                by_node = by_instance.setdefault(owner.uuid, {})
                by_node.setdefault(uuid, []).append(row)
        alone: set[str] = set()
        wrong: set[str] = set()
        groups = volumes.PresentGroups(self.ctx)
        for uuid, by_node in sorted(by_instance.items()):
            instance = snapshot.instances[uuid]
            problems = mirrors.of_instance(snapshot, instance, by_node, groups.lacks)
            for index, problem in problems.items():
                self.ctx.log.message(
                    f"instance {instance.name}: disk/{index}: {problem.line()}"
                )
                if problem.activates:
                    alone.add(instance.name)
                if problem.forbids:
                    wrong.add(instance.name)
        return alone, wrong

    def _expected_disks(
        self, snapshot: objects.Snapshot
    ) -> dict[str, list[tuple[objects.Instance, objects.Disk]]]:
        """Return node uuid -> its disks with their instances."""
        nodes = snapshot.nodes_in_group(self.group) & self.ctx.locks.owned(Level.NODE)
        by_node: dict[str, list[tuple[objects.Instance, objects.Disk]]] = {}
        for name in sorted(self.ctx.locks.owned(Level.INSTANCE)):
            uuid = snapshot.uuid_of("instances", name)
            instance = snapshot.instances[uuid] if uuid else None
            if instance is None or not instance.disks_active:
                continue
            for disk in snapshot.instance_disks(instance):
                for node in self._holders(snapshot, instance, nodes):
                    by_node.setdefault(node, []).append((instance, disk))
        return by_node

    @staticmethod
    def _holders(
        snapshot: objects.Snapshot, instance: objects.Instance, nodes: frozenset[str]
    ) -> Sequence[str]:
        return [
            uuid
            for uuid in snapshot.instance_nodes(instance)
            if uuid in nodes and not snapshot.nodes[uuid].offline
        ]


def _can_be_missing(disk: objects.Disk) -> bool:
    """Return whether a disk without a status has no file or volumes on the node.

    Block devices of other kinds may only have to be activated.
    """
    return disk.dev_type in (*disks.DTS_FILEBASED, *disks.DTS_DRBD)


def _is_inactive(disk: objects.Disk, status: BlockDevice | str | None) -> bool:
    """Return whether an existing disk still has to be assembled.

    A disk file either exists or is missing; block devices have to be activated.
    """
    if disk.dev_type in disks.DTS_FILEBASED:
        return False
    if not isinstance(status, BlockDevice):
        return True
    level = status.ldisk_status or disks.LDS_OK
    if disk.dev_type in disks.DTS_DRBD and status.dev_path:
        # One that is being synchronised is active.
        return level not in (disks.LDS_OK, disks.LDS_SYNCING)
    return level != disks.LDS_OK


def volume(disk: objects.Disk) -> str:
    """Return the name of a disk for users."""
    if disk.children:
        return volume(disk.children[0])
    return "/".join(str(part) for part in disk.logical_id[:2])
