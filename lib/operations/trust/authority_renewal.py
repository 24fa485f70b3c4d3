"""Renewal of the cluster's authority while all daemons work.

All online nodes trust what the next step uses before that step begins:

1. Candidates get the key of a new authority. No certificate of it exists yet.
2. Nodes trust the old and the new authority; the old one issues.
3. The new authority issues: it is the first one in ``server.pem`` of all nodes.
4. All nodes get new certificates, see `ganeti.operations.trust.certificate_renewal`.
5. Nodes trust the new authority alone, the master last.

A step begins when all online nodes have confirmed the one before. After an end in
between, the files of the master show which step it was; all steps can be repeated, from
any candidate that became master. Until step 5 every node trusts both authorities, so
nothing is refused. Nodes that are offline keep the old authority, which nobody trusts
after step 5: they are refused until they are added again.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ganeti.base import errors
from ganeti.base.constants.protocols import ssh
from ganeti.base.tls import authority, x509
from ganeti.model import objects
from ganeti.operations.base import Context
from ganeti.operations.trust import certificate_renewal
from ganeti.protocols.rpc import wire

_AGAIN: Final = (
    "every node is still accepted; make the nodes answer, or mark them offline, and run"
    " gnt-cluster renew-crypto --new-cluster-certificate again, which goes on"
)


def renew(ctx: Context, say: Callable[[str], None]) -> None:
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
    _confirm(certificate_renewal.renew_all(ctx, say))
    say("The old authority is dropped")
    _trust(ctx, [new], is_master_last=True)
    _send_keys(ctx, [new])
    _name_offline(ctx)


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
        raise errors.OpExecError(f"authority not renewed: {text}; {_AGAIN}")


def _online(snapshot: objects.Snapshot) -> list[objects.Node]:
    return [n for _uuid, n in sorted(snapshot.nodes.items()) if not n.offline]


def _send_keys(ctx: Context, pairs: Sequence[x509.Pair]) -> None:
    """Write the keys to all candidates, the newest first."""
    upload = wire.upload(ctx.paths.server_key_pem, ctx.paths)
    upload[1] = wire.pack(authority.keys_pem(pairs))
    snapshot = ctx.snapshot
    uuids = [node.uuid for node in _online(snapshot) if node.master_candidate]
    answers = ctx.rpc.call("upload_file", uuids, (upload,))
    _confirm(
        {
            snapshot.nodes[uuid].name: str(answer.fail_msg)
            for uuid, answer in answers.items()
            if answer.failed
        }
    )


def _trust(
    ctx: Context, pairs: Sequence[x509.Pair], *, is_master_last: bool = False
) -> None:
    """Have all online nodes trust authorities, the first one issuing."""
    snapshot = ctx.snapshot
    master = snapshot.cluster.master_node
    others = [node.uuid for node in _online(snapshot) if node.uuid != master]
    pem = authority.certificates_pem(pairs).decode()
    request = [["ssl", ssh.CRYPTO_TRUST, {ssh.CRYPTO_OPTION_AUTHORITIES: pem}]]
    groups = [others, [master]] if is_master_last else [[master], others]
    for uuids in groups:
        answers = ctx.rpc.call("node_crypto_tokens", uuids, [request])
        _confirm(
            {
                snapshot.nodes[uuid].name: str(answer.fail_msg)
                for uuid, answer in answers.items()
                if answer.failed
            }
        )


def _name_offline(ctx: Context) -> None:
    """Warn of nodes that still have the old authority, which nobody trusts."""
    for node in sorted(ctx.snapshot.nodes.values(), key=lambda item: item.name):
        if node.offline:
            ctx.log.warn(
                f"node {node.name} is offline and has the certificate of the old"
                " authority, which is not trusted any more",
                hint=f"when it returns, run gnt-node add --readd {node.name}",
            )
