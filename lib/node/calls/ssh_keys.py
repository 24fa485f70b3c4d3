"""Distribution of root's public SSH keys by the master's node daemon.

The keys of master candidates are authorised on every node; potential candidates keep
the public keys of all potential candidates. The tool ``ssh-update``, called over SSH,
changes other nodes.
"""

import concurrent.futures
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cryptography.hazmat.primitives import serialization

from ganeti.base import errors
from ganeti.base.constants import misc
from ganeti.base.constants.protocols import ssh
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.base.tls import x509
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.protocols.ssh import account, authorized_keys, keys

_log = logging.getLogger(__name__)
#: Attempts per node; a machine that is starting may refuse the first one.
TRIES: Final = 3
#: Nodes that are changed in parallel.
PARALLEL: Final = 8
_TOOL_TIMEOUT_S: Final = 60.0
#: The master keeps its new pair beside the old one until all nodes have the new key.
_NEW_SUFFIX: Final = ".ganeti-new"

_UUID: Final = re.compile(misc.UUID_REGEX)

Change = dict[str, Any]


class Distribution:
    """Changes key files on this node and on others."""

    def __init__(self, node: LocalNode) -> None:
        from ganeti.protocols.ssh import client

        self._paths = node.paths
        self._ssconf = node.ssconf
        self._cluster = self._ssconf.cluster_name()
        # One key ring for all connections: loading the private key takes long.
        self._identity = client.cluster_identity(self._paths, self._cluster)
        certificate = x509.load_certificate(node.paths.server_pem)
        self._pem = certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def hostname(self) -> str:
        """The name of this node, the master."""
        return self._paths.hostname

    @property
    def authorized_path(self) -> str:
        """This node's authorized_keys file."""
        return f"{self._paths.root_ssh_dir}/authorized_keys"

    @property
    def public_path(self) -> str:
        """This node's list of public keys."""
        return self._paths.data("ganeti_pub_keys")

    def nodes(self, *more: str) -> list[str]:
        """Return the online nodes of ssconf, and given nodes that ssconf may lack."""
        return sorted({*self._ssconf.online_nodes(), *more})

    def candidates(self, known: Mapping[str, object]) -> list[str]:
        """Return which of some node uuids are master candidates."""
        certificates = self._ssconf.master_candidates_certs()
        return [uuid for uuid in known if uuid in certificates]

    def apply(self, name: str, change: Change) -> None:
        """Change one node; this node directly, others over SSH.

        Raises:
            GenericError: the node cannot be changed.
        """
        if name == self._paths.hostname:
            self._apply_here(change)
            return
        self.run_tool(name, change)

    def _apply_here(self, change: Change) -> None:
        if ssh.SSHS_SSH_AUTHORIZED_KEYS in change:
            action, by_node = change[ssh.SSHS_SSH_AUTHORIZED_KEYS]
            lines = [line for some in by_node.values() for line in some]
            edit = authorized_keys.add if action == "add" else authorized_keys.remove
            edit(self.authorized_path, lines)
        if ssh.SSHS_SSH_PUBLIC_KEYS in change:
            action, by_node = change[ssh.SSHS_SSH_PUBLIC_KEYS]
            authorized_keys.update_node_keys(self.public_path, action, by_node)

    def run_tool(self, name: str, change: Change, read: str | None = None) -> str:
        """Run ssh-update on a node; return the content of a file there afterwards.

        Args:
            name: name of the node.
            change: part of the message that is specific to this change.
            read: file of root to read back, such as ``.ssh/id_rsa.pub``.

        Raises:
            SshError: the node cannot be reached.
            SshUpdateError: the tool failed.
        """
        from ganeti.protocols.ssh import client

        message = {
            ssh.SSHS_CLUSTER_NAME: self._cluster,
            ssh.SSHS_NODE_DAEMON_CERTIFICATE: self._pem,
            **change,
        }
        environment = account.node_environment(self._paths, name)
        home = environment.get("GANETI_ROOTDIR", "") + "/root"
        with client.Client(
            name,
            self._port(name),
            self._identity,
            address=self._address(name),
            environment=environment,
        ) as shell:
            argv = [os.path.join(self._paths.tools_dir, "ssh-update")]
            result = shell.run(
                argv, stdin=json.dumps(message), timeout_s=_TOOL_TIMEOUT_S
            )
            if not result.failed and read is not None:
                argv = ["cat", f"{home}/{read}"]
                result = shell.run(argv, timeout_s=_TOOL_TIMEOUT_S)
        if result.failed:
            raise errors.SshUpdateError(
                f"{os.path.basename(argv[0])} {result.reason}: {result.output.strip()}"
            )
        return result.stdout

    def _address(self, name: str) -> str | None:
        return self._ssconf.node_primary_ips().get(name) or netutils.lookup(
            name, self._paths
        )

    def _port(self, name: str) -> int:
        """Return a node's SSH port; for a node that ssconf lacks, this node's port."""
        ports = self._ssconf.ssh_ports()
        return ports.get(name, ports.get(self._paths.hostname, 22))

    def broadcast(self, changes: Mapping[str, Change]) -> list[list[str]]:
        """Change many nodes in parallel; return [node, message] for each failure."""
        with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
            texts = list(pool.map(self._try, changes, changes.values()))
        return [
            [name, text]
            for name, text in zip(changes, texts, strict=True)
            if text is not None
        ]

    def _try(self, name: str, change: Change) -> str | None:
        text = None
        for attempt in range(TRIES):
            try:
                self.apply(name, change)
            except (errors.GenericError, OSError) as err:
                text = str(err)
                _log.warning(
                    "SSH keys of node %s, attempt %d: %s", name, attempt + 1, err
                )
            else:
                return None
        return text


