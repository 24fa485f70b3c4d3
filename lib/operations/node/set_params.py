"""OP_NODE_SET_PARAMS: roles, capabilities, addresses and parameters of a node."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import hooks
from ganeti.base.constants.protocols import oob as constants
from ganeti.base.errors import refusal
from ganeti.base.text import messages
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations import candidate_role
from ganeti.operations.base import ALL, Context, LogicalUnit
from ganeti.operations.network import pools
from ganeti.operations.node import checks, death, oob, role
from ganeti.operations.parameters import state_params, typed_params
from ganeti.protocols.rpc import calls

# Checks for a new secondary address of a node.


def check_secondary(
    ctx: Context, node: objects.Node, address: str, *, force: bool
) -> None:
    """Check a new secondary address of a node.

    Raises:
        OpPrereqError: homing, mirrored instances, or the node do not allow it.
    """
    snapshot = ctx.snapshot
    new = node.replace(secondary_ip=address)
    _check_unused(snapshot, new)
    _check_homing(ctx, node, new, force=force)
    _check_instances(snapshot, node)
    answer = ctx.rpc.call_node(node.uuid, calls.node_has_ip_address(address))
    if node.offline:
        ctx.log.warn(
            f"node {node.name} is offline, so it is not checked that it has {address}"
        )
        return
    if not answer.require("cannot check the secondary address", ecodes.ECODE_ENVIRON):
        raise errors.OpPrereqError(
            f"node {node.name}: does not have the address {address}",
            ecodes.ECODE_ENVIRON,
        )
    checks.reachable_secondary(ctx, new)


def _check_unused(snapshot: objects.Snapshot, new: objects.Node) -> None:
    for other in snapshot.nodes.values():
        if other.uuid != new.uuid and new.secondary_ip in (
            other.primary_ip,
            other.secondary_ip,
        ):
            raise errors.OpPrereqError(
                f"node {new.name}: address {new.secondary_ip} is used by node"
                f" {other.name}",
                ecodes.ECODE_NOTUNIQUE,
            )


def _check_homing(
    ctx: Context, node: objects.Node, new: objects.Node, *, force: bool
) -> None:
    snapshot = ctx.snapshot
    if checks.is_single_homed(node) == checks.is_single_homed(new):
        return
    if node.uuid != snapshot.cluster.master_node:
        checks.same_homing(snapshot, new)
        return
    if not force:
        raise refusal(
            f"node {node.name}: is the master; changing the homing of the whole"
            " cluster needs force"
        )
    ctx.log.warn(
        "the master changes between one and two addresses",
        hint="change the secondary addresses of all other nodes too",
    )


def _check_instances(snapshot: objects.Snapshot, node: objects.Node) -> None:
    held = snapshot.primary_instances(node.uuid) | snapshot.secondary_instances(
        node.uuid
    )
    mirrored = [
        instance
        for uuid in held
        if snapshot.secondary_nodes(instance := snapshot.instances[uuid])
    ]
    if node.offline and mirrored:
        raise errors.OpPrereqError(
            f"node {node.name}: is offline and mirrors {len(mirrored)} instance(s),"
            " so its secondary address cannot change",
            ecodes.ECODE_STATE,
        )
    running = sorted(item.name for item in mirrored if item.admin_state == "up")
    if running:
        raise errors.OpPrereqError(
            f"node {node.name}: instances {', '.join(running)} must be down to change"
            " its secondary address",
            ecodes.ECODE_STATE,
        )


#: Seconds that a helper has to report the power state.
_POWER_STATUS_S: Final = 60


class NodeSetParams(LogicalUnit[opcodes.NodeSetParams]):
    """Unit that changes a node; the result lists [what, new value]."""

    HOOKS_PATH = "node-modify"
    HOOKS_TYPE = hooks.HTYPE_NODE

    def check_arguments(self) -> None:
        """Check that there is a change, and that flags do not contradict."""
        op = self.op
        flags = {
            "offline": op.offline,
            "drained": op.drained,
            "master_candidate": op.master_candidate,
        }
        given = [
            *flags.values(),
            op.master_capable,
            op.vm_capable,
            op.secondary_ip,
            op.ndparams,
            op.hv_state,
            op.disk_state,
            op.powered,
        ]
        if not any(value is not None for value in given):
            raise self.prereq(f"node {op.node_name}: no changes requested")
        flags_set = sorted(name for name, value in flags.items() if value)
        if len(flags_set) > 1:
            raise self.prereq(
                f"node {op.node_name}: at most one of offline, drained and"
                f" master_candidate can be set, found {', '.join(flags_set)}"
            )
        if op.secondary_ip is not None:
            checks.ipv4(op.secondary_ip, f"node {op.node_name}: secondary address")
        self.ndparams = checks.node_parameters(op.ndparams)

    # Locks
    def expand_names(self) -> None:
        """Lock the node and its resources, or all nodes if others may be promoted.

        A dead node must not wait for jobs of other nodes. The master daemon promotes
        others in its place, see `ganeti.daemons.masterd.duties.candidate_rights`.
        """
        self.uuid = lookup.expand_node(self.ctx.snapshot, self.op.node_name)
        self.promotes = (
            self.op.auto_promote and self._might_demote() and not self.op.node_death
        )
        names = ALL if self.promotes else [self.uuid]
        self.locks.names[Level.NODE] = names
        self.locks.names[Level.NODE_RES] = names
        if self.op.secondary_ip is not None:
            self.locks.shared.add(Level.INSTANCE)
            self.locks.names[Level.INSTANCE] = self._mirrored()

    def _might_demote(self) -> bool:
        op = self.op
        return (
            op.master_candidate is False
            or bool(op.offline)
            or bool(op.drained)
            or op.master_capable is False
        )

    def _mirrored(self) -> list[str]:
        snapshot = self.ctx.snapshot
        held = snapshot.primary_instances(self.uuid) | snapshot.secondary_instances(
            self.uuid
        )
        return sorted(
            instance.name
            for uuid in held
            if snapshot.secondary_nodes(instance := snapshot.instances[uuid])
        )

    # Hooks
    def hooks_env(self) -> Mapping[str, Any]:
        """Return the requested flags; None means no change."""
        op = self.op
        return {
            "OP_TARGET": self.ctx.snapshot.nodes[self.uuid].name,
            "MASTER_CANDIDATE": op.master_candidate,
            "OFFLINE": op.offline,
            "DRAINED": op.drained,
            "MASTER_CAPABLE": op.master_capable,
            "VM_CAPABLE": op.vm_capable,
        }

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return master and node, for both phases; a dead node runs nothing."""
        others = () if self.op.node_death else (self.uuid,)
        nodes = self.with_master(others)
        return nodes, nodes

    # Checks
    def check_prereq(self) -> None:
        """Compute the new roles and check that they are possible."""
        snapshot = self.ctx.snapshot
        if self.uuid not in snapshot.nodes:
            raise self.prereq(
                f"node {self.op.node_name}: was removed while the job waited for locks",
                ecodes.ECODE_NOENT,
            )
        self.node = snapshot.nodes[self.uuid]
        if self.op.node_death:
            death.check(self.ctx, self.node)
            self._check_off()
            death.check_heartbeat(self.ctx, self.node)
        elif self.op.offline and not self.node.offline:
            death.check_guests(self.ctx, self.node, self.op.reason)
        if self.op.secondary_ip is not None:
            missing = set(self._mirrored()) - self.ctx.locks.owned(Level.INSTANCE)
            if missing:
                raise self.prereq(
                    f"node {self.node.name}: instances {messages.some(missing)}"
                    " were added while the job waited for locks, retry",
                    ecodes.ECODE_STATE,
                )
        self.request = role.RoleRequest(
            offline=self.op.offline,
            drained=self.op.drained,
            master_candidate=self.op.master_candidate,
            master_capable=self.op.master_capable,
            vm_capable=self.op.vm_capable,
            powered=self.op.powered,
        )
        self.plan = role.plan(
            snapshot,
            self.node,
            self.request,
            has_oob=checks.supports_oob(snapshot, self.node),
            auto_promote=self.op.auto_promote,
        )
        self._check_comes_online()
        self._check_parameters()
        if self.op.secondary_ip not in (None, self.node.secondary_ip):
            check_secondary(
                self.ctx, self.node, self.op.secondary_ip or "", force=self.op.force
            )

    def _check_off(self) -> None:
        """Refuse unless the helper reports that the node is off at this moment.

        The earlier confirmation may be hours old when the locks are free. While this
        job holds the lock of the node, no instance starts on it.
        """
        ((value, problem),) = oob.run_helpers(
            self.ctx, [self.uuid], constants.OOB_POWER_STATUS, _POWER_STATUS_S
        ).values()
        if problem or value.get(constants.OOB_POWER_STATUS_POWERED) is not False:
            raise self.prereq(
                f"node {self.node.name}: its helper does not confirm that it is off"
                + (f": {problem}" if problem else ""),
                ecodes.ECODE_STATE,
            )

    def _check_comes_online(self) -> None:
        """Refuse to use an offline node again that does not answer."""
        if not (self.node.offline and not self.plan.node.offline):
            return
        if not self.ctx.tcp_ping(self.node.primary_ip, checks.noded_port(), None):
            raise self.prereq(
                f"node {self.node.name}: does not answer at {self.node.primary_ip}; use"
                " gnt-node add --readd if it was reinstalled",
                ecodes.ECODE_STATE,
            )
        self.ctx.log.warn(
            f"node {self.node.name} goes online without being re-added",
            hint="check that the node is healthy, and run gnt-cluster verify",
        )

    def _check_parameters(self) -> None:
        self.new_ndparams = typed_params.merge(self.node.ndparams, self.ndparams)
        self.new_hv_state = state_params.new_hv_state(
            self.node.hv_state_static, self.op.hv_state
        )
        self.new_disk_state = state_params.new_disk_state(
            self.node.disk_state_static, self.op.disk_state
        )

    # Execution
    def execute(self) -> list[tuple[str, Any]]:
        """Commit the node, then notify the other nodes of its role."""
        for line in self.plan.notes:
            self.ctx.log.info(line)
        new = self._store()
        if new.powered != self.node.powered:
            oob.log_power_change(self.ctx, new)
        # One that was offline may have lost the role in that time.
        may_have_secrets = self.plan.is_demoted or self.node.offline
        if may_have_secrets and not (new.offline or new.master_candidate):
            candidate_role.demote(self.ctx, self.uuid)
        if not new.offline and checks.OVS_PARAMETERS & self.ndparams.keys():
            checks.configure_ovs(self.ctx, new)
        if self.plan.may_need_others and not self.op.node_death:
            candidate_role.fill_pool(
                self.ctx, ignore=(self.uuid,) if self.plan.is_demoted else ()
            )
        candidate_role.follow(self.ctx, self.node, new)
        return self._changes()

    def _store(self) -> objects.Node:
        new = self.plan.node.replace(
            secondary_ip=self.op.secondary_ip or self.node.secondary_ip,
            ndparams=self.new_ndparams,
            hv_state_static=self.new_hv_state,
            disk_state_static=self.new_disk_state,
        )
        with self.ctx.config.edit(self.ctx.owner) as edit:
            if new.secondary_ip != self.node.secondary_ip:
                pools.reserve_hosts(edit, self.ctx.log, pools.hosts_of(new))
            return edit.update(new)

    def _changes(self) -> list[tuple[str, Any]]:
        rows: list[tuple[str, Any]] = []
        rows.extend(
            (name, value)
            for name, value in sorted(self.ndparams.items())
            if self.op.ndparams
        )
        rows.extend(self.plan.changes)
        if self.op.secondary_ip is not None:
            rows.append(("secondary_ip", self.op.secondary_ip))
        if self.op.hv_state:
            rows.append(("hv_state", self.new_hv_state))
        if self.op.disk_state:
            rows.append(("disk_state", self.new_disk_state))
        return rows
