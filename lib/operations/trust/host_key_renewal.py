"""New SSH host keys of all online nodes, which can be repeated at any step.

All nodes know a key before an SSH server uses it:

1. Nodes report the keys that their servers have. These are only data, see
   `ganeti.protocols.ssh.host_keys`.
2. Each node makes new keys, which wait in files of their own.
3. The present and the new keys are recorded, and sent to all online nodes in
   known_hosts. If a node does not confirm that, no key is used.
4. The nodes take the new keys into use, and report what their servers present.
5. Of nodes that did so, the new keys alone are recorded and sent.

After an end in between, both the present and the new keys of a node are known. A node
whose keys were not recorded, as in clusters of earlier releases, is known by the shared
ones until step 3.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ganeti.base import errors
from ganeti.base.constants.protocols import ssh
from ganeti.model import objects
from ganeti.operations.base import Context
from ganeti.operations.trust import host_keys
from ganeti.protocols.ssh import host_keys as public_keys

Keys = dict[str, tuple[str, ...]]
Failed = dict[str, str]
_AGAIN: Final = (
    "all nodes still accept each other's keys; run gnt-cluster renew-crypto"
    " --new-ssh-host-keys again"
)


def renew(ctx: Context, say: Callable[[str], None]) -> None:
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
    _name_offline(ctx)
    if failed:
        _raise(failed)


def _raise(failed: Failed) -> None:
    text = "; ".join(f"node {name}: {why}" for name, why in sorted(failed.items()))
    raise errors.OpExecError(f"SSH host keys not renewed: {text}; {_AGAIN}")


def _ask(ctx: Context, uuids: Sequence[str], action: str) -> tuple[Keys, Failed]:
    """Have nodes do a step; return their keys by node uuid, and name -> problem."""
    request = [[ssh.CRYPTO_TYPE_SSH_HOST, action, {}]]
    answers = ctx.rpc.call("node_crypto_tokens", uuids, [request])
    reported: Keys = {}
    failed: Failed = {}
    for uuid, answer in answers.items():
        name = ctx.snapshot.nodes[uuid].name
        if answer.failed:
            failed[name] = str(answer.fail_msg)
            continue
        token = str(dict(answer.payload or ()).get(ssh.CRYPTO_TYPE_SSH_HOST, ""))
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


def _name_offline(ctx: Context) -> None:
    for node in sorted(ctx.snapshot.nodes.values(), key=lambda item: item.name):
        if node.offline:
            ctx.log.warn(
                f"node {node.name} is offline and keeps its SSH host keys",
                hint="run gnt-cluster renew-crypto --new-ssh-host-keys when it returns",
            )
