"""``ssh-update``: change the SSH key lists of a node; the master runs it there."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import ssh
from ganeti.base.pathutils import Paths
from ganeti.bootstrap import crypto
from ganeti.protocols.ssh import authorized_keys, keys
from ganeti.tools import common

_log = logging.getLogger(__name__)
NAME: Final = "ssh-update"
_AUTHORIZED_ACTIONS: Final = ("add", "remove")
_PUBLIC_ACTIONS: Final = ("add", "replace_or_add", "remove", "override", "clear")


def _is_change(*actions: str) -> common.Check:
    """Return a check of ``[action, {uuid: [keys]}]``."""

    def check(value: Any) -> None:
        if not isinstance(value, list) or len(value) != 2 or value[0] not in actions:
            raise ValueError(f"[one of {', '.join(actions)}, {{uuid: [keys]}}]")
        common.is_key_lists(value[1])

    return check


def _is_generate(value: Any) -> None:
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError("[key type, bits, file name suffix]")
    kind, bits, suffix = value
    common.is_text(kind)
    common.is_positive(bits)
    if not isinstance(suffix, str) or "/" in suffix:
        raise ValueError("a file name suffix without slashes")


_INPUT: Final[dict[str, common.Check]] = {
    ssh.SSHS_CLUSTER_NAME: common.is_text,
    ssh.SSHS_NODE_DAEMON_CERTIFICATE: common.is_text,
    ssh.SSHS_SSH_PUBLIC_KEYS: _is_change(*_PUBLIC_ACTIONS),
    ssh.SSHS_SSH_AUTHORIZED_KEYS: _is_change(*_AUTHORIZED_ACTIONS),
    ssh.SSHS_GENERATE: _is_generate,
    ssh.SSHS_SSH_KEY_TYPE: common.is_text,
    ssh.SSHS_SSH_KEY_BITS: common.is_positive,
}


def main() -> int:
    """Run the tool."""
    return common.run_with_message(
        NAME,
        "Changes SSH keys of a node.",
        _INPUT,
        lambda paths, message, dry_run: update(paths, message, dry_run=dry_run),
    )


def update(paths: Paths, message: Mapping[str, Any], *, dry_run: bool) -> None:
    """Change the key files according to the message.

    Raises:
        OpPrereqError: this node is in another cluster.
    """
    common.check_cluster(paths, message)
    if dry_run:
        _log.info("dry run: nothing is written")
        return
    if ssh.SSHS_SSH_AUTHORIZED_KEYS in message:
        action, by_node = message[ssh.SSHS_SSH_AUTHORIZED_KEYS]
        change_authorized(paths, action, by_node)
    if ssh.SSHS_SSH_PUBLIC_KEYS in message:
        action, by_node = message[ssh.SSHS_SSH_PUBLIC_KEYS]
        authorized_keys.update_node_keys(
            paths.data(crypto.PUBLIC_KEYS), action, by_node
        )
    if ssh.SSHS_GENERATE in message:
        kind, bits, suffix = message[ssh.SSHS_GENERATE]
        generate(paths, kind, bits, suffix)


def change_authorized(
    paths: Paths, action: str, by_node: Mapping[str, list[str]]
) -> None:
    """Add or remove keys of root's authorized_keys."""
    lines = [line for of_node in by_node.values() for line in of_node]
    path = crypto.authorized_keys_path(paths)
    if action == "add":
        for line in lines:
            keys.kind_of(line)
        authorized_keys.add(path, lines)
    elif action == "remove":
        authorized_keys.remove(path, lines)
    else:
        raise errors.SshUpdateError(f"authorized keys: unknown action {action!r}")


def generate(paths: Paths, kind: str, bits: int, suffix: str) -> None:
    """Generate a new key pair of root next to the present one."""
    authorized_keys.ensure_directory(paths.root_ssh_dir)
    path = keys.root_key_path(paths.root_ssh_dir, kind) + suffix
    keys.save(keys.generate(kind, bits, f"root@{paths.hostname}"), path)
