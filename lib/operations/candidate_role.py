"""Changes that follow when a node becomes or stops being a master candidate.

A candidate may issue node calls (the digest of its client certificate is in the
configuration) and log in on all nodes (its key is in all authorized_keys).
"""

from collections.abc import Collection
from typing import Any, Final

from ganeti.base.constants.protocols import ssh
from ganeti.master import config
from ganeti.master.config import topology
from ganeti.model import objects
from ganeti.operations import ancillary_files
from ganeti.operations.base import Context
from ganeti.operations.trust import certificates
from ganeti.protocols.rpc import calls

#: Seconds to wait for calls that write a copy on a node that is no candidate now.
_RELEASE_S: Final = 30.0
#: The ssconf files that decide who gets which SSH key.
_ROLES: Final = (
    "master_candidates_certs",
    "node_list",
    "node_primary_ips",
    "online_nodes",
    "ssh_ports",
)
#: Times that they are written at most when commits follow each other.
_ROUNDS: Final = 5


def demote(ctx: Context, uuid: str) -> None:
    """Remove copies and secrets from a node that is no candidate now.

    The change of its role is committed. Nothing may be sent to it behind the removal,
    so this waits for calls under way first. Failures are warnings.
    """
    if not ctx.config.release_copy(uuid, _RELEASE_S):
        name = ctx.snapshot.nodes[uuid].name
        ctx.log.warn(
            f"node {name}: a call that writes its copy of the configuration has not"
            f" ended after {_RELEASE_S:.0f} s",
            hint=f"if {name} keeps a copy, run gnt-node add --readd {name}",
        )
    answer = ctx.rpc.call_node(uuid, calls.node_demote_from_mc())
    ctx.warn_failed(answer, "cannot demote the node")


def fill_pool(ctx: Context, ignore: Collection[str] = ()) -> list[objects.Node]:
    """Promote nodes until the pool is full; leave a full pool unchanged.

    Args:
        ctx: dependencies of the opcode.
        ignore: uuids of nodes that neither count nor may be promoted.

    Returns:
        The promoted nodes.
    """
    state = topology.pool_state(ctx.snapshot, ignore)
    if state.current > state.wanted:
        ctx.log.info(
            f"Note: more nodes are candidates ({state.current}) than desired"
            f" ({state.wanted})"
        )
    if state.current >= state.wanted:
        return []
    with ctx.config.edit(ctx.owner) as edit:
        promoted = topology.fill_candidate_pool(edit, ignore)
    if promoted:
        names = ", ".join(sorted(node.name for node in promoted))
        ctx.log.info(f"Promoted nodes to master candidate role: {names}")
    for node in promoted:
        admit(ctx, node)
    return promoted


def admit(ctx: Context, node: objects.Node) -> None:
    """Allow a candidate to call nodes and log in on them; failures are warnings."""
    _entrust(ctx, node)
    if ctx.snapshot.cluster.modify_ssh_setup:
        add_ssh_key(ctx, node, to_authorized=True)


def _entrust(ctx: Context, node: objects.Node) -> None:
    """Send the secrets of candidates, then record the certificate.

    Only a node that has the secrets can call others, and so become the master: a master
    without them could pass them on to nobody.
    """
    if ancillary_files.send_secrets(ctx, node.uuid):
        record_certificate(ctx, node)
        return
    ctx.log.warn(
        f"node {node.name} has not got all secrets of master candidates",
        hint="the master daemon tries again until the node has them",
    )


def admit_again(ctx: Context, node: objects.Node) -> bool:
    """Repeat `admit` for a candidate that may not answer; return whether it did.

    The record of its certificate is the last step, and only made for a node that is a
    candidate still. While it is missing, the master daemon repeats all steps.
    """
    digest, problem = certificates.fetch_digest(ctx.rpc, node.uuid)
    if problem or not ancillary_files.send_secrets(ctx, node.uuid):
        return False
    if ctx.snapshot.cluster.modify_ssh_setup:
        add_ssh_key(ctx, node, to_authorized=True)
    certificates.record(ctx, {node.uuid: digest})
    return True


