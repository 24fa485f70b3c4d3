"""SSH host keys of this node: the present ones, and their replacement in steps.

New keys wait in files of their own until the master has recorded them and all nodes
know them; then `use` takes them into use. Each step can be repeated after an end.
"""

import os
import threading
from collections.abc import Callable
from typing import Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.node.calls.membership import master
from ganeti.node.calls.registry import LocalNode
from ganeti.protocols.ssh import host_keys, keys

#: Suffix of the files of keys that wait.
WAITING: Final = ".ganeti-new"
#: Lengths that `ssh-keygen -A` chooses.
_BITS: Final = {"rsa": 3072}
#: Seconds until a reloaded SSH server must present the new keys.
_RELOAD_S: Final = 10.0
_PAUSE_S: Final = 0.1


def present(node: LocalNode) -> tuple[str, ...]:
    """Return the keys in the usual files, and those that the SSH server presents.

    Raises:
        OpPrereqError: a file is damaged, or the server uses other files.
        SshError: the server does not answer.
    """
    in_files = host_keys.own(node.paths.sshd_dir)
    presented = _presented(node)
    if in_files and not set(in_files) & set(presented):
        # Files that were replaced without a reload, or keys in other files.
        master.daemon_util(node, "reload-ssh-keys")
        presented = _when(node, lambda shown: bool(set(in_files) & set(shown)))
    if not set(in_files) & set(presented):
        raise errors.OpPrereqError(
            f"node {node.paths.hostname}: its SSH server does not present the host keys"
            f" in {node.paths.sshd_dir}/ssh_host_*_key, but those of other files",
            "wrong_state",
        )
    return tuple(dict.fromkeys((*in_files, *presented)))


def make(node: LocalNode) -> tuple[str, ...]:
    """Make new keys of the types that this node has, unless they wait; return them."""
    directory = node.paths.sshd_dir
    for kind in keys.ALGORITHMS:
        path = keys.host_key_path(directory, kind)
        if not os.path.exists(path):
            continue
        try:
            keys.load(path + WAITING)
        except errors.OpPrereqError:
            # Missing, or half of it: nobody knows it yet.
            files.remove_file(path + WAITING)
            comment = f"root@{node.paths.hostname}"
            keys.save(keys.generate(kind, _BITS.get(kind), comment), path + WAITING)
    return host_keys.own(directory, WAITING)


def use(node: LocalNode) -> tuple[str, ...]:
    """Take the waiting keys into use; return what the SSH server presents then.

    The replaced keys stay beside the new ones, as backups.

    Raises:
        OpExecError: the server cannot be reloaded.
        SshError: it does not answer, or presents other keys.
    """
    directory = node.paths.sshd_dir
    waiting = []
    for kind in keys.ALGORITHMS:
        path = keys.host_key_path(directory, kind)
        if os.path.exists(f"{path}{WAITING}.pub"):
            keys.save(keys.load(path + WAITING), path)
            waiting.append(path + WAITING)
    master.daemon_util(node, "reload-ssh-keys")
    presented = _reloaded(node)
    for path in waiting:
        files.remove_file(f"{path}.pub")
        files.remove_file(path)
    return presented


def _reloaded(node: LocalNode) -> tuple[str, ...]:
    """Return the presented keys, when they are those in the files."""
    wanted = set(host_keys.own(node.paths.sshd_dir))
    presented = _when(node, lambda shown: set(shown) <= wanted)
    if not set(presented) <= wanted:
        raise errors.SshError(
            f"node {node.paths.hostname}: its SSH server presents other host keys"
            f" than those in {node.paths.sshd_dir}/ssh_host_*_key; restart it"
        )
    return presented


def _when(
    node: LocalNode, is_wanted: Callable[[tuple[str, ...]], bool]
) -> tuple[str, ...]:
    """Return the presented keys of a reloaded server, at last those after a time.

    The server may refuse connections for a moment: it gives its socket up and opens it
    again, and nothing waits for that where systemd does not run.

    Raises:
        SshError: it does not answer in all that time.
    """
    deadline = node.clock.monotonic() + _RELOAD_S
    while True:
        is_late = node.clock.monotonic() > deadline
        try:
            presented = _presented(node)
        except errors.SshError:
            if is_late:
                raise
        else:
            if is_late or is_wanted(presented):
                return presented
        node.clock.wait(threading.Event(), _PAUSE_S)


def _presented(node: LocalNode) -> tuple[str, ...]:
    from ganeti.protocols.ssh import client

    name = node.paths.hostname
    port = node.ssconf.ssh_ports().get(name, 22)
    return client.presented_keys(name, node.ssconf.node_primary_ips()[name], port)
