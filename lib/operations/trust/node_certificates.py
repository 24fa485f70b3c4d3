"""Certificates of nodes: requested by the node, issued by the master.

The node makes its key, which never leaves it. Of the node's request the master uses the
public key alone; the names in the certificate are those of the configuration.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import ssh as constants
from ganeti.base.tls import authority, x509
from ganeti.model import objects
from ganeti.operations.base import Context
from ganeti.protocols.rpc import Result, Runner

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
        options[constants.CRYPTO_OPTION_CERT_FILE] = ctx.paths.virtualize(path)
    uuids = [node.uuid for node in nodes]
    if not authority.is_used(ctx.paths.server_pem):
        request = [["ssl", "create", options]]
        answers = caller.call("node_crypto_tokens", uuids, [request])
        return _digests(*_split(nodes, answers), nodes)
    issuer = authority.load(
        server_pem=ctx.paths.server_pem, key_path=ctx.paths.server_key_pem
    )
    request = [["ssl", constants.CRYPTO_REQUEST, {}]]
    answers = caller.call("node_crypto_tokens", uuids, [request])
    requests, failed = _split(nodes, answers)
    issued: dict[str, str] = {}
    for node in nodes:
        if node.uuid not in requests:
            continue
        try:
            issued[node.uuid] = _issue(ctx, issuer, node, requests[node.uuid])
        except errors.X509CertError as err:
            failed[node.name] = str(err.args[-1])

    def arguments(uuid: str) -> list[Any]:
        given = {**options, constants.CRYPTO_OPTION_CERTIFICATE: issued[uuid]}
        return [[["ssl", constants.CRYPTO_INSTALL, given]]]

    answers = caller.call("node_crypto_tokens", sorted(issued), arguments)
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
    answer = runner.call_one("node_crypto_tokens", uuid, [["ssl", "get", {}]])
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


def _token(answer: Result) -> str:
    """Return the token in a node's answer, empty if the call failed."""
    if answer.failed:
        return ""
    return str(dict(answer.payload or ()).get("ssl", ""))