def follow(ctx: Context, old: objects.Node, new: objects.Node) -> None:
    """Grant or withdraw the rights of a changed role; failures are warnings.

    Candidates may issue node calls and log in on all nodes; nodes that could become
    candidates know each other's public keys.
    """
    if new.master_candidate and not old.master_candidate:
        _entrust(ctx, new)
    elif old.master_candidate and not new.master_candidate:
        forget_certificate(ctx, new.uuid)
    if not ctx.snapshot.cluster.modify_ssh_setup:
        return
    gains = new.master_candidate and not old.master_candidate
    loses = old.master_candidate and not new.master_candidate
    can_now = new.master_capable and not old.master_capable
    cannot_now = old.master_capable and not new.master_capable
    # Others may have become candidates while it was away.
    is_back = old.offline and not new.offline
    if gains or can_now or is_back:
        add_ssh_key(
            ctx,
            new,
            to_authorized=gains,
            to_public=can_now,
            get_public=can_now or is_back,
        )
    if loses or cannot_now:
        remove_ssh_key(ctx, new, from_authorized=loses, from_public=cannot_now)


# Certificates
def record_certificate(ctx: Context, node: objects.Node) -> None:
    """Fetch the digest of a node's client certificate and record it."""
    digest, problem = certificates.fetch_digest(ctx.rpc, node.uuid)
    if problem:
        ctx.log.warn(
            f"cannot get the certificate digest of node {node.name}: {problem}",
            hint="the master daemon tries again until the node answers",
        )
        return
    certificates.record(ctx, {node.uuid: digest}, drop=[node.uuid + ssh.CRYPTO_NEXT])


def forget_certificate(ctx: Context, uuid: str) -> None:
    """Remove the digests of a node's client certificates."""
    certificates.record(ctx, {}, drop=[uuid, uuid + ssh.CRYPTO_NEXT])


# SSH keys
def potential(snapshot: objects.Snapshot) -> list[str]:
    """Return the names of the nodes that may become candidates, sorted."""
    return sorted(node.name for node in snapshot.nodes.values() if node.master_capable)


def key_owners(snapshot: objects.Snapshot) -> list[list[Any]]:
    """Return uuid, name, is a candidate, could become one, of all nodes, by name."""
    return [
        [node.uuid, node.name, node.master_candidate, node.master_capable]
        for node in sorted(snapshot.nodes.values(), key=lambda node: node.name)
    ]


def _write_roles(ctx: Context) -> None:
    """Give the master's node the present roles, by which it distributes keys.

    They follow each commit, but some moments later. Without them, two nodes that return
    at the same moment would each be distributed to while the other one counts as
    offline, and neither would get the key of the other.
    """
    written: dict[str, str] | None = None
    # A later commit may be there already, and must not be overwritten by this one.
    for _ in range(_ROUNDS):
        newest = _roles(ctx)
        if newest == written:
            return
        master = ctx.snapshot.cluster.master_node
        answer = ancillary_files.write_ssconf(ctx, [master], newest)[master]
        if answer.failed:
            what = "cannot write the roles of nodes on the master"
            ctx.log.warn(answer.describe(what))
            return
        written = newest


def _roles(ctx: Context) -> dict[str, str]:
    values = config.ssconf_values(ctx.snapshot)
    return {name: values[name] for name in _ROLES}


def add_ssh_key(
    ctx: Context,
    node: objects.Node,
    *,
    to_authorized: bool = False,
    to_public: bool = False,
    get_public: bool = False,
) -> None:
    """Distribute a node's root key from the master; unreachable nodes are warnings."""
    _write_roles(ctx)
    answer = ctx.rpc.call_node(
        ctx.snapshot.cluster.master_node,
        calls.node_ssh_key_add(
            node.uuid,
            node.name,
            potential(ctx.snapshot),
            to_authorized,
            to_public,
            get_public,
        ),
    )
    ctx.warn_failed(answer, f"cannot distribute the SSH key of {node.name}")
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
    """Withdraw a node's root key; unreachable nodes are warnings.

    Args:
        ctx: the operation.
        ctx: dependencies of the opcode.
        node: owner of the key.
        from_authorized: the node may no longer log in to others.
        from_public: the node can no longer become a candidate: the others remove its
            public key, and it removes theirs.
        leaves: the node leaves the cluster: as before, and nobody may log in there.
        readd: the node is being added again.
    """
    snapshot = ctx.snapshot
    _write_roles(ctx)
    answer = ctx.rpc.call_node(
        snapshot.cluster.master_node,
        calls.node_ssh_key_remove(
            node.uuid,
            node.name,
            sorted(
                item.uuid for item in snapshot.nodes.values() if item.master_candidate
            ),
            potential(snapshot),
            from_authorized,
            from_public or leaves,
            leaves,
            from_public or leaves,
            readd,
        ),
    )
    ctx.warn_failed(answer, f"cannot withdraw the SSH key of {node.name}")
    for line in answer.payload or ():
        ctx.log.warn(str(line))
