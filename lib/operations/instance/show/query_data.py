"""OP_INSTANCE_QUERY_DATA and OP_INSTANCE_CONSOLE: instances, and how to reach them."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from ganeti.base import errors
from ganeti.base.constants.protocols import nodeverify
from ganeti.decisions.verify import guest_files, mirrors, node_answer
from ganeti.master import locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import consoles, lookup, params
from ganeti.operations import base
from ganeti.operations.instance import common
from ganeti.operations.instance.disks import mirror_records, node_disks, volumes
from ganeti.operations.instance.run import guest_agent
from ganeti.protocols.rpc import Answer, calls, encode
from ganeti.protocols.rpc.answers import BlockDevice, Guest
from ganeti.protocols.ssh import account


def problems(
    ctx: base.Context, running: Sequence[objects.Instance]
) -> dict[str, list[dict[str, Any]]]:
    """Return instance name -> problems, of guests that lack something or are stuck.

    A problem has ``state``, ``text`` and ``command``, which is null if no command mends
    it. There is one call per node; a node without a usable answer names none.

    Args:
        ctx: the operation's.
        running: instances that run.
    """
    snapshot = ctx.snapshot
    concerned = set(guest_files.owners(running))
    asked: dict[str, list[str]] = {}
    for each in running:
        if each.name in concerned:
            asked.setdefault(each.primary_node, []).append(each.name)
    if not asked:
        return {}
    answers = ctx.rpc.call_nodes(
        sorted(asked),
        lambda uuid: calls.node_verify(
            {nodeverify.NV_GUEST_FILES: asked[uuid]}, snapshot.cluster.cluster_name, {}
        ),
    )
    lacking: dict[str, list[dict[str, Any]]] = {}
    for uuid, names in asked.items():
        good, _wrong = node_answer.clean(answers[uuid].payload)
        kinds = good.get(nodeverify.NV_GUEST_FILES, {})
        for name in names:
            node = snapshot.nodes[uuid].name
            if lost := guest_files.losses(name, node, kinds.get(name, ())):
                lacking[name] = [
                    {
                        "state": loss.kind,
                        "text": loss.text,
                        "command": loss.command or None,
                    }
                    for loss in lost
                ]
    return lacking


class InstanceQueryData(base.LogicalUnit[opcodes.InstanceQueryData]):
    """Unit that collects recorded and live data, with one call per node for states."""

    READS_ONLY = True

    @classmethod
    def needs_big_lock(cls, op: opcodes.InstanceQueryData) -> bool:
        """Return whether the caller wants locks; a snapshot can be read at any time."""
        return op.use_locking

    def expand_names(self) -> None:
        """Look the instances up; lock them only if requested."""
        snapshot = self.ctx.snapshot
        if self.op.instances:
            self.uuids = [
                lookup.expand_instance(snapshot, name) for name in self.op.instances
            ]
        else:
            names = snapshot.names("instances")
            self.uuids = [names[name] for name in sorted(names)]
        if self.op.use_locking:
            self.locks.names[locking.Level.INSTANCE] = [
                snapshot.instances[uuid].name for uuid in self.uuids
            ]
            self.locks.shared.add(locking.Level.INSTANCE)

    def execute(self) -> dict[str, dict[str, Any]]:
        """Return instance name -> data."""
        snapshot = self.ctx.snapshot
        self._groups = volumes.PresentGroups(self.ctx)
        instances = [
            snapshot.instances[uuid]
            for uuid in self.uuids
            if uuid in snapshot.instances
        ]
        live = {} if self.op.static else self._live(snapshot, instances)
        running = [
            each
            for each in instances
            if _run_state(live.get(each.primary_node), each.name) == "up"
        ]
        silent = {uuid for uuid, known in live.items() if known is None}
        # Few instances have these members.
        further: dict[str, Mapping[str, Any]] = {
            "silent_node": {
                each.name: snapshot.nodes[each.primary_node].name
                for each in instances
                if each.primary_node in silent and not each.forthcoming
            },
            "guest_addresses": guest_agent.addresses(self.ctx, running),
            "problems": problems(self.ctx, running),
        }
        return {
            instance.name: self._describe(snapshot, instance, live)
            | {
                member: values[instance.name]
                for member, values in further.items()
                if instance.name in values
            }
            for instance in instances
        }

    def _live(
        self, snapshot: objects.Snapshot, instances: Sequence[objects.Instance]
    ) -> dict[str, Mapping[str, Guest] | None]:
        """Return node uuid -> {instance name: info}, None if a node does not answer."""
        nodes = sorted({instance.primary_node for instance in instances})
        kinds = sorted({instance.hypervisor for instance in instances})
        full = {kind: snapshot.cluster.hvparams.get(kind, {}) for kind in kinds}
        results = self.ctx.rpc.call_nodes(nodes, calls.all_instances_info(kinds, full))
        return {
            uuid: None if result.failed else result.payload
            for uuid, result in results.items()
        }

    def _describe(
        self,
        snapshot: objects.Snapshot,
        instance: objects.Instance,
        live: Mapping[str, Mapping[str, Guest] | None],
    ) -> dict[str, Any]:
        primary = snapshot.nodes[instance.primary_node]
        group = snapshot.nodegroups[primary.group]
        state = None
        if not self.op.static:
            known = live.get(primary.uuid)
            state = _run_state(known, instance.name)
        if instance.forthcoming:
            state = None if self.op.static else "down"
        secondaries = [snapshot.nodes[u] for u in snapshot.secondary_nodes(instance)]
        unfinished = {"unfinished": True} if instance.is_unfinished else {}
        if instance.is_half_renamed:
            unfinished["half_renamed"] = True
        return (
            unfinished
            | _reserved(instance)
            | {
                "name": instance.name,
                "config_state": instance.admin_state,
                "admin_state_source": instance.admin_state_source,
                "run_state": state,
                "pnode": primary.name,
                "pnode_group_uuid": group.uuid,
                "pnode_group_name": group.name,
                "snodes": [node.name for node in secondaries],
                "snodes_group_uuids": [node.group for node in secondaries],
                "snodes_group_names": [
                    snapshot.nodegroups[node.group].name for node in secondaries
                ],
                "os": instance.os,
                "nics": [_nic(snapshot, nic) for nic in instance.nics],
                "nics_own": [nic.nicparams for nic in instance.nics],
                "disk_template": snapshot.disk_template(instance),
                "diskparams": {
                    template: params.fill_diskparams(snapshot, group.uuid, template)
                    for template in sorted(
                        {d.dev_type for d in snapshot.instance_disks(instance)}
                    )
                },
                "disks": self._disks(snapshot, instance),
                "hypervisor": instance.hypervisor,
                "network_port": instance.network_port,
                "hv_instance": instance.hvparams,
                "hv_actual": params.fill_hvparams(snapshot, instance),
                "be_instance": instance.beparams,
                "be_actual": params.fill_beparams(snapshot, instance),
                "os_instance": instance.osparams,
                "os_actual": params.fill_osparams(snapshot, instance),
                "serial_no": instance.serial_no,
                "mtime": instance.mtime,
                "ctime": instance.ctime,
                "uuid": instance.uuid,
            }
        )

    def _disks(
        self, snapshot: objects.Snapshot, instance: objects.Instance
    ) -> list[dict[str, Any]]:
        return [
            self._disk(snapshot, instance, disk)
            for disk in snapshot.instance_disks(instance)
        ]

    def _disk(
        self, snapshot: objects.Snapshot, instance: objects.Instance, disk: objects.Disk
    ) -> dict[str, Any]:
        *others, primary = node_disks.nodes_of(disk, instance)
        nodes = [primary, *others[:1]]
        answers = [self._ask(snapshot, instance, disk, node) for node in nodes]
        described = self._described(snapshot, instance, disk)
        if described["drbd_info"] is not None and not self.op.static:
            ends = [
                (snapshot.nodes[node].name, _row(answer))
                for node, answer in zip(nodes, answers, strict=True)
            ]
            described["drbd_info"]["problem"] = self._problem(
                snapshot, instance, disk, ends
            )
        return (
            described
            | _statuses(answers)
            | {
                "children": [
                    self._described(snapshot, instance, child)
                    | _statuses(
                        [self._ask(snapshot, instance, child, node) for node in nodes]
                    )
                    for child in disk.children
                ],
            }
        )

    def _problem(
        self,
        snapshot: objects.Snapshot,
        instance: objects.Instance,
        disk: objects.Disk,
        ends: Sequence[tuple[str, Sequence[Any] | None]],
    ) -> dict[str, Any] | None:
        """Return the problem of a mirror, the primary node first; None without one."""
        if disk.forthcoming or not instance.disks_active:
            return None
        problem = mirrors.find(instance.name, instance.disks.index(disk.uuid), *ends)
        if problem is None:
            return None
        problem = mirrors.with_groups(snapshot, problem, disk, self._groups.lacks)
        return {
            "state": str(problem.state),
            "text": problem.text,
            "command": problem.command or None,
        }

    def _ask(
        self,
        snapshot: objects.Snapshot,
        instance: objects.Instance,
        disk: objects.Disk,
        node: str,
    ) -> Answer[BlockDevice | None] | None:
        if disk.forthcoming or snapshot.nodes[node].offline or self.op.static:
            return None
        wire = encode.disk(snapshot, disk, instance)
        return self.ctx.rpc.call_node(node, calls.blockdev_find(wire))

    def _described(
        self, snapshot: objects.Snapshot, instance: objects.Instance, disk: objects.Disk
    ) -> dict[str, Any]:
        is_mirror = mirror_records.is_mirror(disk)
        address: list[Any] = list(disk.logical_id)
        if is_mirror:
            # The secret of the nodes is nobody else's.
            address[5:] = [None]
        return {
            "iv_name": disk.iv_name,
            "dev_type": disk.dev_type,
            "logical_id": address,
            "drbd_info": _mirror_info(snapshot, instance, disk) if is_mirror else None,
            "pstatus": None,
            "sstatus": None,
            "children": [],
            "mode": disk.mode,
            "size": disk.size,
            "spindles": disk.spindles,
            "params": dict(disk.params or {}),
            "name": disk.name,
            "uuid": disk.uuid,
        }


def _mirror_info(
    snapshot: objects.Snapshot, instance: objects.Instance, disk: objects.Disk
) -> dict[str, Any]:
    """Return nodes, minors and port, the primary node first."""
    first, second, port, minor, other = disk.logical_id[:5]
    ends = [(first, minor), (second, other)]
    if second == instance.primary_node:
        ends.reverse()
    (primary, primary_minor), (secondary, secondary_minor) = ends
    return {
        "primary_node": snapshot.nodes[primary].name,
        "primary_minor": primary_minor,
        "secondary_node": snapshot.nodes[secondary].name,
        "secondary_minor": secondary_minor,
        "port": port,
        "problem": None,
    }


def _row(answer: Answer[BlockDevice | None] | None) -> tuple[bool, Any] | None:
    """Return an answer as a row of ``blockdev_getmirrorstatus_multi``."""
    if answer is None or answer.offline:
        return None
    if answer.failed:
        return False, answer.fail_msg
    return True, answer.payload


def _statuses(answers: Sequence[Answer[BlockDevice | None] | None]) -> dict[str, Any]:
    """Return the members with the states on the primary and the secondary node."""
    rows = [None if answer is None else _status(answer.payload) for answer in answers]
    return {"pstatus": rows[0], "sstatus": rows[1] if len(rows) > 1 else None}


def _reserved(instance: objects.Instance) -> dict[str, Any]:
    """Return the members that only forthcoming instances have."""
    if not instance.forthcoming:
        return {}
    terms = instance.reservation or objects.Reservation()
    return {
        "forthcoming": True,
        "expires": terms.expires or None,
        "owner": terms.owner,
        "reservation_priority": terms.priority,
    }


def _run_state(known: Mapping[str, Guest] | None, name: str) -> str:
    if known is None:
        return "down"
    info = known.get(name)
    if info is None:
        return "down"
    return "user down" if info.is_shut_down else "up"


def _nic(snapshot: objects.Snapshot, nic: objects.Nic) -> tuple[Any, ...]:
    filled = params.fill_nicparams(snapshot, nic)
    network = snapshot.networks.get(nic.network or "")
    return (
        nic.name,
        nic.uuid,
        nic.ip,
        nic.mac,
        filled["mode"],
        filled["link"],
        filled.get("vlan", ""),
        network.name if network else None,
        objects.to_dict(network) if network else None,
    )


def _status(status: BlockDevice | None) -> list[Any] | None:
    """Return the rows that commands print for a block device's status."""
    return None if status is None else list(msgspec.structs.astuple(status)[:7])


