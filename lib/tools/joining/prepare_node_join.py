"""``prepare-node-join``: install a cluster's SSH keys on a machine that joins it.

Runs on the new node, over SSH, as the first step of ``gnt-node add``.
"""

import logging
import os
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import ssh
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner, SystemRunner
from ganeti.bootstrap import crypto
from ganeti.node.services import Services
from ganeti.protocols.ssh import authorized_keys, keys
from ganeti.tools import common

_SSH_DEFAULT_KEY_TYPE: Final = "rsa"

_log = logging.getLogger(__name__)
NAME: Final = "prepare-node-join"
_INPUT: Final[dict[str, common.Check]] = {
    ssh.SSHS_CLUSTER_NAME: common.is_text,
    ssh.SSHS_NODE_DAEMON_CERTIFICATE: common.is_text,
    ssh.SSHS_SSH_HOST_KEY: common.is_key_triples,
    ssh.SSHS_SSH_ROOT_KEY: common.is_key_triples,
    ssh.SSHS_SSH_AUTHORIZED_KEYS: common.is_key_lists,
    ssh.SSHS_SSH_KEY_TYPE: common.is_text,
    ssh.SSHS_SSH_KEY_BITS: common.is_positive,
}


def main() -> int:
    """Run the tool."""
    return common.run_with_message(
        NAME,
        "Prepares SSH on a new node.",
        _INPUT,
        lambda paths, message, dry_run: prepare(
            paths, SystemRunner(), message, dry_run=dry_run
        ),
    )


def prepare(
    paths: Paths, process: Runner, message: Mapping[str, Any], *, dry_run: bool
) -> None:
    """Install host keys, root's key pair and the keys of the candidates.

    Raises:
        OpPrereqError: this node is in another cluster, lacks users of daemons, or a
            key is malformed.
    """
    common.check_cluster(paths, message)
    Services(paths, process).check_users()
    if update_host_keys(paths, message.get(ssh.SSHS_SSH_HOST_KEY, []), dry_run=dry_run):
        Services(paths, process).reload_sshd()
    kind = message.get(ssh.SSHS_SSH_KEY_TYPE, _SSH_DEFAULT_KEY_TYPE)
    bits = keys.check_type(kind, message.get(ssh.SSHS_SSH_KEY_BITS))
    allowed = [
        line
        for lines in message.get(ssh.SSHS_SSH_AUTHORIZED_KEYS, {}).values()
        for line in lines
    ]
    for line in allowed:
        keys.kind_of(line)
    if dry_run:
        _log.info("dry run: root's keys are not changed")
        return
    crypto.ensure_root_key(paths, kind, bits)
    added = authorized_keys.add(crypto.authorized_keys_path(paths), allowed)
    _log.info("%d keys were authorised", added)


def update_host_keys(paths: Paths, triples: list[list[str]], *, dry_run: bool) -> bool:
    """Install host keys; return whether the SSH server must load them.

    Raises:
        OpPrereqError: a key's type differs from the stated one.
    """
    changed = False
    for kind, private, public in triples:
        if keys.kind_of(public) != kind:
            raise errors.OpPrereqError(
                f"host key of type {kind}: its public part is of type"
                f" {keys.kind_of(public)}",
                ecodes.ECODE_INVAL,
            )
        path = keys.host_key_path(paths.sshd_dir, kind)
        if os.path.exists(path) and files.read_file(path).decode() == private:
            continue
        _log.info("host key %s is replaced", path)
        if not dry_run:
            keys.save(keys.KeyPair(kind, private, public), path)
            changed = True
    return changed
