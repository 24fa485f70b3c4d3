"""What follows when a node becomes a master candidate, or stops being one.

A candidate may issue node calls (the digest of its client certificate is in the
configuration) and log in everywhere (its key is in all authorized_keys).
"""

from collections.abc import Collection

from ganeti import objects
from ganeti.cmdlib.base import Context
from ganeti.config import candidate_pool


def fill_pool(ctx: Context, ignore: Collection[str] = ()) -> list[objects.Node]:
    """Promote nodes until the pool is full; a full one is left alone.

    Args:
        ctx: the operation.
        ignore: uuids of nodes that neither count nor may be promoted.

    Returns:
        the nodes promoted.
    """
    state = candidate_pool.pool_state(ctx.snapshot, ignore)
    if state.current > state.wanted:
        ctx.log.info(
            f"Note: more nodes are candidates ({state.current}) than desired"
            f" ({state.wanted})"
        )
    if state.current >= state.wanted:
        return []
    with ctx.config.edit(ctx.owner) as edit:
        promoted = edit.fill_candidate_pool(ignore)
    if promoted:
        names = ", ".join(sorted(node.name for node in promoted))
        ctx.log.info(f"Promoted nodes to master candidate role: {names}")
    for node in promoted:
        admit(ctx, node)
    return promoted


def admit(ctx: Context, node: objects.Node) -> None:
    """Let a candidate issue node calls and log in everywhere; failures warn."""
    record_certificate(ctx, node)
    if ctx.snapshot.cluster.modify_ssh_setup:
        add_ssh_key(ctx, node, to_authorized=True)


def follow(ctx: Context, old: objects.Node, new: objects.Node) -> None:
    """Give or take what a change of roles means; failures warn.

    Candidates may issue node calls and log in everywhere; nodes that could become
    candidates know each other's public keys.
    """
    if new.master_candidate and not old.master_candidate:
        record_certificate(ctx, new)
    elif old.master_candidate and not new.master_candidate:
        forget_certificate(ctx, new.uuid)
    if not ctx.snapshot.cluster.modify_ssh_setup:
        return
    gains = new.master_candidate and not old.master_candidate
    loses = old.master_candidate and not new.master_candidate
    can_now = new.master_capable and not old.master_capable
    cannot_now = old.master_capable and not new.master_capable
    if gains or can_now:
        add_ssh_key(
            ctx, new, to_authorized=gains, to_public=can_now, get_public=can_now
        )
    if loses or cannot_now:
        remove_ssh_key(ctx, new, from_authorized=loses, from_public=cannot_now)


# Certificates
def record_certificate(ctx: Context, node: objects.Node) -> None:
    """Ask a node for the digest of its client certificate and store it."""
    answer = ctx.rpc.call_one("node_crypto_tokens", node.uuid, [["ssl", "get", {}]])
    digests = dict(answer.payload or ())
    if answer.failed or not digests.get("ssl"):
        ctx.log.warn(
            f"cannot get the certificate digest of node {node.name}:"
            f" {answer.fail_msg or 'empty answer'}",
            hint="run gnt-cluster renew-crypto --new-node-certificates",
        )
        return
    certs = ctx.snapshot.cluster.candidate_certs
    if certs.get(node.uuid) == digests["ssl"]:
        return
    with ctx.config.edit(ctx.owner) as edit:
        certs = edit.snapshot.cluster.candidate_certs
        edit.update_cluster(candidate_certs={**certs, node.uuid: digests["ssl"]})


def forget_certificate(ctx: Context, uuid: str) -> None:
    """Remove the digest of a node's client certificate."""
    if uuid not in ctx.snapshot.cluster.candidate_certs:
        return
    with ctx.config.edit(ctx.owner) as edit:
        certs = dict(edit.snapshot.cluster.candidate_certs)
        certs.pop(uuid, None)
        edit.update_cluster(candidate_certs=certs)


# SSH keys
def potential(snapshot: objects.Snapshot) -> list[str]:
    """Return the names of the nodes that may become candidates, sorted."""
    return sorted(node.name for node in snapshot.nodes.values() if node.master_capable)


def add_ssh_key(
    ctx: Context,
    node: objects.Node,
    *,
    to_authorized: bool = False,
    to_public: bool = False,
    get_public: bool = False,
) -> None:
    """Distribute a node's root key from the master; unreachable nodes warn."""
    answer = ctx.rpc.call_one(
        "node_ssh_key_add",
        ctx.snapshot.cluster.master_node,
        node.uuid,
        node.name,
        potential(ctx.snapshot),
        to_authorized,
        to_public,
        get_public,
    )
    if answer.failed:
        ctx.log.warn(answer.describe(f"cannot distribute the SSH key of {node.name}"))
    for name, text in answer.payload or ():
        ctx.log.warn(f"SSH key of {node.name} not updated on node {name}: {text}")


def remove_ssh_key(
    ctx: Context,
    node: objects.Node,
    *,
    from_authorized: bool = False,
    from_public: bool = False,
    leaves: bool = False,
    readd: bool = False,
) -> None:
    """Withdraw a node's root key; unreachable nodes warn.

    Args:
        ctx: the operation.
        node: whose key.
        from_authorized: it may not log in any more.
        from_public: it cannot become a candidate any more: others forget its public
            key, and it those of others.
        leaves: it leaves the cluster: as before, and nobody may log in there.
        readd: it is being added again.
    """
    snapshot = ctx.snapshot
    answer = ctx.rpc.call_one(
        "node_ssh_key_remove",
        snapshot.cluster.master_node,
        node.uuid,
        node.name,
        sorted(item.uuid for item in snapshot.nodes.values() if item.master_candidate),
        potential(snapshot),
        from_authorized,
        from_public or leaves,
        leaves,
        from_public or leaves,
        readd,
    )
    if answer.failed:
        ctx.log.warn(answer.describe(f"cannot withdraw the SSH key of {node.name}"))
    for line in answer.payload or ():
        ctx.log.warn(str(line))