def _authorized(action: str, keys_by_node: Mapping[str, Sequence[str]]) -> Change:
    return {ssh.SSHS_SSH_AUTHORIZED_KEYS: [action, dict(keys_by_node)]}


def _public(action: str, keys_by_node: Mapping[str, Sequence[str]]) -> Change:
    return {ssh.SSHS_SSH_PUBLIC_KEYS: [action, dict(keys_by_node)]}


@procedure("node_ssh_key_add")
def node_ssh_key_add(
    node: LocalNode,
    node_uuid: str,
    node_name: str,
    potential_master_candidates: list[str],
    to_authorized_keys: bool,
    to_public_keys: bool,
    get_public_keys: bool,
) -> list[list[str]]:
    """Distribute a node's public key from the master.

    Args:
        node: this node, the master.
        node_uuid: node whose key is distributed.
        node_name: the node's name; a key recorded under the name is moved to the uuid.
        potential_master_candidates: names of the nodes that keep public keys.
        to_authorized_keys: authorise the key on all nodes.
        to_public_keys: send the key to the potential candidates.
        get_public_keys: send all public keys to the node. One that keeps none gets
            those of candidates in its authorized_keys alone.

    Returns:
        [node name, message] for nodes that could not be changed.

    Raises:
        SshUpdateError: the master does not have the node's key.
    """
    distribution = Distribution(node)
    keeps_keys = node_name in potential_master_candidates
    is_own_used = to_authorized_keys or to_public_keys or not get_public_keys
    if keeps_keys or is_own_used:
        known = _adopt_key(distribution, node_uuid, node_name)
        own = {node_uuid: known[node_uuid]}
    else:
        known, own = (
            _by_uuid(authorized_keys.read_node_keys(distribution.public_path)),
            {},
        )
    changes: dict[str, Change] = {}
    for name in distribution.nodes(node_name):
        allowed = dict(own) if to_authorized_keys else {}
        if name == node_name and get_public_keys:
            # Other nodes may have become candidates since the node received their keys.
            allowed |= {uuid: known[uuid] for uuid in distribution.candidates(known)}
        change = _authorized("add", allowed) if allowed else {}
        if name == node_name and get_public_keys:
            change |= _public("override", known) if keeps_keys else {}
        elif name != node_name and name in potential_master_candidates:
            change |= _public("replace_or_add", own) if to_public_keys else {}
        if change:
            changes[name] = change
    return distribution.broadcast(changes)


def _adopt_key(
    distribution: Distribution, uuid: str, name: str
) -> dict[str, list[str]]:
    """Move a key that was recorded under a node's name; return the keys by uuid."""
    known = authorized_keys.read_node_keys(distribution.public_path)
    if name in known:
        authorized_keys.update_node_keys(
            distribution.public_path, "replace_or_add", {uuid: known[name]}
        )
        authorized_keys.update_node_keys(distribution.public_path, "remove", {name: []})
        known = authorized_keys.read_node_keys(distribution.public_path)
    if not known.get(uuid):
        # A node that could not be a candidate for some time has its key still.
        line = _fetch_key(distribution, name, known)
        authorized_keys.update_node_keys(
            distribution.public_path, "replace_or_add", {uuid: [line]}
        )
        known = authorized_keys.read_node_keys(distribution.public_path)
    return _by_uuid(known)


