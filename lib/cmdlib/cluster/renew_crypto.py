"""OP_CLUSTER_RENEW_CRYPTO: new certificates or SSH keys of the nodes."""

import os
from collections.abc import Mapping
from typing import Final

from ganeti import config, errors, objects, opcodes
from ganeti.cmdlib import candidate_role, node_certificates
from ganeti.cmdlib.base import ALL, LogicalUnit
from ganeti.constants import ecodes
from ganeti.constants import ssh as constants
from ganeti.locking import Level
from ganeti.ssh import keys
from ganeti.utils import files

_LISTED: Final = "master_candidates_certs"
_AGAIN: Final = "run gnt-cluster renew-crypto --new-node-certificates again"


class ClusterRenewCrypto(LogicalUnit[opcodes.ClusterRenewCrypto]):
    """Unit that has each node make its own keys; private keys are never sent.

    The master is the last node in both cases: it keeps its access to the nodes until
    they know its new certificate or key.
    """

    @classmethod
    def can_plan(cls, op: opcodes.Opcode) -> bool:
        """Return false: the unit replaces the master's own certificate directly."""
        del op
        return False

    def expand_names(self) -> None:
        """Lock all nodes."""
        self.locks.names[Level.NODE] = ALL

    def check_prereq(self) -> None:
        """Check that the requested SSH keys can be created."""
        cluster = self.ctx.snapshot.cluster
        if not self.op.renew_ssh_keys:
            return
        if not cluster.modify_ssh_setup:
            raise self.prereq(
                f"cluster {cluster.cluster_name}: SSH keys are not managed, as it was"
                " created with --no-ssh-init",
                ecodes.ECODE_STATE,
            )
        self.key_type = self.op.ssh_key_type or cluster.ssh_key_type
        is_same = self.key_type == cluster.ssh_key_type
        kept = cluster.ssh_key_bits if is_same else None
        self.key_bits = keys.check_type(self.key_type, self.op.ssh_key_bits or kept)

    def execute(self) -> None:
        """Renew certificates, then SSH keys."""
        if self.op.node_certificates:
            self._renew_certificates()
        if self.op.renew_ssh_keys:
            self._renew_ssh_keys()

    # Certificates
    def _renew_certificates(self) -> None:
        snapshot = self.ctx.snapshot
        master = snapshot.cluster.master_node
        others = [
            node
            for uuid, node in sorted(snapshot.nodes.items())
            if uuid != master and not node.offline
        ]
        self._say(f"Creating new certificates on {len(others) + 1} nodes")
        digests, failed = node_certificates.renew(self.ctx, others)
        candidate_digests = {
            uuid: digest
            for uuid, digest in digests.items()
            if snapshot.nodes[uuid].master_candidate
        }
        failed |= self._renew_own(snapshot.nodes[master], candidate_digests)
        if failed:
            text = "; ".join(f"node {name}: {why}" for name, why in failed.items())
            raise errors.OpExecError(f"certificates not renewed: {text}; {_AGAIN}")

    def _renew_own(
        self, master: objects.Node, digests: Mapping[str, str]
    ) -> dict[str, str]:
        """Replace the master's certificate; it is used from the next connection on.

        All nodes accept it before that, in addition to the current one. If one of them
        cannot be reached, the current one stays.

        Returns:
            Node name -> problem.
        """
        path = self.ctx.paths.client_pem
        new_path = f"{path}.tmp"
        made, failed = node_certificates.renew(self.ctx, [master], path=new_path)
        if failed:
            self._record(digests)
            return failed
        digest = made[master.uuid]
        key = master.uuid + constants.CRYPTO_NEXT
        self._record({**digests, key: digest})
        failed = self._send_callers()
        if failed:
            self._record({}, drop=key)
            files.remove_file(new_path)
            return failed
        _keep_and_replace(path, new_path, self.ctx.paths.backup_dir)
        self._record({master.uuid: digest}, drop=key)
        # The daemon sends ssconf anyway; removed callers are refused without that
        # delay.
        for name, text in self._send_callers().items():
            self.ctx.log.warn(f"node {name}: still accepts the old certificate: {text}")
        self._say(f"The master {master.name} uses its new certificate")
        return {}

    def _record(self, digests: Mapping[str, str], drop: str = "") -> None:
        with self.ctx.config.edit(self.ctx.owner) as edit:
            certs = {**edit.snapshot.cluster.candidate_certs, **digests}
            certs.pop(drop, None)
            edit.update_cluster(candidate_certs=certs)

    def _send_callers(self) -> dict[str, str]:
        """Write the callers to all online nodes; return node name -> problem."""
        snapshot = self.ctx.snapshot
        online = sorted(u for u, node in snapshot.nodes.items() if not node.offline)
        listed = config.ssconf_values(snapshot)[_LISTED]
        answers = self.ctx.rpc.call("write_ssconf_files", online, [{_LISTED: listed}])
        return {
            snapshot.nodes[uuid].name: str(answer.fail_msg)
            for uuid, answer in answers.items()
            if answer.failed
        }

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


def _keep_and_replace(path: str, new_path: str, backups: str) -> None:
    if os.path.exists(path):
        files.backup_file(path, backups)
    os.replace(new_path, path)
