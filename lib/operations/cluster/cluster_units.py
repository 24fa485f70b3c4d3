"""OP_CLUSTER_*: begin and end of a cluster, name and address, redistribution."""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import daemons, ecodes
from ganeti.base.constants.protocols import hooks
from ganeti.master import config
from ganeti.master.locking import Level
from ganeti.model import opcodes
from ganeti.operations import ancillary_files, candidate_role, master_ip
from ganeti.operations.base import ALL, LogicalUnit
from ganeti.operations.network import pools
from ganeti.operations.node import checks
from ganeti.operations.trust import host_keys


class ClusterPostInit(LogicalUnit[opcodes.ClusterPostInit]):
    """Unit that sets up the master node and runs the hooks of a new cluster."""

    EXCLUSIVE = True
    HOOKS_PATH = "cluster-init"
    HOOKS_TYPE = hooks.HTYPE_CLUSTER

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the cluster's name."""
        return {"OP_TARGET": self.ctx.snapshot.cluster.cluster_name}

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return no nodes for the pre phase, the master for the post phase."""
        return (), (self.ctx.snapshot.cluster.master_node,)

    def execute(self) -> bool:
        """Record the master's certificate and configure its virtual switch."""
        snapshot = self.ctx.snapshot
        master = snapshot.nodes[snapshot.cluster.master_node]
        candidate_role.record_certificate(self.ctx, master)
        checks.configure_ovs(self.ctx, master)
        return True


class ClusterDestroy(LogicalUnit[opcodes.ClusterDestroy]):
    """Unit that deactivates the master IP; the client then stops the daemons.

    The unit runs the hooks itself, on the master: afterwards no daemon is left for it.
    """

    EXCLUSIVE = True
    HOOKS_PATH = "cluster-destroy"
    HOOKS_TYPE = hooks.HTYPE_CLUSTER

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the cluster's name."""
        return {"OP_TARGET": self.ctx.snapshot.cluster.cluster_name}

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return no nodes: `execute` runs the post hooks."""
        return (), ()

    def check_prereq(self) -> None:
        """Check that only the master is left."""
        snapshot = self.ctx.snapshot
        others = len(snapshot.nodes) - 1
        if others:
            raise self.prereq(
                f"cluster {snapshot.cluster.cluster_name}: still has {others} node(s)"
                " besides the master"
            )
        if snapshot.instances:
            raise self.prereq(
                f"cluster {snapshot.cluster.cluster_name}: still has"
                f" {len(snapshot.instances)} instance(s)"
            )

    def execute(self) -> str:
        """Run the hooks, deactivate the address, return the master's uuid."""
        master = self.ctx.snapshot.cluster.master_node
        self.run_post_hooks((master,))
        answer = master_ip.turn_down(self.ctx)
        self.ctx.warn_failed(answer, "cannot deactivate the master IP address")
        return master


class ClusterActivateMasterIp(LogicalUnit[opcodes.ClusterActivateMasterIp]):
    """Unit that activates the master IP on the master node."""

    EXCLUSIVE = True

    def execute(self) -> None:
        """Activate the address."""
        master_ip.turn_up(self.ctx).unwrap("cannot activate the master IP address")


class ClusterDeactivateMasterIp(LogicalUnit[opcodes.ClusterDeactivateMasterIp]):
    """Unit that deactivates the master IP; connections to it break."""

    EXCLUSIVE = True

    def execute(self) -> None:
        """Deactivate the address."""
        master_ip.turn_down(self.ctx).unwrap("cannot deactivate the master IP address")


class ClusterRename(LogicalUnit[opcodes.ClusterRename]):
    """Unit that changes name and master IP together."""

    EXCLUSIVE = True
    HOOKS_PATH = "cluster-rename"
    HOOKS_TYPE = hooks.HTYPE_CLUSTER

    def hooks_env(self) -> Mapping[str, Any]:
        """Return old and new name."""
        return {"OP_TARGET": self.old_name, "NEW_NAME": self.name}

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master for the pre phase, all nodes for the post phase."""
        snapshot = self.ctx.snapshot
        return (snapshot.cluster.master_node,), sorted(snapshot.nodes)

    def check_prereq(self) -> None:
        """Check that the name resolves and is new, and that its address is free."""
        cluster = self.ctx.snapshot.cluster
        self.old_name = cluster.cluster_name
        try:
            self.name, addresses = self.ctx.lookup_host(self.op.name)
        except errors.ResolverError as err:
            raise self.prereq(
                f"cluster name {self.op.name}: does not resolve: {err.args[-1]}",
                ecodes.ECODE_RESOLVER,
            ) from err
        is_v6 = cluster.primary_ip_family != 2
        fitting = [address for address in addresses if (":" in address) == is_v6]
        if not fitting:
            raise self.prereq(
                f"cluster name {self.name}: no address of the cluster's family, found"
                f" {', '.join(addresses) or 'none'}",
                ecodes.ECODE_ENVIRON,
            )
        self.address = fitting[0]
        self._check_new(cluster.cluster_name, cluster.master_ip)

    def _check_new(self, old_name: str, old_address: str) -> None:
        if self.name == old_name and self.address == old_address:
            raise self.prereq(
                f"cluster {old_name}: neither name nor address would change"
            )
        port = daemons.DAEMONS["ganeti-noded"].port or 0
        if self.address != old_address and self.ctx.tcp_ping(self.address, port, None):
            raise self.prereq(
                f"cluster address {self.address}: in use, a node daemon answers there",
                ecodes.ECODE_NOTUNIQUE,
            )

    def execute(self) -> str:
        """Deactivate the old address, commit, activate the new one."""
        master_ip.turn_down(self.ctx).unwrap("cannot deactivate the master IP address")
        try:
            with self.ctx.config.edit(self.ctx.owner) as edit:
                edit.update_cluster(cluster_name=self.name, master_ip=self.address)
                pools.reserve_hosts(edit, self.ctx.log, [(self.address, "the cluster")])
            # Scripts know the nodes' host keys under the cluster's name.
            host_keys.write(self.ctx)
            ancillary_files.redistribute(self.ctx)
        finally:
            answer = master_ip.turn_up(self.ctx)
            if answer.failed:
                self.ctx.log.warn(
                    answer.describe("cannot activate the master IP address"),
                    hint="run gnt-cluster activate-master-ip",
                )
        return self.name


class ClusterRedistConf(LogicalUnit[opcodes.ClusterRedistConf]):
    """Unit that updates the cluster record, which sends configuration and ssconf."""

    def expand_names(self) -> None:
        """Lock groups and nodes."""
        for level in (Level.NODEGROUP, Level.NODE):
            self.locks.names[level] = ALL
            self.locks.shared.add(level)

    def check_prereq(self) -> None:
        """Refuse a list of the administrator that has mistakes."""
        sets = ancillary_files.file_sets(self.ctx.snapshot, self.ctx.paths)
        if sets.problems:
            raise errors.OpPrereqError("; ".join(sets.problems), "wrong_input")

    def execute(self) -> None:
        """Send all files, also to nodes that should have them already."""
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.update_cluster()
        ancillary_files.redistribute(self.ctx)
        snapshot = self.ctx.snapshot
        online = sorted(n.uuid for n in snapshot.nodes.values() if not n.offline)
        values = config.ssconf_values(snapshot)
        for answer in ancillary_files.write_ssconf(self.ctx, online, values).values():
            if answer.failed and not answer.offline:
                self.ctx.log.warn(answer.describe("ssconf files were not written"))