def _by_uuid(known: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Leave out nodes that are being added: they are still recorded by name."""
    return {key: lines for key, lines in known.items() if _UUID.fullmatch(key)}


def _fetch_key(
    distribution: Distribution, name: str, known: Mapping[str, Sequence[str]]
) -> str:
    """Return the public key of a node, as the node has it.

    Args:
        distribution: connects to the node.
        name: name of the node.
        known: keys of other nodes, which have the same types.

    Raises:
        SshUpdateError: the node cannot be reached or has no such key.
    """
    kinds = {keys.kind_of(line) for lines in known.values() for line in lines}
    problems: list[str] = []
    for kind in sorted(kinds):
        try:
            text = distribution.run_tool(name, {}, read=f".ssh/id_{kind}.pub")
            return keys.one_public_key(text, kind, f"root@{name}")
        except errors.GenericError as err:
            problems.append(str(err))
    raise errors.SshUpdateError(
        f"node {name}: its public SSH key is missing on the master, in"
        f" {distribution.public_path}, and was not obtained from the node:"
        f" {'; '.join(problems) or 'no key of another node shows the type'}"
    )


@procedure("node_ssh_key_remove")
def node_ssh_key_remove(
    node: LocalNode,
    node_uuid: str,
    node_name: str,
    master_candidate_uuids: list[str],
    potential_master_candidates: list[str],
    from_authorized_keys: bool,
    from_public_keys: bool,
    clear_authorized_keys: bool,
    clear_public_keys: bool,
    readd: bool,
) -> list[str]:
    """Withdraw a node's public key, from the master.

    Args:
        node: this node, the master.
        node_uuid: node whose key is withdrawn.
        node_name: the node's name.
        master_candidate_uuids: nodes whose keys ``clear_authorized_keys`` removes.
        potential_master_candidates: names of the nodes that keep public keys.
        from_authorized_keys: remove the key from authorized_keys of all nodes.
        from_public_keys: remove the key from the potential candidates' lists.
        clear_authorized_keys: remove candidates' keys from the node's authorized_keys.
        clear_public_keys: empty the node's list of public keys.
        readd: the node is added again: it may have a new key, and authorises others.

    Returns:
        warnings.
    """
    distribution = Distribution(node)
    known = authorized_keys.read_node_keys(distribution.public_path)
    own = {node_uuid: known.get(node_uuid, [])}
    changes: dict[str, Change] = {}
    for name in distribution.nodes():
        if name == node_name:
            continue
        change: Change = {}
        if from_authorized_keys and own[node_uuid]:
            change |= _authorized("remove", own)
        if from_public_keys and name in potential_master_candidates:
            change |= _public("remove", own)
        if change:
            changes[name] = change
    failed = distribution.broadcast(changes)
    if readd:
        # It may have a new one, which is fetched when it is distributed.
        authorized_keys.update_node_keys(distribution.public_path, "remove", own)
        change = _public("clear", {}) if clear_public_keys else {}
    else:
        candidates = {
            uuid: known[uuid]
            for uuid in master_candidate_uuids
            if uuid != node_uuid and uuid in known
        }
        change = _public("clear", {}) if clear_public_keys else {}
        if clear_authorized_keys and candidates:
            change |= _authorized("remove", candidates)
    if change:
        failed += distribution.broadcast({node_name: change})
    return [f"node {name}: SSH keys not updated: {text}" for name, text in failed]


@procedure("node_ssh_keys_renew")
def node_ssh_keys_renew(
    node: LocalNode,
    node_uuids: list[str],
    node_names: list[str],
    master_candidate_uuids: list[str],
    potential_master_candidates: list[str],
    old_key_type: str,
    new_key_type: str,
    new_key_bits: int,
) -> None:
    """Give each node a new key pair, the master last, so that it keeps its access.

    It can be repeated after an end at any step: until the old keys are withdrawn, the
    lists of public keys have the old and the new ones, so none stays authorised.

    Args:
        node: this node, the master.
        node_uuids: nodes whose keys are replaced.
        node_names: names of these nodes, in the same order.
        master_candidate_uuids: nodes whose keys are authorised on all nodes.
        potential_master_candidates: names of the nodes that keep public keys.
        old_key_type: type of the present pairs.
        new_key_type: type of the new pairs.
        new_key_bits: length of the new keys.

    Raises:
        SshUpdateError: names the nodes that could not be changed.
    """
    del old_key_type  # the recorded public keys identify the keys to replace
    keys.check_type(new_key_type, new_key_bits)
    distribution = Distribution(node)
    names = dict(zip(node_uuids, node_names, strict=True))
    before = authorized_keys.read_node_keys(distribution.public_path)
    make = (new_key_type, new_key_bits)
    renewed, failed = _generate_elsewhere(distribution, names, node, make)
    master = next((u for u, name in names.items() if name == node.paths.hostname), None)
    if master is not None:
        path = keys.root_key_path(node.paths.root_ssh_dir, new_key_type)
        pair = keys.generate(*make, f"root@{node.paths.hostname}")
        keys.save(pair, path + _NEW_SUFFIX)
        renewed[master] = [pair.public.strip()]
    authorized_keys.update_node_keys(distribution.public_path, "add", renewed)
    failed += _announce(
        distribution, renewed, master_candidate_uuids, potential_master_candidates
    )
    if master is not None:
        keys.save(pair, path)
        files.remove_file(path + _NEW_SUFFIX)
        files.remove_file(f"{path}{_NEW_SUFFIX}.pub")
    failed += _withdraw(distribution, before, renewed, potential_master_candidates)
    if failed:
        text = "; ".join(f"node {name}: {message}" for name, message in failed)
        raise errors.SshUpdateError(f"SSH keys not renewed on all nodes: {text}")


def _generate_elsewhere(
    distribution: Distribution,
    names: Mapping[str, str],
    node: LocalNode,
    make: tuple[str, int],
) -> tuple[dict[str, list[str]], list[list[str]]]:
    """Create new pairs on all nodes but this one; return their keys, and failures."""
    kind, bits = make
    renewed: dict[str, list[str]] = {}
    failed: list[list[str]] = []
    online = distribution.nodes()
    for uuid, name in names.items():
        if name == node.paths.hostname or name not in online:
            continue
        change = {ssh.SSHS_GENERATE: [kind, bits, ""]}
        try:
            text = distribution.run_tool(name, change, read=f".ssh/id_{kind}.pub")
            line = keys.one_public_key(text, kind, f"root@{name}")
        except errors.GenericError as err:
            failed.append([name, str(err)])
        else:
            renewed[uuid] = [line]
    return renewed, failed


def _announce(
    distribution: Distribution,
    renewed: Mapping[str, list[str]],
    candidates: Sequence[str],
    potential: Sequence[str],
) -> list[list[str]]:
    """Add the new keys on all nodes, while the old keys are still valid."""
    known = authorized_keys.read_node_keys(distribution.public_path)
    allowed = {uuid: renewed[uuid] for uuid in candidates if uuid in renewed}
    changes: dict[str, Change] = {}
    for name in distribution.nodes():
        change = _authorized("add", allowed) if allowed else {}
        if name in potential:
            change |= _public("override", known)
        if change:
            changes[name] = change
    return distribution.broadcast(changes)


def _withdraw(
    distribution: Distribution,
    before: Mapping[str, list[str]],
    renewed: Mapping[str, list[str]],
    potential: Sequence[str],
) -> list[list[str]]:
    """Remove the replaced keys from all nodes."""
    old = {
        uuid: [line for line in before.get(uuid, []) if line not in lines]
        for uuid, lines in renewed.items()
    }
    old = {uuid: lines for uuid, lines in old.items() if lines}
    changes: dict[str, Change] = {}
    for name in distribution.nodes():
        change = _authorized("remove", old) if old else {}
        # The list of this node is last: it names the keys to withdraw if this is cut
        # short, or if a node does not answer.
        if name in potential and name != distribution.hostname:
            change |= _public("replace_or_add", renewed)
        if change:
            changes[name] = change
    failed = distribution.broadcast(changes)
    if not failed:
        authorized_keys.update_node_keys(
            distribution.public_path, "replace_or_add", renewed
        )
    return failed
