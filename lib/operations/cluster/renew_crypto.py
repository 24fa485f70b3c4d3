"""OP_CLUSTER_RENEW_CRYPTO: new certificates or SSH keys of the nodes."""

from typing import Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.tls import authority
from ganeti.master.locking import Level
from ganeti.model import opcodes
from ganeti.operations import candidate_role
from ganeti.operations.base import ALL, LogicalUnit
from ganeti.operations.trust import (
    authority_renewal,
    certificate_renewal,
    host_key_renewal,
)
from ganeti.protocols.ssh import keys

_AGAIN: Final = "run gnt-cluster renew-crypto --new-node-certificates again"


class ClusterRenewCrypto(LogicalUnit[opcodes.ClusterRenewCrypto]):
    """Unit that has each node make its own keys; private keys are never sent.

    The master is the last node in both cases: it keeps its access to the nodes until
    they know its new certificate or key.
    """

    @classmethod
    def can_plan(cls, op: opcodes.Opcode) -> bool:
        """Return false: the unit uses answers of nodes that a plan does not have."""
        del op
        return False

    def expand_names(self) -> None:
        """Lock all nodes."""
        self.locks.names[Level.NODE] = ALL

    def check_prereq(self) -> None:
        """Check that the cluster has an authority, and the type of SSH keys."""
        cluster = self.ctx.snapshot.cluster
        if self.op.cluster_certificate and not authority.is_used(
            self.ctx.paths.server_pem
        ):
            raise self.prereq(
                f"cluster {cluster.cluster_name}: all nodes share one certificate; run"
                " gnt-cluster renew-crypto --new-cluster-certificate on the master,"
                " which restarts the daemons",
                ecodes.ECODE_STATE,
            )
        if not self.op.renew_ssh_keys and not self.op.ssh_host_keys:
            return
        if not cluster.modify_ssh_setup:
            raise self.prereq(
                f"cluster {cluster.cluster_name}: SSH keys are not managed, as it was"
                " created with --no-ssh-init",
                ecodes.ECODE_STATE,
            )
        if not self.op.renew_ssh_keys:
            return
        self.key_type = self.op.ssh_key_type or cluster.ssh_key_type
        is_same = self.key_type == cluster.ssh_key_type
        kept = cluster.ssh_key_bits if is_same else None
        self.key_bits = keys.check_type(self.key_type, self.op.ssh_key_bits or kept)

    def execute(self) -> None:
        """Renew certificates, then SSH host keys, then SSH keys of root."""
        if self.op.cluster_certificate:
            authority_renewal.renew(self.ctx, self.ctx.log.message)
        elif self.op.node_certificates:
            self._renew_certificates()
        if self.op.ssh_host_keys:
            host_key_renewal.renew(self.ctx, self._say)
        if self.op.renew_ssh_keys:
            self._renew_ssh_keys()

    # Certificates
    def _renew_certificates(self) -> None:
        failed = certificate_renewal.renew_all(self.ctx, self._say)
        if failed:
            text = "; ".join(f"node {name}: {why}" for name, why in failed.items())
            raise errors.OpExecError(f"certificates not renewed: {text}; {_AGAIN}")

    # SSH keys
    def _renew_ssh_keys(self) -> None:
        snapshot = self.ctx.snapshot
        nodes = sorted(snapshot.nodes.values(), key=lambda node: node.name)
        self._say(f"Creating new SSH keys on {len(nodes)} nodes")
        self.ctx.rpc.call_one(
            "node_ssh_keys_renew",
            snapshot.cluster.master_node,
            [node.uuid for node in nodes],
            [node.name for node in nodes],
            [node.uuid for node in nodes if node.master_candidate],
            candidate_role.potential(snapshot),
            snapshot.cluster.ssh_key_type,
            self.key_type,
            self.key_bits,
        ).unwrap("SSH keys were not renewed everywhere")
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.update_cluster(ssh_key_type=self.key_type, ssh_key_bits=self.key_bits)

    def _say(self, text: str) -> None:
        if self.op.verbose:
            self.ctx.log.message(text)
