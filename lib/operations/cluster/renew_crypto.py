"""OP_CLUSTER_RENEW_CRYPTO: new certificates or SSH keys of the nodes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import ssh
from ganeti.base.tls import authority, x509
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.operations import candidate_role
from ganeti.operations.base import ALL, Context, LogicalUnit
from ganeti.operations.trust import certificates, host_keys
from ganeti.protocols.rpc import calls, wire
from ganeti.protocols.ssh import host_keys as public_keys
from ganeti.protocols.ssh import keys

# New SSH host keys of all online nodes, which can be repeated at any step.
#
# All nodes know a key before an SSH server uses it:
#
# 1. Nodes report the keys that their servers have. These are only data, see
#    `ganeti.protocols.ssh.host_keys`.
# 2. Each node makes new keys, which wait in files of their own.
# 3. The present and the new keys are recorded, and sent to all online nodes in
#    known_hosts. If a node does not confirm that, no key is used.
# 4. The nodes take the new keys into use, and report what their servers present.
# 5. Of nodes that did so, the new keys alone are recorded and sent.
#
# After an end in between, both the present and the new keys of a node are known. A node
# whose keys were not recorded, as in clusters of earlier releases, is known by the
# shared ones until step 3.

Keys = dict[str, tuple[str, ...]]
Failed = dict[str, str]
_HOST_KEYS_AGAIN: Final = (
    "all nodes still accept each other's keys; run gnt-cluster renew-crypto"
    " --new-ssh-host-keys again"
)


def renew_host_keys(ctx: Context, say: Callable[[str], None]) -> None:
    """Give all online nodes new SSH host keys.

    Args:
        ctx: dependencies of the opcode.
        say: reports progress.

    Raises:
        OpExecError: names the nodes that keep their keys, and why.
    """
    online = [
        uuid for uuid, node in sorted(ctx.snapshot.nodes.items()) if not node.offline
    ]
    say(f"Creating new SSH host keys on {len(online)} nodes")
    present, failed = _ask(ctx, online, ssh.CRYPTO_GET)
    made, refused = _ask(ctx, sorted(present), ssh.CRYPTO_MAKE)
    failed |= refused
    made, refused = _without_copies(ctx.snapshot, made)
    failed |= refused
    _record(ctx, {uuid: (*present[uuid], *lines) for uuid, lines in made.items()})
    say("Sending the new keys to all nodes")
    unsent = host_keys.send(ctx)
    if unsent:
        _raise(failed | unsent)
    say("The nodes use their new keys")
    used, refused = _ask(ctx, sorted(made), ssh.CRYPTO_USE)
    failed |= refused
    for uuid, lines in used.items():
        if not set(lines) <= set(made[uuid]):
            name = ctx.snapshot.nodes[uuid].name
            failed[name] = "its SSH server presents other host keys than the new ones"
    names = {uuid: node.name for uuid, node in ctx.snapshot.nodes.items()}
    done = {uuid: made[uuid] for uuid in used if names[uuid] not in failed}
    _record(ctx, done)
    host_keys.announce(ctx)
    _warn_of_offline(
        ctx,
        "keeps its SSH host keys",
        "run gnt-cluster renew-crypto --new-ssh-host-keys when it returns",
    )
    if failed:
        _raise(failed)


def _raise(failed: Failed) -> None:
    text = "; ".join(f"node {name}: {why}" for name, why in sorted(failed.items()))
    raise errors.OpExecError(f"SSH host keys not renewed: {text}; {_HOST_KEYS_AGAIN}")


def _ask(ctx: Context, uuids: Sequence[str], action: str) -> tuple[Keys, Failed]:
    """Have nodes do a step; return their keys by node uuid, and name -> problem."""
    request = calls.node_crypto_tokens([(ssh.CRYPTO_TYPE_SSH_HOST, action, {})])
    answers = ctx.rpc.call_nodes(uuids, request)
    reported: Keys = {}
    failed: Failed = {}
    for uuid, answer in answers.items():
        name = ctx.snapshot.nodes[uuid].name
        if answer.failed:
            failed[name] = str(answer.fail_msg)
            continue
        token = dict(answer.payload).get(ssh.CRYPTO_TYPE_SSH_HOST, "")
        try:
            reported[uuid] = public_keys.checked(token.splitlines())
        except errors.OpPrereqError as err:
            failed[name] = str(err.args[0])
        else:
            if not reported[uuid]:
                del reported[uuid]
                failed[name] = "reports no SSH host keys"
    return reported, failed


def _without_copies(
    snapshot: objects.Snapshot, made: Mapping[str, tuple[str, ...]]
) -> tuple[Keys, Failed]:
    """Leave out new keys that another node has: the node lies, or is a copy of it."""
    known = {
        uuid: {*node.ssh_host_keys, *made.get(uuid, ())}
        for uuid, node in snapshot.nodes.items()
    }
    fresh: Keys = {}
    failed: Failed = {}
    for uuid, lines in made.items():
        owners = [
            snapshot.nodes[other].name
            for other, others in known.items()
            if other != uuid and others.intersection(lines)
        ]
        if owners:
            failed[snapshot.nodes[uuid].name] = (
                f"its new SSH host key is one of node {min(owners)}"
            )
        else:
            fresh[uuid] = lines
    return fresh, failed


def _record(ctx: Context, lines: Mapping[str, Sequence[str]]) -> None:
    """Record the keys of nodes; that of the master is also the cluster's in files."""
    with ctx.config.edit(ctx.owner) as edit:
        for uuid in sorted(lines):
            node = ctx.snapshot.nodes[uuid]
            edit.update(node.replace(ssh_host_keys=tuple(dict.fromkeys(lines[uuid]))))
    snapshot = ctx.snapshot
    if lines and all(node.ssh_host_keys for node in snapshot.nodes.values()):
        own = snapshot.nodes[snapshot.cluster.master_node].ssh_host_keys
        with ctx.config.edit(ctx.owner) as edit:
            edit.update_cluster(rsahostkeypub=public_keys.rsa_body(reversed(own)))


