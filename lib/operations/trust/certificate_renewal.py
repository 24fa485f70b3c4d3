"""Renewal of the certificates of all online nodes, which can be repeated at any step.

A candidate that presents a certificate which nodes do not list is locked out. So each
candidate has two entries in the list of callers while its certificate changes:

1. `settle`: what an interrupted run left in doubt is asked for.
2. Each node makes a key and gets a certificate, which waits in a file of its own.
3. The digests of candidates are recorded as their next ones, and sent to all nodes.
4. The nodes take the waiting certificates into use, the master last. Nodes that do so
   have their new digest recorded as the only one.

Whatever ends in between, a daemon or a call, each node presents a certificate that has
an entry. A node that did not answer keeps both until the next run.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ganeti.base.constants.protocols import ssh
from ganeti.operations.base import Context
from ganeti.operations.trust import callers, node_certificates

_CALL: Final = "node_crypto_tokens"
Failed = dict[str, str]


def renew_all(ctx: Context, say: Callable[[str], None]) -> Failed:
    """Renew the certificates of all online nodes.

    Args:
        ctx: dependencies of the opcode.
        say: reports progress.

    Returns:
        Node name -> problem. These nodes keep a certificate that is accepted.
    """
    failed = settle(ctx)
    snapshot = ctx.snapshot
    nodes = [
        node
        for _uuid, node in sorted(snapshot.nodes.items())
        if not node.offline and node.name not in failed
    ]
    say(f"Creating new certificates on {len(nodes)} nodes")
    waiting = ctx.paths.client_pem + ssh.CRYPTO_WAITING
    made, refused = node_certificates.renew(ctx, nodes, path=waiting)
    failed |= refused
    made, refused = _admit(ctx, made)
    failed |= refused
    master = snapshot.nodes[snapshot.cluster.master_node]
    failed |= _use(ctx, {u: digest for u, digest in made.items() if u != master.uuid})
    if master.uuid in made:
        problem = _use(ctx, {master.uuid: made[master.uuid]})
        failed |= problem
        # The daemon sends ssconf anyway; removed callers are refused without that
        # delay.
        for name, text in callers.send(ctx).items():
            ctx.log.warn(f"node {name}: still accepts the old certificate: {text}")
        if not problem:
            say(f"The master {master.name} uses its new certificate")
    return failed


def settle(ctx: Context) -> Failed:
    """Find out which of two certificates candidates use, and drop the other entry.

    Returns:
        Node name -> problem; these candidates keep both entries.
    """
    failed = {}
    snapshot = ctx.snapshot
    for key in sorted(snapshot.cluster.candidate_certs):
        uuid = key.removesuffix(ssh.CRYPTO_NEXT)
        node = snapshot.nodes.get(uuid)
        if key == uuid or node is None or node.offline:
            continue
        actual, problem = node_certificates.fetch_digest(ctx.rpc, uuid)
        if problem:
            failed[node.name] = problem
        else:
            callers.record(ctx, {uuid: actual}, drop=[key])
    return failed


def _admit(ctx: Context, made: Mapping[str, str]) -> tuple[dict[str, str], Failed]:
    """Have all nodes accept the next certificates of candidates.

    Without the master's, if a node does not answer: the master would lose it.

    Returns:
        The digests that may be used, and node name -> problem.
    """
    snapshot = ctx.snapshot
    candidates = {
        uuid + ssh.CRYPTO_NEXT: digest
        for uuid, digest in made.items()
        if snapshot.nodes[uuid].master_candidate
    }
    callers.record(ctx, candidates)
    failed = callers.send(ctx)
    if not failed:
        return dict(made), {}
    master = snapshot.cluster.master_node
    callers.record(ctx, {}, drop=[master + ssh.CRYPTO_NEXT])
    return {uuid: digest for uuid, digest in made.items() if uuid != master}, failed


def _use(ctx: Context, made: Mapping[str, str]) -> Failed:
    """Have nodes take waiting certificates into use, and record what they did."""

    def arguments(uuid: str) -> list[Any]:
        options = {ssh.CRYPTO_OPTION_DIGEST: made[uuid]}
        return [[["ssl", ssh.CRYPTO_USE, options]]]

    snapshot = ctx.snapshot
    answers = ctx.rpc.call(_CALL, sorted(made), arguments)
    done = [uuid for uuid, answer in answers.items() if not answer.failed]
    used = {uuid: made[uuid] for uuid in done if snapshot.nodes[uuid].master_candidate}
    callers.record(ctx, used, drop=[uuid + ssh.CRYPTO_NEXT for uuid in used])
    return {
        snapshot.nodes[uuid].name: str(answer.fail_msg)
        for uuid, answer in answers.items()
        if answer.failed
    }
