"""OP_CLUSTER_RENAME: another name and address for the cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import daemons, ecodes
from ganeti.base.constants.protocols import hooks
from ganeti.model import opcodes
from ganeti.operations import ancillary_files, master_ip
from ganeti.operations.base import LogicalUnit
from ganeti.operations.network import pools
from ganeti.operations.trust import host_keys


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
                hosts = [(self.address, "the cluster")]
                pools.reserve_hosts(edit, self.ctx.log, hosts)
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