def _warn_of_offline(ctx: Context, kept: str, hint: str) -> None:
    """Warn of offline nodes, which keep what was renewed elsewhere."""
    for node in sorted(ctx.snapshot.nodes.values(), key=lambda item: item.name):
        if node.offline:
            ctx.log.warn(
                f"node {node.name} is offline and {kept}", hint=hint.format(node.name)
            )


# Renewal of the cluster's authority while all daemons work.
#
# All online nodes trust what the next step uses before that step begins:
#
# 1. Candidates get the key of a new authority. No certificate of it exists yet.
# 2. Nodes trust the old and the new authority; the old one issues.
# 3. The new authority issues: it is the first one in ``server.pem`` of all nodes.
# 4. All nodes get new certificates, see `ganeti.operations.trust.certificates`.
# 5. Nodes trust the new authority alone, the master last.
#
# A step begins when all online nodes have confirmed the one before. After an end in
# between, the files of the master show which step it was; all steps can be repeated,
# from any candidate that became master. Until step 5 every node trusts both
# authorities, so nothing is refused. Nodes that are offline keep the old authority,
# which nobody trusts after step 5: they are refused until they are added again.

_AUTHORITY_AGAIN: Final = (
    "every node is still accepted; make the nodes answer, or mark them offline, and run"
    " gnt-cluster renew-crypto --new-cluster-certificate again, which goes on"
)


def renew_authority(ctx: Context, say: Callable[[str], None]) -> None:
    """Replace the authority, or finish a replacement that was cut short.

    Args:
        ctx: dependencies of the opcode.
        say: reports progress.

    Raises:
        OpExecError: a node did not confirm a step.
        X509CertError: this node's files of the authority are damaged.
    """
    files = {"server_pem": ctx.paths.server_pem, "key_path": ctx.paths.server_key_pem}
    issuing = authority.load(**files)
    if len(authority.trusted(ctx.paths.server_pem)) == 1:
        say("Creating a new authority")
        new, old = authority.create(), issuing
    else:
        say("Continuing the renewal of the authority")
        new, old = _both(authority.load_all(**files))
    _send_keys(ctx, [new, old])
    if issuing.digest != new.digest:
        say("All nodes trust the present and the next authority")
        _trust(ctx, [old, new])
    say("The new authority issues certificates")
    _trust(ctx, [new, old])
    _confirm(certificates.renew_all(ctx, say))
    say("The old authority is dropped")
    _trust(ctx, [new], is_master_last=True)
    _send_keys(ctx, [new])
    _warn_of_offline(
        ctx,
        "has the certificate of the old authority, which is not trusted any more",
        "when it returns, run gnt-node add --readd {}",
    )


