"""Procedures for the master role: its daemons and its address."""

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import network
from ganeti.base.constants.protocols import hooks
from ganeti.base.filesystem import pidfile
from ganeti.base.net import netutils
from ganeti.node.calls import scripts
from ganeti.node.calls.registry import LocalNode, procedure

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
        version = network.IP6_VERSION if self.ip_family == 10 else network.IP4_VERSION
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
