"""Certificates of nodes: requested by the node, issued by the master.

The node makes its key, which never leaves it. Of the node's request the master uses the
public key alone; the names in the certificate are those of the configuration.

The permitted callers are listed with the digests of the certificates of master
candidates. Each candidate has an entry under its UUID. While its certificate is renewed
it has a second one, with the suffix `ssh.CRYPTO_NEXT`: nodes accept both. A candidate
that presents a certificate which nodes do not list is locked out. So `renew_all` can be
repeated at any step:

1. `settle`: what an interrupted run left in doubt is asked for.
2. Each node makes a key and gets a certificate, which waits in a file of its own.
3. The digests of candidates are recorded as their next ones, and sent to all nodes.
4. The nodes take the waiting certificates into use, the master last. Nodes that do so
   have their new digest recorded as the only one.

Whatever ends in between, a daemon or a call, each node presents a certificate that has
an entry. A node that did not answer keeps both until the next run.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import ssh
from ganeti.base.tls import authority, x509
from ganeti.master import config
from ganeti.model import objects
from ganeti.operations import ancillary_files
from ganeti.operations.base import Context
from ganeti.protocols.rpc import Answer, Request, Runner, calls

_LISTED: Final = "master_candidates_certs"


def record(
    ctx: Context, digests: Mapping[str, str], drop: Collection[str] = ()
) -> None:
    """Add entries to the configuration, and remove others, in one commit.

    Args:
        ctx: dependencies of the opcode.
        digests: digest by key, which is a node's UUID with or without the suffix.
        drop: keys to remove; missing ones are ignored.
    """

    def changed(present: Mapping[str, str]) -> dict[str, str]:
        return {k: v for k, v in {**present, **digests}.items() if k not in drop}

    present = ctx.snapshot.cluster.candidate_certs
    if changed(present) == present:
        return
    with ctx.config.edit(ctx.owner) as edit:
        certs = changed(edit.snapshot.cluster.candidate_certs)
        edit.update_cluster(candidate_certs=certs)


def send(ctx: Context) -> dict[str, str]:
    """Write the list to all online nodes; return node name -> problem."""
    snapshot = ctx.snapshot
    online = sorted(uuid for uuid, node in snapshot.nodes.items() if not node.offline)
    listed = config.ssconf_values(snapshot)[_LISTED]
    answers = ancillary_files.write_ssconf(ctx, online, {_LISTED: listed})
    return ctx.problems(answers)


_DIGEST: Final = re.compile(x509.DIGEST_REGEX)


def renew(
    ctx: Context,
    nodes: Sequence[objects.Node],
    *,
    runner: Runner | None = None,
    path: str | None = None,
) -> tuple[dict[str, str], dict[str, str]]:
    """Give nodes a new key and certificate, which they use from now on.

    In clusters of earlier releases, whose nodes share the key of the cluster
    certificate, each node issues its own certificate.

    Args:
        ctx: dependencies of the opcode.
        nodes: the nodes.
        runner: calls the nodes, by default those of the configuration.
        path: where the nodes write the certificate, by default where they use it.

    Returns:
        Digest of the certificate by node uuid, and node name -> problem.
    """
    caller = runner or ctx.rpc
    options: dict[str, Any] = {}
    if path is not None:
        options[ssh.CRYPTO_OPTION_CERT_FILE] = ctx.paths.virtualize(path)
    uuids = [node.uuid for node in nodes]
    if not authority.is_used(ctx.paths.server_pem):
        request = [("ssl", "create", options)]
        answers = caller.call_nodes(uuids, calls.node_crypto_tokens(request))
        return _digests(*_split(nodes, answers), nodes)
    issuer = authority.load(
        server_pem=ctx.paths.server_pem, key_path=ctx.paths.server_key_pem
    )
    request = [("ssl", ssh.CRYPTO_REQUEST, {})]
    answers = caller.call_nodes(uuids, calls.node_crypto_tokens(request))
    requests, failed = _split(nodes, answers)
    issued: dict[str, str] = {}
    for node in nodes:
        if node.uuid not in requests:
            continue
        try:
            issued[node.uuid] = _issue(ctx, issuer, node, requests[node.uuid])
        except errors.X509CertError as err:
            failed[node.name] = str(err.args[-1])

    def installation(uuid: str) -> Request[list[tuple[str, str]]]:
        given = {**options, ssh.CRYPTO_OPTION_CERTIFICATE: issued[uuid]}
        return calls.node_crypto_tokens([("ssl", ssh.CRYPTO_INSTALL, given)])

    answers = caller.call_nodes(sorted(issued), installation)
    digests, refused = _split([n for n in nodes if n.uuid in issued], answers)
    return _digests(digests, failed | refused, nodes)


def _digests(
    digests: dict[str, str], failed: dict[str, str], nodes: Sequence[objects.Node]
) -> tuple[dict[str, str], dict[str, str]]:
    """Move tokens that are no digests to the failures."""
    names = {node.uuid: node.name for node in nodes}
    wrong = {u: token for u, token in digests.items() if not _DIGEST.fullmatch(token)}
    for uuid, token in wrong.items():
        failed[names[uuid]] = f"wanted the digest of a certificate, found {token!r:.80}"
    return {u: token for u, token in digests.items() if u not in wrong}, failed


def fetch_digest(runner: Runner, uuid: str) -> tuple[str, str]:
    """Return the digest of the certificate that a node uses, or empty and a problem."""
    answer = runner.call_node(uuid, calls.node_crypto_tokens([("ssl", "get", {})]))
    digest = _token(answer)
    if answer.failed:
        return "", str(answer.fail_msg)
    if not _DIGEST.fullmatch(digest):
        return "", f"wanted the digest of a certificate, found {digest!r:.80}"
    return digest, ""


def _issue(ctx: Context, issuer: x509.Pair, node: objects.Node, request: str) -> str:
    certificate = authority.issue(
        issuer,
        authority.requested_key(request),
        name=node.name,
        uuid=node.uuid,
        serial=int(ctx.clock.time()),
    )
    return x509.certificate_pem(certificate).decode()


def _split(
    nodes: Sequence[objects.Node], answers: Any
) -> tuple[dict[str, str], dict[str, str]]:
    """Return tokens by uuid, and node name -> problem."""
    tokens, failed = {}, {}
    for node in nodes:
        answer = answers[node.uuid]
        token = _token(answer)
        if token:
            tokens[node.uuid] = token
        else:
            failed[node.name] = answer.fail_msg or "empty answer"
    return tokens, failed


def _token(answer: Answer[list[tuple[str, str]]]) -> str:
    """Return the token in a node's answer, empty if the call failed."""
    if answer.failed:
        return ""
    return dict(answer.payload).get("ssl", "")


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
    made, refused = renew(ctx, nodes, path=waiting)
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
        for name, text in send(ctx).items():
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
        actual, problem = fetch_digest(ctx.rpc, uuid)
        if problem:
            failed[node.name] = problem
        else:
            record(ctx, {uuid: actual}, drop=[key])
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
    record(ctx, candidates)
    failed = send(ctx)
    if not failed:
        return dict(made), {}
    master = snapshot.cluster.master_node
    record(ctx, {}, drop=[master + ssh.CRYPTO_NEXT])
    return {uuid: digest for uuid, digest in made.items() if uuid != master}, failed


def _use(ctx: Context, made: Mapping[str, str]) -> Failed:
    """Have nodes take waiting certificates into use, and record what they did."""

    def use(uuid: str) -> Request[Any]:
        options = {ssh.CRYPTO_OPTION_DIGEST: made[uuid]}
        return calls.node_crypto_tokens([("ssl", ssh.CRYPTO_USE, options)])

    snapshot = ctx.snapshot
    answers = ctx.rpc.call_nodes(sorted(made), use)
    done = [uuid for uuid, answer in answers.items() if not answer.failed]
    used = {uuid: made[uuid] for uuid in done if snapshot.nodes[uuid].master_candidate}
    record(ctx, used, drop=[uuid + ssh.CRYPTO_NEXT for uuid in used])
    return ctx.problems(answers)