class InstanceConsole(common.InstanceUnit[opcodes.InstanceConsole]):
    """Unit that describes the console of a guest that runs.

    The node only answers whether the guest runs: clients run the described command.
    """

    NEEDS_EXISTING: ClassVar[str] = "it has no console"
    HOOKS_TYPE: ClassVar[str | None] = None

    def expand_names(self) -> None:
        """Declare the instance's lock, shared."""
        super().expand_names()
        self.locks.shared.add(locking.Level.INSTANCE)

    def check_prereq(self) -> None:
        """Refuse if its primary node is offline."""
        self.require_online_primary()

    def execute(self) -> dict[str, Any]:
        """Return the console's kind and address."""
        instance, snapshot = self.instance, self.ctx.snapshot
        if not self.runtime_info():
            state = instance.admin_state
            raise errors.OpExecError(
                f"instance {instance.name}: is not running (marked {state}), so it has"
                " no console"
            )
        node = self.primary
        port = int(params.fill_ndparams(snapshot, node)["ssh_port"])
        host = account.console_host(self.ctx.paths, node.name, node.primary_ip, port)
        hvparams = params.fill_hvparams(snapshot, instance)
        described: dict[str, Any] = msgspec.to_builtins(
            consoles.describe(instance, hvparams, host)
        )
        return described
