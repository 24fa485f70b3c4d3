"""SSH checks of cluster verification: logins to other nodes, and key files."""

import concurrent.futures
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import nodeverify
from ganeti.base.net import netutils
from ganeti.node.calls.registry import LocalNode
from ganeti.protocols.ssh import account, authorized_keys, pubkeys

if TYPE_CHECKING:
    from ganeti.protocols.ssh.client import Identity

#: Nodes that are checked in parallel.
PARALLEL: Final = 8
_TIMEOUT_S: Final = 30.0


def check_reach(node: LocalNode, ports: Mapping[str, int]) -> dict[str, str]:
    """Log in to nodes and compare their host names.

    Args:
        node: this node.
        ports: SSH port by node name.

    Returns:
        node name -> problem; nodes without a problem are left out.
    """
    from ganeti.protocols.ssh import client

    identity = client.cluster_identity(node.paths, node.ssconf.cluster_name())
    addresses = node.ssconf.node_primary_ips()

    def check(name: str) -> str | None:
        try:
            address = addresses.get(name) or netutils.lookup(name, node.paths)
            return _check_one(node, name, (address, ports[name]), identity)
        except errors.GenericError as err:
            return str(err)

    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        texts = list(pool.map(check, ports))
    return {
        name: text for name, text in zip(ports, texts, strict=True) if text is not None
    }


def _check_one(
    node: LocalNode, name: str, address: tuple[str, int], identity: "Identity"
) -> str | None:
    from ganeti.protocols.ssh import client

    environment = account.node_environment(node.paths, name)
    with client.Client(
        name,
        address[1],
        identity,
        address=address[0],
        environment=environment,
    ) as shell:
        command = "echo ${GANETI_HOSTNAME:-$(hostname --fqdn 2>/dev/null || hostname)}"
        result = shell.run(["sh", "-c", command], timeout_s=_TIMEOUT_S)
    if result.failed:
        return f"cannot query its host name: {result.output.strip()}"
    hostname = result.stdout.strip()
    if hostname.split(".", 1)[0] != name.split(".", 1)[0] or (
        "." in hostname and hostname != name
    ):
        return f"wanted host name {name}, found {hostname}"
    return None


def check_set_up(
    node: LocalNode, nodes: Sequence[tuple[str, str, bool, bool]]
) -> list[str]:
    """Compare the key files with the keys that they should hold.

    Args:
        node: this node.
        nodes: uuid, name, is a candidate, is a potential candidate, of all nodes.

    Returns:
        one line per problem.
    """
    own_name = node.paths.hostname
    rows = {uuid: row for uuid, *row in nodes}
    known = pubkeys.read(node.paths.data("ganeti_pub_keys"))
    own = next((row for row in rows.values() if row[0] == own_name), None)
    if own is None or not own[2]:
        if known:
            return ["has public keys of nodes, but can never be a master candidate"]
        return []
    potential = {uuid for uuid, (_name, _now, may) in rows.items() if may}
    problems = [
        f"{nodeverify.NO_PUBLIC_KEY} {rows[uuid][0]}"
        for uuid in sorted(potential - set(known))
    ]
    for uuid in sorted(set(known) - potential):
        name = rows[uuid][0] if uuid in rows else uuid
        problems.append(
            f"{nodeverify.PUBLIC_KEY_OF} {name}, which is not a potential candidate"
        )
    return problems + _check_authorized(node, rows, known)


def check_authorised(
    node: LocalNode, candidates: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return one line per candidate that may not log in here.

    It is for a node that can never be a candidate, and so has no keys to compare with.

    Args:
        node: this node.
        candidates: name -> public key lines.
    """
    present = _authorised(node)
    return [
        f"{nodeverify.NOT_AUTHORISED} {name}"
        for name, lines in sorted(candidates.items())
        if not any(authorized_keys.identity(line) in present for line in lines)
    ]


def candidate_keys(node: LocalNode, uuids: Sequence[str]) -> dict[str, list[str]]:
    """Return uuid -> public key lines, of the nodes whose keys this node has."""
    known = pubkeys.read(node.paths.data("ganeti_pub_keys"))
    return {uuid: known[uuid] for uuid in uuids if uuid in known}


def _authorised(node: LocalNode) -> set[object]:
    path = f"{node.paths.root_ssh_dir}/authorized_keys"
    return {authorized_keys.identity(line) for line in authorized_keys.read(path)}


def _check_authorized(
    node: LocalNode,
    rows: Mapping[str, Sequence[object]],
    known: Mapping[str, list[str]],
) -> list[str]:
    present = _authorised(node)
    problems = []
    for uuid, lines in known.items():
        if uuid not in rows:
            continue
        name, is_candidate = rows[uuid][0], rows[uuid][1]
        is_in = any(authorized_keys.identity(line) in present for line in lines)
        if is_candidate and not is_in:
            problems.append(f"{nodeverify.NOT_AUTHORISED} {name}")
        if is_in and not is_candidate and name != node.paths.hostname:
            problems.append(
                f"{nodeverify.STILL_AUTHORISED} {name}, which is not a candidate"
            )
    return problems


def check_clutter(node: LocalNode) -> list[str]:
    """Return the nodes for which several keys are recorded or authorised."""
    known = pubkeys.read(node.paths.data("ganeti_pub_keys"))
    problems = [
        f"{len(lines)} public keys are recorded for node {uuid}"
        for uuid, lines in sorted(known.items())
        if len(lines) > 1
    ]
    by_comment: dict[str, int] = {}
    for line in authorized_keys.read(f"{node.paths.root_ssh_dir}/authorized_keys"):
        if authorized_keys.identity(line) is None or not line.split()[-1].startswith(
            "root@"
        ):
            continue
        owner = line.split()[-1]
        by_comment[owner] = by_comment.get(owner, 0) + 1
    problems += [
        f"{count} keys of {owner} are authorised"
        for owner, count in sorted(by_comment.items())
        if count > 1
    ]
    return problems
