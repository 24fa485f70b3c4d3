"""OP_NODE_REMOVE: remove a node from the cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import hooks
from ganeti.base.text import messages
from ganeti.model import opcodes
from ganeti.model.objects import lookup
from ganeti.operations import ancillary_files, candidate_role, post_hooks
from ganeti.operations.base import LogicalUnit
from ganeti.operations.trust import host_keys


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
                " first",
                ecodes.ECODE_INVAL,
            )
        held = {
            "primary": snapshot.primary_instances(self.uuid),
            "secondary": snapshot.secondary_instances(self.uuid),
        }
        for word, uuids in held.items():
            if uuids:
                names = messages.some(snapshot.instances[u].name for u in uuids)
                raise self.prereq(
                    f"node {self.node.name}: is the {word} node of {names}",
                    ecodes.ECODE_INVAL,
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
        post_hooks.run_post(self, (self.uuid,))
        answer = self.ctx.rpc.call_one(
            "node_leave_cluster", self.uuid, cluster.modify_ssh_setup
        )
        if answer.failed:
            self.ctx.log.warn(
                answer.describe("the node did not leave the cluster cleanly")
            )
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.remove_node(self.uuid)
        if self.node.ssh_host_keys:
            host_keys.write(self.ctx)
        if cluster.modify_etc_hosts:
            self.ctx.rpc.call_one(
                "etc_hosts_modify", cluster.master_node, "remove", self.node.name, None
            ).unwrap("cannot update the hosts file on the master")
            ancillary_files.redistribute(self.ctx)
        elif self.node.ssh_host_keys:
            host_keys.announce(self.ctx)
