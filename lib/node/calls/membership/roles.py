"""Procedures for the roles of a node: master, candidate, member; its power cycle.

The master has daemons and an address of the cluster. A candidate that is demoted, and
a node that leaves the cluster, lose their secrets.
"""

import contextlib
import glob
import logging
import os
import shutil
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import misc
from ganeti.base.constants.protocols import hooks
from ganeti.base.filesystem import files, pidfile
from ganeti.base.net import netutils
from ganeti.node.calls import scripts
from ganeti.node.calls.registry import LastAnswer, LocalNode, procedure
from ganeti.node.hypervisor import Hypervisor
from ganeti.protocols.ssh import authorized_keys, keys

_IP4_VERSION: Final = 4
_IP6_VERSION: Final = 6

_MASTERD: Final = "ganeti-masterd"
#: Options that start a master without a vote.
_NO_VOTING: Final = "--no-voting --yes-do-it"
#: Longest time to add or remove an address and announce it to neighbours, in seconds.
_SCRIPT_TIMEOUT_S: Final = 60.0


class MasterParams(msgspec.Struct, frozen=True):
    """The address of the cluster; ``ip_family`` is the number of ``AF_*``."""

    uuid: str
    ip: str
    netmask: int
    netdev: str
    ip_family: int

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the set-up script."""
        version = _IP6_VERSION if self.ip_family == 10 else _IP4_VERSION
        return {
            "MASTER_NETDEV": self.netdev,
            "MASTER_IP": self.ip,
            "MASTER_NETMASK": str(self.netmask),
            "CLUSTER_IP_VERSION": str(version),
        }


def is_master_running(node: LocalNode) -> bool:
    """Return whether the master daemon runs on this node."""
    return pidfile.is_locked(node.paths.pid_file(_MASTERD))


def daemon_util(
    node: LocalNode, *args: str, env: Mapping[str, str] | None = None
) -> None:
    """Run the daemon helper.

    Raises:
        OpExecError: the helper failed; has its output.
    """
    full = {"PATH": hooks.HOOKS_PATH, "LC_ALL": "C", **(env or {})}
    if node.paths.is_virtual:
        full["GANETI_ROOTDIR"] = node.paths.root
        full["GANETI_HOSTNAME"] = node.paths.hostname
    program = node.paths.daemon_util
    # A started daemon keeps its outputs open: they must not be pipes to this process.
    result = node.process.run([program, *args], env=full, output_file=_daemon_log(node))
    if result.failed:
        raise errors.OpExecError(
            f"daemon-util {' '.join(args)} {result.reason}, see {_daemon_log(node)}"
        )


def _daemon_log(node: LocalNode) -> str:
    os.makedirs(node.paths.log_dir, exist_ok=True)
    return f"{node.paths.log_dir}/daemon-util.log"


@procedure("node_start_master_daemons")
def node_start_master_daemons(node: LocalNode, no_voting: bool) -> None:
    """Start the daemons of the master role."""
    extra = _NO_VOTING if no_voting else ""
    daemon_util(node, "start-master", env={"EXTRA_MASTERD_ARGS": extra})


@procedure("node_stop_master")
def node_stop_master(node: LocalNode) -> None:
    """Stop the daemons of the master role."""
    daemon_util(node, "stop-master")


@procedure("node_activate_master_ip")
def node_activate_master_ip(
    node: LocalNode, master_params: MasterParams, use_external_mip_script: bool
) -> None:
    """Add the address of the cluster to this machine."""
    with_hooks = (hooks.FAKE_OP_MASTER_TURNUP, "master-ip-turnup")
    _switch_address(node, master_params, "start", use_external_mip_script, with_hooks)


@procedure("node_deactivate_master_ip")
def node_deactivate_master_ip(
    node: LocalNode, master_params: MasterParams, use_external_mip_script: bool
) -> None:
    """Remove the address of the cluster from this machine."""
    with_hooks = (hooks.FAKE_OP_MASTER_TURNDOWN, "master-ip-turndown")
    _switch_address(node, master_params, "stop", use_external_mip_script, with_hooks)


def _switch_address(
    node: LocalNode,
    params: MasterParams,
    action: str,
    is_external: bool,
    with_hooks: tuple[str, str],
) -> None:
    """Run the set-up script between its hooks.

    Raises:
        OpExecError: a hook before it, or the script itself, failed.
    """
    op_id, hook = with_hooks
    env = _hook_environment(node, params, op_id, hook)
    before = {**env, "GANETI_HOOKS_PHASE": hooks.HOOKS_PHASE_PRE}
    for script, status, output in scripts.run_hooks(node, hook, "pre", before):
        if status == hooks.HKR_FAIL:
            raise errors.OpExecError(f"hook {script} failed: {output.strip()}")
    _run_script(node, params, action, is_external=is_external)
    own = {f"GANETI_POST_{key}": value for key, value in params.environment.items()}
    after = {**env, **own, "GANETI_HOOKS_PHASE": hooks.HOOKS_PHASE_POST}
    scripts.run_hooks(node, hook, "post", after)


def _run_script(
    node: LocalNode, params: MasterParams, action: str, *, is_external: bool
) -> None:
    program = f"{node.paths.tools_dir}/master-ip-setup"
    if is_external:
        program = f"{node.paths.conf_dir}/scripts/master-ip-setup"
    result = node.process.run(
        [program, action],
        env={"PATH": hooks.HOOKS_PATH, **params.environment},
        timeout_s=_SCRIPT_TIMEOUT_S,
    )
    if result.failed:
        raise errors.OpExecError(
            f"cannot {action} the address {params.ip} of the cluster: {program}"
            f" {result.reason}: {result.output.strip()}"
        )


def _hook_environment(
    node: LocalNode, params: MasterParams, op_id: str, hook: str
) -> dict[str, str]:
    return {
        "PATH": hooks.HOOKS_PATH,
        "GANETI_HOOKS_VERSION": str(hooks.HOOKS_VERSION),
        "GANETI_OP_CODE": op_id,
        "GANETI_DATA_DIR": node.paths.data_dir,
        "GANETI_HOOKS_PATH": hook,
        "GANETI_OBJECT_TYPE": hooks.HTYPE_CLUSTER,
        "GANETI_CLUSTER": node.ssconf.get_or("cluster_name", ""),
        "GANETI_MASTER": node.ssconf.get_or("master_node", ""),
        **{f"GANETI_{key}": value for key, value in params.environment.items()},
    }


@procedure("node_change_master_netmask")
def node_change_master_netmask(
    node: LocalNode, old_netmask: int, netmask: int, master_ip: str, master_netdev: str
) -> None:
    """Change the prefix length of the cluster's address.

    Raises:
        OpExecError: this machine does not have the address, or the kernel refused.
    """
    del node
    if old_netmask == netmask or netutils.is_loopback(master_ip):
        return
    if not netutils.owns_address(master_ip):
        raise errors.OpExecError(f"address {master_ip}: not on this machine")
    try:
        netutils.add_address(master_netdev, master_ip, netmask)
        netutils.remove_address(master_netdev, master_ip, old_netmask)
    except errors.IPAddressError as err:
        raise errors.OpExecError(f"cannot change the netmask: {err}") from err


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
    if is_master_running(node):
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
        daemon_util(node, "stop", name)
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
        daemon_util(node, "check-and-start" if run else "stop", daemon)
    except errors.OpExecError as err:
        _log.warning("%s", err)
        return False
    return True
