"""OP_NODE_REMOVE, and commands on nodes: power cycle, repair, restricted ones."""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.constants.protocols import hooks
from ganeti.base.text import messages
from ganeti.master.config import topology
from ganeti.master.locking import Level
from ganeti.model import opcodes
from ganeti.model.objects import lookup, params
from ganeti.operations import ancillary_files, candidate_role
from ganeti.operations.base import LogicalUnit
from ganeti.operations.trust import host_keys
from ganeti.protocols.rpc import calls


class NodeRemove(LogicalUnit[opcodes.NodeRemove]):
    """Unit that removes a node without instances."""

    EXCLUSIVE = True
    HOOKS_PATH = "node-remove"
    HOOKS_TYPE = hooks.HTYPE_NODE

    def expand_names(self) -> None:
        """Look the node up; the big lock covers everything else."""
        self.uuid = lookup.expand_node(self.ctx.snapshot, self.op.node_name)
        self.node = self.ctx.snapshot.nodes[self.uuid]

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the node's name."""
        return {"OP_TARGET": self.node.name, "NODE_NAME": self.node.name}

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return all other nodes; `execute` runs the post hooks of the removed one."""
        others = sorted(set(self.ctx.snapshot.nodes) - {self.uuid})
        return others, others

    def check_prereq(self) -> None:
        """Refuse to remove the master or a node with instances."""
        snapshot = self.ctx.snapshot
        if self.uuid == snapshot.cluster.master_node:
            raise self.prereq(
                f"node {self.node.name}: is the master; another node must become it"
                " first"
            )
        held = {
            "primary": snapshot.primary_instances(self.uuid),
            "secondary": snapshot.secondary_instances(self.uuid),
        }
        for word, uuids in held.items():
            if uuids:
                names = messages.some(snapshot.instances[u].name for u in uuids)
                raise self.prereq(
                    f"node {self.node.name}: is the {word} node of {names}"
                )

    def execute(self) -> None:
        """Withdraw keys, remove the record, have the node leave, update the others."""
        cluster = self.ctx.snapshot.cluster
        if cluster.modify_ssh_setup:
            candidate_role.remove_ssh_key(
                self.ctx,
                self.node,
                from_authorized=self.node.master_candidate,
                leaves=True,
            )
        candidate_role.fill_pool(self.ctx, ignore=(self.uuid,))
        self.run_post_hooks((self.uuid,))
        answer = self.ctx.rpc.call_node(
            self.uuid, calls.node_leave_cluster(cluster.modify_ssh_setup)
        )
        self.ctx.warn_failed(answer, "the node did not leave the cluster cleanly")
        with self.ctx.config.edit(self.ctx.owner) as edit:
            topology.remove_node(edit, self.uuid)
        if self.node.ssh_host_keys:
            host_keys.write(self.ctx)
        if cluster.modify_etc_hosts:
            self.ctx.rpc.call_node(
                cluster.master_node,
                calls.etc_hosts_modify("remove", self.node.name, None),
            ).unwrap("cannot update the hosts file on the master")
            ancillary_files.redistribute(self.ctx)
        elif self.node.ssh_host_keys:
            host_keys.announce(self.ctx)


class NodePowercycle(LogicalUnit[opcodes.NodePowercycle]):
    """Unit that has the node daemon reset its node; deliberately takes no locks."""

    def expand_names(self) -> None:
        """Look the node up."""
        self.uuid = lookup.expand_node(self.ctx.snapshot, self.op.node_name)

    def check_prereq(self) -> None:
        """Refuse to reset the master without force."""
        snapshot = self.ctx.snapshot
        if self.uuid == snapshot.cluster.master_node and not self.op.force:
            raise self.prereq(
                f"node {snapshot.nodes[self.uuid].name}: is the master, which can"
                " only be reset with force"
            )

    def execute(self) -> str | None:
        """Call the node, which answers before it resets."""
        cluster = self.ctx.snapshot.cluster
        hypervisor = cluster.enabled_hypervisors[0]
        answer = self.ctx.rpc.call_node(
            self.uuid,
            calls.node_powercycle(
                hypervisor, params.hvparams_for(cluster, hypervisor, "", {})
            ),
        )
        text = answer.unwrap("cannot schedule the reset")
        return str(text) if text else None


class RepairCommand(LogicalUnit[opcodes.RepairCommand]):
    """Unit that runs a repair script; the result is its output."""

    def expand_names(self) -> None:
        """Lock the node."""
        self.uuid = lookup.expand_node(self.ctx.snapshot, self.op.node_name)
        self.locks.names[Level.NODE] = [self.uuid]

    def execute(self) -> str:
        """Run the script."""
        answer = self.ctx.rpc.call_node(
            self.uuid, calls.repair_command(self.op.command, self.op.input)
        )
        return str(answer.unwrap(f"repair command {self.op.command} failed"))


class RestrictedCommand(LogicalUnit[opcodes.RestrictedCommand]):
    """Unit that runs a command on nodes; the result has [ok, output] per node."""

    def check_arguments(self) -> None:
        """Check that nodes are named."""
        if not (self.op.nodes or self.op.node_uuids):
            raise self.prereq("restricted command: no nodes were given")

    def expand_names(self) -> None:
        """Lock the nodes, exclusively if requested."""
        self.nodes = lookup.expand_nodes(
            self.ctx.snapshot, self.op.nodes, self.op.node_uuids
        )
        self.locks.names[Level.NODE] = self.nodes
        if not self.op.use_locking:
            self.locks.shared.add(Level.NODE)

    def execute(self) -> list[tuple[bool, str]]:
        """Run it on all nodes in parallel."""
        answers = self.ctx.rpc.call_nodes(
            self.nodes, calls.restricted_command(self.op.command)
        )
        rows = []
        for uuid in self.nodes:
            answer = answers[uuid]
            if answer.failed:
                rows.append(
                    (
                        False,
                        f"Command on node '{answer.node}' failed: {answer.fail_msg}",
                    )
                )
            else:
                rows.append((True, str(answer.payload)))
        return rows