def _both(pairs: Sequence[x509.Pair]) -> tuple[x509.Pair, x509.Pair]:
    """Return the new and the old authority of a renewal under way."""
    if len(pairs) != 2:
        raise errors.X509CertError(
            f"server-key.pem: wanted the keys of 2 authorities of server.pem, found"
            f" {len(pairs)}; copy this file from another master candidate"
        )
    return pairs[0], pairs[1]


def _confirm(failed: dict[str, str]) -> None:
    if failed:
        text = "; ".join(f"node {name}: {why}" for name, why in failed.items())
        raise errors.OpExecError(f"authority not renewed: {text}; {_AUTHORITY_AGAIN}")


def _online(snapshot: objects.Snapshot) -> list[objects.Node]:
    return [n for _uuid, n in sorted(snapshot.nodes.items()) if not n.offline]


def _send_keys(ctx: Context, pairs: Sequence[x509.Pair]) -> None:
    """Write the keys to all candidates, the newest first."""
    upload = wire.upload(ctx.paths.server_key_pem, ctx.paths)
    upload[1] = wire.pack(authority.keys_pem(pairs))
    snapshot = ctx.snapshot
    uuids = [node.uuid for node in _online(snapshot) if node.master_candidate]
    answers = ctx.rpc.call_nodes(uuids, calls.upload_file(upload))
    _confirm(ctx.problems(answers))


def _trust(
    ctx: Context, pairs: Sequence[x509.Pair], *, is_master_last: bool = False
) -> None:
    """Have all online nodes trust authorities, the first one issuing."""
    snapshot = ctx.snapshot
    master = snapshot.cluster.master_node
    others = [node.uuid for node in _online(snapshot) if node.uuid != master]
    pem = authority.certificates_pem(pairs).decode()
    request = [("ssl", ssh.CRYPTO_TRUST, {ssh.CRYPTO_OPTION_AUTHORITIES: pem})]
    groups = [others, [master]] if is_master_last else [[master], others]
    for uuids in groups:
        answers = ctx.rpc.call_nodes(uuids, calls.node_crypto_tokens(request))
        _confirm(ctx.problems(answers))


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
            renew_authority(self.ctx, self.ctx.log.message)
        elif self.op.node_certificates:
            self._renew_certificates()
        if self.op.ssh_host_keys:
            renew_host_keys(self.ctx, self._say)
        if self.op.renew_ssh_keys:
            self._renew_ssh_keys()

    # Certificates
    def _renew_certificates(self) -> None:
        failed = certificates.renew_all(self.ctx, self._say)
        if failed:
            text = "; ".join(f"node {name}: {why}" for name, why in failed.items())
            raise errors.OpExecError(f"certificates not renewed: {text}; {_AGAIN}")

    # SSH keys
    def _renew_ssh_keys(self) -> None:
        snapshot = self.ctx.snapshot
        nodes = sorted(snapshot.nodes.values(), key=lambda node: node.name)
        self._say(f"Creating new SSH keys on {len(nodes)} nodes")
        self.ctx.rpc.call_node(
            snapshot.cluster.master_node,
            calls.node_ssh_keys_renew(
                [node.uuid for node in nodes],
                [node.name for node in nodes],
                [node.uuid for node in nodes if node.master_candidate],
                candidate_role.potential(snapshot),
                snapshot.cluster.ssh_key_type,
                self.key_type,
                self.key_bits,
            ),
        ).unwrap("SSH keys were not renewed everywhere")
        with self.ctx.config.edit(self.ctx.owner) as edit:
            edit.update_cluster(ssh_key_type=self.key_type, ssh_key_bits=self.key_bits)

    def _say(self, text: str) -> None:
        if self.op.verbose:
            self.ctx.log.message(text)
