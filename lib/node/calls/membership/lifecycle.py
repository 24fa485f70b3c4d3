"""Procedures that change this node's role, membership and power state."""

import contextlib
import glob
import logging
import os
import shutil
import threading
from collections.abc import Iterable
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import misc
from ganeti.base.filesystem import files
from ganeti.node.calls.membership import master
from ganeti.node.calls.registry import LastAnswer, LocalNode, procedure
from ganeti.node.hypervisor import Hypervisor
from ganeti.protocols.ssh import authorized_keys, keys

_log = logging.getLogger(__name__)

#: Seconds between the reply and the reset: the caller must receive the reply.
POWERCYCLE_DELAY_S: Final = 5.0
#: Directories of the state directory that end with the node's membership.
_STATE_DIRS: Final = ("queue", "rapi", "kvm")
#: Secrets of master candidates, in the state directory.
_CANDIDATE_SECRETS: Final = ("config.data", "store.db", *misc.CANDIDATE_FILES)
#: Files with keys that a node has as a member.
_MEMBER_SECRETS: Final = ("client.pem", "server.pem", "hmac.key")
#: Daemons that do not run on a node without a cluster.
_OTHER_DAEMONS: Final = (
    "ganeti-standby",
    "ganeti-confd",
    "ganeti-mond",
    "ganeti-kvmd",
)
_STANDBY: Final = "ganeti-standby"
#: The only daemons that the master may start and stop by name.
_HELPER_DAEMONS: Final = ("ganeti-kvmd", _STANDBY)


@procedure("node_demote_from_mc")
def node_demote_from_mc(node: LocalNode) -> None:
    """Remove this node's copies of the configuration, and the secrets of candidates.

    No backup is kept, also none of an earlier renewal of secrets or upgrade: the copies
    have private parameters of all instances. Changes that only they may have are listed
    by ``gnt-cluster lost-changes``.

    Raises:
        OpPrereqError: this node is the master.
    """
    if node.ssconf.master_node() == node.paths.hostname:
        raise errors.OpPrereqError(
            "this node is the master, according to ssconf", "wrong_state"
        )
    if master.is_master_running(node):
        raise errors.OpPrereqError("the master daemon runs on this node", "wrong_state")
    # It writes the copy of a store in etcd.
    _stop_other(node, _STANDBY)
    node.replica.close()
    node.replica.purge(node.newest_term)
    for name in ("config.data", *misc.CANDIDATE_FILES):
        files.remove_file(node.paths.data(name))
        files.remove_unfinished(node.paths.data(name))
    # Copies that upgrades and replaced histories leave beside the store.
    for path in glob.glob(f"{glob.escape(node.paths.store_db)}.*"):
        files.remove_file(path)
    _remove_backups(node, _CANDIDATE_SECRETS)


@procedure("node_leave_cluster")
def node_leave_cluster(node: LocalNode, modify_ssh_setup: bool) -> LastAnswer:
    """Remove all files of the cluster; the daemon ends after the answer."""
    for name in _OTHER_DAEMONS:
        _stop_other(node, name)
    node.replica.leave()
    _wipe(node)
    _remove_backups(node, _CANDIDATE_SECRETS + _MEMBER_SECRETS)
    if modify_ssh_setup:
        _forget_ssh_keys(node)
    return LastAnswer("Shutdown scheduled")


def _stop_other(node: LocalNode, name: str) -> None:
    if not os.path.exists(node.paths.pid_file(name)):
        return
    try:
        master.daemon_util(node, "stop", name)
    except errors.GenericError as err:
        _log.warning("leaving the cluster: %s", err)


def _wipe(node: LocalNode) -> None:
    """Remove all files of the state directory and all secrets."""
    with (
        contextlib.suppress(FileNotFoundError),
        os.scandir(node.paths.data_dir) as all_,
    ):
        for entry in all_:
            if entry.is_file(follow_symlinks=False) or entry.is_symlink():
                os.unlink(entry.path)
    for name in _STATE_DIRS:
        shutil.rmtree(node.paths.data(name), ignore_errors=True)
    shutil.rmtree(f"{node.paths.run_dir}/crypto", ignore_errors=True)


def _remove_backups(node: LocalNode, names: Iterable[str]) -> None:
    """Remove the backups of files of the state directory."""
    for name in names:
        path = node.paths.data(name)
        count = files.remove_backups(path, node.paths.backup_dir)
        if count:
            _log.info("%s: %d backups with secrets removed", path, count)


def _forget_ssh_keys(node: LocalNode) -> None:
    """Remove root's key pairs, and their entries in authorized_keys."""
    directory = node.paths.root_ssh_dir
    for kind in ("rsa", "dsa", "ecdsa", "ed25519"):
        private = keys.root_key_path(directory, kind)
        with contextlib.suppress(FileNotFoundError):
            public = files.read_file(f"{private}.pub").decode(errors="replace")
            authorized_keys.remove(f"{directory}/authorized_keys", [public])
        files.remove_file(private)
        files.remove_file(f"{private}.pub")


@procedure("node_powercycle")
def node_powercycle(node: LocalNode, hypervisor: str, hvparams: dict[str, Any]) -> str:
    """Schedule the reset of this machine; see `ganeti.node.calls.power`."""
    del hvparams
    driver = node.hypervisors.get(hypervisor)
    _log.critical("power cycle requested, in %g seconds", POWERCYCLE_DELAY_S)
    later = threading.Thread(
        target=_cycle, args=(node, driver), name="power", daemon=True
    )
    try:
        later.start()
    except RuntimeError:
        # No thread can be started: the machine is failing, and the reset matters more.
        _cycle(node, driver)
    return f"Reboot scheduled in {POWERCYCLE_DELAY_S:g} seconds"


def _cycle(node: LocalNode, driver: Hypervisor | None) -> None:
    node.clock.wait(threading.Event(), POWERCYCLE_DELAY_S)
    for cycle in (node.power.cycle, driver.reset_host if driver else None):
        try:
            if cycle is not None:
                cycle()
        except (OSError, errors.GenericError) as err:
            _log.critical("power cycle failed: %s", err)


@procedure("node_ensure_daemon")
def node_ensure_daemon(node: LocalNode, daemon: str, run: bool) -> bool:
    """Start or stop a helper daemon; return whether this succeeded.

    Raises:
        OpPrereqError: the master may not control this daemon.
    """
    if daemon not in _HELPER_DAEMONS:
        raise errors.OpPrereqError(
            f"daemon {daemon}: only {' and '.join(_HELPER_DAEMONS)} are controlled by"
            " the master",
            "wrong_input",
        )
    try:
        master.daemon_util(node, "check-and-start" if run else "stop", daemon)
    except errors.OpExecError as err:
        _log.warning("%s", err)
        return False
    return True
